r"""Votes of neighbours for whole people: what nodes with a label tell their
neighbours without one.

Who has a label is public; rows, labels and edges are not. A node :math:`v` with
a label casts it, as a row of one number for each class, at each of its
:math:`d_v` neighbours without a label, with the weight :math:`g(d_v) = \min(1,
\sqrt{D / d_v})`, so that all that it casts has a Euclidean norm of at most
:math:`\sqrt{D}`, however many neighbours it has. A node without a label gets
the sum of what is cast at it, and Gaussian noise.

**Neighbouring graphs.** The row and the label of one node :math:`w` are
replaced, and at most :math:`k` pairs of :math:`w` and others gain or lose an
edge. If no node has more than :math:`M` edges in any graph, :math:`k = 2 M` is
a node that is replaced with all of its edges.

**Trust.** The sum of a node is told to that node alone (joint differential
privacy: Kearns, Pai, Roth and Ullman, 2014): :math:`w` is protected against all
others, whatever they put together.

**Lemma (sensitivity).** With :math:`\rho = \max_d \sqrt{d} \, (g(d) - g(d +
1))`, the sums of all nodes but :math:`w` change by a Euclidean distance of at
most :math:`\Delta = \max(\sqrt{2 D}, k \rho)`.

*Proof.* Let :math:`w` have a label. No other node's weight depends on it, as
nodes with a label are not cast at. What it casts was a vector :math:`a` over
all nodes and classes, and becomes :math:`b`. Neither has negative entries, so
:math:`\|a - b\|^2 \leq \|a\|^2 + \|b\|^2 \leq 2 D`. Let :math:`w` have none. It
casts nothing, and its own sum does not count. A pair of :math:`w` and
:math:`v` that changes makes :math:`d_v` one more or one less, so that :math:`v`
casts :math:`g(d)` or :math:`g(d + 1)` at its :math:`d` other neighbours: a
distance of at most :math:`\rho`. There are at most :math:`k` of these. ∎

Both cases are met: by a node whose label changes, which has :math:`D`
neighbours or more; and by :math:`k` nodes of one class that all have the same
neighbours. As :math:`\rho \approx 1 / (2 \sqrt{D})`, the smallest :math:`D`
with :math:`k \rho \leq \sqrt{2 D}` is about :math:`k / \sqrt{8}`. It needs
nothing but :math:`k`; and a smaller :math:`D` is never worse, since what is
heard, over :math:`\sqrt{D}`, is a sum of :math:`\min(1 / \sqrt{D}, 1 /
\sqrt{d_v})`.

**Theorem.** Discrete Gaussian noise of the scale :math:`\sigma = \mu \Delta`,
with :math:`\mu` the multiplier of :mod:`torch_geometric_dp.mechanisms.gaussian`
for :math:`(\varepsilon, \delta)`, makes the sums :math:`(\varepsilon,
\delta)`-private; and parts with the multipliers :math:`\mu / \sqrt{s_i}`,
:math:`\sum_i s_i \leq 1`, together, also where one depends on those before
(Dong, Roth and Su, 2022).

**The grid.** Weights are integers :math:`t(d) = \min(n, \lfloor \sqrt{D n^2 /
d} \rfloor)`, for which :math:`d \, t(d)^2 \leq D n^2` exactly; :math:`\rho` is
computed from them. Sums of integers below :math:`2^{53}` are exact in doubles.
"""
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._validate import (
    check_delta,
    check_epsilon,
    check_integer,
)
from torch_geometric_dp.accountant import (
    GaussianNoise,
    Guarantee,
    Relation,
    Trust,
    Unit,
)
from torch_geometric_dp.graph.pairs import Pairs, from_pairs
from torch_geometric_dp.mechanisms.gaussian import gaussian_scale, noise_loss
from torch_geometric_dp.mechanisms.mechanism import Canary, WorstCase
from torch_geometric_dp.noise import NoiseSource, discrete_gaussian

#: In a vote, and in one of the pairs that are counted.
STEPS = 2**20


