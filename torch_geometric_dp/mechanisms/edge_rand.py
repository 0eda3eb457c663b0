r"""Randomised response on every pair of nodes (EdgeRand, of LinkTeller: Wu et
al., S&P 2022).

Each pair's bit, edge or no edge, is flipped with probability

.. math::
    q = \frac{1}{1 + e^{\varepsilon}},

independently of all others. (LinkTeller's form, a fair bit in the place of the
true one with probability :math:`2q`, is the same law.)

**Theorem.** The output is :math:`\varepsilon`-private for one edge more or
less, and no smaller epsilon holds.

*Proof.* Two such graphs differ in the bit of one pair, all other bits have the
same law under both, and bits are independent. So the ratio of an output's
probabilities is that of one bit's, :math:`(1-q)/q = e^{\varepsilon}` or its
inverse; both occur. ∎

**Sparse.** The pairs to flip do not depend on the graph: they are the heads
among as many coins as there are pairs. The output is the symmetric difference
of the edges and the heads, and takes the time and memory of these two.

**On the machine.** :func:`~torch_geometric_dp.noise.sparse_bernoulli` tosses
exactly independent coins with one probability :math:`q' \geq q`, more than
:math:`q` by a part in :math:`2^{60}` at the most. Hence :math:`(1-q')/q' \leq
e^{\varepsilon}`, and :math:`q' < 1/2`, as :math:`\varepsilon \geq 2^{-50}`: the
theorem holds for what the machine does, without any error term. Epsilons above
36 count as 36.
"""
from decimal import localcontext

from torch_geometric_dp.accountant import Unit
from torch_geometric_dp.graph.pairs import (
    Pairs,
    num_pairs,
    symmetric_difference,
)
from torch_geometric_dp.mechanisms.edge_mechanism import EdgeMechanism
from torch_geometric_dp.mechanisms.mechanism import WorstCase
from torch_geometric_dp.mechanisms.odds import odds
from torch_geometric_dp.noise import NoiseSource, sparse_bernoulli
from torch_geometric_dp.noise.coins import dart_board


class EdgeRand(EdgeMechanism):
    r"""Randomised response on every pair of nodes: an edge appears, or
    disappears, with probability :math:`1 / (1 + e^{\varepsilon})`.

    Args:
        epsilon (float): The privacy loss of one edge.

    .. code-block:: python

        mechanism = EdgeRand(epsilon=8.0)
        edges = torch.tensor([[0, 1], [1, 2]])
        noisy = mechanism(edges, 1000, NoiseSource.from_os())
        mechanism.expected_edges(num_nodes=1000, num_edges=2)   # 169.5...
    """
    def __init__(self, epsilon: float) -> None:
        super().__init__(epsilon)
        if self.epsilon < 2.0**-50:
            raise ValueError(f"'epsilon' must be at least 2**-50: below, a "
                             f"coin cannot be told from a fair one "
                             f"(got {epsilon})")
        with localcontext(prec=80):
            self._flip = 1 / (odds(self.epsilon) + 1)

    @property
    def flip(self) -> float:
        """The probability with which a pair is flipped."""
        return float(self._flip)

    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """The expected number of pairs in the output, for a graph in which
        :obj:`num_edges` pairs have an edge.
        """
        return num_edges + self.flip * (num_pairs(num_nodes) - 2 * num_edges)

    def worst_case(self) -> WorstCase:
        """For one pair: the coins of the sampler, in a large graph."""
        with localcontext(prec=60):
            rate, _ = dart_board(self._flip)
            flip = 1 - (-rate).exp()
            loss = float(((1 - flip) / flip).ln())
        return WorstCase(loss, Unit.EDGES, ('an edge', 'none'), 'an edge')

    def release(self, edges: Pairs, count: int, source: NoiseSource) -> Pairs:
        """Draws a graph over :obj:`count` pairs, :obj:`edges` of which have
        an edge.
        """
        flips = sparse_bernoulli(source, self._flip, count)
        return symmetric_difference(edges, flips)
