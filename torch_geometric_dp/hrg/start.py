r"""Where a chain starts.

A chain moves one subtree at a time, so it hardly ever finds the large structure
of a graph by itself. :func:`metis_dendrogram` starts with it: components are
joined last, where that costs no likelihood; a connected graph is cut into
halves with few edges between them; and a small one is built pair by pair, the
densest first. A start costs no privacy if it depends on public edges only.
"""
import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np
import pymetis
from numpy.typing import NDArray

from torch_geometric_dp._jit import jit
from torch_geometric_dp.hrg.dendrogram import Dendrogram
from torch_geometric_dp.hrg.edges import (
    Ints,
    check_edges,
    check_num_nodes,
    neighbours,
)
from torch_geometric_dp.noise import NoiseSource, uniforms

_SMALL = 16  # Below, pairs are as good as halves, and faster.

Graph = tuple[Ints, Ints, Ints]  # Nodes, and where each has which neighbours.
Tree = tuple[int, int]  # Size and root.


def metis_dendrogram(edges: Any, num_nodes: int, seed: int = 0) -> Dendrogram:
    """A dendrogram by recursive bisection with METIS.

    Args:
        edges (array): Public edges, of shape :obj:`[2, num_edges]`.
        num_nodes (int): The number of nodes.
        seed (int, optional): METIS makes random choices; another seed gives
            another start. (default: :obj:`0`)

    .. code-block:: python

        path = [[0, 1, 2], [1, 2, 3]]
        metis_dendrogram(path, 4) == Dendrogram([[0, 1], [2, 3], [4, 5]])
    """
    check_num_nodes(num_nodes)
    edges = check_edges('edges', edges, num_nodes)
    first, ends, _ = neighbours(edges, num_nodes)
    forest = _Forest(num_nodes, seed)
    forest.grow((np.arange(num_nodes), first, ends))
    return Dendrogram(forest.children)


def random_dendrogram(num_nodes: int, source: NoiseSource) -> Dendrogram:
    r"""One of the :math:`(2n-3)!!` dendrograms, all equally likely.

    .. code-block:: python

        random_dendrogram(5, NoiseSource.from_seed(0)).num_leaves   # 5
    """
    check_num_nodes(num_nodes)
    return Dendrogram(_insert(uniforms(source, num_nodes)))


