r"""The exact epsilon of what the machine draws, by listing all outputs.

For a mechanism with laws :math:`P(u | v)`, the exact epsilon is

.. math::
    \max_{v, v', u} \ln \frac{P(u | v)}{P(u | v')}

over all outputs :math:`u` and all neighbouring inputs :math:`v, v'`. The laws
are those of the integers that decide, not those of the formulas that they were
rounded from. What is listed, and why that is enough:

* **Columns** (Duchi, ThreeOutputs, Piecewise, PMSub, Hybrid): all outputs, for
  values at both bounds, in the middle and between. Each output's probability is
  monotone in the value between those. For FeatureRR: all outputs for all bins.
  For Laplace: all outputs between the bounds, beyond which a ratio is constant.
  Columns draw independently, so that the losses of a row add up.
* **Rows** (DuchiMulti, MultiBit): for rows at corners, all outputs have one of
  a few probabilities, which are compared as fractions.
* **Labels** (RandomizedResponse): the transition matrix.
* **Edges**: for EdgeRand, one pair. For LapGraph, all outputs for all graphs
  with four nodes. For EdgeRR with a public dendrogram, the count of one block.
* **Sums over neighbours** (NAP with Laplace noise and one hop): the sums of two
  stars, which are as far from each other as can be, by the mechanism's lemma. A
  ratio grows with the distance, up to which all of it shows.
* **Sums over classes** (ClassSums): a node with one column and one class, which
  is as far as a node can be from none, in all releases together.

Gaussian noise has no finite epsilon with :math:`\delta = 0`. For Gaussian, NAP
with one hop and ClassSums, it is the smallest epsilon for the delta that is
promised; the mechanism's theorem says how little the grid changes that.

A new mechanism takes part if it has :obj:`inputs()` and
:obj:`distribution(value)`, or by one function that is registered with
:func:`worst_case`.
"""
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import singledispatch
from operator import truediv
from typing import Any, Optional

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from torch_geometric_dp import mechanisms, transforms
from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.audit.canaries import Canary, canaries
from torch_geometric_dp.audit.canaries import num_features as default_columns
from torch_geometric_dp.audit.report import PrivacyViolation
from torch_geometric_dp.mechanisms.class_sums import _product
from torch_geometric_dp.mechanisms.column_mechanism import (
    Array,
    ColumnMechanism,
)
from torch_geometric_dp.mechanisms.gaussian import gaussian_delta
from torch_geometric_dp.mechanisms.lap_graph import _SCORES
from torch_geometric_dp.mechanisms.sparse import to_csr
from torch_geometric_dp.nn import NAP
from torch_geometric_dp.nn.adjacency import distinct_edges
from torch_geometric_dp.noise import WORD, _board, _laplace_grid
from torch_geometric_dp.transforms.private_transform import PrivateTransform

Law = tuple[NDArray[Any], Array]  # Outputs, and their probabilities.

_ROUNDING = 1e-12  # Of the logarithms here, and of sums of them.
_PAIRS = 6  # Of four nodes; a graph is a number of six bits.


