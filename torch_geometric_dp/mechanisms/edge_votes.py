r"""Votes of neighbours, with noise: what each node's neighbours say about its
class.

Every node :math:`v` has a public ballot :math:`p_v`, a row of one number for
each class whose L1 norm is at most 1: its label, where that is public, or what
a public model thinks of it. A node gets the sum of the ballots of its
neighbours, and Laplace noise. That is a
:class:`~torch_geometric_dp.mechanisms.NeighbourSum` of ballots for edges; here
each edge may vote in one direction only, which takes half of the noise.

**Theorem.** Let a public function say for each pair of nodes which end hears
the other. The sums over the edges that are there, with discrete Laplace noise
of scale :math:`1/\varepsilon`, are :math:`\varepsilon`-private for an edge that
comes or goes (:math:`2/\varepsilon` if it is exchanged for another). If both
ends hear each other, the scales are :math:`2/\varepsilon` and
:math:`4/\varepsilon`.

*Proof.* Ballots and directions are the same in neighbouring graphs. An edge
that comes or goes changes one sum by one ballot, whose norm is at most 1, or
two sums by one ballot each; and an edge that is exchanged is one that goes and
one that comes. The logarithm of the ratio of two probabilities is at most the
L1 distance of all sums, divided by the scale. ∎

**Whom to hear.** The end that is publicly less certain: a node whose label is
public has nothing to learn from others, and a model that is sure of a class
has more to tell than one that is not. Ties are decided by a hash of the pair.

The grid, and what the sampler's own error takes off epsilon, are those of
:mod:`torch_geometric_dp.mechanisms.neighbour_sum`.
"""
import numpy as np
import torch
from torch import Tensor

from torch_geometric_dp._jit import jit
from torch_geometric_dp._typing import Array
from torch_geometric_dp.accountant import Relation
from torch_geometric_dp.graph.pairs import Pairs, nodes_of, to_pairs
from torch_geometric_dp.mechanisms.neighbour_sum import NeighbourSum
from torch_geometric_dp.noise import NoiseSource, in_threads

_PER_NODE = 4  # Pairs that a thread has at the least.


class EdgeVotes(NeighbourSum):
    r"""The sums of the ballots of neighbours, with Laplace noise.

    Args:
        epsilon (float): The privacy loss of one edge.
        oriented (bool, optional): If set to :obj:`False`, both ends of an edge
            hear each other, under twice the noise. (default: :obj:`True`)
        relation (str, optional): Whether an edge comes or goes
            (:obj:`"add-remove"`), or is exchanged for another
            (:obj:`"replace"`). (default: :obj:`"add-remove"`)

    .. code-block:: python

        ballots = torch.eye(3)
        pairs = torch.tensor([0, 1]).numpy()   # of nodes 0 and 1, 0 and 2
        votes = EdgeVotes(epsilon=1.0)
        noisy = votes(pairs, ballots, torch.tensor([1.0, 0.5, 0.2]),
                      NoiseSource.from_os())
        noisy.shape   # torch.Size([3, 3])
    """
    def __init__(self, epsilon: float, oriented: bool = True,
                 relation: str = 'add-remove') -> None:
        super().__init__(epsilon, unit='edge', relation=relation)
        self.oriented = bool(oriented)

    def sensitivity(self, weight: Tensor | None = None, hop: int = 0) -> float:
        """The largest distance of the sums of neighbouring graphs: how many
        ballots an edge casts, or two edges.
        """
        once = 1.0 if self.oriented else 2.0
        return once if self.relation == Relation.ADD_REMOVE else 2 * once

    def count(self, pairs: Pairs, ballots: Tensor,
              certainty: Tensor) -> Tensor:
        """The exact sums, in steps, given the numbers of the pairs that have an
        edge, in increasing order, and how certain each node is.
        """
        # Steps are below 2**24: exact in floats, which take half the memory.
        rows = self.to_steps(ballots).float().numpy()
        sure = certainty.detach().cpu().numpy()

        def part(first: int, last: int) -> Array:
            # No pair has larger nodes than the one after it.
            count = (len(rows) if last == len(pairs) else
                     nodes_of(pairs[last])[1] + 1)
            sums = np.zeros((count, rows.shape[1]))
            _tally(pairs[first:last], rows, sure, self.oriented, sums)
            return sums

        # Sums of integers are exact, in any order. With fewer pairs, to add up
        # parts would take longer than to count them.
        *others, sums = in_threads(part, len(pairs), max(
            1, _PER_NODE * len(rows)))
        for other in others:
            sums[:len(other)] += other
        return torch.from_numpy(sums)

    def __call__(self, pairs: Pairs, ballots: Tensor, certainty: Tensor,
                 source: NoiseSource) -> Tensor:
        """The noisy sums, for whoever has paid for them."""
        return self.release(self.count(pairs, ballots, certainty),
                            self.scale(ballots.size(1)), source)

    def deviation(self, num_classes: int) -> float:
        """The scale of the noise, in ballots."""
        return float(self.scale(num_classes)) / self.steps

    def _exact(self, x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        return (self.count(to_pairs(edges), x, torch.zeros(len(x))),
                self.scale(x.size(1)))


@jit
def _tally(pairs: Pairs, rows: Array, certainty: Array, oriented: bool,
           sums: Array) -> None:
    # Pairs of a node with smaller ones start at `first`.
    high = nodes_of(pairs[0])[1] if pairs.size else 1
    first = high * (high - 1) // 2
    for i in range(pairs.size):
        while pairs[i] >= first + high:
            high, first = high + 1, first + high
        low = pairs[i] - first
        up = not oriented or certainty[low] > certainty[high] or (
            certainty[low] == certainty[high] and _coin(np.uint64(pairs[i])))
        if up:
            for j in range(rows.shape[1]):
                sums[high, j] += rows[low, j]
        if not up or not oriented:
            for j in range(rows.shape[1]):
                sums[low, j] += rows[high, j]


@jit
def _coin(pair: np.uint64) -> bool:
    # One bit of the finaliser of SplitMix64: public, and the same everywhere.
    z = pair + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bool((z ^ (z >> np.uint64(31))) & np.uint64(1))
