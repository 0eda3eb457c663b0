r"""The private edges in the blocks of a dendrogram: counted, and drawn again.

A dendrogram cuts all pairs of nodes into blocks: the pairs that an internal
node parts, or, where a subtree is too small for counts of its own to rise above
the noise, all pairs within that subtree. Which subtrees are merged depends on
their sizes only.

**Theorem.** Let the dendrogram not depend on the private edges. The counts of
private edges in all blocks, each with its own discrete Laplace noise of scale
:math:`1/\varepsilon`, are :math:`\varepsilon`-private for one private edge more
or less.

*Proof.* Blocks are disjoint, so that an edge changes one count, by one, and the
probabilities of the noise :math:`z` and :math:`z \pm 1` differ by a factor of
:math:`e^{\varepsilon}` at the most. ∎ (The sampler's own error, less than
:math:`10^{-12}`, is taken off epsilon first.)

If the dendrogram itself was drawn with a loss of :math:`\varepsilon_1`, the
losses add up. The rest is post-processing, and free: a block of :math:`N` pairs
with noisy count :math:`c` has the edge probability :math:`p = c / N`, cut to
:math:`[0, 1]`, and as many of its pairs are drawn as a binomial variable says.

**The finest blocks** are single pairs, which the theorem covers, whatever the
dendrogram. Of their counts it is enough to know which are positive: without an
edge, that happens with probability :math:`q = e^{-\varepsilon} / (1 +
e^{-\varepsilon})`, and with one, with probability :math:`1 - q`. That is
randomised response, :mod:`torch_geometric_dp.mechanisms.edge_rand`, which takes
the time of its output. The dendrogram then tells which of these pairs to trust.
Of :math:`N` pairs in a block, :math:`c` of them positive, about :math:`t = (c -
qN) / (1 - 2q)` have an edge, so that a share of :math:`(1 - q)\,t / c` of the
positive ones is true.
"""
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._jit import jit
from torch_geometric_dp._sort import distinct
from torch_geometric_dp._validate import check_epsilon
from torch_geometric_dp.accountant import Guarantee, Relation, Trust, Unit
from torch_geometric_dp.hrg.dendrogram import Dendrogram
from torch_geometric_dp.hrg.edges import Ints, check_edges
from torch_geometric_dp.mechanisms.mechanism import EdgePair, WorstCase
from torch_geometric_dp.noise import NoiseSource, discrete_laplace
from torch_geometric_dp.noise.discrete import laplace_grid

Floats = NDArray[np.float64]

_SAMPLER_ERROR = 2.0**-39  # More than two outcomes' odds can be off by.


