"""The edges of a graph, in whatever form a layer gets them, each of them
once: a sensitivity holds for edges that count once.
"""
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from torch_geometric_dp.graph.pairs import check_edge_index
from torch_geometric_dp.graph.sparse import by_target


def distinct_edges(adjacency: Any, num_nodes: int) -> Tensor:
    """Source and target of every edge of :obj:`edge_index` or of a transposed
    sparse matrix, in the order of the targets, without repetitions.
    """
    if isinstance(adjacency, EdgeIndex):
        adjacency = adjacency.as_tensor()
    if isinstance(adjacency, SparseTensor) or is_torch_sparse_tensor(adjacency):
        adjacency = _from_sparse(adjacency, num_nodes)
    check_edge_index(adjacency, num_nodes)
    return by_target(adjacency, num_nodes)


def _from_sparse(adjacency: Any, num_nodes: int) -> Tensor:
    size = tuple(adjacency.sparse_sizes() if isinstance(
        adjacency, SparseTensor) else adjacency.shape)
    if size != (num_nodes, num_nodes):
        raise ValueError(f"'edge_index' must have shape [{num_nodes}, "
                         f"{num_nodes}] as a sparse matrix (got {list(size)})")
    if is_torch_sparse_tensor(adjacency) and (adjacency.layout ==
                                              torch.sparse_coo):
        # As they stand there: PyG would take them for coalesced.
        index, value = adjacency._indices(), adjacency._values()
    else:
        index, value = to_edge_index(adjacency)
    if not (value == 1).all():
        raise ValueError("'edge_index' must hold ones as a sparse matrix: a "
                         "weighted sum has another sensitivity "
                         "(got others)")
    flipped: Tensor = index.flip(0)
    return flipped


def edge_index_of(store: Any) -> Any:
    """The edges of a store, without what PyG may have noted about their order.
    """
    edge_index = store['edge_index']
    return (edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else
            edge_index)
