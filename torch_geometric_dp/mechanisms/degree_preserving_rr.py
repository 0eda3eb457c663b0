r"""Randomised response on every pair of nodes, thinned such that nodes keep
their degrees (NIP-GNN, Eq. 12 and Theorem 4, corrected).

A pair's bit, edge or no edge, is kept with probability :math:`1 - s` and is a
fair coin otherwise. So it is flipped with probability :math:`q = s/2`, and of
almost as many edges as there are pairs, most are false. Each of them then stays
with probability :math:`t_{uv}`, which brings the expected degrees back.

1. A share of epsilon, :math:`\varepsilon_1`, goes into the degrees, and a tenth
   as much, :math:`\varepsilon_2`, into the number of edges; both get discrete
   Laplace noise, of scale :math:`\Delta_1 / \varepsilon_1` and
   :math:`\Delta_2 / \varepsilon_2`. The target :math:`d_u` of a node is what
   its noisy degree tells: the mean degree of nodes with such a noisy one, for
   the law of degrees that makes all noisy degrees most likely. All of them are
   scaled to add up to twice the number of edges.
2. From the targets come the :math:`t_{uv} = \min(1, w_u w_v)`. The :math:`w_u`
   solve

   .. math::
       \sum_v t_{uv} \Big( (1 - s) \frac{d_u d_v}{\sum d} + \frac{s}{2} \Big) =
       d_u,

   where the fraction stands for the edges, which nobody may look at: as if they
   were drawn at random with these degrees.
3. With the rest, :math:`\varepsilon_3`, the pairs are randomised, each at
   :math:`\varepsilon_0 = \varepsilon_3 / k`, and :math:`q = 1/(1 +
   e^{\varepsilon_0})`.

**Theorem.** With the numbers of this table, the output is
:math:`\varepsilon`-private:

=====  ===========  ================  ================  ================
unit   relation     :math:`\Delta_1`  :math:`\Delta_2`  :math:`k`
=====  ===========  ================  ================  ================
edge   add-remove   2                 1                 1
edge   replace      4                 1                 2
node   add-remove   :math:`2D`        :math:`D`         :math:`D`
node   replace      :math:`2D`        :math:`D`         :math:`2D`
=====  ===========  ================  ================  ================

where no node has more than :math:`D` edges, in any graph that is possible.

*Proof.* A node that goes takes at most :math:`D` edges along, with one degree
each at the other end, and its own. If its edges are replaced, sets :math:`A` of
neighbours by :math:`B`, then :math:`|A \triangle B| \leq 2D` pairs change, and
the degrees by :math:`|A \triangle B| + \big| |A| - |B| \big| \leq 2
\max(|A|, |B|) \leq 2D`. For edges it is plain. So the noisy degrees cost
:math:`\varepsilon_1`, the noisy number :math:`\varepsilon_2`, and all that is
computed from them is free. Given them,
the pairs are independent, and one with an edge is in the output with
probability :math:`P_1 = t(1-q)`, one without with :math:`P_0 = tq`. Hence

.. math::
    \frac{P_1}{P_0} = \frac{1-q}{q} = e^{\varepsilon_0}, \quad
    \frac{1 - P_0}{1 - P_1} = \frac{1 - tq}{1 - t + tq} \leq \frac{1-q}{q},

the latter since :math:`2q \leq 1`; and both are at least one. ∎

(The paper's :math:`s \geq 2/(e^{\varepsilon/2D} + 1)` is :math:`k = 2D`. Its
Eq. 12 does not preserve degrees: a node's expected degree after randomised
response is :math:`D_u (1-s) + s (N-1)/2`. And it uses the true degree.)

**What the targets are worth.** Averaged over nodes with similar targets, the
expected degree is the target, if edges are as good as random given the degrees;
what neighbours have in common beyond that shows where true edges are many, and
is a few per cent in real graphs. The targets themselves are true degrees as far
as noise of scale :math:`\Delta_1/\varepsilon_1` lets them show. Where it does
not, all nodes get about the mean degree.

**Sparse.** Nodes are sorted into classes, by :math:`w_u` rounded up to a power
of two. In a block of two classes, coins with one probability :math:`q T`, with
:math:`T \geq t_{uv}`, are tossed sparsely, and each head stays with probability
:math:`t_{uv}/T`. Pairs with an edge have coins of their own, with :math:`(1-q)
T`, and stay with the same probability. Time and memory are those of nodes,
edges and output.

**On the machine.** Heads have the probability :math:`qT` or a little more (see
:func:`~torch_geometric_dp.noise.sparse_bernoulli`), and the coins of pairs with
an edge :math:`(1-q)T`, rounded down to a multiple of :math:`2^{-64}`. The
chance :math:`t_{uv}/T` is the same integer threshold for both. So :math:`P_0
\geq tq` and :math:`P_1 \leq t(1-q)`, which makes both ratios smaller; and
:math:`P_1 \geq P_0` still, as :math:`T \geq 2^{-40}` and :math:`\varepsilon_0
\geq 2^{-20}`. For the pairs, there is no error term. The noise of the degrees
gives :math:`2^{-39}` of its share for each degree that may change, and that of
the number :math:`2^{-39}`.
"""
import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