class Blocks:
    r"""All pairs of nodes, cut into blocks by a dendrogram.

    Args:
        dendrogram (Dendrogram): The dendrogram.
        largest_merged (int, optional): A subtree with at most so many leaves
            is one block. (default: :obj:`1`)

    Attributes:
        pairs (numpy.ndarray): The number of pairs in each block.

    .. code-block:: python

        tree = metis_dendrogram([[0, 1, 2, 3], [1, 2, 3, 4]], 5)
        blocks = Blocks(tree, largest_merged=3)
        blocks.pairs.sum()   # 10
        noisy = BlockCounts(epsilon=1.0)
        counts = noisy(blocks, [[0], [1]], NoiseSource.from_os())
        edges, block = blocks.draw(counts / blocks.pairs, NoiseSource.from_os())
    """
    def __init__(self, dendrogram: Dendrogram, largest_merged: int = 1) -> None:
        self.dendrogram = dendrogram
        n, size = dendrogram.num_leaves, dendrogram.size
        small = size[n:] <= largest_merged
        root = _roots(dendrogram.parent, size, small)
        self._node, self._block = np.unique(root, return_inverse=True)
        self._merged = small[self._node]
        leaves = size[n:][self._node]
        self.pairs: Ints = np.where(self._merged, leaves * (leaves - 1) // 2,
                                    dendrogram.pairs[self._node])

    def find(self, edges: Any) -> Ints:
        """The block of each edge."""
        n = self.dendrogram.num_leaves
        u, v = check_edges('edges', edges, n)
        block: Ints = self._block[self.dendrogram.lca(u, v) - n]
        return block

    def counts(self, edges: Any) -> Ints:
        """The number of edges in each block."""
        return np.bincount(self.find(edges), minlength=len(self.pairs))

    def draw(self, probabilities: Floats,
             source: NoiseSource) -> tuple[Ints, Ints]:
        """Draws every pair of a block with the block's probability; returns
        the pairs' nodes in two rows, and the block of each pair. Time and
        memory are those of the output and of the blocks.
        """
        # No secret is at stake any more, so a fast generator will do.
        rng = np.random.default_rng(int.from_bytes(source.digest('pairs'),
                                                   'big'))
        wanted = rng.binomial(self.pairs, np.clip(probabilities, 0.0, 1.0))
        block, place = _distinct(wanted, self.pairs, rng)
        return self._nodes(block, place), block

    def _nodes(self, block: Ints, place: Ints) -> Ints:
        # The nodes of the pair that has a number within its block.
        tree, n = self.dendrogram, self.dendrogram.num_leaves
        node = self._node[block]
        left, right = tree.children[node].T
        merged, width = self._merged[block], tree.size[right]
        # Within a subtree: the pair of u < v has the number v (v - 1) / 2 + u.
        v = (np.sqrt(2.0 * place + 0.25) + 0.5).astype(np.int64)
        v -= v * (v - 1) // 2 > place
        u = place - v * (v - 1) // 2
        start = tree.start[node + n]
        first = np.where(merged, start + u, tree.start[left] + place // width)
        second = np.where(merged, start + v, tree.start[right] + place % width)
        nodes: Ints = tree.order[np.stack([first, second])]
        return nodes


class BlockCounts(Captured):
    r"""The number of edges in each block, with discrete Laplace noise.

    Args:
        epsilon (float): The privacy loss of one edge, at least
            :math:`2^{-30}`.

    .. code-block:: python

        blocks = Blocks(metis_dendrogram([[0, 1], [1, 2]], 3))
        counts = BlockCounts(1.0)(blocks, [[0], [1]], NoiseSource.from_os())
        BlockCounts(1.0).worst_case().epsilon   # 0.9999...
    """
    def __init__(self, epsilon: float) -> None:
        self.epsilon = check_epsilon(epsilon)
        if self.epsilon < 2.0**-30:
            raise ValueError(f"'epsilon' must leave at least 2**-30 for the "
                             f"counts: noise beyond that has no scale here "
                             f"(got {epsilon})")
        #: The scale of the noise.
        self.scale = 1.0 / (self.epsilon - _SAMPLER_ERROR)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to one edge."""
        return Guarantee(self.epsilon, Unit.EDGES, Relation.ADD_REMOVE,
                         model=Trust.CENTRAL, assumptions=(
                             "the dendrogram does not depend on the private "
                             "edges", ))

    def __call__(self, blocks: Blocks, edges: Any,
                 source: NoiseSource) -> Ints:
        """The noisy counts of all blocks."""
        counts = blocks.counts(edges)
        noisy: Ints = counts + discrete_laplace(source, self.scale, len(counts))
        return noisy

    def worst_case(self) -> WorstCase:
        """The count of the block that the edge is in; more edges change
        nothing.
        """
        t, s = laplace_grid(self.scale)
        return WorstCase(s / t, Unit.EDGES, ('an edge in a block', 'none'),
                         'a noisy count of one or more')

    def canaries(self) -> list[EdgePair]:
        """An edge, or none."""
        return [EdgePair(Relation.ADD_REMOVE)]


@jit
def _roots(parent: Ints, size: Ints, small: NDArray[np.bool_]) -> Ints:
    # For each internal node the highest small subtree that it belongs to, or
    # the node itself; parents are larger than their children.
    n = small.size + 1
    root = np.arange(n - 1)
    for node in np.argsort(size[n:])[::-1]:
        above = parent[node + n] - n
        if above >= 0 and small[above]:
            root[node] = root[above]
    return root


def _distinct(wanted: Ints, available: Ints,
              rng: np.random.Generator) -> tuple[Ints, Ints]:
    # For each block, as many different numbers below `available` as wanted;
    # here, the numbers of a block follow those of the block before it.
    border = np.concatenate([[0], np.cumsum(available)])
    # Where a good part of all is wanted, each number is asked in turn.
    many = np.flatnonzero(4 * wanted > available)
    asked = _in_turn(wanted[many], border[many], border[many + 1], rng)
    # Elsewhere, numbers that came up before are rare, and drawn again.
    few = wanted.copy()
    few[many] = 0
    drawn, missing = np.empty(0, np.int64), few
    while missing.any():
        block = np.repeat(np.arange(len(few)), missing)
        more = border[block] + rng.integers(0, available[block])
        drawn = distinct(np.concatenate([drawn, more]))
        missing = few - np.diff(np.searchsorted(drawn, border))
    block = np.concatenate([np.repeat(many, wanted[many]),
                            np.repeat(np.arange(len(few)), few)])
    return block, np.concatenate([asked, drawn]) - border[block]


@jit
def _in_turn(wanted: Ints, first: Ints, end: Ints,
             rng: np.random.Generator) -> Ints:
    # Knuth's Algorithm S: a number is taken with the share of those to come
    # that are still wanted.
    taken, count = np.empty(wanted.sum(), np.int64), 0
    for i in range(wanted.size):
        missing = wanted[i]
        for number in range(first[i], end[i]):
            if rng.random() * (end[i] - number) < missing:
                taken[count] = number
                count, missing = count + 1, missing - 1
    return taken