class NodeVotes(Captured):
    r"""The votes of nodes with a label for their neighbours without one, and
    their number, with Gaussian noise.

    Args:
        epsilon (float): The privacy loss of one node, over all releases.
        delta (float): The probability with which the loss may be larger.
        edges (int, optional): At most so many edges change with a node.
            (default: :obj:`None`)
        max_degree (int, optional): All edges of a node change, which has at
            most so many in any graph that is possible: a public number. Either
            this or :obj:`edges` is needed. (default: :obj:`None`)
        cells (int, optional): The number of noisy integers that are drawn in
            all, here and in what shares the budget.
            (default: :obj:`1048576`)

    .. code-block:: python

        votes = NodeVotes(8.0, delta=1e-5, edges=1)
        pairs = torch.tensor([0, 1]).numpy()   # of nodes 0 and 1, 0 and 2
        noisy = votes(pairs, torch.tensor([0, -1, -1]), 2,
                      NoiseSource.from_os())
        noisy.shape   # torch.Size([3, 2])
    """
    def __init__(self, epsilon: float, delta: float, edges: int | None = None,
                 max_degree: int | None = None, cells: int = 2**20) -> None:
        self.epsilon = check_epsilon(epsilon)
        self.delta = check_delta(delta)
        if (edges is None) == (max_degree is None):
            raise ValueError(f"Either 'edges', the number of edges that change "
                             f"with a node, or 'max_degree', the most that it "
                             f"has, must be given (got edges={edges}, "
                             f"max_degree={max_degree})")
        self.edges = edges and check_integer('edges', edges, 1)
        self.max_degree = max_degree and check_integer('max_degree',
                                                       max_degree, 1)
        self.cells = check_integer('cells', cells, 1)
        #: The scale of the noise over the sensitivity, of all parts together.
        self.multiplier = gaussian_scale(self.epsilon, self.delta, STEPS,
                                         self.cells) / STEPS

    @property
    def flips(self) -> int:
        """How many pairs change with a node."""
        return self.edges or 2 * (self.max_degree or 0)

    @property
    def reach(self) -> int:
        """At so many neighbours a node casts whole votes: the smallest number
        for which edges do not count more than labels.
        """
        least = 1 - math.sqrt(2) / self.flips
        share = least**2 if least > 0 else 0.0
        out = max(1, math.ceil(share / (1 - share)))
        while self.flips * (1 - math.sqrt(out / (out + 1))) > math.sqrt(2):
            out += 1
        return out

    @property
    def guarantee(self) -> Guarantee:
        """What all parts together promise."""
        assumptions = []
        if self.max_degree is not None:
            assumptions.append(f"no node has more than {self.max_degree} "
                               f"edges, in any graph that is possible")
        return Guarantee(self.epsilon, Unit.NODE, Relation.REPLACE, self.delta,
                         Trust.JOINT, tuple(assumptions), edges=self.edges,
                         event=GaussianNoise(self.multiplier))

    def worst_case(self) -> WorstCase:
        """The smallest epsilon for the delta that is promised, where a label
        changes.
        """
        return WorstCase(noise_loss([1.0], [self.multiplier], self.delta),
                         Unit.NODE, ('a label', 'another one'),
                         'votes far beyond those of the first',
                         delta=self.delta)

    def canaries(self) -> list[Canary]:
        """None that are tried by themselves: what is released is a model."""
        return []

    def weights(self, degree: NDArray[Any]) -> NDArray[np.int64]:
        """What nodes cast at each of some numbers of neighbours, in steps."""
        whole = self.reach * STEPS**2
        degree = np.maximum(degree.astype(np.int64), 1)
        out = np.floor(np.sqrt(whole / degree)).astype(np.int64)
        out -= degree * out**2 > whole  # What a root was rounded up to.
        return np.minimum(out, STEPS)

    def sensitivity(self, num_nodes: int) -> float:
        r"""The lemma's :math:`\Delta`, in steps."""
        degree = np.arange(1, max(num_nodes, 2))
        step = -np.diff(self.weights(degree))
        moved = float((np.sqrt(degree[:-1]) * step).max(initial=0.0))
        label = math.sqrt(2 * self.reach) * STEPS
        return max(label, self.flips * moved) * (1 + 2.0**-45)

    def scale(self, num_nodes: int, share: float = 1.0) -> float:
        """The scale of the noise in votes, in steps, of a share."""
        return (self.multiplier * self.sensitivity(num_nodes)
                / math.sqrt(share) * (1 + 2.0**-45))

    def sums(self, pairs: Pairs, known: Tensor, num_classes: int) -> Tensor:
        """The exact sums, in steps, given the numbers of the pairs that have
        an edge, and the class of each node, or -1.
        """
        voter, hearer = _arrows(pairs, known)
        label = known.numpy()
        weight = self.weights(np.bincount(voter, minlength=len(label)))
        cell = hearer * num_classes + label[voter]
        out = np.bincount(cell, weight[voter].astype(np.float64),
                          len(label) * num_classes)
        return torch.from_numpy(out).view(len(label), num_classes)

    def __call__(self, pairs: Pairs, known: Tensor, num_classes: int,
                 source: NoiseSource, share: float = 1.0) -> Tensor:
        """The noisy sums, in votes, for whoever has paid for them."""
        sums = self.sums(pairs, known, num_classes)
        noise = discrete_gaussian(source, self.scale(len(known), share),
                                  tuple(sums.shape))
        return (sums + torch.from_numpy(noise)) / STEPS

    def count(self, pairs: Pairs, known: Tensor, source: NoiseSource,
              share: float) -> float:
        """The noisy number of pairs of a node with a label and one without: at
        most :attr:`flips` of them change with a node.
        """
        scale = self.flips * STEPS * self.multiplier / math.sqrt(share)
        noise = discrete_gaussian(source, scale * (1 + 2.0**-45), (1, ))
        return len(_arrows(pairs, known)[0]) + float(noise[0]) / STEPS


def _arrows(pairs: Pairs, known: Tensor) -> tuple[Pairs, Pairs]:
    # From nodes with a label to those without.
    low, high = from_pairs(pairs).numpy()
    told = known.numpy() >= 0
    up, down = told[low] & ~told[high], told[high] & ~told[low]
    return (np.concatenate([low[up], high[down]]),
            np.concatenate([high[up], low[down]]))
