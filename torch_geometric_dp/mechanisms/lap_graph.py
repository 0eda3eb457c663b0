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

import numpy as np

from torch_geometric_dp.mechanisms.edge_mechanism import EdgeMechanism
from torch_geometric_dp.mechanisms.odds import odds
from torch_geometric_dp.mechanisms.pairs import Pairs, contains, num_pairs
from torch_geometric_dp.noise import (
    NoiseSource,
    discrete_laplace,
    sparse_bernoulli,
    threshold,
    uniform_integers,
)

_SCORES = 2**62  # How many scores there are.
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
        # An edge has a score of its own.
        other = ~contains(edges, pairs)
        pairs = np.concatenate([pairs[other], edges])
        scores = np.concatenate([scores[other],
                                 self._edge_scores(len(edges), source)])
        return _smallest(pairs[scores < cut], scores[scores < cut], wanted)

    def _cut(self, wanted: int, count: int) -> int:
        enough = wanted + 70 + math.isqrt(4900 + 140 * wanted) + 1
        if 2 * enough >= count:  # Then all pairs are no more work.
            return _SCORES
        return _SCORES * enough // count + 1

    def _edge_scores(self, count: int, source: NoiseSource) -> Pairs:
        def draw(name: str, high: int) -> Pairs:
            return uniform_integers(source.derive('edges', name), high, count)

        return np.where(draw('sign', _SCORES) < self._tau,
                        self._tau + draw('high', _SCORES - self._tau),
                        draw('low', self._tau))

    def __repr__(self) -> str:
        share = (f', count_share={self.count_share}'
                 if self.count_share != 0.01 else '')
        return f'{self.__class__.__name__}(epsilon={self.epsilon}{share})'


def _smallest(pairs: Pairs, scores: Pairs, wanted: int) -> Pairs:
    if len(pairs) > wanted:
        first_out = np.partition(scores, wanted)[wanted]
        tied = np.sort(pairs[scores == first_out])
        pairs = pairs[scores < first_out]
        pairs = np.concatenate([pairs, tied[:wanted - len(pairs)]])
    return np.sort(pairs)
