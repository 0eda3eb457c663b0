r"""A rooted binary tree over the nodes of a graph.

**Numbers.** Leaves are :math:`0, \dots, n-1`; internal nodes are :math:`n,
\dots, 2n-2`, the last of them the root. Arrays over the internal nodes, such as
counts, start with node :math:`n`.

**Order.** Leaves stand in a row such that every subtree is an interval of it,
and *the larger child stands on the left*. The way from a leaf up to the root
leaves a right child at most :math:`\log_2 n` times, since the size at least
doubles each time. That is what makes common ancestors, and moves of subtrees,
cheap in a tree of any depth.
"""
from typing import Any

import numpy as np

from torch_geometric_dp._jit import jit
from torch_geometric_dp._typing import Path
from torch_geometric_dp.hrg.edges import Ints, check_edges
from torch_geometric_dp.hrg.likelihood import log_likelihood


class Dendrogram:
    r"""A rooted binary tree over the leaves :math:`0, \dots, n-1`.

    Args:
        children (array): Row :obj:`i` holds the two nodes that node
            :math:`n + i` joins, in :math:`n - 1` rows; the last one is the
            root's. The first two columns of a linkage matrix are of this kind.

    Attributes:
        children (numpy.ndarray): The same, with the larger child first.
        parent (numpy.ndarray): The parent of each node; -1 for the root.
        size (numpy.ndarray): The number of leaves below each node.
        start (numpy.ndarray): Where the leaves below each node start in
            :obj:`order`.
        order (numpy.ndarray): The leaves in a row: those below node :obj:`r`
            are :obj:`order[start[r]:start[r] + size[r]]`.

    .. code-block:: python

        tree = Dendrogram([[0, 1], [2, 3], [4, 5]])   # ((0, 1), (2, 3))
        counts = tree.counts([[0, 1, 2], [1, 2, 3]])  # of a path
        counts   # [1 1 1]
        tree.log_likelihood(counts)   # -2.249...
        tree.lca(0, 3)   # 6
    """
    def __init__(self, children: Any) -> None:
        self.children = _check(children)
        n = len(self.children) + 1
        self.parent: Ints = np.full(2 * n - 1, -1, np.int64)
        self.size: Ints = np.ones(2 * n - 1, np.int64)
        self.start: Ints = np.zeros(2 * n - 1, np.int64)
        self.order: Ints = np.zeros(n, np.int64)
        # The highest node that has this one on its way along left children.
        self._top: Ints = np.full(2 * n - 1, 2 * n - 2, np.int64)
        if not _lay_out(self.children, self.parent, self.size, self.start,
                        self.order, self._top):
            raise ValueError(f"'children' must hang below the root, node "
                             f"{2 * n - 2} (got a circle)")
        for array in vars(self).values():
            array.flags.writeable = False

    @property
    def num_leaves(self) -> int:
        """The number of leaves :math:`n`."""
        return len(self.order)

    @property
    def pairs(self) -> Ints:
        """The number of pairs :math:`N_r` that each internal node parts."""
        sizes: Ints = self.size[self.children]
        return sizes[:, 0] * sizes[:, 1]

    def lca(self, u: Any, v: Any) -> Ints:
        """The lowest common ancestor of each node in :obj:`u` and the one in
        :obj:`v`.
        """
        u, v = np.broadcast_arrays(u, v)
        last = len(self.parent) - 1
        for name, nodes in (('u', u), ('v', v)):
            if nodes.size > 0 and not 0 <= nodes.min() <= nodes.max() <= last:
                raise ValueError(f"'{name}' must hold nodes from 0 to {last} "
                                 f"(got {nodes})")
        ancestors = _lca(u.astype(np.int64).ravel(), v.astype(np.int64).ravel(),
                         self.parent, self.size, self._top)
        return ancestors.reshape(u.shape)

    def counts(self, edges: Any) -> Ints:
        """The number of edges :math:`e_r` that each internal node parts."""
        n = self.num_leaves
        u, v = check_edges('edges', edges, n)
        return np.bincount(self.lca(u, v) - n, minlength=n - 1)

    def log_likelihood(self, counts: Any) -> float:
        """The log-likelihood of a graph with these :meth:`counts`."""
        counts, pairs = np.asarray(counts, np.float64), self.pairs
        if counts.shape != pairs.shape or not (
                (counts >= 0) & (counts <= pairs)).all():
            raise ValueError(f"'counts' must hold, for each of the "
                             f"{len(pairs)} internal nodes, a number between 0 "
                             f"and its 'pairs' (got {counts})")
        return log_likelihood(counts, pairs)

    def save(self, path: Path) -> None:
        """Saves the dendrogram to a :obj:`.npz` file."""
        with open(path, 'wb') as file:
            np.savez(file, children=self.children)

    @classmethod
    def load(cls, path: Path) -> 'Dendrogram':
        """Loads what :meth:`save` has saved."""
        with np.load(path) as file:
            return cls(file['children'])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dendrogram):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}(num_leaves={self.num_leaves})'

    def _key(self) -> bytes:
        # Equal for the same sets of leaves, whatever the numbers and the sides.
        order = np.argsort(self.size)  # Children before parents.
        return _canonical(self.children, self.size, order).tobytes()


