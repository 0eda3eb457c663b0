r"""The Hybrid mechanism of Wang et al. (ICDE 2019).

A coin that does not look at the value chooses between :class:`Piecewise`, with
probability :math:`\alpha = 1 - e^{-\varepsilon/2}`, and :class:`Duchi`. Up to
:math:`\varepsilon^* \approx 0.609`, where the Piecewise mechanism does not
help, :math:`\alpha = 0`. This :math:`\alpha` makes the largest variance over
all inputs smallest.

**Theorem.** The output is :math:`\varepsilon`-locally private, no smaller
epsilon holds, and it is unbiased up to the grid of :class:`Piecewise`.

*Proof.* Both mechanisms are private and unbiased. With the same :math:`\alpha`
for all inputs, :math:`\alpha P_1(u|x) + (1-\alpha) P_2(u|x) \leq
e^{\varepsilon} (\alpha P_1(u|x') + (1-\alpha) P_2(u|x'))`. The outputs of Duchi
et al., or the cells of the grid, reach the bound. ∎

**In integers.** One word for the coin, and one for the mechanism that it
chose. How :math:`\alpha` is rounded does not matter for the proof.
"""
import math
from collections.abc import Sequence
from decimal import Decimal, localcontext

import numpy as np

from torch_geometric_dp._typing import Array, Bounds
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.mechanisms.duchi import Duchi
from torch_geometric_dp.mechanisms.odds import odds
from torch_geometric_dp.mechanisms.piecewise import Piecewise
from torch_geometric_dp.noise import WORD, Words, threshold

# Where the mixture's variance, the same for all inputs, meets the largest one
# of Duchi et al.: the root of a cubic polynomial.
_ROOT = 405 * math.sqrt(241)
_FIRST = math.log((-5 + 2 * math.cbrt(6353 - _ROOT) + 2 *
                   math.cbrt(6353 + _ROOT)) / 27)


class Hybrid(ColumnMechanism):
    r"""The Hybrid mechanism of Wang et al.: the :class:`Piecewise` mechanism or
    that of :class:`Duchi`, by a coin; unbiased up to a grid.

    Args:
        epsilons (float or sequence of floats): The privacy loss of each
            column. At zero, the output is the middle of the bounds.
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)

    .. code-block:: python

        mechanism = Hybrid([2.0, 0.5], bounds=(0.0, 1.0))
        noisy = mechanism(torch.rand(100, 2), NoiseSource.from_os())
        mechanism.variance(0.5)   # 0.2605...
    """
    depth = 2

    def __init__(self, epsilons: float | Sequence[float],
                 bounds: Bounds = (-1.0, 1.0)) -> None:
        super().__init__(epsilons, bounds)
        self._piecewise = Piecewise(epsilons, bounds)
        self._duchi = Duchi(epsilons, bounds)
        self._coin = np.array([_coin(epsilon) for epsilon in
                               self.epsilons.tolist()], np.uint64)

    def distribution(self, value: float,
                     column: int = 0) -> tuple[Array, Array]:
        """The possible outputs for a value, and their exact probabilities."""
        alpha = self._alpha(column)
        if alpha == 0:
            return self._duchi.distribution(value, column)
        grid, one = self._piecewise.distribution(value, column)
        pair, two = self._duchi.distribution(value, column)
        outputs = np.concatenate([grid, pair])
        probabilities = np.concatenate([alpha * one, (1 - alpha) * two])
        order = np.argsort(outputs, kind='stable')
        return outputs[order], probabilities[order]

    def draw(self, units: Array, words: Words) -> Array:
        """The released units of a block, two words for each cell."""
        return np.where(words[..., 0] < self._coin,
                        self._piecewise.draw(units, words[..., 1:]),
                        self._duchi.draw(units, words[..., 1:]))

    def expected_error(self, value: float, column: int = 0) -> float:
        """The exact expected distance of the output from the value."""
        return self._mix(self._piecewise.expected_error(value, column),
                         self._duchi.expected_error(value, column), column)

    def bias(self, value: float, column: int = 0) -> float:
        """The exact expected output, less the value."""
        return self._mix(self._piecewise.bias(value, column),
                         self._duchi.bias(value, column), column)

    def variance(self, value: float, column: int = 0) -> float:
        """The exact variance of the output."""
        one, two = (mechanism.variance(value, column) +
                    mechanism.bias(value, column)**2
                    for mechanism in (self._piecewise, self._duchi))
        return self._mix(one, two, column) - self.bias(value, column)**2

    def _alpha(self, column: int) -> float:
        return int(self._coin[column]) / WORD

    def _mix(self, one: float, two: float, column: int) -> float:
        alpha = self._alpha(column)
        return alpha * one + (1 - alpha) * two


def _coin(epsilon: float) -> int:
    if epsilon <= _FIRST:
        return 0
    with localcontext(prec=80):
        return threshold(1 - 1 / odds(Decimal(epsilon) / 2))
