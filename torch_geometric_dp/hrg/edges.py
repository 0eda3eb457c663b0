"""Graphs as edge lists: each edge is there once, in one direction."""
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp._jit import jit

Ints = NDArray[np.int64]


def check_num_nodes(num_nodes: Any) -> None:
    """A positive integer."""
    if (isinstance(num_nodes, bool) or not isinstance(num_nodes, Integral)
            or num_nodes < 1):
        raise ValueError(f"'num_nodes' must be an integer of at least 1 "
                         f"(got {num_nodes!r})")


def check_edges(name: str, edges: Any, num_nodes: int) -> Ints:
    """An array of shape :obj:`[2, num_edges]` of node indices, without
    self-loops and without an edge that is listed twice: the sensitivity holds
    for edges that count once.
    """
    array = np.asarray(edges)
    if array.size == 0:
        return np.empty((2, 0), np.int64)
    if array.ndim != 2 or len(array) != 2 or array.dtype.kind not in 'iu':
        raise ValueError(f"'{name}' must be integers of shape [2, num_edges] "
                         f"(got {array.dtype} of shape {list(array.shape)})")
    low, high = array.min(axis=0), array.max(axis=0)
    # Stable, so that of two equal edges the second one is named.
    key = low.astype(np.int64) * num_nodes + high
    order = np.argsort(key, kind='stable')
    again = np.zeros(len(key), np.bool_)
    again[order[1:]] = key[order[1:]] == key[order[:-1]]
    for wrong, rule in (
        ((low < 0) | (high >= num_nodes), f'join nodes from 0 to '
                                          f'{num_nodes - 1}'),
        (low == high, 'join different nodes'),
        (again, 'hold every edge once, in one direction'),
    ):
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ValueError(f"'{name}' must {rule} (got "
                             f"{tuple(array[:, first].tolist())} in column "
                             f"{first})")
    return np.array(array, np.int64, order='C')


@jit
def neighbours(edges: Ints, num_nodes: int) -> tuple[Ints, Ints, Ints]:
    """Both directions of every edge, by node: arrays :obj:`first`, :obj:`ends`
    and :obj:`column`, where node :obj:`v` has the neighbours
    :obj:`ends[first[v]:first[v + 1]]`, by the edges in these columns.
    """
    first = np.zeros(num_nodes + 1, np.int64)
    for v in edges.reshape(-1):
        first[v + 1] += 1
    first = np.cumsum(first)
    ends, free = np.empty(edges.size, np.int64), first.copy()
    column = np.empty_like(ends)
    for j in range(edges.shape[1]):
        for side in range(2):
            v = edges[side, j]
            ends[free[v]], column[free[v]] = edges[1 - side, j], j
            free[v] += 1
    return first, ends, column
