r"""The Laplace mechanism (Dwork et al., TCC 2006), on a grid.

A value is rounded to one of :math:`n` equal steps between its bounds, and
becomes :math:`z` steps more with probability proportional to :math:`e^{-|z|/s}`
for all integers :math:`z`, where :math:`s \geq n/\varepsilon`.

**Theorem.** The output is :math:`\varepsilon`-locally private, and unbiased up
to half a step.

*Proof.* Rounded values are at most :math:`n` steps apart. So the probabilities
of an output for two of them are :math:`e^{-|z|/s}` and :math:`e^{-|z+k|/s}`
times the same constant with :math:`|k| \leq n`, and their ratio is at most
:math:`e^{n/s} \leq e^{\varepsilon}`. The noise is symmetric. ∎

**On the machine.** The odds of two outcomes of
:func:`~torch_geometric_dp.noise.discrete_laplace` are off by less than
:math:`10^{-12}` wherever an outcome has any chance to occur. To make up for it,
:math:`s` is :math:`n/(\varepsilon - 2^{-39})`. It is rounded *up* to 30 binary
digits, so that the sampler takes it as it is. An epsilon below :math:`n/2^{38}`
counts as zero.

At :math:`\varepsilon = 0` the output is the middle of the bounds, whatever the
input.
"""
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp._typing import Array, Bounds
from torch_geometric_dp.mechanisms.grid_noise import GridNoise
from torch_geometric_dp.noise import NoiseSource, discrete_laplace
from torch_geometric_dp.noise.discrete import laplace_grid


class Laplace(GridNoise):
    r"""The Laplace mechanism: adds noise of scale :math:`1/\varepsilon` times
    its range to every column, on a grid.

    Args:
        epsilons (float or sequence of floats): The privacy loss of each
            column. At zero, the output is the middle of the bounds.
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)
        steps (int, optional): The number of steps of the grid between the
            bounds. (default: :obj:`65536`)

    .. code-block:: python

        mechanism = Laplace([1.0, 0.5], bounds=(0.0, 1.0))
        noisy = mechanism(torch.rand(100, 2), NoiseSource.from_os())
        mechanism.variance(0.5)   # 2.0000...
    """
    def __init__(self, epsilons: float | Sequence[float],
                 bounds: Bounds = (-1.0, 1.0), steps: int = 2**16) -> None:
        super().__init__(epsilons, bounds, steps)
        self._scale = [_scale(self.steps, epsilon)
                       for epsilon in self.epsilons.tolist()]

    def noise(self, first: int, last: int, column: int,
              source: NoiseSource) -> NDArray[np.int64]:
        """The integers that are added to a column, from row :obj:`first` to
        the one before :obj:`last`.
        """
        if self._scale[column] == 0:
            return np.zeros(last - first, np.int64)
        return discrete_laplace(source, self._scale[column], last - first,
                                first)

    def noise_law(self, column: int) -> tuple[float, float, float]:
        """The variance of the noise, the mean of its distance from zero, and
        the probability of zero; all in steps.
        """
        if self._scale[column] == 0:
            return 0.0, 0.0, 1.0
        ratio = math.exp(-1 / self._scale[column])
        rest = -math.expm1(-1 / self._scale[column])
        return (2 * ratio / rest**2, 2 * ratio / (rest * (1 + ratio)),
                rest / (1 + ratio))

    def log_odds(self, noise: Any, column: int) -> Any:
        """The logarithm of an integer's probability, less that of zero's."""
        return -np.abs(noise) / (self._scale[column] or 1.0)

    def reach(self, column: int) -> int:
        """Noise beyond this has a probability of less than 1e-15."""
        return math.ceil(36 * self._scale[column])

    def column_loss(self, column: int) -> tuple[float, tuple[Any, Any], Any]:
        """Over all outputs between the bounds, beyond which a ratio is
        constant.
        """
        ends = float(self.low[column]), float(self.high[column])
        if self._scale[column] == 0:
            return 0.0, ends, sum(ends) / 2
        # The scale of the sampler's integers, which is what is drawn.
        t, s = laplace_grid(self._scale[column])
        at = np.arange(-1.0, self.steps + 2.0)
        loss = (np.abs(at - self.steps) - np.abs(at)) * (s / t)
        worst = int(loss.argmax())
        return (float(loss[worst]), ends,
                float(self._values(at[worst:worst + 1], column)[0]))

    def _steps(self, values: Any, column: int) -> Array:
        steps = super()._steps(values, column)
        # Nothing of the value may be left where there is no noise.
        return steps if self._scale[column] > 0 else 0 * steps + self.steps / 2


def _scale(steps: int, epsilon: float) -> float:
    # In steps, and 0 for a column that may tell nothing.
    if epsilon * 2.0**38 < steps:
        return 0.0
    exact = Fraction(steps) / (Fraction(epsilon) - Fraction(1, 2**39))
    exact = max(exact, Fraction(1, 64))  # Less noise would be none at all.
    unit = Fraction(2)**(math.frexp(float(exact))[1] - 30)
    return float(math.ceil(exact / unit) * unit)