@dataclass(frozen=True)
class ExactPrivacy:
    r"""The exact epsilon of a mechanism, and where it is reached.

    Args:
        mechanism (str): The mechanism.
        unit (str): What epsilon is for: :obj:`"row"`, :obj:`"label"`,
            :obj:`"edge"` or :obj:`"value"`.
        claimed (float): What it promises; what is published, where that
            differs.
        exact (float): What is true.
        worst_pair (tuple): The two inputs that are told apart best.
        worst_output (any): The output that tells them apart.
        columns (tuple of floats, optional): The exact epsilon of each column
            of a row, if columns are released one by one.
            (default: :obj:`()`)
        delta (float, optional): The delta that epsilon is for.
            (default: :obj:`0.0`)

    .. code-block:: python

        result = verify_exactly(LabelRR(epsilon=1.0, num_classes=3))
        result.worst_pair, result.worst_output   # (0, 1), 0
        result.check()   # raises an error if the promise is broken
    """
    mechanism: str
    unit: str
    claimed: float
    exact: float
    worst_pair: tuple[Any, Any]
    worst_output: Any
    columns: tuple[float, ...] = ()
    delta: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether the promise is kept, up to the rounding of logarithms."""
        return self.exact <= self.claimed + _ROUNDING * (1 + self.claimed)

    def check(self) -> 'ExactPrivacy':
        """Raises :class:`PrivacyViolation` if the promise is broken; returns
        the result otherwise.
        """
        if not self.holds:
            raise PrivacyViolation(str(self))
        return self

    def __str__(self) -> str:
        verdict = 'holds' if self.holds else 'BROKEN'
        one, other = self.worst_pair
        delta = f' at delta {self.delta:g}' if self.delta else ''
        return (f'{self.mechanism}: for one {self.unit}{delta}, claimed '
                f'{self.claimed:.6g}, exact {self.exact:.6g}: {verdict}. Worst '
                f'pair: {one} and {other}, told apart by {self.worst_output}')


def verify_exactly(target: Any,
                   num_features: Optional[int] = None) -> ExactPrivacy:
    r"""The exact epsilon of a mechanism, or of that of a transform or a layer.

    Args:
        target (any): A mechanism, a transform or a layer.
        num_features (int, optional): The number of columns of the rows that a
            transform of features is meant for. By default, as many as it asks
            for, or two. (default: :obj:`None`)

    .. code-block:: python

        result = verify_exactly(FeatureRR(epsilon=1.0, bounds=(0.0, 1.0)))
        print(result)
        result.holds   # True
        round(result.exact, 6)   # 1.0
    """
    # Of its own accord, or by its mechanism, or the one that it makes for a
    # number of columns.
    own = worst_case.dispatch(type(target)) is not worst_case.dispatch(object)
    mechanism = getattr(target, 'mechanism', None)
    if own or mechanism is None:
        return worst_case(target)
    columns = num_features or default_columns(target)
    if callable(mechanism) and not hasattr(mechanism, 'epsilon'):
        mechanism = mechanism(columns)
    promise = target.guarantee
    if isinstance(target, PrivateTransform):  # May depend on the shape.
        store = Data(x=torch.zeros(1, columns))._store
        promise = target.promise([(store, 'x')])
    return replace(worst_case(mechanism), mechanism=repr(target),
                   claimed=_claimed(promise))


def _claimed(promise: Guarantee) -> float:
    published = promise.claimed_epsilon
    return promise.epsilon if published is None else published


def largest_loss(laws: Iterable[tuple[Hashable, Law]],
                 ) -> tuple[float, tuple[Any, Any], Any]:
    r"""The largest logarithm of a ratio between two probabilities of one
    output; infinity for an output that one of two inputs never has. Returns it
    with the two inputs and the output.

    Args:
        laws (iterable): Pairs of an input and its law: outputs in increasing
            order, and their probabilities.

    .. code-block:: python

        import numpy as np
        outputs = np.array([0, 1])
        largest_loss([('a', (outputs, np.array([0.75, 0.25]))),
                      ('b', (outputs, np.array([0.25, 0.75])))])   # (1.0986...
    """
    names, parts = zip(*laws)
    support = parts[0][0]
    if any(not np.array_equal(outputs, support) for outputs, _ in parts) or (
            len(support) > 1 and not (np.diff(support) > 0).all()):
        support = np.unique(np.concatenate([outputs for outputs, _ in parts]))
    low, high = np.full(len(support), np.inf), np.zeros(len(support))
    least, most = np.zeros((2, len(support)), np.int64)
    for i, (outputs, law) in enumerate(parts):
        if outputs is not support and not np.array_equal(outputs, support):
            law = np.bincount(np.searchsorted(support, outputs), law,
                              len(support))
        least[law < low], most[law > high] = i, i
        low, high = np.minimum(low, law), np.maximum(high, law)
    with np.errstate(divide='ignore', invalid='ignore'):
        losses = np.where(high > 0, np.log(high) - np.log(low), 0.0)
    at = int(losses.argmax())
    return (float(losses[at]), (names[most[at]], names[least[at]]),
            support[at].item())


@singledispatch
def worst_case(mechanism: Any) -> ExactPrivacy:
    r"""The exact epsilon of a mechanism: one small function for each kind.

    A mechanism that nothing is registered for must have :obj:`inputs()`, all
    inputs that are neighbours of each other, and :obj:`distribution(value)`,
    the outputs for one of them in increasing order and their probabilities.

    .. code-block:: python

        import math
        class Coin:
            epsilon = 1.0

        @worst_case.register
        def _(mechanism: Coin) -> ExactPrivacy:
            return ExactPrivacy('Coin', 'label', mechanism.epsilon,
                                math.log(3), ('heads', 'tails'), 'heads')

        verify_exactly(Coin()).holds   # False
    """
    if not hasattr(mechanism, 'inputs'):
        raise TypeError(
            f"'{type(mechanism).__name__}' cannot be verified exactly: its "
            f"outputs cannot be listed, or nobody has said how (see "
            f"worst_case); audit() tries it instead")
    loss, pair, output = largest_loss(
        (value, mechanism.distribution(value)) for value in mechanism.inputs())
    return ExactPrivacy(repr(mechanism), 'value', mechanism.epsilon, loss, pair,
                        output)


@worst_case.register
def _label(mechanism: mechanisms.RandomizedResponse) -> ExactPrivacy:
    outputs = np.arange(mechanism.num_classes)
    matrix = mechanism.transition_matrix().numpy()
    loss, pair, output = largest_loss(
        (value, (outputs, law)) for value, law in enumerate(matrix))
    return ExactPrivacy(repr(mechanism), 'label', mechanism.epsilon, loss, pair,
                        output)


@worst_case.register
def _columns(mechanism: ColumnMechanism) -> ExactPrivacy:
    known: dict[Any, tuple[float, tuple[Any, Any], Any]] = {}
    losses, pairs, outputs = [], [], []
    for column in range(mechanism.num_features):
        # Columns with the same parameters have the same law.
        kind = tuple(float(part[column]) for part in (
            mechanism.epsilons, mechanism.low, mechanism.high))
        if kind not in known:
            known[kind] = _column(mechanism, column)
        loss, pair, output = known[kind]
        losses.append(loss)
        pairs.append(pair)
        outputs.append(output)
    one, other = zip(*pairs)
    return ExactPrivacy(repr(mechanism), 'row', mechanism.epsilon,
                        math.fsum(losses), (_short(one), _short(other)),
                        _short(tuple(outputs)), tuple(losses))


def _column(mechanism: ColumnMechanism,
            column: int) -> tuple[float, tuple[Any, Any], Any]:
    if isinstance(mechanism, mechanisms.Laplace):
        return _laplace_column(mechanism, column)
    points = np.linspace(0, 1, 5)
    if isinstance(mechanism, mechanisms.FeatureRR):  # The middles of all bins.
        bins = int(mechanism.bins[column])
        points = (np.arange(bins) + 0.5) / bins
    values = mechanism.from_units(2 * points - 1, column)
    if not isinstance(mechanism, mechanisms.FeatureRR):  # To the last bit.
        values[[0, -1]] = mechanism.low[column], mechanism.high[column]
    return largest_loss((value, mechanism.distribution(value, column))
                        for value in values.tolist())


def _laplace_column(mechanism: mechanisms.Laplace,
                    column: int) -> tuple[float, tuple[Any, Any], Any]:
    ends = float(mechanism.low[column]), float(mechanism.high[column])
    if mechanism._scale[column] == 0:
        return 0.0, ends, float(mechanism.distribution(ends[0], column)[0][0])
    # The scale of the sampler's integers, which is what is drawn.
    t, s = _laplace_grid(mechanism._scale[column])
    at = np.arange(-1.0, mechanism.steps + 2.0)
    loss = (np.abs(at - mechanism.steps) - np.abs(at)) * (s / t)
    worst = int(loss.argmax())
    return (float(loss[worst]), ends,
            float(mechanism._values(at[worst:worst + 1], column)[0]))


@worst_case.register
def _gaussian(mechanism: mechanisms.Gaussian) -> ExactPrivacy:
    low, high = mechanism.low.tolist(), mechanism.high.tolist()
    distance = mechanism.steps * math.sqrt(mechanism.num_features)
    loss = _gaussian_loss(mechanism.sigma / distance, mechanism.delta)
    return ExactPrivacy(repr(mechanism), 'row', mechanism.epsilon, loss,
                        (_short(high), _short(low)),
                        'rows far beyond the first', delta=mechanism.delta)


def _gaussian_loss(multiplier: float, delta: float) -> float:
    # The smallest epsilon for which delta is enough, by bisection.
    low, high = 0.0, 1.0
    while gaussian_delta(high, multiplier) > delta:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        enough = gaussian_delta(middle, multiplier) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high


@worst_case.register
def _nap(layer: NAP) -> ExactPrivacy:
    mechanism = layer.mechanism
    if mechanism.hops > 1:
        raise TypeError(f"'NAP' with hops={mechanism.hops} cannot be verified "
                        f"exactly: what a hop sums depends on the noise of the "
                        f"one before; audit() tries it instead")
    losses = [(_star_loss(layer, star), star.sides)
              for star in canaries(layer, layer.guarantee)]
    loss, sides = max(losses)
    return ExactPrivacy(repr(layer), mechanism.unit,
                        _claimed(layer.guarantee), loss, sides,
                        'sums far beyond the first',
                        delta=mechanism.delta or 0.0)


def _star_loss(layer: NAP, star: Canary) -> float:
    # All that the layer does before it draws, for both inputs.
    mechanism = layer.mechanism
    sums, scales = [], []
    for side in (True, False):
        data = star.graph(np.array([side]))
        x, edges = data.x, distinct_edges(data.edge_index, data.num_nodes)
        adjacency = to_csr(edges, data.num_nodes, torch.ones(
            edges.size(1), dtype=torch.double))
        sums.append(layer.message_and_aggregate(adjacency,
                                                mechanism.to_steps(x)))
        scales.append(layer._scale(x, edges, None).view(-1, 1))
    if not torch.equal(*scales):
        return math.inf  # Noise whose scale tells which it was.
    change = (sums[0] - sums[1]).abs()
    order = 1 if mechanism.delta is None else 2
    distances = torch.linalg.vector_norm(change, order, dim=1)
    return _noise_loss(distances.tolist(), scales[0].view(-1).expand(
        len(distances)).tolist(), mechanism.delta)


def _noise_loss(distances: list[float], scales: list[float],
                delta: Optional[float]) -> float:
    # What noise of some scales leaves of some distances, in steps.
    if delta is not None:
        return _gaussian_loss(1 / math.hypot(*map(truediv, distances, scales)),
                              delta)
    grids = map(_laplace_grid, scales)
    return float(sum(int(distance) * Fraction(s, t)
                     for distance, (t, s) in zip(distances, grids)))


@worst_case.register
def _class_sums(mechanism: mechanisms.ClassSums) -> ExactPrivacy:
    row, vote = (torch.eye(1, columns) for columns in (
        mechanism.num_features, mechanism.num_classes))
    change = _product(mechanism.rows(row), mechanism.votes(vote)).sum()
    loss = _noise_loss([float(change)] * len(mechanism.scales),
                       list(mechanism.scales), mechanism.delta)
    return ExactPrivacy(repr(mechanism), 'node', mechanism.epsilon, loss,
                        ('a node with one column and one class', 'none'),
                        'sums far beyond the first',
                        delta=mechanism.delta or 0.0)


@worst_case.register
def _duchi_multi(mechanism: mechanisms.DuchiMulti) -> ExactPrivacy:
    low, high = mechanism.low.tolist(), mechanism.high.tolist()
    if mechanism._scale == 0:
        loss = 0.0
    else:  # A corner on the row's side, and one on the other.
        noise = Fraction(mechanism._noise, WORD)
        least = noise / 2**mechanism.num_features
        loss = _log((least + (1 - noise) * mechanism._peak) / least)
    return ExactPrivacy(repr(mechanism), 'row', mechanism.epsilon, loss,
                        (_short(high), _short(low)),
                        'the corner next to the first')


@worst_case.register
def _multi_bit(mechanism: mechanisms.MultiBit) -> ExactPrivacy:
    # The output shows which columns were sent: given them, bits are
    # independent.
    low, high = mechanism.low.tolist(), mechanism.high.tolist()
    half = int(mechanism._half[0])
    odds = Fraction(WORD // 2 + half, WORD // 2 - half)
    loss = 0.0 if mechanism._scale == 0 else mechanism.num_sampled * _log(odds)
    return ExactPrivacy(repr(mechanism), 'row', mechanism.epsilon, loss,
                        (_short(high), _short(low)), 'all bits that are sent 1')


@worst_case.register
def _grrfs(mechanism: mechanisms.GRRFS) -> ExactPrivacy:
    # Rows that differ everywhere, by the mechanism's theorem.
    ones, zeros = [1] * mechanism.num_features, [0] * mechanism.num_features
    loss = _log(mechanism.probability(ones, ones) /
                mechanism.probability(zeros, ones))
    return ExactPrivacy(repr(mechanism), 'row', mechanism.epsilon, loss,
                        (_short(ones), _short(zeros)), _short(ones))


@worst_case.register
def _edge_rand(mechanism: mechanisms.EdgeRand) -> ExactPrivacy:
    # The coins of the sampler, in a large graph.
    with localcontext(prec=60):
        rate, _ = _board(mechanism._flip)
        flip = 1 - (-rate).exp()
        loss = float(((1 - flip) / flip).ln())
    return ExactPrivacy(repr(mechanism), 'edge', mechanism.epsilon, loss,
                        ('an edge', 'none'), 'an edge')


@worst_case.register
def _lap_graph(mechanism: mechanisms.LapGraph) -> ExactPrivacy:
    graphs = np.arange(2**_PAIRS)
    bit = graphs[:, None] >> np.arange(_PAIRS) & 1
    size = bit.sum(axis=1)
    # Randomised response, which is cut or filled at random: the mechanism's
    # lemma, with its integers.
    flips = size[graphs[:, None] ^ graphs]
    tau = mechanism._tau / _SCORES
    ones = tau**flips * (1 - tau)**(_PAIRS - flips)
    ways = np.zeros(ones.shape)
    for one in graphs:
        for out in graphs:
            k, t = size[one], size[out]
            if t <= k and out & ~one == 0:
                ways[one, out] = 1 / math.comb(k, t)
            elif t > k and one & ~out == 0:
                ways[one, out] = 1 / math.comb(_PAIRS - k, t - k)
    # The noisy count, moved into its range.
    t, s = _laplace_grid(mechanism._scale)
    ratio = math.exp(-s / t)
    z = np.arange(_PAIRS + 1)
    count = (1 - ratio) / (1 + ratio) * ratio**np.abs(z - z[:, None])
    count[:, 0] = ratio**z / (1 + ratio)
    count[:, -1] = ratio**(_PAIRS - z) / (1 + ratio)
    laws = (ones @ ways) * count[size[:, None], size]
    loss, pair, output = 0.0, (0, 1), 0
    for graph in graphs:
        for changed in graph ^ 1 << np.arange(_PAIRS):
            losses = np.log(laws[graph] / laws[changed])
            if losses.max() > loss:
                loss, output = float(losses.max()), int(losses.argmax())
                pair = int(graph), int(changed)
    return ExactPrivacy(repr(mechanism), 'edge', mechanism.epsilon, loss,
                        (_edges(pair[0]), _edges(pair[1])), _edges(output))


@worst_case.register
def _edge_rr(transform: transforms.EdgeRR) -> ExactPrivacy:
    if transform.dendrogram != 'public':
        raise TypeError(f"'EdgeRR' with dendrogram={transform.dendrogram!r} "
                        f"cannot be verified exactly: its dendrograms are too "
                        f"many to list; audit() tries it instead")
    from torch_geometric_dp.hrg.release import _SAMPLER_ERROR
    # The count of the block that the edge is in; more edges change nothing.
    t, s = _laplace_grid(1.0 / (transform.epsilon - _SAMPLER_ERROR))
    return ExactPrivacy(repr(transform), 'edge', transform.epsilon, s / t,
                        ('an edge in a block', 'none'),
                        'a noisy count of one or more')


def _log(ratio: Fraction) -> float:
    with localcontext(prec=60):
        return float((Decimal(ratio.numerator) / ratio.denominator).ln())


def _edges(graph: int) -> str:
    # The pairs of a graph with four nodes, by their numbers.
    return f'pairs {[i for i in range(_PAIRS) if graph >> i & 1]}'


def _short(row: Any) -> Any:
    return tuple(row) if len(row) < 5 else (*row[:3], '...')
