r"""Noisy cells, the largest of which become edges (LapGraph, of LinkTeller: Wu
et al., S&P 2022), with integer noise.

A share of epsilon goes into the number of edges :math:`m`: it is released as
:math:`T = m + Z`, moved into the range from 0 to the number of pairs, with
:math:`P(Z = z) \propto e^{-\varepsilon_1 |z|}`. With the rest,
:math:`\varepsilon_2`, every pair's bit gets noise of the same kind, and the
:math:`T` pairs with the largest results become edges; ties are broken
uniformly.

**Theorem.** The output is :math:`(\varepsilon_1 + \varepsilon_2)`-private for
one edge more or less.

*Proof.* One edge changes :math:`m` by one, and one bit by one. So it changes
the probability of each :math:`T` by a factor of at most
:math:`e^{\varepsilon_1}`, that of each matrix of noisy bits by at most
:math:`e^{\varepsilon_2}`, and the output is a function of the two and of coins
for the ties. ∎

**Lemma.** This is randomised response that is cut, or filled, to :math:`T`
edges: each bit is flipped with probability :math:`\tau = 1/(1 +
e^{\varepsilon_2})`, and the pairs are taken in a random order, those with a one
before those with a zero.

*Proof.* With :math:`a = e^{-\varepsilon_2}`, the result for a bit 0 is positive
with probability :math:`a/(1+a) = \tau`, and for a bit 1 with :math:`1/(1+a) =
1 - \tau`. In both cases, a positive result is one plus a geometric variable,
and another one is minus a geometric variable, with ratio :math:`a`. So, given
their signs, all results with one sign have one law, and uniform ties make any
order of them equally likely. ∎

**Sparse.** Give each pair a score in :math:`[0, 1)`, and take the :math:`T`
smallest. Pairs without an edge draw a uniform score. Those with an edge draw
it below :math:`\tau` with probability :math:`1 - \tau`, and above otherwise,
uniformly there. By the lemma, that is the same law: scores below :math:`\tau`
are the ones. Only scores below a cut :math:`c` are ever drawn, where :math:`c`
times the number of pairs is :math:`T + 70 + \sqrt{70^2 + 140\,T}`: which pairs
without an edge have one is a sparse row of coins. By Chernoff's bound (an edge
only makes a small score more likely), with a probability of less than
:math:`2^{-100}` there are fewer than :math:`T`, and then fewer are released:
the cut depends on :math:`T` alone, so that the proof above holds with it.

**On the machine.** Scores are integers below :math:`2^{62}`; :math:`\tau` is
rounded up to one of them. The odds of the counting noise are off by
:math:`10^{-12}` at the most, and those of a score below the cut by a part in
:math:`2^{59}` (see :mod:`torch_geometric_dp.noise`). To make up for it,
:math:`2^{-39}` is taken off both shares. Equal scores, which hardly ever occur,
are ordered by the pairs' numbers, and so without a look at the edges.
"""
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from torch_geometric_dp._jit import jit
from torch_geometric_dp.accountant import Unit
from torch_geometric_dp.graph.pairs import Pairs, contains, num_pairs
from torch_geometric_dp.mechanisms.edge_mechanism import EdgeMechanism
from torch_geometric_dp.mechanisms.mechanism import WorstCase
from torch_geometric_dp.mechanisms.odds import odds
from torch_geometric_dp.noise import (
    NoiseSource,
    bernoulli,
    discrete_laplace,
    sparse_bernoulli,
    threshold,
    uniform_integers,
)
from torch_geometric_dp.noise.discrete import laplace_grid

_SCORES = 2**62  # How many scores there are.
_PARTS = 2**12  # In which scores are counted.
_FEW = 6  # Pairs of four nodes; a graph is a number of six bits.
_SLACK = Fraction(1, 2**39)  # Makes up for what the samplers round.