import numpy as np

from torch_geometric_dp._jit import jit, prefetch
from torch_geometric_dp._sort import distinct
from torch_geometric_dp._typing import Array
from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.graph.pairs import (
    Pairs,
    contains,
    degrees,
    nodes_of,
    num_pairs,
    number_of,
    symmetric_difference,
)
from torch_geometric_dp.mechanisms.edge_mechanism import (
    EdgeMechanism,
    check_unit,
)
from torch_geometric_dp.mechanisms.mechanism import EdgePair, NodeEdges
from torch_geometric_dp.mechanisms.odds import odds
from torch_geometric_dp.noise import (
    NoiseSource,
    Words,
    discrete_laplace,
    sparse_bernoulli,
)

Class = tuple[Pairs, Array]  # Nodes, and their weights.

_LOWEST, _HIGHEST = -20, 20  # Classes: powers of two.
_EM_STEPS = 200
_AHEAD = 16  # Pairs whose nodes are asked for before they are needed.
_BINS_PER_E = 32  # Degrees that are solved for, to a factor of e.


class DegreePreservingRR(EdgeMechanism):
    r"""Randomised response on every pair of nodes, thinned such that nodes
    keep their degrees, as far as noisy degrees tell them.

    Args:
        epsilon (float): The privacy loss of one unit.
        unit (str, optional): What is protected, an :obj:`"edge"` or a
            :obj:`"node"` with all its edges. (default: :obj:`"edge"`)
        max_degree (int, optional): The largest number of edges at one node, a
            public number; for :obj:`unit="node"`. (default: :obj:`None`)
        relation (str, optional): Whether a unit comes or goes
            (:obj:`"add-remove"`), or is exchanged for another
            (:obj:`"replace"`). (default: :obj:`"add-remove"`)
        share (float, optional): The share of :obj:`epsilon` that goes into the
            degrees. (default: :obj:`0.1`)

    .. code-block:: python

        mechanism = DegreePreservingRR(epsilon=4.0)
        edges = torch.tensor([[0, 1], [1, 2]])
        noisy = mechanism(edges, 1000, NoiseSource.from_os())
        mechanism.flip   # 0.0265...
    """
    def __init__(self, epsilon: float, unit: str = Unit.EDGES,
                 max_degree: int | None = None,
                 relation: str = 'add-remove', share: float = 0.1) -> None:
        super().__init__(epsilon)
        self.unit = check_unit(unit)
        self.relation = Relation.of(relation, 'relation')
        if (max_degree is None) != (self.unit == Unit.EDGES):
            raise ValueError(f"'max_degree' belongs to unit='node', which "
                             f"cannot do without it (got {max_degree} for "
                             f"unit='{self.unit}')")
        if not 0 < share < 1:
            raise ValueError(f"'share' must lie between 0 and 1 (got {share})")
        self.max_degree = (None if max_degree is None else
                           check_integer('max_degree', max_degree, 1))
        self.share = float(share)
        D = self.max_degree or 0
        # Pairs, degrees in L1 and in number, and edges that change at once.
        pairs, distance, cells, edges = {
            ('edges', 'add-remove'): (1, 2, 2, 1),
            ('edges', 'replace'): (2, 4, 4, 1),
            ('node', 'add-remove'): (D, 2 * D, D + 1, D),
            ('node', 'replace'): (2 * D, 2 * D, 2 * D + 1, D),
        }[self.unit, self.relation]
        shared = Fraction(self.epsilon) * Fraction(self.share)
        part = (Fraction(self.epsilon) - shared) / pairs
        degrees = shared * 10 / 11 - Fraction(cells, 2**39)
        number = shared / 11 - Fraction(1, 2**39)
        if part < Fraction(1, 2**20) or 2 * min(degrees, 10 * number) < shared:
            raise ValueError(f"'epsilon' must leave at least 2**-20 for each "
                             f"of {pairs} pairs and 2**-37 for each of {cells} "
                             f"degrees (got {epsilon}, with 'share' {share})")
        # Upwards: more noise, never less.
        self._scale = math.nextafter(float(distance / degrees), math.inf)
        self._number_scale = math.nextafter(float(edges / number), math.inf)
        with localcontext(prec=80):
            self._flip = 1 / (odds(Decimal(part.numerator) /
                                   part.denominator) + 1)

    @property
    def flip(self) -> float:
        """The probability with which a pair is flipped, before thinning."""
        return float(self._flip)

    @property
    def degree_scale(self) -> float:
        """The scale of the noise on the degrees."""
        return self._scale

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to one unit."""
        promise = super().guarantee
        if self.unit == Unit.EDGES:
            return replace(promise, relation=self.relation)
        # Nothing but edges is read, and one of them is less than a node, unless
        # it moves where a node has one at the most.
        return replace(
            promise, unit=self.unit, relation=self.relation,
            assumptions=(*promise.assumptions, f"no node has more than "
                         f"{self.max_degree} edges, in any graph that is "
                         f"possible"),
            also=((Unit.FEATURES, 0), (Unit.LABELS, 0),
                  (Unit.EDGES, 2 if self.max_degree == 1 else 1)))

    def canaries(self) -> Sequence[EdgePair | NodeEdges]:
        """An edge, or a node with as many as it may have."""
        if self.max_degree is None:
            return super().canaries()
        return [NodeEdges(self.max_degree, self.relation)]

    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """The expected number of pairs in the output, for a graph in which
        :obj:`num_edges` pairs have an edge, as far as degrees are preserved.
        """
        # What moving the noisy number into its range adds, or takes away.
        rest = num_pairs(num_nodes) - num_edges
        ratio = math.exp(-1 / self._number_scale)
        width = -math.expm1(-2 / self._number_scale)
        return num_edges + (ratio**(num_edges + 1) -
                            ratio**(rest + 1)) / width

    def release(self, edges: Pairs, count: int, source: NoiseSource) -> Pairs:
        """Draws a graph over :obj:`count` pairs, :obj:`edges` of which have
        an edge.
        """
        num_nodes = (1 + math.isqrt(1 + 8 * count)) // 2
        self.check_degrees(edges, num_nodes)
        targets = self.targets(edges, num_nodes, source.derive('degrees'))
        weights = self.weights(targets)
        levels = _levels(weights)
        false = distinct(self._false_pairs(weights, levels,
                                           source.derive('pairs')))
        true = self._true_pairs(edges, weights, levels, source.derive('edges'))
        # A pair with an edge has a coin of its own.
        return symmetric_difference(true, false[~contains(edges, false)])

    def check_degrees(self, edges: Pairs, num_nodes: int) -> None:
        """Raises an error if a node has more edges than the cap."""
        if self.max_degree is None or len(edges) == 0:
            return
        degree = degrees(edges, num_nodes)
        if degree.max() > self.max_degree:
            raise ValueError(
                f"'max_degree' is too small for this graph: some node has more "
                f"edges (got {self.max_degree}). BoundDegree(max_degree="
                f"{self.max_degree}) removes some")

    def targets(self, edges: Pairs, num_nodes: int,
                source: NoiseSource) -> Array:
        """What noisy degrees, and a noisy number of edges, tell about the true
        degrees.
        """
        number = len(edges) + int(discrete_laplace(
            source.derive('number'), self._number_scale, 1)[0])
        number = min(max(number, 0), num_pairs(num_nodes))
        noisy = degrees(edges, num_nodes) + discrete_laplace(
            source, self._scale, num_nodes)
        step = max(1, int(self._scale / 8))  # Finer makes no difference.
        values, place, count = np.unique(np.rint(noisy / step) * step,
                                         return_inverse=True,
                                         return_counts=True)
        if number == 0:
            return np.zeros(num_nodes)
        most = min(max(values.max(), 1.0), self.max_degree or num_nodes - 1)
        few = _few_up_to(most)
        gap = np.abs(values[:, None] - few)
        chance = np.exp((gap.min(axis=1, keepdims=True) - gap) / self._scale)
        # How many nodes have which degree: the most likely law, by EM.
        law = np.full(len(few), 1 / len(few))
        for _ in range(_EM_STEPS):
            law *= chance.T @ (count / (chance @ law)) / num_nodes
        means: Array = chance @ (law * few) / (chance @ law)
        targets = means[place]
        targets *= 2 * number / max(targets.sum(), 1e-9)
        return np.minimum(targets, num_nodes - 1.0)

    def weights(self, targets: Array) -> Array:
        r"""The :math:`w_u` that preserve the targets, by scaling rows and
        columns in turn over bins of similar targets.
        """
        weights = np.zeros(len(targets))
        some = targets > 0
        if not some.any():
            return weights
        logs = np.log(targets[some])
        bins = np.rint(_BINS_PER_E * logs).astype(np.int64)
        _, bins = np.unique(bins, return_inverse=True)
        count = np.bincount(bins).astype(np.float64)
        d = np.exp(np.bincount(bins, logs) / count)
        true = (1 - 2 * self.flip) * np.outer(d, count * d) / (count @ d)
        chance = true + self.flip * (count - np.eye(len(d)))
        w = np.sqrt(d / chance.sum(axis=1))
        for _ in range(200):
            reached = (np.minimum(np.outer(w, w), 1.0) * chance).sum(axis=1)
            w = np.minimum(w * np.sqrt(d / reached), 2.0**_HIGHEST)
            if np.abs(reached / d - 1).max() < 1e-6:
                break
        weights[some] = np.exp(np.interp(logs, np.log(d), np.log(w)))
        return weights

    def _true_pairs(self, edges: Pairs, weights: Array, levels: Pairs,
                    source: NoiseSource) -> Pairs:
        # Coins of (1 - q) T, rounded down, and of t / T; T is a power of two.
        out, count = np.empty_like(edges), 0
        for start, stop, words in source.blocks(len(edges), 2):
            count += _keep(edges[start:stop], weights, levels,
                           np.uint64(self._limit()), words, out[count:])
        return out[:count]

    def _limit(self) -> int:
        with localcontext(prec=80):
            limit = (1 - self._flip) * 2**64
            return int(limit.to_integral_value(ROUND_FLOOR))

    def _false_pairs(self, weights: Array, levels: Pairs,
                     source: NoiseSource) -> Pairs:
        # Pairs that coins of q T and of t / T picked, in all blocks of two
        # classes.
        members = {}
        for level in np.unique(levels[levels >= _LOWEST]).tolist():
            nodes = np.flatnonzero(levels == level)
            members[level] = nodes, weights[nodes]
        found = [np.empty(0, np.int64)]
        for a, rows in members.items():
            for b, columns in members.items():
                if a > b:
                    continue
                size = (num_pairs(len(rows[0])) if a == b else
                        len(rows[0]) * len(columns[0]))
                level, block = min(a + b, 0), source.derive(a, b)
                with localcontext(prec=80):
                    chance = self._flip * Decimal(2)**level
                at, count = sparse_bernoulli(block, chance, size), 0
                for start, stop, words in block.derive('thin').blocks(
                        len(at), 1):
                    count += _thin(at[start:stop], rows, columns, level,
                                   words, at[count:])
                found.append(at[:count])
        return np.concatenate(found)


@jit
def _stays(weight: float, other: float, level: int, word: np.uint64) -> bool:
    # A coin of t / T for a pair, whether it has an edge or not. In 63 bits, so
    # that one is one.
    chance = math.ldexp(min(weight * other, 1.0), -level)
    limit = np.uint64(math.floor(min(chance, 1.0) * 9223372036854775808.0))
    return bool(word >> np.uint64(1) < limit)


@jit
def _keep(edges: Pairs, weights: Array, levels: Pairs, limit: np.uint64,
          words: Words, out: Pairs) -> int:
    # Two words an edge. Returns how many of them stay.
    count = 0
    for i in range(edges.size):
        if i + _AHEAD < edges.size:
            u, _ = nodes_of(edges[i + _AHEAD])
            prefetch(weights, u)
            prefetch(levels, u)
        u, v = nodes_of(edges[i])
        level = min(levels[u] + levels[v], 0)
        stays = min(levels[u], levels[v]) >= _LOWEST
        stays &= words[2 * i] < limit >> np.uint64(-level)
        stays &= _stays(weights[u], weights[v], level, words[2 * i + 1])
        out[count] = edges[i]  # No branch: the next nodes are read meanwhile.
        count += stays
    return count


@jit
def _cell(at: int, width: int) -> tuple[int, int]:
    # The row and the column of a place in a block, or in a triangle.
    return (at // width, at % width) if width else nodes_of(at)


@jit
def _thin(at: Pairs, rows: Class, columns: Class, level: int, words: Words,
          out: Pairs) -> int:
    # One word for each place in a block, which is a triangle if rows and
    # columns are the same nodes. Returns how many pairs stay.
    count = 0
    width = 0 if rows[0][0] == columns[0][0] else columns[0].size
    for i in range(at.size):
        if i + _AHEAD < at.size:
            u, v = _cell(at[i + _AHEAD], width)
            prefetch(rows[0], u)
            prefetch(rows[1], u)
            prefetch(columns[0], v)
            prefetch(columns[1], v)
        u, v = _cell(at[i], width)
        stays = _stays(rows[1][u], columns[1][v], level, words[i])
        out[count] = number_of(rows[0][u], columns[0][v])
        count += stays
    return count


def _few_up_to(most: float) -> Array:
    # All integers at first, and then one in twenty.
    grown = 64 * 1.05**np.arange(math.log(max(most, 64) / 64) / 0.04 + 1)
    few = np.unique(np.concatenate([np.arange(64), np.rint(grown), [most]]))
    return few[few <= most]


def _levels(weights: Array) -> Pairs:
    # The exponent of the next power of two; below the lowest: never drawn.
    levels = np.full(len(weights), _LOWEST - 1)
    some = weights > 0
    exact = np.ceil(np.log2(weights[some]))
    exact = np.where(np.exp2(exact) < weights[some], exact + 1, exact)
    levels[some] = np.maximum(exact, _LOWEST).astype(np.int64)
    return levels
