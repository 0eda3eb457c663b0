r"""Sums of clipped gradients over random batches, with noise, on a grid: the
mathematics of :func:`~torch_geometric_dp.nn.make_private`.

An example is a node with a label, and what :math:`L` layers of message passing
read to predict it: its ego-subgraph (:mod:`torch_geometric_dp.graph.ego`), or
its row alone for :math:`L = 0`. In each of :math:`T` steps,

1. each training node is drawn with probability :math:`q`, independently of all
   others and of all other steps (Poisson sampling: a batch has no fixed size,
   and may be empty);
2. the gradient :math:`g_v` of each example that was drawn is computed by
   itself, and clipped: :math:`\bar g_v = g_v \min(1, C / \|g_v\|)`;
3. :math:`\sum_v \bar g_v` is released with Gaussian noise of the scale
   :math:`\sigma C` in each of the :math:`P` parameters.

**Theorem.** Let no node have more than :math:`D` edges that go out, in any
graph. Then a node :math:`w` that comes or goes, with its row, its label and its
edges, changes at most :math:`m + 1` examples, :math:`m = D + \dots + D^L`: its
own one, which comes or goes, by :math:`C`, and :math:`m` others by :math:`2 C`.
A node that is replaced changes its own one by :math:`2 C`, and :math:`2 m`
others, or fewer if at most :math:`k` of its edges change. With these numbers,
the loss of :math:`T` steps is bounded by the theorem of
:mod:`torch_geometric_dp.accountant.sampled`.

*Proof.* An example is a function of its ego-subgraph, its label and the weights
that were released before, and of nothing else. The lemmas of
:mod:`torch_geometric_dp.graph.ego` count those that change. Two vectors of a
norm of at most :math:`C` are at most :math:`2 C` apart, and one is :math:`C`
from none. ∎

**The grid.** A clipped gradient is multiplied by :math:`n (1 - 2^{-20}) / C`
and cut, towards zero, to integers. Cutting makes no number larger, and the
factor makes up for the rounding of floats (norms are summed in doubles, to a
part in :math:`2^{40}`; scaling loses a part in :math:`2^{22}`). So a clipped
gradient has a norm of at most :math:`n` steps, exactly, and sums of integers
below :math:`2^{53}` are exact in doubles, in any order. An example whose
gradient is not finite counts as zero.

Where an example is one row, the gradient of a dense layer is a product,
:math:`b a^{\top}` of the row's error and its input, and need not be written
out: :math:`a / \|a\|` and :math:`b \|a\| \min(1, C / \|g\|)` are cut to
:math:`\sqrt n` steps each, which makes neither longer. A product of the norm
:math:`\|a\| \|b\|` is then not longer, either, and a sum of products is one
product of two matrices of integers.

The noise is the discrete Gaussian law. By the proof of
:mod:`torch_geometric_dp.mechanisms.gaussian`, with :math:`P T` cells in the
place of :math:`d`, it is as good as the continuous one but for :math:`2 \kappa`
in epsilon and a part :math:`2^{-30} + \kappa` of delta. (The proof compares the
laws of the noise, given the sum; what the sum is made of does not matter to
it.)

**What is not covered.** A gradient is computed in floats, in one go with others
of its batch, and a matrix product may round a row's result in another way if
there are other rows beside it. The theorem takes :math:`g_v` as a function of
its example alone.
"""
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._jit import jit
from torch_geometric_dp._validate import (
    check_choice,
    check_delta,
    check_epsilon,
    check_integer,
)
from torch_geometric_dp.accountant import (
    Guarantee,
    Relation,
    Trust,
    Unit,
)
from torch_geometric_dp.accountant.events import SampledGaussianNoise
from torch_geometric_dp.accountant.sampled import (
    sampled_epsilon,
    sampled_multiplier,
)
from torch_geometric_dp.graph.ego import max_others
from torch_geometric_dp.mechanisms.mechanism import Canary, WorstCase
from torch_geometric_dp.noise import NoiseSource, bernoulli, discrete_gaussian

