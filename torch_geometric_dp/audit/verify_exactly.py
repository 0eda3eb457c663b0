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
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp import mechanisms, transforms
from torch_geometric_dp.audit.canaries import num_features as default_columns
from torch_geometric_dp.audit.report import PrivacyViolation
from torch_geometric_dp.mechanisms.column_mechanism import (
    Array,
    ColumnMechanism,
)
from torch_geometric_dp.mechanisms.lap_graph import _SCORES
from torch_geometric_dp.noise import WORD, _board, _laplace_grid

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
        claimed (float): What it promises.
        exact (float): What is true.
        worst_pair (tuple): The two inputs that are told apart best.
        worst_output (any): The output that tells them apart.
        columns (tuple of floats, optional): The exact epsilon of each column
            of a row, if columns are released one by one.
            (default: :obj:`()`)

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
        return (f'{self.mechanism}: for one {self.unit}, claimed '
                f'{self.claimed:.6g}, exact {self.exact:.6g}: {verdict}. Worst '
                f'pair: {one} and {other}, told apart by {self.worst_output}')


def verify_exactly(target: Any,
                   num_features: Optional[int] = None) -> ExactPrivacy:
    r"""The exact epsilon of a mechanism, or of the mechanism of a transform.

    Args:
        target (any): A mechanism or a transform.
        num_features (int, optional): The number of columns of the rows that a
            transform of features is meant for. By default, as many as it asks
            for, or two. (default: :obj:`None`)

    .. code-block:: python

        result = verify_exactly(FeatureRR(epsilon=1.0, bounds=(0.0, 1.0)))
        print(result)
        result.holds   # True
        round(result.exact, 6)   # 1.0
    """
    mechanism = target
    # A transform has a mechanism, or makes one for a number of columns.
    if isinstance(target, transforms.EdgeRR):
        return worst_case(target)
    if hasattr(target, 'mechanism'):
        mechanism = target.mechanism
        if callable(mechanism) and not hasattr(mechanism, 'epsilon'):
            mechanism = mechanism(num_features or default_columns(target))
    result = worst_case(mechanism)
    if mechanism is target:
        return result
    return replace(result, mechanism=repr(target),
                   claimed=target.guarantee.epsilon)


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
    raise TypeError("'Gaussian' cannot be verified exactly: it has no finite "
                    "epsilon with delta = 0; audit() tries it instead")


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
