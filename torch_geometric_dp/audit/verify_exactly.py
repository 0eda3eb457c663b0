r"""The exact epsilon of what the machine draws, by listing all outputs.

Each mechanism knows its worst case, and says in its :obj:`worst_case` what is
listed, and why that is enough: see :mod:`torch_geometric_dp.mechanisms`. Here,
it is held against what is promised, by the mechanism, or by a transform or a
layer that it is a part of.

Gaussian noise has no finite epsilon with :math:`\delta = 0`. There, it is the
smallest epsilon for the delta that is promised; the mechanism's theorem says
how little the grid changes that.
"""
from dataclasses import dataclass
from typing import Any

import numpy as np

from torch_geometric_dp.accountant import Guarantee, Unit
from torch_geometric_dp.audit.canaries import canaries
from torch_geometric_dp.audit.report import PrivacyViolation
from torch_geometric_dp.transforms.private_transform import PrivateTransform

_ROUNDING = 1e-12  # Of the logarithms, and of sums of them.


@dataclass(frozen=True)
class ExactPrivacy:
    r"""The exact epsilon of a mechanism, and where it is reached.

    Args:
        mechanism (str): The mechanism.
        unit (Unit): What epsilon is for.
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
    unit: Unit
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
        one, other, output = map(_short, (*self.worst_pair, self.worst_output))
        delta = f' at delta {self.delta:g}' if self.delta else ''
        return (f'{self.mechanism}: for {self.unit.words()}{delta} claimed '
                f'{self.claimed:.6g}, exact {self.exact:.6g}: {verdict}. Worst '
                f'pair: {one} and {other}, told apart by {output}')


def verify_exactly(target: Any,
                   num_features: int | None = None) -> ExactPrivacy:
    r"""The exact epsilon of a mechanism, or of that of a transform or a layer,
    by its own :obj:`worst_case`.

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
    mechanism, promise = target, getattr(target, 'guarantee', None)
    if not hasattr(target, 'worst_case'):
        mechanism = getattr(target, 'mechanism', None)
    if not hasattr(mechanism, 'worst_case') and callable(mechanism):
        mechanism = mechanism(num_features or target.num_features)
        if isinstance(target, PrivateTransform):  # May depend on the shape.
            graph = canaries(target, num_features=num_features)[0].graph(
                np.ones(1, np.bool_))
            promise = target.promise(target.read(graph))
    if not hasattr(mechanism, 'worst_case') or not isinstance(promise,
                                                              Guarantee):
        raise TypeError(
            f"'{type(target).__name__}' cannot be verified exactly: its "
            f"outputs cannot be listed, or it does not say how, by a "
            f"'guarantee' and a 'worst_case' (see Mechanism); audit() tries it "
            f"instead")
    case, published = mechanism.worst_case(), promise.claimed_epsilon
    return ExactPrivacy(
        repr(target), case.unit,
        promise.epsilon if published is None else published, case.epsilon,
        case.pair, case.output, case.columns, case.delta)


def _short(row: Any) -> Any:
    return row if not isinstance(row, tuple) or len(row) < 5 else (*row[:3],
                                                                   '...')
