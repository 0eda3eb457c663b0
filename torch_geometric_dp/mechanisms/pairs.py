r"""The pairs of nodes of a graph, numbered.

The pair of nodes :math:`u < v` has the number :math:`v(v-1)/2 + u`. So the
pairs of :math:`n` nodes have the numbers from 0 to :math:`n(n-1)/2 - 1`, and a
graph without directions is a set of numbers: never a matrix.
"""
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_dp._jit import jit
from torch_geometric_dp.mechanisms.checks import check_integer
from torch_geometric_dp.noise import distinct

Pairs = NDArray[np.int64]  # Numbers of pairs.

MOST_NODES = 2**31  # The numbers of their pairs fit into 61 bits.


def num_pairs(num_nodes: Any) -> int:
    """The number of pairs of different nodes.

    .. code-block:: python

        num_pairs(4)   # 6
    """
    n = check_integer('num_nodes', num_nodes, 0)
    if n > MOST_NODES:
        raise ValueError(f"'num_nodes' must be at most {MOST_NODES} (got {n})")
    return n * (n - 1) // 2


def check_edge_index(edge_index: Any, num_nodes: int,
                     name: str = 'edge_index') -> None:
    """Raises an error that names the first node that does not exist.

    .. code-block:: python

        check_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    """
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        kind = (edge_index.layout if isinstance(edge_index, Tensor) else
                type(edge_index).__name__)
        raise TypeError(f"'{name}' must be a dense tensor of shape "
                        f"[2, num_edges] (got {kind})")
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"'{name}' must have shape [2, num_edges] "
                         f"(got {list(edge_index.shape)})")
    if (edge_index.is_floating_point() or edge_index.is_complex()
            or edge_index.dtype == torch.bool):
        raise ValueError(f"'{name}' must hold integers "
                         f"(got {edge_index.dtype})")
    wrong = ((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0)
    if wrong.any():
        column = int(wrong.int().argmax())
        raise ValueError(
            f"'{name}' must hold nodes from 0 to {num_nodes - 1} (got "
            f"{edge_index[:, column].tolist()} in column {column})")


def to_pairs(edge_index: Tensor) -> Pairs:
    """The numbers of the pairs that have an edge in either direction, each of
    them once. Self-loops are no pairs.

    .. code-block:: python

        to_pairs(torch.tensor([[0, 3, 3, 1], [3, 0, 1, 1]]))   # [3 4]
    """
    return distinct(pair_numbers(edge_index[:, edge_index[0] != edge_index[1]]))


def pair_numbers(edge_index: Tensor) -> Pairs:
    """The number of each edge's pair, one for each column."""
    u, v = edge_index.detach().cpu().numpy().astype(np.int64, copy=False)
    low, high = np.minimum(u, v), np.maximum(u, v)
    numbers: Pairs = high * (high - 1) // 2 + low
    return numbers


def from_pairs(numbers: Pairs) -> Tensor:
    """The nodes :math:`u < v` of each pair, in two rows.

    .. code-block:: python

        from_pairs(np.array([3, 4])).tolist()   # [[0, 1], [3, 3]]
    """
    nodes = np.empty((2, len(numbers)), np.int64)
    _fill_nodes(numbers, nodes)
    return torch.from_numpy(nodes)


@jit
def _fill_nodes(numbers: Pairs, nodes: Pairs) -> None:
    for i in range(numbers.size):
        # A rounded root is off by one at the most, and integers put it right.
        v = int(math.sqrt(2.0 * numbers[i] + 0.25) + 0.5)
        if v * (v - 1) // 2 > numbers[i]:
            v -= 1
        elif v * (v + 1) // 2 <= numbers[i]:
            v += 1
        nodes[0, i], nodes[1, i] = numbers[i] - v * (v - 1) // 2, v


def contains(numbers: Pairs, wanted: Pairs) -> NDArray[np.bool_]:
    """Which of the wanted numbers are among the numbers, which stand in
    increasing order.

    .. code-block:: python

        contains(np.array([4, 5]), np.array([7, 4]))   # [False  True]
    """
    if len(numbers) == 0:
        return np.zeros(len(wanted), np.bool_)
    at = np.searchsorted(numbers, wanted)
    found: NDArray[np.bool_] = numbers.take(at, mode='clip') == wanted
    return found
