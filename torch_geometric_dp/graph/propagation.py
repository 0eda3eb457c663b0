"""Hops over a public graph: the mean over a node and its neighbours."""
import torch
from torch import Tensor

from torch_geometric_dp.graph.sparse import by_target, to_csr


def mean_adjacency(edge_index: Tensor, num_nodes: int) -> Tensor:
    r"""The matrix of one hop as a sparse CSR tensor: row :math:`v` holds the
    weights of the mean over :math:`v` and all :math:`u` with an edge to
    :math:`v`, each of them once.

    .. code-block:: python

        edge_index = torch.tensor([[0, 1], [1, 0]])
        mean_adjacency(edge_index, num_nodes=2).to_dense()[0]
        # tensor([0.5000, 0.5000])
    """
    loops = torch.arange(num_nodes, device=edge_index.device).expand(2, -1)
    edges = by_target(torch.cat([edge_index, loops], dim=1), num_nodes)
    degree = edges[1].bincount(minlength=num_nodes)
    return to_csr(edges, num_nodes, degree.float().reciprocal()[edges[1]])


def propagate(adjacency: Tensor, x: Tensor, hops: int) -> Tensor:
    """As many hops of a sparse adjacency over all columns of :obj:`x`.

    .. code-block:: python

        adjacency = mean_adjacency(data.edge_index, data.num_nodes)
        propagate(adjacency, data.x, hops=2).shape   # torch.Size([30, 4])
    """
    for _ in range(hops):
        x = adjacency @ x
    return x
