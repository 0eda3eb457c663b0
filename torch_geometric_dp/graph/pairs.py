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
from torch_geometric_dp._sort import distinct
from torch_geometric_dp._validate import check_integer

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
    """Raises an error that names the first column with a node that does not
    exist.

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
    if edge_index.numel() == 0:
        return
    least, most = edge_index.aminmax()
    if least < 0 or most >= num_nodes:
        wrong = ((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0)
        column = int(wrong.int().argmax())
        raise ValueError(
            f"'{name}' must hold nodes from 0 to {num_nodes - 1} (got "
            f"others in column {column})")


def to_pairs(edge_index: Tensor, selected: Tensor | None = None) -> Pairs:
    """The numbers of the pairs that have an edge in either direction, each of
    them once. Self-loops are no pairs. If columns are :obj:`selected` by a
    boolean tensor, the others do not count.

    .. code-block:: python

        to_pairs(torch.tensor([[0, 3, 3, 1], [3, 0, 1, 1]]))   # [3 4]
    """
    return pairs_of(arrows(edge_index, selected))


def split_pairs(edge_index: Tensor, private: Any,
                name: str = 'edge_private') -> tuple[Pairs, Pairs]:
    """The pairs with a private edge, and those with a public one. A pair that
    has both is public. If :obj:`private` is :obj:`None`, all are private;
    otherwise it is a boolean tensor, called :obj:`name` in errors.

    .. code-block:: python

        edge_index = torch.tensor([[0, 1, 0], [1, 2, 2]])
        split_pairs(edge_index, torch.tensor([True, False, True]))
        # (array([0, 1]), array([2]))
    """
    if private is None:
        return to_pairs(edge_index), np.empty(0, np.int64)
    if (not isinstance(private, Tensor) or private.dtype != torch.bool
            or private.shape != edge_index.shape[1:]):
        got = (f'{private.dtype} of shape {list(private.shape)}'
               if isinstance(private, Tensor)
               else f"'{type(private).__name__}'")
        raise ValueError(f"'{name}' must be a boolean tensor, one entry for "
                         f"each of the {edge_index.size(1)} columns of "
                         f"'edge_index' (got {got})")
    private = private.to(edge_index.device)
    public = to_pairs(edge_index, ~private)
    pairs = to_pairs(edge_index, private)
    return pairs[~contains(public, pairs)], public


def arrows(edge_index: Tensor, selected: Tensor | None = None) -> Pairs:
    """Twice the number of the pair for each edge from its smaller node to its
    larger one, and one more for each edge that goes back, in increasing order;
    each of them once.

    .. code-block:: python

        arrows(torch.tensor([[0, 3, 3, 1], [3, 0, 1, 1]]))   # [6 7 9]
    """
    u, v = _ends(edge_index)
    if selected is None:
        some = np.ones(1, np.bool_)
    else:
        some = selected.cpu().numpy()
    out = np.empty(u.size, np.int64)
    return distinct(out[:_fill_arrows(u, v, some, out)])


def pairs_of(arrows: Pairs) -> Pairs:
    """The pairs of what :func:`arrows` returned, each of them once."""
    out = np.empty(arrows.size - _count_returns(arrows), np.int64)
    _fill_pairs(arrows, out)
    return out


def is_undirected(arrows: Pairs) -> bool:
    """Whether there is an arrow back for each arrow."""
    return 2 * _count_returns(arrows) == arrows.size


@jit
def _count_returns(arrows: Pairs) -> int:
    # Arrows back of pairs that have both stand behind the other one.
    count = 0
    for i in range(1, arrows.size):
        count += arrows[i] >> 1 == arrows[i - 1] >> 1
    return count


@jit
def _fill_pairs(arrows: Pairs, out: Pairs) -> None:
    count = 0
    for i in range(arrows.size):
        if i == 0 or arrows[i] >> 1 != arrows[i - 1] >> 1:
            out[count] = arrows[i] >> 1
            count += 1


def pair_numbers(edge_index: Tensor) -> Pairs:
    """The number of each edge's pair, one for each column."""
    u, v = _ends(edge_index)
    out = np.empty(u.size, np.int64)
    _fill_numbers(u, v, out)
    return out


def _ends(edge_index: Tensor) -> tuple[Pairs, Pairs]:
    u, v = edge_index.detach().cpu().numpy().astype(np.int64, copy=False)
    return np.ascontiguousarray(u), np.ascontiguousarray(v)


