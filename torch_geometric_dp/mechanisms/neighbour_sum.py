r"""Sums over neighbours with noise, on a grid: the mathematics of
:class:`~torch_geometric_dp.nn.NAP` (NIP-GNN, Eq. 9 to 11, corrected).

Each of :math:`N` nodes has a row :math:`x_v`, clipped to a norm of at most
:math:`c`: the L1 norm for Laplace noise (:math:`p = 1`), the Euclidean one for
Gaussian noise (:math:`p = 2`). Node :math:`u` gets the sum :math:`h_u` over
the edges that point at it, and noise. A node has at most :math:`D` edges that
come in, and at most :math:`D` that go out. Public numbers :math:`w_u > 0` say
how exact each sum shall be: its noise has the scale :math:`b / w_u`.

**Lemma (sensitivity).** With :math:`T_k` the sum of the :math:`k` largest
:math:`w_u^p` and :math:`M = T_1`, the weighted distance :math:`(\sum_u w_u^p
\|h_u - h'_u\|_p^p)^{1/p}` of neighbouring graphs is at most :math:`c
\Delta`, with :math:`\Delta^p` from this table:

=====  ===========  =====================  ======================
unit   relation     :math:`p = 1`          :math:`p = 2`
=====  ===========  =====================  ======================
node   add-remove   :math:`D M + T_D`      :math:`D^2 M + T_D`
node   replace      :math:`2 D M + 2 T_D`  :math:`4 D^2 M + 4 T_D`
edge   add-remove   :math:`T_2`            :math:`T_2`
edge   replace      :math:`2 T_2`          :math:`4 M + T_2`
=====  ===========  =====================  ======================

Without weights that is :math:`2D, 4D, 2, 4` and :math:`\sqrt{D^2 + D},
2\sqrt{D^2 + D}, \sqrt{2}, \sqrt{6}`.

*Proof.* A node that goes leaves an empty place: the number of nodes is public.
Its own sum of at most :math:`D` rows becomes zero, a change of :math:`D c` at
the most, and each of at most :math:`D` others loses one row. If a node is
replaced, its own sum changes by at most :math:`2 D c`. A node that heard it
before and after changes by :math:`\|x_v - x'_v\| \leq 2c`, and one that heard
it only before or only after by :math:`c`; since both neighbourhoods have at
most :math:`D` nodes, the weights add up to :math:`2 T_D` for :math:`p = 1`, and
to :math:`4 T_D` for :math:`p = 2`. An edge, in one direction or in both,
changes the sums at its ends by one row each. If one edge is replaced by
another at the same node, that node's sum changes by :math:`2c` and two others
by :math:`c`; other pairs of edges change four sums by :math:`c`, which is
less. ∎

For :math:`p = 2`, adding or removing a node is charged with :math:`4 T_D` at
the least, so that the promise also covers a node whose row alone is replaced.
(For :math:`p = 1`, and for :math:`D \geq 3` without weights, it does anyway.)
It covers an edge that comes, goes or is replaced, too, as :math:`D M + T_D \geq
2 T_2` and :math:`D^2 M + T_D \geq 4 M + T_2` for :math:`D \geq 2`; for
:math:`D = 1`, an edge that is replaced counts as two nodes.

**Theorem (Laplace).** With noise :math:`P(z) \propto e^{-|z| w_u / b}` and
:math:`b = c \Delta / \varepsilon`, the sums are :math:`\varepsilon`-private.
*Proof.* The logarithm of the ratio of two probabilities is at most
:math:`\sum_u \|h_u - h'_u\|_1 w_u / b`. ∎ With uniform :math:`w` the scale is
:math:`2 D c / \varepsilon`, as in Lemma 1 of the paper. With others, it is the
condition :math:`T_D + D M \leq 2 D` for :math:`\beta = 2 D w / \Delta`.

**Theorem (Gaussian).** Noise :math:`P(z) \propto e^{-z^2 w_u^2 / (2 b^2)}` is
the Gaussian mechanism for the weighted sums, whose distance is :math:`c
\Delta`; see :mod:`torch_geometric_dp.mechanisms.gaussian` for its scale.

**Hops.** The next hop sums rows that were released: they are the same for both
neighbours, so that a replaced node's row no longer changes. Only where a node
is heard does, and :math:`4 T_D` becomes :math:`2 T_D`. All else is as before,
since rows are clipped again. For Laplace noise, each of :math:`K` hops gets
:math:`\varepsilon / K`. Gaussian mechanisms with the scale :math:`b` and
distances :math:`\Delta_i` compose, also adaptively, to one with the distance
:math:`\sqrt{\sum_i \Delta_i^2}` (Dong, Roth and Su, 2022), exactly.

**The grid.** Rows are rounded to multiples of :math:`g = c/n` after they were
clipped to :math:`c (1 - (d^{1/p}/2 + 1)/n)`. Rounding :math:`d` values moves
a row by at most :math:`g d^{1/p} / 2`, and floats are off by much less than
:math:`g`. So rounded rows have a norm of at most :math:`c`, exactly, and sums
of integers below :math:`2^{53}` are exact in doubles, in any order. The noise
is a discrete law on the same grid. What the samplers' own errors may add, in
all cells that a neighbour changes, is taken off :math:`\varepsilon`:
:math:`2^{-39}` for each cell (see :mod:`torch_geometric_dp.noise`).

**The paper's weights.** Eq. 11 computes :math:`\beta_u` from the private
degrees, so that the noise itself tells the degrees: a node that comes or goes
changes the scale of its neighbours' noise, and no finite epsilon bounds the
ratio of two Laplace laws of different scales. Where Theorem 3 takes
:math:`\beta` for public, its proof needs :math:`\beta_k \leq D / D_k` for the
node's own degree, too, which Eq. 11 does not say: in a star with :math:`m`
leaves and :math:`D = m`, the centre costs :math:`(m + 1)/2` times epsilon.
:func:`paper_weights` adds that condition.
"""
import math
from collections.abc import Callable

