r"""Sums of rows over classes with noise, on a grid: the mathematics of
:class:`~torch_geometric_dp.nn.models.ClassSumClassifier`.

Each node :math:`v` has a row :math:`x_v` of :math:`d` columns and a vote
:math:`r_v` of :math:`c` columns, both of a norm of at most one: the L1 norm for
Laplace noise (:math:`p = 1`), the Euclidean one for Gaussian noise (:math:`p =
2`). What is released is one small matrix over all nodes,

.. math::
    \mathbf{S} = \sum_v x_v r_v^{\top} + \textrm{noise} \quad (d \times c).

With :math:`r_v` one at the node's class, and zero elsewhere, column :math:`k`
is the sum of all rows of class :math:`k`. With :math:`r_v` the node's error
under a model that was released before, it is the gradient of a linear model.

**Lemma (sensitivity).** A node that comes or goes, with its row, its label and
its edges, changes :math:`\mathbf{S}` by at most one in the norm
:math:`\|\cdot\|_p`, taken over all cells.

*Proof.* The sum has one term for each node. That of :math:`v` depends on its
own row and label alone (and on what was released before), and no edge is read.
It has the norm :math:`\|x_v r_v^{\top}\|_p = (\sum_{ij} |x_{vi}|^p
|r_{vj}|^p)^{1/p} = \|x_v\|_p \|r_v\|_p \leq 1`. ∎

The number of nodes need not be public, and degrees need no cap. A node that is
*replaced* goes, and comes, which changes the sum by at most two: so far are a
row and its opposite under the same vote. Class counts are such sums (of the row
that is one in a single column), and so are sums of rows (of the vote that is
one in a single class), and of a few losses, divided by the square root of their
number.

**Lemma (the least loss).** Let each node have :math:`K` losses between 0 and 1,
and let Laplace noise of the scale :math:`1 / \varepsilon` be added to each of
the :math:`K` sums. Which of them is the least is :math:`\varepsilon`-private
for a node that comes or goes, and with :math:`2 / \varepsilon` for one that is
replaced, whatever :math:`K` is. *Proof.* Fix the noise of all sums but number
:math:`i`. Then :math:`i` is the least if its noise is below a threshold, the
least of :math:`q_j + z_j - q_i` (or not above it, for ties). A node that comes
raises all sums by something between 0 and 1, so that the threshold moves by at
most one; one that is replaced moves it by at most two. When it moves by one,
the chance that the noise is below it changes by a factor of at most
:math:`e^{\varepsilon}`, for noise of that scale. ∎

**Lemma (held out).** Let some nodes, chosen by their numbers, have no part in
some releases, and all others none in some others. Then a node loses what it
has a part in, and no more: each of the two may have the whole budget. *Proof.*
A node that comes, goes or is replaced keeps its number, and what it has no part
in has the same law. ∎

**Theorem (Laplace).** With independent noise :math:`P(z) \propto e^{-|z|
\varepsilon}` in every cell, :math:`\mathbf{S}` is
:math:`\varepsilon`-private, and :math:`T` releases, each of which gets the
share :math:`s_t` of :math:`\varepsilon`, :math:`\sum_t s_t = 1`, are
:math:`\varepsilon`-private together. *Proof.* The logarithm of the ratio of two
probabilities is at most :math:`\varepsilon` times the L1 distance. Shares of a
pure epsilon add up, also where a release depends on the ones before. ∎

**Theorem (Gaussian).** Let noise of the scale :math:`\sigma` make one release
:math:`(\varepsilon, \delta)`-private (see
:mod:`torch_geometric_dp.mechanisms.gaussian`). Then :math:`T` releases with
scales :math:`\sigma / \sqrt{s_t}` are :math:`(\varepsilon, \delta)`-private
together. *Proof.* Gaussian mechanisms of sensitivity one and scales
:math:`\sigma_t` compose, also adaptively, to one of the scale :math:`(\sum_t
\sigma_t^{-2})^{-1/2}` (Dong, Roth and Su, 2022), which is :math:`\sigma`. ∎

**The grid.** Rows are divided by their norm, multiplied by :math:`n (1 -
2^{-30})` and cut, towards zero, to integers; votes are clipped, and cut, to
:math:`m` steps. Cutting makes no number larger, and the factor makes up for the
rounding of floats. So the norms are at most :math:`n` and :math:`m`, exactly, a
term has a norm of at most :math:`n m`, and sums of integers below
:math:`2^{53}` are exact in doubles, in any order. The noise is a discrete law
on the same grid. What the samplers' own errors may add, :math:`2^{-39}` for
each of :math:`d c` cells, is taken off :math:`\varepsilon`.
"""
import math
import warnings
from collections.abc import Sequence

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
from torch_geometric_dp.accountant.gaussian import gaussian_loss
from torch_geometric_dp.mechanisms.centred_rows import CentredRows
from torch_geometric_dp.mechanisms.gaussian import (
    _law,
    gaussian_scale,
    noise_loss,
)
from torch_geometric_dp.mechanisms.mechanism import Canary, WorstCase
from torch_geometric_dp.noise import (
    NoiseSource,
    discrete_gaussian,
    discrete_laplace,
)