_ROUNDING = 1 - 2.0**-20
_MORE = 1e-3  # Noise that makes up for what is discrete.
RELATIONS = ('add-remove', 'replace')
#: What nobody can check from here.
ONCE = 'no state of the training is gone on from in two processes'


class DPSGD(Captured):
    r"""Sums of clipped gradients over Poisson batches, with Gaussian noise that
    is calibrated to all steps together. Needs the :obj:`accounting` extra.

    Args:
        epsilon (float): The privacy loss of one node, over all steps.
        delta (float): The probability with which the loss may be larger.
        sample_rate (float): The probability of each example to be in a batch.
        steps (int): The number of steps.
        num_parameters (int): The number of parameters that are trained.
        hops (int, optional): How far an example reads; 0 for its own row
            alone. (default: :obj:`0`)
        max_degree (int, optional): The largest number of edges at one node, in
            either direction, in any graph; a public number. Needed for
            :obj:`hops` above 0. (default: :obj:`None`)
        relation (str, optional): Whether a node comes or goes
            (:obj:`"add-remove"`) or is exchanged for another
            (:obj:`"replace"`). (default: :obj:`"add-remove"`)
        edges (int, optional): If given, at most so many of a node's edges
            change when it is replaced. By default, all of them.
            (default: :obj:`None`)
        max_grad_norm (float, optional): The norm that gradients are clipped
            to. (default: :obj:`1.0`)
        grid_steps (int, optional): The number of steps of the grid in that
            norm. (default: :obj:`16777216`)

    .. code-block:: python

        mechanism = DPSGD(8.0, 1e-5, sample_rate=0.1, steps=50,
                          num_parameters=3)
        total = mechanism.clipped_sum([torch.tensor([[3.0, 4.0, 0.0]])])
        mechanism.release(total, NoiseSource.from_os(), step=0)   # [tensor(...
        mechanism.guarantee.unit   # node
    """
    def __init__(self, epsilon: float, delta: float, sample_rate: float,
                 steps: int, num_parameters: int, hops: int = 0,
                 max_degree: int | None = None, relation: str = 'add-remove',
                 edges: int | None = None, max_grad_norm: float = 1.0,
                 grid_steps: int = 2**24) -> None:
        self.epsilon = check_epsilon(epsilon)
        self.delta = check_delta(delta)
        if not 0 < sample_rate <= 1:
            raise ValueError(f"'sample_rate' must lie in (0, 1] "
                             f"(got {sample_rate!r})")
        self.sample_rate = float(sample_rate)
        self.steps = check_integer('steps', steps, 1)
        self.num_parameters = check_integer('num_parameters', num_parameters,
                                            1)
        self.hops = check_integer('hops', hops, 0)
        self.relation = check_choice('relation', str(relation), RELATIONS)
        if self.hops > 0 and max_degree is None:
            raise ValueError("'max_degree' must be given for hops > 0: how "
                             "many examples a node is in depends on it "
                             "(got None)")
        self.max_degree = None if max_degree is None else check_integer(
            'max_degree', max_degree, 1)
        self.edges = None if edges is None else check_integer('edges', edges,
                                                              1)
        if self.edges is not None and self.relation != 'replace':
            raise ValueError("'edges' must be None for relation='add-remove': "
                             "a node that comes or goes has all of its edges "
                             f"with it (got {edges})")
        self.max_grad_norm = check_epsilon(max_grad_norm, 'max_grad_norm')
        self.grid_steps = check_integer('grid_steps', grid_steps, 2**10)
        if self.grid_steps > 2**24 or (
                math.isqrt(self.grid_steps)**2 != self.grid_steps):
            raise ValueError(f"'grid_steps' must be a square, and at most "
                             f"2**24, to which floats count "
                             f"(got {grid_steps})")
        #: The noise that is accounted for, in clipping norms.
        self.event = SampledGaussianNoise(
            sampled_multiplier(self.epsilon, self.delta, self._rate,
                               self.steps, self.others, self.own),
            self._rate, self.steps, self.others, self.own)
        #: The noise that is drawn, in clipping norms: a little more.
        self.noise_multiplier = self._calibrate()
        if self.noise_multiplier * self.grid_steps > 2.0**39:
            raise ValueError(f"'epsilon' is too small: the noise would have a "
                             f"scale of {self.noise_multiplier:.3g} clipping "
                             f"norms (got {self.epsilon})")

    @property
    def others(self) -> int:
        """How many examples change with a node, beside its own."""
        if self.hops == 0:
            return 0
        return max_others(self.max_degree or 1, self.hops,
                          self.relation == 'replace', self.edges)

    @property
    def own(self) -> int:
        """By how many clipping norms a node's own example changes."""
        return 1 if self.relation == 'add-remove' else 2

    @property
    def _rate(self) -> float:
        # Coins are rounded up, by less than that.
        return min(1.0, self.sample_rate * (1 + 2.0**-40) + 2.0**-60)

    def _calibrate(self) -> float:
        more = _MORE
        while True:
            multiplier = self.event.multiplier * (1 + more)
            if self._loss(multiplier, self.steps) <= self.epsilon:
                return multiplier
            more *= 2
            if more > 1:
                raise ValueError(f"'epsilon' is too small for "
                                 f"{self.num_parameters} parameters and "
                                 f"{self.steps} steps (got {self.epsilon})")

    def _loss(self, multiplier: float, steps: int) -> float:
        # Of discrete noise: see the module.
        cells, sigma = self.num_parameters * steps, multiplier * self.grid_steps
        r = 0.5 + math.sqrt(2 * (math.log(4 * cells) + self.epsilon + math.log(
            2) + math.log(2.0**30 / self.delta)))
        kappa = cells * ((1 + r**2) * (1 / (24 * sigma**2) + 2.0**-47) +
                         3 * math.exp(-2 * math.pi**2 * sigma**2))
        event = replace(self.event, multiplier=multiplier, steps=steps)
        return 2 * kappa + sampled_epsilon(
            event, (1 - 2.0**-30) * math.exp(-kappa) * self.delta)

    def epsilon_after(self, steps: int) -> float:
        """The privacy loss of the first :obj:`steps` steps, at the same delta.
        """
        if steps == 0:
            return 0.0
        return min(self.epsilon, self._loss(self.noise_multiplier, steps))

    def after(self, steps: int) -> Guarantee:
        """What the first :obj:`steps` steps promise."""
        if steps == 0:
            return replace(self.guarantee, epsilon=0.0, delta=0.0, event=None)
        return replace(self.guarantee, epsilon=self.epsilon_after(steps),
                       event=replace(self.event, steps=steps))

    @cached_property
    def guarantee(self) -> Guarantee:
        """What all steps together promise."""
        assumptions = [ONCE]
        also: tuple[tuple[Unit, int], ...] = ()
        if self.hops > 0:
            assumptions.append(f"no node has more than {self.max_degree} "
                               f"edges, in any graph that is possible")
        else:
            also = ((Unit.EDGES, 0), )  # No edge is read.
        more: dict[str, Any] = {} if self.edges is None else {
            'edges': self.edges}
        return Guarantee(self.epsilon, Unit.NODE, Relation(self.relation),
                         delta=self.delta, model=Trust.CENTRAL,
                         assumptions=tuple(assumptions), event=self.event,
                         also=also, **more)

    def worst_case(self) -> WorstCase:
        """The bound of the theorem for the noise that is drawn: how far it is
        above the exact epsilon, the tests tell.
        """
        return WorstCase(self._loss(self.noise_multiplier, self.steps),
                         Unit.NODE, (f'a node in {self.others + 1} example(s)',
                                     'none' if self.own == 1 else 'another'),
                         'sums far beyond the first', delta=self.delta)

    def canaries(self) -> Sequence[Canary]:
        """None that are tried by themselves: what is released are models."""
        return []

    def draw(self, count: int, source: NoiseSource,
             step: int) -> NDArray[np.bool_]:
        """Which of :obj:`count` places are in the batch of a step."""
        return bernoulli(source.derive('batch', step), self.sample_rate, count)

    def clipped_sum(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The sum over examples, the first dimension of each tensor, of
        clipped gradients, in steps of the grid: integers, in doubles.
        """
        flat = [g.detach().flatten(1).cpu().numpy()
                for g in gradients]
        square = np.zeros(len(flat[0]))
        for part in flat:
            _add_squares(part, square)
        norm = np.maximum(np.sqrt(square), self.max_grad_norm)
        scale = np.where(np.isfinite(norm),
                         self.grid_steps * _ROUNDING / norm, 0.0)
        out = []
        for part, g in zip(flat, gradients):
            total = np.zeros(part.shape[1])
            _add_steps(part, scale.astype(part.dtype), total)
            out.append(torch.from_numpy(total).view(g.shape[1:]).to(g.device))
        return out

    def factored_sum(self, factors: Sequence[tuple[Tensor, Tensor]],
                     ) -> list[Tensor]:
        """The same for dense layers and examples of one row: from the input and
        the error of each layer, with a row for each example, to the sum of
        their products. A layer with a bias has a column of ones in its input.
        """
        pairs = [(a.detach().double(), b.detach().double())
                 for a, b in factors]
        lengths = [torch.linalg.vector_norm(a, dim=1) for a, _ in pairs]
        square = torch.stack([
            (length * torch.linalg.vector_norm(b, dim=1))**2
            for (_, b), length in zip(pairs, lengths)]).sum(dim=0)
        norm = square.sqrt().clamp(min=self.max_grad_norm)
        good = norm.isfinite()
        steps = math.isqrt(self.grid_steps) * _ROUNDING
        out = []
        for (a, b), length in zip(pairs, lengths):
            unit = steps / length.clamp(min=1e-300)
            error = steps * length / norm
            a = (a * unit[:, None]).trunc_()
            b = (b * error[:, None]).trunc_()
            if not good.all():
                a, b = (value.where(good[:, None], 0.0) for value in (a, b))
            out.append(b.T @ a)
        return out

    def release(self, total: Sequence[Tensor], source: NoiseSource,
                step: int) -> list[Tensor]:
        """The noisy sums, in the units of a gradient."""
        sizes = [part.numel() for part in total]
        if sum(sizes) != self.num_parameters:
            raise ValueError(f"'total' must hold {self.num_parameters} numbers "
                             f"(got {sum(sizes)})")
        noise = torch.from_numpy(discrete_gaussian(
            source.derive('noise', step),
            self.noise_multiplier * self.grid_steps, self.num_parameters))
        unit = self.max_grad_norm / self.grid_steps
        return [(part + extra.view(part.shape).to(part.device)) * unit
                for part, extra in zip(total, torch.split(noise, sizes))]


@jit
def _add_squares(rows: NDArray[Any], square: NDArray[np.float64]) -> None:
    # The squared norm of each row, in doubles: in several sums at once, which a
    # machine adds up at the speed of one.
    width = rows.shape[1]
    whole = width - width % 16
    sums = np.empty(16)
    for i in range(rows.shape[0]):
        sums[:] = 0.0
        for j in range(0, whole, 16):
            for k in range(16):
                value = np.float64(rows[i, j + k])
                sums[k] += value * value
        square[i] += sums.sum()
        for j in range(whole, width):
            value = np.float64(rows[i, j])
            square[i] += value * value


@jit
def _add_steps(rows: NDArray[Any], scale: NDArray[Any],
               total: NDArray[np.float64]) -> None:
    # In the rows' own precision, which the factor of the grid makes up for.
    for i in range(rows.shape[0]):
        if scale[i] > 0:
            for j in range(rows.shape[1]):
                total[j] += np.trunc(rows[i, j] * scale[i])
