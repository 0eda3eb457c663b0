"""All dendrograms and all graphs over a few nodes, by brute force."""
import itertools
from functools import cached_property

import numpy as np

from torch_geometric_dp.hrg import Dendrogram


def all_dendrograms(n):
    """The (2n-3)!! dendrograms over n leaves."""
    trees = [0]
    for leaf in range(1, n):
        trees = [new for tree in trees for new in insertions(tree, leaf)]
    return [Dendrogram(joins(tree, n)) for tree in trees]


def insertions(tree, leaf):
    # Beside the tree itself, or somewhere inside.
    yield tree, leaf
    if isinstance(tree, tuple):
        a, b = tree
        yield from ((new, b) for new in insertions(a, leaf))
        yield from ((a, new) for new in insertions(b, leaf))


def joins(tree, n):
    children = []

    def visit(node):
        if not isinstance(node, tuple):
            return node
        children.append([visit(child) for child in node])
        return n + len(children) - 1

    visit(tree)
    return children


def clades(tree):
    """The set of the sets of leaves below the nodes, without intervals."""
    n = tree.num_leaves
    below = {leaf: frozenset([leaf]) for leaf in range(n)}

    def visit(node):
        if node not in below:
            a, b = tree.children[node - n].tolist()
            below[node] = visit(a) | visit(b)
        return below[node]

    visit(2 * n - 2)
    return frozenset(below.values())


class SmallGraphs:
    """All graphs over n nodes: graph g has pair i if bit i of g is set."""
    def __init__(self, n):
        self.pairs = np.array(list(itertools.combinations(range(n), 2)),
                              np.int64).reshape(-1, 2)
        self.trees = all_dendrograms(n)
        self.count = 2**len(self.pairs)
        bits = np.arange(len(self.pairs))
        self.has_pair = (np.arange(self.count)[:, None] >> bits) & 1

    def edges(self, graph):
        return self.pairs[self.has_pair[graph] == 1].T

    def graph(self, edges):
        index = {tuple(pair): i for i, pair in enumerate(self.pairs.tolist())}
        return sum(2**index[tuple(sorted(edge))] for edge in edges)

    @cached_property
    def log_likelihoods(self):
        """The log-likelihood of every graph (column) under every dendrogram
        (row), by the formula and by sets of leaves.
        """
        return np.stack([self._log_likelihoods(tree) for tree in self.trees])

    def _log_likelihoods(self, tree):
        total = np.zeros(self.count)
        sets = clades(tree)
        for large in sets:
            parts = [part for part in sets if part < large and not any(
                part < other < large for other in sets)]
            if parts:
                a, b = parts
                crossing = [(u in a and v in b) or (u in b and v in a)
                            for u, v in self.pairs.tolist()]
                p = self.has_pair[:, crossing].mean(axis=1)
                with np.errstate(divide='ignore', invalid='ignore'):
                    chi = np.nan_to_num(p * np.log(p)) + np.nan_to_num(
                        (1 - p) * np.log(1 - p))
                total += len(a) * len(b) * chi
        return total

    def changes(self, values):
        """By how much one pair more changes the values of graphs (last axis),
        for every pair and every graph without it.
        """
        for i in range(len(self.pairs)):
            without = np.flatnonzero(self.has_pair[:, i] == 0)
            yield values[..., without + 2**i] - values[..., without]