_ROUNDING = 1 - 2.0**-30
_FEW = 8  # Rows count as so many columns, at least, where cells are counted.


class ClassSums(Captured):
    r"""Sums of rows over classes, with Laplace noise or (if :obj:`delta` is
    given) Gaussian noise.

    Args:
        epsilon (float): The privacy loss of one node, over all releases.
        num_features (int): The number :math:`d` of columns of a row.
        num_classes (int): The number :math:`c` of columns of a vote.
        delta (float, optional): The probability with which the loss may be
            larger. If given, the noise is Gaussian, and norms are Euclidean;
            otherwise it is Laplace noise, and they are L1 norms.
            (default: :obj:`None`)
        shares (sequence of floats, optional): The share of the budget that
            each release gets; they add up to one. (default: :obj:`(1.0,)`)
        row_steps (int, optional): The number of steps of the grid in a row's
            norm. (default: :obj:`65536`)
        vote_steps (int, optional): Likewise for votes.
            (default: :obj:`1024`)
        relation (str, optional): What one node may do: come or go
            (:obj:`"add-remove"`), or be replaced by any other one
            (:obj:`"replace"`), which takes twice the noise.
            (default: :obj:`"add-remove"`)

    .. code-block:: python

        mechanism = ClassSums(1.0, num_features=4, num_classes=7)
        rows = mechanism.rows(data.x)
        votes = mechanism.votes(torch.eye(7)[data.y])
        noisy = mechanism.release(rows, votes, NoiseSource.from_os())
        mechanism.deviation()   # 1.41...
    """
    def __init__(self, epsilon: float, num_features: int, num_classes: int,
                 delta: float | None = None,
                 shares: Sequence[float] = (1.0, ), row_steps: int = 2**16,
                 vote_steps: int = 2**10,
                 relation: str = Relation.ADD_REMOVE) -> None:
        self.epsilon = check_epsilon(epsilon)
        self.num_features = check_integer('num_features', num_features, 1)
        self.num_classes = check_integer('num_classes', num_classes, 2)
        self.delta = None if delta is None else check_delta(delta)
        self.shares = tuple(map(float, shares))
        if not all(share > 0 for share in self.shares) or abs(
                math.fsum(self.shares) - 1) > 1e-9:
            raise ValueError(f"'shares' must be positive and add up to 1 "
                             f"(got {self.shares})")
        self.row_steps = check_integer('row_steps', row_steps, 1)
        self.vote_steps = check_integer('vote_steps', vote_steps, 1)
        self.relation = Relation.of(relation, 'relation')
        self.scales = self._scales()

    @classmethod
    def from_multiplier(cls, multiplier: float, num_features: int,
                        num_classes: int, delta: float = 1e-5,
                        shares: Sequence[float] = (1.0, ),
                        row_steps: int = 2**16, vote_steps: int = 2**10,
                        relation: str = Relation.ADD_REMOVE) -> 'ClassSums':
        """With Gaussian noise of a scale over the sensitivity of all releases
        together, at least: for a part of a larger release that is charged as a
        whole. What it would promise alone is computed for :obj:`delta`.
        """
        out = cls(gaussian_loss(multiplier, delta), num_features, num_classes,
                  delta, shares, row_steps, vote_steps, relation)
        total, distance = math.fsum(out.shares), out._distance
        out.scales = tuple(max(scale, multiplier * distance *
                               math.sqrt(total / share) * (1 + 2.0**-45))
                           for scale, share in zip(out.scales, out.shares))
        return out

    @property
    def _distance(self) -> float:
        # How far one node moves a sum, in steps.
        whole = float(self.row_steps * self.vote_steps)
        return whole if self.relation == Relation.ADD_REMOVE else 2 * whole

    def _scales(self) -> tuple[float, ...]:
        # In steps, for each release. Shares count as parts of their sum.
        distance = self._distance
        cells = max(self.num_features, _FEW) * self.num_classes
        total = math.fsum(self.shares)
        if self.delta is not None:
            sigma = gaussian_scale(self.epsilon, self.delta,
                                   distance * (1 + 2.0**-45),
                                   cells * len(self.shares))
            scales = [sigma * math.sqrt(total / s) for s in self.shares]
        else:
            scales = []
            for share in self.shares:
                part = self.epsilon * share / total
                rest = part - cells * 2.0**-39
                if rest < part / 2:
                    raise ValueError(f"'epsilon' is too small for {cells} "
                                     f"cells (got {self.epsilon})")
                # Less noise than a 64th of a step would be none at all.
                scales.append(max(distance / rest, 2.0**-6))
        scales = [scale * (1 + 2.0**-45) for scale in scales]
        if max(scales) > 2.0**39:
            raise ValueError(f"'epsilon' is too small: the noise would have a "
                             f"scale of {max(scales) / distance:.3g} rows "
                             f"(got {self.epsilon})")
        return tuple(scales)

    @property
    def order(self) -> int:
        """Which norm counts: 1 for Laplace noise, 2 for Gaussian noise."""
        return 1 if self.delta is None else 2

    @property
    def guarantee(self) -> Guarantee:
        """What all releases together promise."""
        event = None
        if self.delta is not None:  # A little less noise than there is.
            noise = gaussian_scale(self.epsilon, self.delta, 2.0**30, 1)
            event = GaussianNoise(noise / 2.0**30)
        # No edge is read.
        return Guarantee(self.epsilon, Unit.NODE, self.relation,
                         delta=self.delta or 0.0, model=Trust.CENTRAL,
                         event=event, also=((Unit.EDGES, 0), ))

    def worst_case(self) -> WorstCase:
        """For a node with one column and one class, which is as far as a node
        can be from none, in all releases together.
        """
        row, vote = (torch.eye(1, size) for size in (self.num_features,
                                                     self.num_classes))
        change = float(_product(self.rows(row), self.votes(vote)).sum())
        other = 'none'
        if self.relation == Relation.REPLACE:
            change, other = 2 * change, 'one with the opposite row'
        loss = noise_loss([change] * len(self.scales), self.scales, self.delta)
        return WorstCase(loss, Unit.NODE,
                         ('a node with one column and one class', other),
                         'sums far beyond the first', delta=self.delta or 0.0)

    def canaries(self) -> Sequence[Canary]:
        """None that are tried by themselves: what is released are models."""
        return []

    def rows(self, x: Tensor) -> Tensor:
        """Rows, dense or sparse, with a norm of one, in steps: a sparse CSR
        matrix of integers, in doubles. A row of zeros stays one.
        """
        with warnings.catch_warnings():  # That such tensors are in beta state.
            warnings.simplefilter('ignore')
            out = (x if x.layout == torch.sparse_csr else
                   x.to_sparse_csr()).double()
            first, value = out.crow_indices(), out.values()
            row = torch.arange(x.size(0)).repeat_interleave(first.diff())
            zero = value.new_zeros(x.size(0))
            # First by the largest, so that no power is too large or too small.
            most = zero.scatter_reduce(0, row, value.abs(), 'amax')
            most[most == 0] = 1.0  # A zero may be stored, too.
            value = value / most[row]
            power = zero.scatter_add(0, row, value.abs()**self.order)
            norm = (power**(1 / self.order)).clamp(min=1.0)[row]
            value = (value * (self.row_steps * _ROUNDING / norm)).trunc_()
            return torch.sparse_csr_tensor(first, out.col_indices(), value,
                                           tuple(x.shape),
                                           check_invariants=False)

    def votes(self, votes: Tensor) -> Tensor:
        """Votes, clipped to a norm of one, in steps: integers, in doubles."""
        votes = votes.double()
        norm = torch.linalg.vector_norm(votes, self.order, dim=1,
                                        keepdim=True)
        steps = self.vote_steps * votes / norm.clamp(min=1.0)
        # What is one on the spot stays one: it needs no rounding.
        whole = (votes == votes.round()).all(dim=1, keepdim=True) & (norm <= 1)
        return torch.where(whole, steps, steps * _ROUNDING).trunc()

    def release(self, rows: Tensor | CentredRows, votes: Tensor,
                source: NoiseSource, index: int = 0) -> Tensor:
        """The noisy sums of shape :obj:`[num_features, num_classes]`, in units
        of a row: release number :obj:`index` of as many as there are shares.
        Rows may have fewer columns, and votes fewer classes.
        """
        sums = (rows.sums(votes) if isinstance(rows, CentredRows) else
                _product(rows, votes))
        return (sums + self._noise(sums, source, index)) / (self.row_steps *
                                                            self.vote_steps)

    def least(self, losses: Tensor, source: NoiseSource, index: int = 0,
              usual: int | None = None) -> int:
        """The column of losses between 0 and 1 whose noisy sum is the least:
        release number :obj:`index`. Few columns, up to eight times
        :obj:`num_classes`, are compared. If one of them is :obj:`usual`, others
        must be better by a deviation of the noise.
        """
        largest = 1.0 if self.delta is None else math.sqrt(losses.size(1))
        steps = losses.double().clamp(0.0, 1.0) * (
            self.vote_steps * _ROUNDING / largest)
        sums = self.row_steps * steps.trunc().sum(dim=0)
        noisy = sums + self._noise(sums, source, index)
        if usual is not None:
            noisy[usual] -= self.deviation(index) * (self.row_steps *
                                                     self.vote_steps)
        return int(noisy.argmin())

    def _noise(self, sums: Tensor, source: NoiseSource, index: int) -> Tensor:
        draw = discrete_laplace if self.delta is None else discrete_gaussian
        shape = tuple(sums.shape) if sums.dim() == 2 else (len(sums), 1)
        noise = draw(source.derive('release', index), self.scales[index], shape)
        return torch.from_numpy(noise).view(sums.shape)

    def deviation(self, index: int = 0) -> float:
        """The exact standard deviation of the noise in a cell."""
        scale = self.scales[index]
        if self.delta is None:
            variance = 2 * math.exp(-1 / scale) / math.expm1(-1 / scale)**2
        else:
            variance = _law(scale)[0]
        return math.sqrt(variance) / (self.row_steps * self.vote_steps)


def _product(rows: Tensor, votes: Tensor) -> Tensor:
    # rows^T votes. The same numbers, read as columns, are the transposed
    # matrix; it is scattered rather than multiplied.
    row = torch.arange(rows.size(0)).repeat_interleave(
        rows.crow_indices().diff())
    out = votes.new_zeros(rows.size(1), votes.size(1))
    for k in range(votes.size(1)):  # Never more than one column of products.
        out[:, k].scatter_add_(0, rows.col_indices(),
                               rows.values() * votes[row, k])
    return out
