import math
import warnings
from typing import Any

import torch
from torch import Tensor

from torch_geometric_dp._validate import check_epsilon, check_integer
from torch_geometric_dp.accountant import Guarantee, Relation
from torch_geometric_dp.mechanisms import ClassSums
from torch_geometric_dp.mechanisms.centred_rows import centred, csr, to_grid
from torch_geometric_dp.nn.models.private_model import PrivateModel
from torch_geometric_dp.nn.models.training import check_fitted
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.release import Part

# Fixed numbers, the same for every graph: chosen once, on public graphs.
_COUNTS, _MEANS = 0.02, 0.04  # Shares of the budget.
_HELD_OUT = 0.08  # Of the nodes: they choose among models.
_STEPS = 16
_SHRINK = 0.5  # Towards the mean of all classes, James-Stein's would be 1.
_RIDGE = 5.0  # In deviations of the noise.
_LOGIT = 0.3  # The noise that descent may leave in a score.
_RATE, _MOMENTUM = 100.0, 0.8
_SCALES, _USUAL = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0), 4.0
_SURPRISE = 2.0  # Losses are cut so far above that of all classes alike.
# The grid of rows: with Gaussian noise, with Laplace noise, and where there is
# more noise than a finer one has room for.
_FINE, _PURE_FINE, _COARSE = 2**20, 2**16, 2**12
_MUCH = 0.1, 64.0  # So small an epsilon, so large a multiplier.

# The same for Laplace noise.
_PURE_COUNTS = 0.01
_PURE_MIDDLE = 0.5  # Of what is held out, for the choice before the gradients.
_PURE_FILLED = 3.3  # Nodes in a cell, times epsilon, that gradients need.
_PURE_STEPS, _PURE_FIRST = 4, 0.6
_PURE_RIDGE, _PURE_GRADIENT_RIDGE = 3.0, 8.0
_PURE_RATE, _PURE_MOMENTUM = 0.8, 0.5
_PURE_STABLE = 6.0  # Longer rows need smaller steps: this over their length.
_LONG = 16.0  # Rows of 2 to the power of this count as no longer.
_PURE_SCALES = tuple(2.0**k for k in range(-5, 2))


