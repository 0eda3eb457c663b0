"""Edges as a sparse matrix, whose rows are the targets: each of them once."""
import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_dp._jit import jit

Nodes = NDArray[np.int64]

_MANY = 32  # Where moving numbers one by one takes longer than a real sort.


def by_target(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Source and target of every edge, in the order of the targets, and of the
    sources at each of them, without repetitions.
    """
    source, target = edge_index.cpu().numpy().astype(np.int64, copy=False)
    edges = np.empty((2, len(source)), np.int64)
    count = _fill(np.ascontiguousarray(source), np.ascontiguousarray(target),
                  np.zeros(num_nodes + 1, np.int64), edges)
    return torch.from_numpy(edges[:, :count]).contiguous().to(edge_index.device)


@jit
def _fill(source: Nodes, target: Nodes, ends: Nodes, edges: Nodes) -> int:
    # Edges are counted and put in their places: time is linear in their number,
    # where a sort of all of them is not. Returns how many are different.
    for node in target:
        ends[node + 1] += 1
    for node in range(ends.size - 1):
        ends[node + 1] += ends[node]
    sources = edges[0]
    for i in range(source.size):
        sources[ends[target[i]]] = source[i]
        ends[target[i]] += 1  # In the end, that of the node's own edges.
    count, start = 0, 0
    for node in range(ends.size - 1):
        _sort(sources, start, ends[node])
        for i in range(start, ends[node]):
            if i == start or sources[i] != sources[count - 1]:
                sources[count], edges[1, count] = sources[i], node
                count += 1
        start = ends[node]
    return count


@jit
def _sort(values: Nodes, start: int, end: int) -> None:
    if end - start > _MANY:
        values[start:end].sort()
        return
    for i in range(start + 1, end):
        value = values[i]
        while i > start and values[i - 1] > value:
            values[i] = values[i - 1]
            i -= 1
        values[i] = value


def to_csr(edges: Tensor, num_nodes: int, values: Tensor) -> Tensor:
    """The transposed sparse matrix of what :func:`by_target` returned."""
    source, target = edges
    first = source.new_zeros(num_nodes + 1)
    first[1:] = target.bincount(minlength=num_nodes).cumsum(0)
    with warnings.catch_warnings():  # That such tensors are in beta state.
        warnings.simplefilter('ignore')
        return torch.sparse_csr_tensor(first, source, values,
                                       (num_nodes, num_nodes),
                                       check_invariants=False)