class _Forest:
    # Trees that grow together; `children` is as in a dendrogram.
    def __init__(self, num_nodes: int, seed: int) -> None:
        self.num_nodes = num_nodes
        # To METIS, seeds 0 and 1 are the same.
        self.options = pymetis.Options(seed=seed + 1)
        self.children: list[tuple[int, int]] = []

    def grow(self, graph: Graph) -> Tree:
        nodes, first, ends = graph
        count, part = _components(first, ends)
        if count == len(nodes):
            return self._balanced([(1, node) for node in nodes.tolist()])
        if count > 1:
            return self._balanced([self.grow(piece)
                                   for piece in _pieces(graph, part, count)])
        if len(nodes) <= _SMALL:
            trees = [(1, node) for node in nodes.tolist()]
            for i, j in _densest_first(first, ends).tolist():
                trees[i] = self._join(trees[i], trees[j])
            return trees[0]
        part = self._bisect(first, ends)
        return self._join(*map(self.grow, _pieces(graph, part, 2)))

    def _join(self, a: Tree, b: Tree) -> Tree:
        self.children.append((a[1], b[1]))
        return a[0] + b[0], self.num_nodes + len(self.children) - 1

    def _balanced(self, trees: list[Tree]) -> Tree:
        # The two smallest first, as in Huffman's code.
        heapq.heapify(trees)
        while len(trees) > 1:
            a = heapq.heappop(trees)
            heapq.heapreplace(trees, self._join(a, trees[0]))
        return trees[0]

    def _bisect(self, first: Ints, ends: Ints) -> Ints:
        _, part = pymetis.part_graph(2, pymetis.CSRAdjacency(first, ends),
                                     options=self.options)
        half = np.array(part)
        if half.min() == half.max():  # METIS may leave a half empty.
            half[len(half) // 2:] = 1 - half[0]
        return half


def _pieces(graph: Graph, part: Ints, count: int) -> Iterator[Graph]:
    # The graphs on all parts, each with its own numbers.
    nodes, first, ends = graph
    order, border, first, ends = _split(first, ends, part, count)
    nodes = nodes[order]
    for low, high in zip(border[:-1].tolist(), border[1:].tolist()):
        inner = first[low:high + 1]
        yield nodes[low:high], inner - inner[0], ends[inner[0]:inner[-1]]


@jit
def _split(first: Ints, ends: Ints, part: Ints,
           count: int) -> tuple[Ints, Ints, Ints, Ints]:
    n = part.size
    border, filled = np.zeros(count + 1, np.int64), np.zeros(count, np.int64)
    for v in range(n):
        border[part[v] + 1] += 1
    border = np.cumsum(border)
    order, number = np.empty(n, np.int64), np.empty(n, np.int64)
    for v in range(n):
        number[v] = filled[part[v]]
        order[border[part[v]] + number[v]] = v
        filled[part[v]] += 1
    first_inside, ends_inside = np.zeros(n + 1, np.int64), np.empty_like(ends)
    kept = 0
    for i in range(n):
        v = order[i]
        for u in ends[first[v]:first[v + 1]]:
            if part[u] == part[v]:
                ends_inside[kept] = number[u]
                kept += 1
        first_inside[i + 1] = kept
    return order, border, first_inside, ends_inside[:kept]


@jit
def _components(first: Ints, ends: Ints) -> tuple[int, Ints]:
    n = first.size - 1
    part, stack = np.full(n, -1), np.empty(n, np.int64)
    count = 0
    for root in range(n):
        if part[root] >= 0:
            continue
        part[root], stack[0], depth = count, root, 1
        while depth > 0:
            depth -= 1
            v = stack[depth]
            for u in ends[first[v]:first[v + 1]]:
                if part[u] < 0:
                    part[u], stack[depth] = count, u
                    depth += 1
        count += 1
    return count, part


@jit
def _densest_first(first: Ints, ends: Ints) -> Ints:
    # Joins of the form (i, j): tree j becomes a part of tree i < j.
    n = first.size - 1
    edges, size = np.zeros((n, n), np.int64), np.ones(n, np.int64)
    for v in range(n):
        for u in ends[first[v]:first[v + 1]]:
            edges[v, u] = 1
    joins = np.empty((n - 1, 2), np.int64)
    for k in range(n - 1):
        best = -1.0
        for i in range(n):
            for j in range(i + 1, n):
                if size[i] * size[j] > 0:
                    density = edges[i, j] / (size[i] * size[j])
                    if density > best:
                        best, joins[k, 0], joins[k, 1] = density, i, j
        i, j = joins[k]
        for v in range(n):
            edges[i, v] += edges[j, v]
            edges[v, i] = edges[i, v]
        size[i], size[j] = size[i] + size[j], 0
    return joins


@jit
def _insert(u: NDArray[np.float64]) -> Ints:
    # Leaf k goes beside one of the 2k - 1 nodes before it: every dendrogram
    # comes about in exactly one way. The root keeps its number.
    n, root = u.size, 2 * u.size - 2
    children, parent = np.zeros((n - 1, 2), np.int64), np.full(2 * n - 1, root)
    for k in range(1, n):
        pick, join = int(u[k] * (2 * k - 1)), n + k - 2
        if k == 1:
            children[root - n] = 0, 1
        elif pick == 2 * k - 2:
            for side in range(2):
                child = children[root - n, side]
                children[join - n, side], parent[child] = child, join
            children[root - n] = join, k
        else:
            beside = pick if pick < k else n + pick - k
            above = parent[beside]
            side = 0 if children[above - n, 0] == beside else 1
            children[above - n, side], parent[join] = join, above
            children[join - n] = beside, k
            parent[beside], parent[k] = join, join
    return children