def _check(children: Any) -> Ints:
    array = np.asarray(children)
    if array.size == 0:
        return np.empty((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"'children' must have the shape [num_leaves - 1, 2] "
                         f"(got {list(array.shape)})")
    nodes = np.sort(array, axis=None)
    if not np.array_equal(nodes, np.arange(array.size)):
        raise ValueError(f"'children' must hold every node from 0 to "
                         f"{array.size - 1} once (got {nodes})")
    return np.array(array, np.int64, order='C')


@jit
def _lay_out(children: Ints, parent: Ints, size: Ints, start: Ints, order: Ints,
             top: Ints) -> bool:
    # Fills the arrays, and turns children so that the larger one comes first.
    # False if nodes hang on a circle, where the root does not reach them.
    n = order.size
    nodes = np.empty(2 * n - 1, np.int64)  # Parents before children.
    nodes[0], found = 2 * n - 2, 1
    for i in range(2 * n - 1):
        if i == found:
            return False
        if nodes[i] >= n:
            for child in children[nodes[i] - n]:
                parent[child] = nodes[i]
                nodes[found] = child
                found += 1
    for node in nodes[::-1]:
        if node >= n:
            left, right = children[node - n]
            size[node] = size[left] + size[right]
            if size[left] < size[right]:
                children[node - n, 0], children[node - n, 1] = right, left
    for node in nodes:
        if node >= n:
            left, right = children[node - n]
            start[left], start[right] = start[node], start[node] + size[left]
            top[left], top[right] = top[node], right
        else:
            order[start[node]] = node
    return True


@jit
def _lca(u: Ints, v: Ints, parent: Ints, size: Ints, top: Ints) -> Ints:
    out = np.empty_like(u)
    for i in range(u.size):
        a, b = u[i], v[i]
        while top[a] != top[b]:
            # The smaller top is no ancestor of the other node, so neither is
            # anything on the way up to it.
            if size[top[a]] < size[top[b]]:
                a = parent[top[a]]
            else:
                b = parent[top[b]]
        out[i] = a if size[a] >= size[b] else b
    return out


@jit
def _canonical(children: Ints, size: Ints, nodes: Ints) -> Ints:
    # With children in the order of their least leaves, the row of leaves, and
    # at each gap in it the size of the node that parts the row there.
    n = children.shape[0] + 1
    least, start = np.arange(2 * n - 1), np.zeros(2 * n - 1, np.int64)
    out = np.zeros(2 * n, np.int64)
    row, gap = out[:n], out[n:]
    for node in nodes:
        if node >= n:
            a, b = children[node - n]
            least[node] = min(least[a], least[b])
    for node in nodes[::-1]:
        if node >= n:
            a, b = children[node - n]
            if least[a] > least[b]:
                a, b = b, a
            start[a], start[b] = start[node], start[node] + size[a]
            gap[start[b]] = size[node]
        else:
            row[start[node]] = node
    return out