class ClassSumClassifier(PrivateModel):
    r"""A linear classifier with node-level privacy, computed from noisy sums
    of rows over classes.

    A sum over all nodes needs much less noise than a row for every node. With
    Gaussian noise (:obj:`delta` is given) four kinds of sums are released: the
    class counts, the sum of all rows :math:`\bar{x}`, 16 gradients, and the
    losses of six models. One in twelve of the nodes, chosen by their numbers,
    is held out: it has no part in rows and gradients, and the others have none
    in the losses, so that the first three have 2, 4 and 94% of the budget, and
    the last has 98%. Rows are moved and stretched by the second,

    .. math::
        z_v = \frac{s \circ (x_v - \bar{x} / n)}
        {\| s \circ (x_v - \bar{x} / n) \|}, \quad
        s_j = (\bar{x}_j + 5 \sigma)^{-1/2},

    so that what all rows share takes no part of their norm, and one column
    moves a score as easily as another. The gradients :math:`\sum_v z_v (e_{y_v}
    - p_v)^{\top}` are those of softmax regression. The step is as large as
    stability allows, or less, so that the noise in a score stays below 0.3; if
    the released gradients show that it is too large, it is cut. So accuracy
    does not fall when epsilon rises, however long rows are. Weights are shrunk
    where noise could have made them, and multiplied by that one of 0, 1/2, 1,
    2, 4 and 8 with the least loss on what was held out. That calibrates the
    probabilities, and where rows tell nothing it is 0, so that the most
    frequent class is predicted.

    With Laplace noise, rows have an L1 norm of one, and one matrix
    :math:`\mathbf{S}` of sums of all rows of a class is released. With the
    shares :math:`\pi_k` of the classes, :math:`E_{jk} = \pi_k \sum_l S_{jl}`,
    the weights are those of naive Bayes, shrunk,

    .. math::
        W_{jk} = f_j \frac{S_{jk} - E_{jk}}{\max(E_{jk}, 0) + 3 \sigma}, \quad
        f_j = \max \Big(1 - \frac{(c - 1) \sigma^2}
        {2 \sum_k (S_{jk} - E_{jk})^2}, \, 0 \Big),

    with three gradients if there are nodes enough for each cell, then the best
    of several temperatures, or the shares of the classes alone.

    A node's class is predicted from its own row and from what was released.
    That costs nothing, as long as the prediction goes to the node itself: who
    sees it learns about that node's row, and about nobody else. Edges are never
    read. The proof stands in
    :mod:`torch_geometric_dp.mechanisms.class_sums`.

    Args:
        in_channels (int): The number of columns of :obj:`x`.
        num_classes (int): The number of classes, a public number.
        epsilon (float): The privacy loss of one node, with its row, its label
            and its edges.
        delta (float, optional): The probability with which the loss may be
            larger. If given, the noise is Gaussian, and there is much less of
            it for long rows; otherwise it is Laplace noise.
            (default: :obj:`None`)
        steps (int, optional): The number of sums over rows and classes. By
            default, 16 with Gaussian noise; with Laplace noise 4 or 1, which
            epsilon and the noisy class counts decide. (default: :obj:`None`)
        mask (str, optional): The boolean node field that selects the nodes to
            learn from. (default: :obj:`"train_mask"`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)
        relation (str, optional): What one node may do: come or go
            (:obj:`"add-remove"`), or have its row and its label replaced by
            any others (:obj:`"replace"`), which takes twice the noise.
            (default: :obj:`"add-remove"`)
        clip (float, optional): For features of any sign: values are cut to
            this distance from zero, a public number. By default, features must
            not be negative. (default: :obj:`None`)

    Shapes:
        - **input:** a graph with features :obj:`x`
          :math:`(|\mathcal{V}|, F)`, dense or sparse, and classes :obj:`y`
          :math:`(|\mathcal{V}|)`.
        - **output:** classes :math:`(|\mathcal{V}|)`.

    .. code-block:: python

        model = ClassSumClassifier(4, num_classes=7, epsilon=4.0, delta=1e-5)
        classes = model.fit(data).predict(data)
        model.predict_proba(data).sum(dim=1)   # tensor([1., 1., ...])
        model.privacy.epsilon('node')   # 4.0
    """
    weight: Tensor
    bias: Tensor
    scale: Tensor
    centre: Tensor
    fitted: Tensor

    def __init__(self, in_channels: int, num_classes: int, epsilon: float,
                 delta: float | None = None, steps: int | None = None,
                 mask: str = 'train_mask', seed: int | None = None,
                 relation: str = 'add-remove',
                 clip: float | None = None) -> None:
        super().__init__(check_integer('num_classes', num_classes, 2), mask,
                         seed)
        self.in_channels = check_integer('in_channels', in_channels, 1)
        self.epsilon = check_epsilon(epsilon)
        self.delta = delta
        self.steps = steps if steps is None else check_integer('steps', steps,
                                                               1)
        self.relation = Relation.of(relation, 'relation')
        self.clip = clip if clip is None else check_epsilon(clip, 'clip')
        self._columns = in_channels * (1 if clip is None else 2)
        self._promise()  # Refuses an epsilon and a delta that are wrong.
        columns = self._columns
        self.register_buffer('weight', torch.zeros(columns, num_classes))
        self.register_buffer('bias', torch.zeros(num_classes))
        self.register_buffer('scale', torch.ones(columns))
        self.register_buffer('centre', torch.zeros(columns))
        self.register_buffer('fitted', torch.tensor(False))

    def reset_parameters(self) -> None:
        """Forgets what was learned, but not what was spent."""
        for name in ('weight', 'bias', 'centre'):
            setattr(self, name, torch.zeros_like(getattr(self, name)))
        self.scale = torch.ones_like(self.scale)
        self.fitted.fill_(False)

    def _mechanism(self, shares: tuple[float, ...],
                   multiplier: float | None = None,
                   part: float = 1.0) -> ClassSums:
        # Of a part of epsilon, for Laplace noise.
        shape = self._columns, self.num_classes
        fine = _PURE_FINE if self.delta is None else _FINE
        if multiplier is not None:
            return ClassSums.from_multiplier(
                multiplier, *shape, shares=shares, relation=self.relation,
                row_steps=fine if multiplier < _MUCH[1] else _COARSE)
        return ClassSums(self.epsilon * part, *shape, self.delta, shares,
                         fine if self.epsilon > _MUCH[0] else _COARSE,
                         relation=self.relation)

    def _descent(self, multiplier: float | None = None) -> ClassSums:
        steps = self.steps or _STEPS
        return self._mechanism((_COUNTS, _MEANS, *[
            (1 - _COUNTS - _MEANS) / steps] * steps), multiplier)

    def _promise(self) -> Guarantee:
        if self.delta is not None:
            return self._descent().guarantee
        self._mechanism((1.0, ), part=_PURE_COUNTS)
        return self._mechanism((1.0, )).guarantee

    @property
    def cells(self) -> int:
        """How many noisy numbers are released, at most."""
        steps = 3 + (self.steps or _STEPS)
        return steps * max(self._columns, 8) * self.num_classes

    def fit(self, data: Any) -> 'ClassSumClassifier':
        """Releases the sums, and computes the weights from them."""
        mask, y = self.labels(data)
        node = mask.nonzero().view(-1)
        x = self.checked_rows(self.features(data, self.in_channels), node)
        part = Part(self, PrivateModel, self._promise(), ('x', 'y'))
        source = self.admit(data, [part], [
            ('x', (x.crow_indices(), x.col_indices(), x.values())),
            ('y', (y[node], ))]).source
        return self._learn(x, y[node], _held_out(node), source)

    def learn(self, x: Tensor, y: Tensor, mask: Tensor, source: NoiseSource,
              multiplier: float | None = None) -> 'ClassSumClassifier':
        r"""Learns within a release of somebody else, who has charged for it:
        draws from their source, charges nothing and enters nothing.

        Args:
            x (Tensor): The rows of all nodes, dense or sparse.
            y (Tensor): Their classes; those of the mask count.
            mask (Tensor): The nodes to learn from, as a boolean tensor.
            source (NoiseSource): Where noise is drawn from.
            multiplier (float, optional): The deviation of Gaussian noise over
                the sensitivity, of all that is drawn here together: with a
                total of :math:`m` and a share :math:`s` of it,
                :math:`m / \sqrt{s}`. By default, noise is that of epsilon
                and delta. (default: :obj:`None`)
        """
        if multiplier is not None and self.delta is None:
            raise ValueError("'multiplier' must not be given without 'delta': "
                             "it is for Gaussian noise")
        node = mask.nonzero().view(-1)
        return self._learn(self.checked_rows(x, node), y[node],
                           _held_out(node), source, multiplier)

    def checked_rows(self, x: Tensor, node: Tensor | None = None) -> Tensor:
        """The rows of some nodes, or of all, in one form whatever the one of
        the input: what is computed from equal values is equal, to the last bit.
        Values that are not taken are refused.
        """
        x = x.detach() if x.layout == torch.strided else x.detach().to_sparse()
        if node is not None:
            x = x.index_select(0, node)
        x = x.to_sparse().coalesce().double()
        index, value = x.indices(), x.values()
        if self.clip is None:
            if (value < 0).any():
                raise ValueError(
                    "'x' must not be negative without a 'clip', a public "
                    "bound on its values: give one, as in clip=1.0")
        else:  # What is above zero, and beside it what is below.
            index = torch.stack([index[0], index[1] + self.in_channels *
                                 (value < 0)])
            value = value.abs().clamp(max=self.clip)
        kept = value != 0
        with warnings.catch_warnings():  # That such tensors are in beta state.
            warnings.simplefilter('ignore')
            return torch.sparse_coo_tensor(
                index[:, kept], value[kept], (x.size(0), self._columns),
                check_invariants=False, is_coalesced=self.clip is None or None,
            ).coalesce().to_sparse_csr()

    def _learn(self, x: Tensor, y: Tensor, held_out: Tensor,
               source: NoiseSource,
               multiplier: float | None = None) -> 'ClassSumClassifier':
        out = (self._count(x, y, held_out, source) if self.delta is None else
               self._descend(x, y, held_out, source, multiplier))
        kind = self.weight.dtype
        self.weight, self.bias, self.scale, self.centre = (
            part.to(kind) for part in out)
        self.fitted.fill_(True)
        return self

    def _descend(self, x: Tensor, y: Tensor, held_out: Tensor,
                 source: NoiseSource,
                 multiplier: float | None) -> tuple[Tensor, ...]:
        # Softmax regression on centred rows, with Gaussian noise.
        steps = self.steps or _STEPS
        mechanism = self._descent(multiplier)
        choice = self._mechanism((_COUNTS, 1 - _COUNTS), multiplier)
        votes = torch.nn.functional.one_hot(y.long(),
                                            self.num_classes).double()
        one = mechanism.rows(torch.ones(len(y), 1))
        count = mechanism.release(one, mechanism.votes(votes), source)
        bias, size = _shares(count.view(-1))
        unit = _unit_rows(x, 2)
        own = (~held_out).double().view(-1, 1)  # Who is held out has no vote.
        total = mechanism.release(mechanism.rows(unit), mechanism.votes(own),
                                  source, 1).view(-1).clamp(min=0.0)
        size = max(1.0, (1 - _HELD_OUT) * size)
        scale = (total + _RIDGE * mechanism.deviation(1))**-0.5
        centre = scale * total / size
        rows = to_grid(unit, scale, centre, mechanism.row_steps)
        seen = centred(unit, scale, centre)
        noise = mechanism.deviation(2) / size
        # How much of each gradient is in the weights at the end.
        parts = [(1 - _MOMENTUM**(steps - t)) / (1 - _MOMENTUM)
                 for t in range(steps)]
        rate = min(_RATE, 2.0 * x.size(1),
                   _LOGIT / (noise * math.hypot(*parts)))
        weight = torch.zeros(x.size(1), self.num_classes, dtype=torch.double)
        velocity, before, moved = weight, weight, weight
        weights = torch.zeros(steps, dtype=torch.double)  # Of the noise.
        moving = weights.clone()
        for t in range(steps):
            error = votes - (_scores(seen, centre, weight) + bias).softmax(1)
            gradient = mechanism.release(rows, mechanism.votes(own * error),
                                         source, 2 + t) / size
            if t > 0:
                rate = min(rate, _stable(moved, before - gradient, noise, rate))
            velocity = _MOMENTUM * velocity + gradient
            moving = _MOMENTUM * moving
            moving[t] += 1
            weights, before, moved = (weights + rate * moving, gradient,
                                      rate * velocity)
            weight = weight + moved
        spread = noise**2 * float(weights.square().sum())
        weight = _shrunk(weight - weight.mean(dim=1, keepdim=True), spread)
        score = _scores(seen, centre, weight)[held_out]
        best = self._best([k * score + bias for k in _SCALES], y[held_out],
                          source, choice, 1, _SCALES.index(_USUAL))
        return _SCALES[best] * weight, bias, scale, centre

    def _count(self, x: Tensor, y: Tensor, held_out: Tensor,
               source: NoiseSource) -> tuple[Tensor, ...]:
        # Naive Bayes, with Laplace noise.
        votes = torch.nn.functional.one_hot(y.long(),
                                            self.num_classes).double()
        evidence, length = _evidence(x)
        counts = self._mechanism((1.0, ), part=_PURE_COUNTS)
        one = counts.rows(torch.ones(len(y), 1))
        # Half of a vote for the number of nodes, half for the logarithm of
        # the length of rows.
        log = length.clamp(1.0, 2.0**_LONG).log2() / _LONG
        count = 2 * counts.release(one, counts.votes(torch.stack(
            [torch.ones_like(log), log], dim=1) / 2),
            source.derive('counts')).view(-1)
        size = max(1.0, float(count[0]))
        typical = 2.0**(_LONG * min(max(float(count[1]) / size, 0.0), 1.0))
        filled = self.epsilon * size / (x.size(1) * self.num_classes)
        steps = self.steps or (_PURE_STEPS if filled >= _PURE_FILLED else 1)
        shares = [1.0] if steps == 1 else [
            _PURE_FIRST, *[(1 - _PURE_FIRST) / (steps - 1)] * (steps - 1)]
        mechanism = self._mechanism(tuple(shares), part=1 - _PURE_COUNTS)
        choice = self._mechanism(
            (1.0, ) if steps == 1 else (_PURE_MIDDLE, 1 - _PURE_MIDDLE),
            part=1 - _PURE_COUNTS)
        own = (~held_out).double().view(-1, 1)
        rows = mechanism.rows(x)
        sums = mechanism.release(rows, mechanism.votes(own * votes), source)
        weight, bias, expected = linear_weights(sums, mechanism.deviation())
        # The classes' shares alone, or a temperature, which changes no class.
        models = [(0 * weight, bias), *[(k * weight, k * bias)
                                        for k in _PURE_SCALES]]
        told, y = _select(evidence, held_out), y[held_out]
        weight, bias = models[self._best([told @ w + b for w, b in models], y,
                                         source, choice, 0)]
        if steps > 1:
            velocity, models = 0 * weight, [models[0], (weight, bias)]
            # The curvature is at most twice a row's length, times this.
            rate = 1 / (expected * (1 / _PURE_RATE + typical / _PURE_STABLE) +
                        _PURE_GRADIENT_RIDGE / _PURE_RATE *
                        mechanism.deviation(1))
            for step in range(1, steps):
                error = votes - (evidence @ weight + bias).softmax(dim=1)
                velocity = _PURE_MOMENTUM * velocity + mechanism.release(
                    rows, mechanism.votes(own * error), source, step)
                weight = weight + rate * velocity
            models += [(k * weight, k * bias) for k in _PURE_SCALES[-4:]]
            weight, bias = models[self._best([told @ w + b for w, b in models],
                                             y, source, choice, 1)]
        one = torch.ones(x.size(1))
        return weight, bias, one, 0 * one

    def _best(self, scores: list[Tensor], y: Tensor, source: NoiseSource,
              choice: ClassSums, index: int, usual: int | None = None) -> int:
        # Which scores have the least loss, privately.
        largest = math.log(self.num_classes) + _SURPRISE
        loss = [torch.nn.functional.cross_entropy(score, y.long(),
                                                  reduction='none') / largest
                for score in scores]
        return choice.least(torch.stack(loss, dim=1),
                            source.derive('choice'), index, usual)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of all classes, for each row on its own: the softmax of
        them are probabilities.
        """
        check_fitted(self)
        rows = self.checked_rows(x)
        weight, bias = self.weight.double(), self.bias.double()
        if self.delta is None:
            out = _evidence(rows)[0] @ weight
        else:
            centre = self.centre.double()
            out = _scores(centred(_unit_rows(rows, 2), self.scale.double(),
                                  centre), centre, weight)
        return (out + bias).to(self.weight.dtype)

    @torch.no_grad()
    def predict(self, data: Any) -> Tensor:
        """The most likely class of each node, from its own row."""
        out: Tensor = self(self.features(data, self.in_channels)).argmax(dim=1)
        return out

    @torch.no_grad()
    def predict_proba(self, data: Any) -> Tensor:
        """The probabilities of all classes for each node, from its own row."""
        out: Tensor = self(self.features(data, self.in_channels)).softmax(dim=1)
        return out


def linear_weights(sums: Tensor,
                   deviation: float) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, the logarithms of the classes' shares, and what each class would
    have of each column if all were alike, from noisy sums.
    """
    bias, _ = _shares(sums.sum(dim=0))
    expected = sums.sum(dim=1, keepdim=True) * bias.exp()
    excess = _shrunk(sums - expected, deviation**2)
    expected = expected.clamp(min=0)
    return excess / (expected + _PURE_RIDGE * deviation), bias, expected