class LapGraph(EdgeMechanism):
    r"""Adds integer Laplace noise to the bit of every pair of nodes, and makes
    edges of the largest results, as many as a noisy count says.

    Args:
        epsilon (float): The privacy loss of one edge.
        count_share (float, optional): The share of :obj:`epsilon` that goes
            into the number of edges. (default: :obj:`0.01`)

    .. code-block:: python

        mechanism = LapGraph(epsilon=8.0)
        edges = torch.tensor([[0, 1], [1, 2]])
        noisy = mechanism(edges, 1000, NoiseSource.from_os())
        mechanism.expected_edges(num_nodes=1000, num_edges=100)   # 100.0...
    """
    def __init__(self, epsilon: float, count_share: float = 0.01) -> None:
        super().__init__(epsilon)
        if not 0 < count_share < 1:
            raise ValueError(f"'count_share' must lie between 0 and 1 "
                             f"(got {count_share})")
        self.count_share = float(count_share)
        count = Fraction(self.epsilon) * Fraction(self.count_share)
        cells = Fraction(self.epsilon) - count
        if min(count, cells) < 2 * _SLACK:
            raise ValueError(f"'epsilon' must leave at least 2**-38 for the "
                             f"count and for the cells (got {epsilon}, with "
                             f"'count_share' {count_share})")
        # Upwards: more noise, never less.
        self._scale = math.nextafter(float(1 / (count - _SLACK)), math.inf)
        with localcontext(prec=80):
            part = cells - _SLACK
            chance = 1 / (odds(Decimal(part.numerator) / part.denominator) + 1)
        self._tau = -(-threshold(chance) // (2**64 // _SCORES))

    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """The expected number of pairs in the output, for a graph in which
        :obj:`num_edges` pairs have an edge.
        """
        # What moving the noisy count into its range adds, or takes away.
        rest = num_pairs(num_nodes) - num_edges
        ratio = math.exp(-1 / self._scale)
        width = -math.expm1(-2 / self._scale)
        return num_edges + (ratio**(num_edges + 1) -
                            ratio**(rest + 1)) / width

    def release(self, edges: Pairs, count: int, source: NoiseSource) -> Pairs:
        """Draws a graph over :obj:`count` pairs, :obj:`edges` of which have
        an edge.
        """
        noise = discrete_laplace(source.derive('count'), self._scale, 1)
        wanted = min(max(len(edges) + int(noise[0]), 0), count)
        cut = self._cut(wanted, count)
        pairs = sparse_bernoulli(source.derive('pairs'), Fraction(cut, _SCORES),
                                 count)
        scores = uniform_integers(source.derive('scores'), cut, len(pairs))
        scores[contains(edges, pairs)] = cut  # An edge has one of its own.
        edge_scores = self._edge_scores(len(edges), source)
        first_out, ties = _first_out(scores, edge_scores, cut, wanted)
        out = np.empty(wanted, np.int64)
        return out[:_take(pairs, scores, edges, edge_scores, first_out, ties,
                          out)]

    def worst_case(self) -> WorstCase:
        """Over all outputs for all graphs with four nodes."""
        graphs = np.arange(2**_FEW)
        size = (graphs[:, None] >> np.arange(_FEW) & 1).sum(axis=1)
        # Randomised response, which is cut or filled at random: the lemma, with
        # its integers.
        flips = size[graphs[:, None] ^ graphs]
        tau = self._tau / _SCORES
        ones = tau**flips * (1 - tau)**(_FEW - flips)
        ways = np.zeros(ones.shape)
        for one in graphs:
            for out in graphs:
                k, t = size[one], size[out]
                if t <= k and out & ~one == 0:
                    ways[one, out] = 1 / math.comb(k, t)
                elif t > k and one & ~out == 0:
                    ways[one, out] = 1 / math.comb(_FEW - k, t - k)
        # The noisy count, moved into its range.
        t, s = laplace_grid(self._scale)
        ratio = math.exp(-s / t)
        z = np.arange(_FEW + 1)
        count = (1 - ratio) / (1 + ratio) * ratio**np.abs(z - z[:, None])
        count[:, 0] = ratio**z / (1 + ratio)
        count[:, -1] = ratio**(_FEW - z) / (1 + ratio)
        laws = np.log((ones @ ways) * count[size[:, None], size])
        # From each graph to those with one edge more or less.
        pairs = graphs[:, None] ^ 1 << np.arange(_FEW)
        losses = laws[:, None] - laws[pairs]
        one, edge, out = np.unravel_index(losses.argmax(), losses.shape)
        return WorstCase(float(losses[one, edge, out]), Unit.EDGES,
                         (_pairs(one), _pairs(pairs[one, edge])), _pairs(out))

    def _cut(self, wanted: int, count: int) -> int:
        enough = wanted + 70 + math.isqrt(4900 + 140 * wanted) + 1
        if 2 * enough >= count:  # Then all pairs are no more work.
            return _SCORES
        return _SCORES * enough // count + 1

    def _edge_scores(self, count: int, source: NoiseSource) -> Pairs:
        scores = uniform_integers(source.derive('edges', 'low'), self._tau,
                                  count)
        flipped = np.flatnonzero(bernoulli(source.derive('edges', 'sign'),
                                           Fraction(self._tau, _SCORES), count))
        scores[flipped] = self._tau + uniform_integers(
            source.derive('edges', 'high'), _SCORES - self._tau, len(flipped))
        return scores


def _pairs(graph: Any) -> str:
    # The pairs of a graph with four nodes, by their numbers.
    return f'pairs {[i for i in range(_FEW) if graph >> i & 1]}'


def _first_out(scores: Pairs, edge_scores: Pairs, cut: int,
               wanted: int) -> tuple[int, int]:
    # The score that is no longer small enough, unless it is that of several
    # pairs: then how many of them are wanted.
    shift = max(0, (cut - 1).bit_length() - _PARTS.bit_length())
    count = np.zeros((cut - 1 >> shift) + 1, np.int64)
    for part in (scores, edge_scores):
        _histogram(part, cut, shift, count)
    upto = np.cumsum(count)
    if upto[-1] <= wanted:
        return cut, 0
    place = int(np.searchsorted(upto, wanted, 'right'))
    near = np.concatenate([part[part >> shift == place]
                           for part in (scores, edge_scores)])
    near = near[near < cut]
    rest = wanted - int(upto[place] - count[place])
    near.partition(rest)
    first_out = int(near[rest])
    return first_out, rest - int((near[:rest] < first_out).sum())


@jit
def _histogram(scores: Pairs, cut: int, shift: int, count: Pairs) -> None:
    for score in scores:
        if score < cut:
            count[score >> shift] += 1


@jit
def _take(pairs: Pairs, scores: Pairs, edges: Pairs, edge_scores: Pairs,
          first_out: int, ties: int, out: Pairs) -> int:
    # Both kinds of pairs in the order of their numbers, in which ties are
    # taken, too. Returns how many there are.
    i, j, count = 0, 0, 0
    while i < pairs.size or j < edges.size:
        if j == edges.size or (i < pairs.size and pairs[i] < edges[j]):
            pair, score, i = pairs[i], scores[i], i + 1
        else:
            pair, score, j = edges[j], edge_scores[j], j + 1
        if score == first_out and ties > 0:
            ties, score = ties - 1, score - 1
        if score < first_out:
            out[count] = pair
            count += 1
    return count
