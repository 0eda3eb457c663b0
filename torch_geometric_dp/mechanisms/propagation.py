"""Hops over a public graph: the mean over a node and its neighbours."""
import torch
from torch import Tensor
from torch_geometric.utils import to_torch_csr_tensor

# Columns go in blocks that stay in the cache for all hops.
_BLOCK_CELLS = 2**18
_LEAST_COLUMNS = 64


def mean_adjacency(edge_index: Tensor, num_nodes: int,
                   dtype: torch.dtype = torch.float) -> Tensor:
    r"""The matrix of one hop as a sparse CSR tensor: row :math:`v` holds the
    weights of the mean over :math:`v` and all :math:`u` with an edge to
    :math:`v`, each of them once.

    .. code-block:: python

        edge_index = torch.tensor([[0, 1], [1, 0]])
        mean_adjacency(edge_index, num_nodes=2).to_dense()[0]  # tensor([0.5
    """
    loop = torch.arange(num_nodes, device=edge_index.device)
    index = torch.cat([edge_index.flip(0).long(), loop.expand(2, -1)], dim=1)
    index = torch.unique(index[0] * num_nodes + index[1])
    row = torch.div(index, num_nodes, rounding_mode='floor')
    degree = row.bincount(minlength=num_nodes)
    weight = degree.to(dtype).reciprocal()[row]
    return to_torch_csr_tensor(torch.stack([row, index - row * num_nodes]),
                               weight, (num_nodes, num_nodes), True)


def propagate(adjacency: Tensor, x: Tensor, hops: int) -> Tensor:
    """As many hops of a sparse adjacency over all columns of :obj:`x`.

    .. code-block:: python

        adjacency = mean_adjacency(data.edge_index, data.num_nodes)
        propagate(adjacency, data.x, hops=2).shape  # torch.Size([30, 4])
    """
    for _ in range(hops):
        x = adjacency @ x
    return x
