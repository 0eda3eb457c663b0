"""Transforms that release node features column by column: they differ in the
mechanism alone, and are declared here.
"""
from typing import Any

from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.transforms.feature_transform import FeatureTransform

_DOC = r"""Releases node features by {what} (functional name: :obj:`{name}`).

    Takes the arguments of :class:`FeatureTransform`; the proof stands in
    :mod:`{module}`.

    .. code-block:: python

        data = DigitsGraph()[0]
        private = {kind}(epsilon=64.0, bounds=(0.0, 1.0))(data)
        private.privacy.epsilon('features')   # 64.0
    """


def _declare(law: type[ColumnMechanism], name: str,
             what: str) -> type[FeatureTransform]:
    def mechanism(self: Any, num_features: int) -> ColumnMechanism:
        """The mechanism for rows with so many columns."""
        return law(self.epsilons(num_features), self.bounds)

    kind = law.__name__
    transform = type(kind, (FeatureTransform, ), {
        'mechanism': mechanism, '__module__': __name__,
        '__doc__': _DOC.format(what=what, name=name, kind=kind,
                               module=law.__module__)})
    registered: type[FeatureTransform] = functional_transform(name)(transform)
    return registered


Duchi = _declare(
    mechanisms.Duchi, 'dp_duchi',
    "the one-bit mechanism of Duchi et al. on\n    each column: one of two "
    "values, unbiased")
Hybrid = _declare(
    mechanisms.Hybrid, 'dp_hybrid',
    "the hybrid mechanism of Wang et al. on\n    each column: piecewise or "
    "one-bit by chance, on a grid; unbiased")
Laplace = _declare(
    mechanisms.Laplace, 'dp_laplace',
    "Laplace noise on each column, on a grid;\n    unbiased")
Piecewise = _declare(
    mechanisms.Piecewise, 'dp_piecewise',
    "the piecewise mechanism of Wang et al. on\n    each column, on a grid: "
    "likely near the value, possible everywhere, unbiased")
PMSub = _declare(
    mechanisms.PMSub, 'dp_pm_sub',
    "the sub-optimal piecewise mechanism PM-SUB\n    of Zhao et al. on each "
    "column, on a grid; unbiased")
SquareWave = _declare(
    mechanisms.SquareWave, 'dp_square_wave',
    "the Square Wave mechanism of Li et al. on\n    each column, on a grid: "
    "likely near the value, unbiased")
ThreeOutputs = _declare(
    mechanisms.ThreeOutputs, 'dp_three_outputs',
    "the three-output mechanism of Zhao et al.\n    on each column: one of "
    "three values, unbiased")