def _shrunk(weight: Tensor, variance: float) -> Tensor:
    # Rows that noise of a variance could have made are shortened.
    square = weight.square().sum(dim=1, keepdim=True).clamp(min=1e-300)
    by_chance = _SHRINK * (weight.size(1) - 1) * variance
    return weight * (1 - by_chance / square).clamp(min=0)


def _stable(moved: Tensor, change: Tensor, noise: float, rate: float) -> float:
    # The largest rate at the curvature that two released gradients show along
    # a move. The noise of the former was part of the move, and is taken off.
    length = float(moved.square().sum())
    by_chance = rate * noise**2 * moved.numel() + 3 * noise * math.sqrt(
        2 * length)
    shown = float((moved * change).sum()) - by_chance
    return math.inf if shown <= 0 else 2 * length / shown


def _scores(rows: tuple[Tensor, Tensor], centre: Tensor,
            weight: Tensor) -> Tensor:
    matrix, factor = rows
    return matrix @ weight - torch.outer(factor, centre @ weight)


def _unit_rows(x: Tensor, order: int) -> Tensor:
    # Rows with a norm of one. A row of zeros stays one.
    row = torch.arange(x.size(0)).repeat_interleave(x.crow_indices().diff())
    zero = x.values().new_zeros(x.size(0))
    most = zero.scatter_reduce(0, row, x.values().abs(), 'amax')
    value = x.values() / most.clamp(min=1e-300)[row]
    power = zero.scatter_add(0, row, value.abs()**order)
    norm = (power**(1 / order)).clamp(min=1.0)
    return csr(x.crow_indices(), x.col_indices(), value / norm[row],
               tuple(x.shape))