import numpy as np
import torch
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
from torch_geometric_dp.mechanisms.edge_mechanism import check_unit
from torch_geometric_dp.mechanisms.gaussian import (
    _law,
    gaussian_scale,
    noise_loss,
)
from torch_geometric_dp.mechanisms.mechanism import Star, WorstCase
from torch_geometric_dp.noise import (
    NoiseSource,
    block_rows,
    discrete_gaussian,
    discrete_laplace,
    in_threads,
)
from torch_geometric_dp.storage import row_blocks

#: From rows and edges to sums, in steps, and the scales of their noise.
Exact = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

_BEYOND = 100  # Times the norm that rows of canaries are to be clipped to.
_PER_OCTAVE = 32  # Weights are rounded down to so many to a factor of two.


class NeighbourSum(Captured):
    r"""Sums over neighbours, with Laplace noise or (if :obj:`delta` is given)
    Gaussian noise.

    Args:
        epsilon (float): The privacy loss of one unit, over all hops.
        max_degree (int, optional): The largest number of edges that come into,
            and that go out of, a node; a public number. Needed for
            :obj:`unit="node"`. (default: :obj:`None`)
        unit (str, optional): What is protected, :obj:`"node"` or
            :obj:`"edge"`. (default: :obj:`"node"`)
        relation (str, optional): Whether a unit comes or goes
            (:obj:`"add-remove"`), or is exchanged for another
            (:obj:`"replace"`). (default: :obj:`"add-remove"`)
        delta (float, optional): The probability with which the loss may be
            larger. If given, the noise is Gaussian, and rows are clipped to an
            L2 norm; otherwise it is Laplace noise, and an L1 norm.
            (default: :obj:`None`)
        clip (float, optional): The largest norm of a row; a public number.
            (default: :obj:`1.0`)
        hops (int, optional): How often the sums are summed again.
            (default: :obj:`1`)
        steps (int, optional): The number of steps of the grid in
            :obj:`clip`. (default: :obj:`1048576`)

    .. code-block:: python

        mechanism = NeighbourSum(epsilon=1.0, max_degree=10)
        rows = mechanism.to_steps(torch.rand(4, 3))
        sums = rows[[1, 0, 3, 2]]   # two pairs of neighbours
        scale = mechanism.scale(num_features=3)
        noisy = mechanism.release(sums, scale, NoiseSource.from_os())
        float(mechanism.variance(num_features=3))   # 800.0...
    """
    def __init__(self, epsilon: float, max_degree: int | None = None,
                 unit: str = 'node', relation: str = 'add-remove',
                 delta: float | None = None, clip: float = 1.0,
                 hops: int = 1, steps: int = 2**20) -> None:
        self.epsilon = check_epsilon(epsilon)
        self.unit = check_unit(unit)
        self.relation = Relation.of(relation, 'relation')
        if max_degree is None and self.unit == Unit.NODE:
            raise ValueError("'max_degree' must be an integer of at least 1 "
                             "for unit='node': what a node can change depends "
                             "on it (got None)")
        self.max_degree = (None if max_degree is None else
                           check_integer('max_degree', max_degree, 1))
        self.delta = None if delta is None else check_delta(delta)
        self.clip = check_epsilon(clip, 'clip')
        self.hops = check_integer('hops', hops, 1)
        self.steps = check_integer('steps', steps, 1)

    @property
    def order(self) -> int:
        """Which norm counts: 1 for Laplace noise, 2 for Gaussian noise."""
        return 1 if self.delta is None else 2

    @property
    def guarantee(self) -> Guarantee:
        """What all hops together promise."""
        assumptions = ["the number of nodes is public"]
        also: tuple[tuple[Unit, int], ...] = ()
        if self.unit == Unit.NODE:
            assumptions.append(f"no node has more than {self.max_degree} "
                               f"edges, in any graph that is possible")
            # An edge that moves is more than a node with one edge.
            few = self.max_degree == 1 and self.relation == Relation.ADD_REMOVE
            also = ((Unit.FEATURES, 1), (Unit.EDGES, 2 if few else 1),
                    (Unit.LABELS, 0))
        event = None
        if self.delta is not None:  # A little less noise than there is.
            noise = gaussian_scale(self.epsilon, self.delta, 2.0**30, 1)
            event = GaussianNoise(noise / 2.0**30)
        return Guarantee(self.epsilon, self.unit, self.relation,
                         delta=self.delta or 0.0, model=Trust.CENTRAL,
                         assumptions=tuple(assumptions), event=event, also=also)

    def sensitivity(self, weight: Tensor | None = None,
                    hop: int = 0) -> float:
        r"""The lemma's :math:`\Delta`, the largest weighted distance of the
        sums of neighbouring graphs in units of :obj:`clip`.
        """
        p, D = self.order, self.max_degree or 1
        powers = (torch.ones(1, dtype=torch.double) if weight is None else
                  weight.double().pow(p).sort(descending=True).values)
        most = float(powers[0])

        def largest(count: int) -> float:
            # Without weights, and where there are fewer nodes: the largest.
            missing = max(count - len(powers), 0)
            return float(powers[:count].sum()) + missing * most

        comes = self.relation == Relation.ADD_REMOVE
        if self.unit == Unit.EDGES:
            replaced = 2 * largest(2) if p == 1 else 4 * most + largest(2)
            total = largest(2) if comes else replaced
        elif comes:
            total = D**p * most + largest(D)
            if p == 2 and hop == 0:  # The row alone may be replaced.
                total = max(total, 4 * largest(D))
        else:
            heard = 4 if p == 2 and hop == 0 else 2
            total = (2 * D)**p * most + heard * largest(D)
        return float(total**(1 / p))

    def scale(self, num_features: int,
              weight: Tensor | None = None) -> Tensor:
        """The scale of the noise in steps: one number, or one for each of the
        weights. Weights count up to a common factor, and are rounded down by
        2% at the most.
        """
        if weight is None:
            relative = torch.ones(1, dtype=torch.double)
        else:
            relative = weight.double() / weight.max()
            relative = torch.exp2(
                torch.floor(_PER_OCTAVE * relative.log2()) / _PER_OCTAVE)
        parts = [self.steps * self.sensitivity(relative, hop)
                 for hop in range(self.hops)]
        scales: Tensor = self._base(parts, num_features) / relative
        return self._checked(scales)

    def _base(self, parts: list[float], num_features: int) -> float:
        # The scale for a weight of one, and for distances in steps.
        D = self.max_degree or 1
        rows = {Unit.EDGES: 2, Unit.NODE: D + 1}[self.unit]
        if self.relation == Relation.REPLACE:
            rows = {Unit.EDGES: 4, Unit.NODE: 2 * D + 1}[self.unit]
        cells = max(rows * num_features, 1)
        if self.delta is not None:
            return gaussian_scale(self.epsilon, self.delta,
                                  math.hypot(*parts) * (1 + 2.0**-45),
                                  cells * self.hops)
        rest = self.epsilon / self.hops - cells * 2.0**-39
        if rest < self.epsilon / self.hops / 2:
            raise ValueError(f"'epsilon' is too small for sums with "
                             f"{num_features} columns, {cells} cells of which "
                             f"a neighbour may change (got {self.epsilon})")
        # Less noise than a 64th of a step would be none at all.
        return max(max(parts) / rest * (1 + 2.0**-45), 2.0**-6)

    def _checked(self, scales: Tensor) -> Tensor:
        if scales.max() > 2.0**40:
            raise ValueError(
                f"'epsilon' is too small for 'max_degree' {self.max_degree} "
                f"and these weights: the noise would have a scale of "
                f"{float(scales.max()) / self.steps:.3g} rows "
                f"(got {self.epsilon})")
        return scales

    def variance(self, num_features: int,
                 weight: Tensor | None = None) -> Tensor:
        """The exact variance of the noise in each cell of a hop's sums: one
        number, or one for each of the weights.
        """
        scales = self.scale(num_features, weight)
        if self.delta is not None:
            steps = torch.tensor([_law(s)[0] for s in scales.tolist()])
        else:
            steps = 2 * (-1 / scales).exp() / torch.expm1(-1 / scales)**2
        return (steps * (self.clip / self.steps)**2).squeeze()

    def to_steps(self, x: Tensor) -> Tensor:
        """The clipped rows, in steps: integers, in doubles. The norm of a row
        is at most :obj:`steps`.
        """
        room = self.steps - x.size(1)**(1 / self.order) / 2 - 1
        if room <= 0:
            raise ValueError(f"'x' must have fewer columns: {self.steps} steps "
                             f"are too few for them (got {x.size(1)})")
        out = torch.empty_like(x, dtype=torch.double, requires_grad=False)
        for start, stop in row_blocks(x.size(0), x.size(1)):  # In the cache.
            rows = x[start:stop].detach().double()
            if self.order == 1:  # Ten times faster than torch's own L1 norm.
                norm = rows.abs().sum(dim=1, keepdim=True)
            else:
                norm = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
            factor = torch.clamp(room / norm, max=self.steps / self.clip)
            torch.mul(rows, factor, out=out[start:stop]).round_()
        return out

    def release(self, sums: Tensor, scale: Tensor,
                source: NoiseSource) -> Tensor:
        """The sums of one hop, in steps, with noise of a scale that
        :meth:`scale` computed, in the units of the input.
        """
        exact = sums.cpu().numpy()
        out, unit = np.empty_like(exact), self.clip / self.steps
        width = exact.shape[1]
        draw = discrete_laplace if self.delta is None else discrete_gaussian

        def add(first: int, last: int) -> None:
            for start, stop in row_blocks(last, width, first):
                noise = draw(source, float(scale), (stop - start, width), start)
                np.multiply(exact[start:stop] + noise, unit,
                            out=out[start:stop])

        if scale.numel() == 1:
            in_threads(add, len(out), block_rows(width))
        else:  # A sampler draws with one scale.
            for level in sorted(set(scale.tolist())):
                rows = (scale == level).nonzero().view(-1).numpy()
                noise = draw(source.derive('scale', repr(level)), level,
                             (len(rows), width))
                out[rows] = (exact[rows] + noise) * unit
        return torch.from_numpy(out).to(sums.device)

    def worst_case(self, exact: Exact | None = None) -> WorstCase:
        """The exact epsilon of one hop: for stars, whose sums are as far from
        each other as can be, by the lemma. A layer may say how it comes from
        rows and edges to sums, in steps, and to the scales of their noise.
        """
        if self.hops > 1:
            raise TypeError(f"'{type(self).__name__}' with hops={self.hops} "
                            f"cannot be verified exactly: what a hop sums "
                            f"depends on the noise of the one before; audit() "
                            f"tries it instead")
        losses = [(self._loss(star, exact or self._exact), star.sides)
                  for star in self.canaries()]
        loss, sides = max(losses)
        return WorstCase(loss, self.unit, sides, 'sums far beyond the first',
                         delta=self.delta or 0.0)

    def canaries(self, num_features: int = 2) -> list[Star]:
        """A node with as many neighbours as it may have, or with one, or an
        edge; rows are far beyond :obj:`clip`.
        """
        row = (_BEYOND * self.clip, *[0.0] * (num_features - 1))
        most = (self.max_degree or 1) if self.unit == Unit.NODE else 1
        return [Star(leaves, row, self.unit, self.relation)
                for leaves in sorted({most, 1}, reverse=True)]

    def _exact(self, x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        steps = self.to_steps(x)
        return (torch.zeros_like(steps).index_add(0, edges[1], steps[edges[0]]),
                self.scale(x.size(1)))

    def _loss(self, star: Star, exact: Exact) -> float:
        (one, scale), (other, second) = (
            exact(*star.tensors(torch.tensor([side])))
            for side in (True, False))
        if not torch.equal(scale, second):
            return math.inf  # Noise whose scale tells which it was.
        distance = torch.linalg.vector_norm(one - other, self.order, dim=1)
        return noise_loss(distance.tolist(),
                          scale.view(-1).expand(len(distance)).tolist(),
                          self.delta)

    def paper_scale(self, weight: Tensor) -> Tensor:
        r"""The scale of the paper's noise in steps, :math:`2 D /
        (\varepsilon \beta_u)`, for the weights of :func:`paper_weights`.
        """
        sensitivity = 2 * (self.max_degree or 1) * self.steps
        return self._checked(sensitivity / (self.epsilon * weight.double()))


def paper_weights(edge_index: Tensor, rank: Tensor,
                  max_degree: int) -> Tensor:
    r"""The weights :math:`\beta_u` of Eq. 11, with the condition on a node's
    own degree that the paper's proof needs. They are computed from private
    degrees, and no epsilon can be proven for noise that is scaled with them.

    Args:
        edge_index (torch.Tensor): The edges, each of them once.
        rank (torch.Tensor): The influence of each node, positive.
        max_degree (int): The largest number of edges of a node.

    .. code-block:: python

        star = torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])
        paper_weights(star, torch.ones(4), max_degree=3)   # the centre has one
    """
    source, target = edge_index
    ones = torch.ones(source.numel(), dtype=torch.double)
    rank = rank.double()
    zero = torch.zeros_like(rank)
    out_degree = zero.scatter_add(0, source, ones)
    in_degree = zero.scatter_add(0, target, ones)
    heard = zero.scatter_add(0, source, rank[target])
    share = rank[target] / heard[source] * (max_degree - out_degree[source]) + 1
    share = torch.minimum(share, max_degree / out_degree[source])
    # A node without edges has nothing to share.
    own = torch.where(in_degree > 0, max_degree / in_degree, 1.0)
    return own.scatter_reduce(0, target, share, 'amin')