@jit
def number_of(u: int, v: int) -> int:
    """The number of one pair; for kernels."""
    low, high = (u, v) if u < v else (v, u)
    return high * (high - 1) // 2 + low


@jit
def _fill_numbers(u: Pairs, v: Pairs, out: Pairs) -> None:
    for i in range(u.size):
        out[i] = number_of(u[i], v[i])


@jit
def _fill_arrows(u: Pairs, v: Pairs, some: NDArray[np.bool_],
                 out: Pairs) -> int:
    # Returns how many there are. A single entry of `some` stands for all.
    count = 0
    for i in range(u.size):
        if u[i] != v[i] and some[i if some.size > 1 else 0]:
            out[count] = 2 * number_of(u[i], v[i]) + (u[i] > v[i])
            count += 1
    return count


def from_pairs(numbers: Pairs) -> Tensor:
    """The nodes :math:`u < v` of each pair, in two rows.

    .. code-block:: python

        from_pairs(np.array([3, 4])).tolist()   # [[0, 1], [3, 3]]
    """
    nodes = np.empty((2, len(numbers)), np.int64)
    _fill_nodes(numbers, nodes)
    return torch.from_numpy(nodes)


@jit
def nodes_of(number: int) -> tuple[int, int]:
    """The nodes of one pair; for kernels."""
    # A rounded root is off by one at the most, and integers put it right.
    v = int(math.sqrt(2.0 * number + 0.25) + 0.5)
    if v * (v - 1) // 2 > number:
        v -= 1
    elif v * (v + 1) // 2 <= number:
        v += 1
    return number - v * (v - 1) // 2, v


@jit
def _fill_nodes(numbers: Pairs, nodes: Pairs) -> None:
    for i in range(numbers.size):
        nodes[0, i], nodes[1, i] = nodes_of(numbers[i])


def degrees(numbers: Pairs, num_nodes: int) -> Pairs:
    """How many of the pairs each node belongs to.

    .. code-block:: python

        degrees(np.array([3, 4]), num_nodes=4)   # [1 1 0 2]
    """
    out = np.zeros(num_nodes, np.int64)
    _count_degrees(numbers, out)
    return out


@jit
def _count_degrees(numbers: Pairs, out: Pairs) -> None:
    for number in numbers:
        u, v = nodes_of(number)
        out[u] += 1
        out[v] += 1


def contains(numbers: Pairs, wanted: Pairs) -> NDArray[np.bool_]:
    """Which of the wanted numbers are among the numbers, which stand in
    increasing order.

    .. code-block:: python

        contains(np.array([4, 5]), np.array([7, 4]))   # [False  True]
    """
    found = np.empty(len(wanted), np.bool_)
    _look_up(numbers, wanted, found)
    return found


@jit
def _look_up(numbers: Pairs, wanted: Pairs,
             found: NDArray[np.bool_]) -> None:
    # From where the last one was found, in steps that double: next to no work
    # if those that are wanted stand in increasing order, too.
    at, end = 0, numbers.size
    for i in range(wanted.size):
        low, step = at, 1
        if at > 0 and numbers[at - 1] >= wanted[i]:
            low = 0
        at = low
        while at < end and numbers[at] < wanted[i]:
            low, at, step = at + 1, at + step, 2 * step
        high = min(at, end)
        while low < high:
            middle = (low + high) // 2
            if numbers[middle] < wanted[i]:
                low = middle + 1
            else:
                high = middle
        at = low
        found[i] = at < end and numbers[at] == wanted[i]


def symmetric_difference(a: Pairs, b: Pairs) -> Pairs:
    """The numbers that stand in one of two arrays, but not in both; all of
    them in increasing order.

    .. code-block:: python

        symmetric_difference(np.array([1, 4]), np.array([4, 5]))   # [1 5]
    """
    out = np.empty(len(a) + len(b), np.int64)
    return out[:_fill_difference(a, b, out)]


@jit
def _fill_difference(a: Pairs, b: Pairs, out: Pairs) -> int:
    i, j, count = 0, 0, 0
    while i < a.size and j < b.size:
        if a[i] == b[j]:
            i, j = i + 1, j + 1
            continue
        if a[i] < b[j]:
            out[count], i = a[i], i + 1
        else:
            out[count], j = b[j], j + 1
        count += 1
    for k in range(i, a.size):
        out[count], count = a[k], count + 1
    for k in range(j, b.size):
        out[count], count = b[k], count + 1
    return count
