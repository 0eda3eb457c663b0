"""Hops over a public graph: the mean over a node and its neighbours."""
import warnings

import torch
from torch import Tensor
from torch_geometric.utils import to_torch_csr_tensor


def mean_adjacency(edge_index: Tensor, num_nodes: int) -> Tensor:
    r"""The matrix of one hop as a sparse CSR tensor: row :math:`v` holds the
    weights of the mean over :math:`v` and all :math:`u` with an edge to
    :math:`v`, each of them once.

    .. code-block:: python

        edge_index = torch.tensor([[0, 1], [1, 0]])
        mean_adjacency(edge_index, num_nodes=2).to_dense()[0]
        # tensor([0.5000, 0.5000])
    """
    loop = torch.arange(num_nodes, device=edge_index.device)
    source, target = (torch.cat([end.long(), loop]) for end in edge_index)
    # By sorting: many times faster than the hashing of `torch.unique`.
    pairs = (target * num_nodes + source).sort().values
    pairs = torch.unique_consecutive(pairs)
    target = pairs.div(max(num_nodes, 1), rounding_mode='floor')
    degree = target.bincount(minlength=num_nodes)
    weight = degree.float().reciprocal()[target]
    index = torch.stack([target, pairs - target * num_nodes])
    with warnings.catch_warnings():  # That CSR tensors are new.
        warnings.simplefilter('ignore')
        adjacency: Tensor = to_torch_csr_tensor(
            index, weight, (num_nodes, num_nodes), is_coalesced=True)
    return adjacency


def propagate(adjacency: Tensor, x: Tensor, hops: int) -> Tensor:
    """As many hops of a sparse adjacency over all columns of :obj:`x`.

    .. code-block:: python

        adjacency = mean_adjacency(data.edge_index, data.num_nodes)
        propagate(adjacency, data.x, hops=2).shape   # torch.Size([30, 4])
    """
    for _ in range(hops):
        x = adjacency @ x
    return x