def _evidence(x: Tensor) -> tuple[Tensor, Tensor]:
    # Each row, scaled such that a row of words has a one for each word, and
    # their number. It depends on nothing but the row.
    row = torch.arange(x.size(0)).repeat_interleave(x.crow_indices().diff())
    zero = x.values().new_zeros(x.size(0))
    most = zero.scatter_reduce(0, row, x.values(), 'amax')
    value = x.values() / most.clamp(min=1e-300)[row]
    total = zero.scatter_add(0, row, value)
    square = zero.scatter_add(0, row, value**2).clamp(min=1e-300)
    return csr(x.crow_indices(), x.col_indices(),
               value * (total / square)[row],
               tuple(x.shape)), total**2 / square


def _shares(count: Tensor) -> tuple[Tensor, float]:
    # The logarithms of the classes' shares, and the number of nodes.
    count = count.clamp(min=1.0)
    return (count / count.sum()).log(), float(count.sum())


def _held_out(node: Tensor) -> Tensor:
    # Some nodes, by their numbers, whatever these are the order of: a node
    # that goes leaves an empty place, and moves nobody else.
    mixed = (node * 2654435761) % 2**32
    return mixed < _HELD_OUT * 2**32


def _select(x: Tensor, mask: Tensor) -> Tensor:
    # Some rows of a CSR matrix.
    count = x.crow_indices().diff()
    kept = mask.repeat_interleave(count)
    first = torch.cat([count.new_zeros(1), count[mask].cumsum(0)])
    return csr(first, x.col_indices()[kept], x.values()[kept],
               (int(mask.sum()), x.size(1)))
