"""The edges of a graph, in whatever form a layer gets them, each of them
once: a sensitivity holds for edges that count once.
"""
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from torch_geometric_dp.mechanisms.pairs import check_edge_index
from torch_geometric_dp.mechanisms.sparse import by_target


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
        raise ValueError(f"'edge_index' must hold ones as a sparse matrix: a "
                         f"weighted sum has another sensitivity "
                         f"(got {float(value[value != 1][0])})")
    flipped: Tensor = index.flip(0)
    return flipped
