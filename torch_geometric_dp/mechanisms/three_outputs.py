r"""The Three-Outputs mechanism of Zhao et al. (IEEE Internet of Things Journal
2021).

A value :math:`x \in [-1, 1]` becomes :math:`-C`, :math:`0` or :math:`C`. With
:math:`a = P(0 \mid 0)` and :math:`E = e^{\varepsilon}`,

.. math::
    P(0 \mid x) &= a - a (1 - 1/E) |x| \\
    P(-C \mid x) &= \frac{1-a}{2} - \Big(\frac{1-a}{2} -
    \frac{E-a}{E(E+1)}\Big) x \quad \textrm{for } x \geq 0 \\
    C &= \frac{E (E + 1)}{(E - 1)(E - a)}

and :math:`P(-C \mid -x) = P(C \mid x)`. The paper chooses the :math:`a` with
the smallest worst-case variance (:func:`zero_probability`).

**Theorem.** For :math:`0 \leq a \leq E/(E+2)` the output is
:math:`\varepsilon`-locally private, no smaller epsilon holds, and its mean is
:math:`x`.

*Proof.* :math:`P(0|x)` lies between :math:`a/E` and :math:`a`. By the bound on
:math:`a`, :math:`P(-C|x)` falls from :math:`x = -1` to :math:`x = 1`, that is
from :math:`(E-a)/(E+1)` to :math:`(E-a)/(E(E+1))`, whose ratio is :math:`E`;
:math:`P(C|x)` mirrors it. The mean :math:`C (P(C|x) - P(-C|x))` is linear on
either side of 0, is 0 there, and :math:`C (E-a)(1 - 1/E)/(E+1) = 1` at
:math:`x = 1`. ∎

**In integers.** One 64-bit word decides. :math:`Z_0`, an even number of at most
:math:`2^{64} a - 8` (or 0), words give 0 at :math:`x = 0`, and :math:`Z_1 =
\lceil Z_0/E \rceil` do at :math:`|x| = 1`. The unlikely side gets :math:`S_0 =
2^{63} - Z_0/2` words at 0, and :math:`S_1 = \lceil (2^{64} - Z_1)/(E+1) \rceil`
at :math:`|x| = 1`; the 8 words see to it that :math:`S_1 \leq S_0`. In between
both are interpolated and cut off at their ends, and the likely side gets the
rest. So every output but 0 has between :math:`S_1` and :math:`2^{64} - Z_1 -
S_1 \leq E S_1` words, and 0 has between :math:`Z_1` and :math:`Z_0 \leq E Z_1`:
the theorem holds for what the machine does, and :math:`C = 2^{64} / (2^{64} -
Z_1 - 2 S_1)` is unbiased.

At :math:`\varepsilon = 0` no finite scale is unbiased: the output is 0, the
middle of the bounds, whatever the input.
"""
import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, localcontext

import numpy as np

from torch_geometric_dp._jit import jit
from torch_geometric_dp._typing import Array, Bounds
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.mechanisms.odds import odds
from torch_geometric_dp.noise import WORD, Words


class ThreeOutputs(ColumnMechanism):
    r"""The Three-Outputs mechanism of Zhao et al.: every column becomes one of
    three values and is unbiased. Below :math:`\varepsilon = \ln 2` the middle
    one never occurs, which makes it the mechanism of :class:`Duchi`.

    Args:
        epsilons (float or sequence of floats): The privacy loss of each
            column. At zero, the output is the middle of the bounds.
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)

    .. code-block:: python

        mechanism = ThreeOutputs([2.0, 0.5], bounds=(0.0, 1.0))
        noisy = mechanism(torch.rand(100, 2), NoiseSource.from_os())
        mechanism.variance(0.5)   # 0.1150...
    """
    def __init__(self, epsilons: float | Sequence[float],
                 bounds: Bounds = (-1.0, 1.0)) -> None:
        super().__init__(epsilons, bounds)
        words = [_words(epsilon) for epsilon in self.epsilons.tolist()]
        # Zero at 0 and at 1, the unlikely side at 0 and at 1.
        self._words = np.array(words, np.uint64)
        self._scale: Array = np.array([
            WORD / sure if sure > 0 else 0.0
            for sure in (WORD - z1 - 2 * s1 for _, z1, _, s1 in words)
        ])

    def distribution(self, value: float,
                     column: int = 0) -> tuple[Array, Array]:
        """The two or three outputs for a value, and their exact
        probabilities.
        """
        if self._scale[column] == 0:
            return self.from_units(np.zeros(1), column), np.ones(1)
        low, middle = map(int, _shares(self.unit(value, column),
                                       self._words[column]))
        outputs = self._scale[column] * np.array([-1.0, 0.0, 1.0])
        law = np.array([low / WORD, middle / WORD,
                        (WORD - low - middle) / WORD])
        return self.from_units(outputs, column)[law > 0], law[law > 0]

    def draw(self, units: Array, words: Words) -> Array:
        """The released units of a block, one word for each cell."""
        return _draw(units, words[..., 0], self._words) * self._scale


def zero_probability(epsilon: float) -> float:
    r"""The probability :math:`a` of output 0 for input 0 that makes the largest
    variance over all inputs smallest: 0 up to :math:`\ln 2`, the largest one
    that is private from :math:`\ln((3 + \sqrt{65})/2)` on, and in between a
    root of a cubic polynomial.

    .. code-block:: python

        zero_probability(1.0)   # 0.2860...
    """
    if epsilon < math.log(2):
        return 0.0
    e = math.exp(min(epsilon, 36.0))
    most = e / (e + 2)
    if epsilon > math.log((3 + math.sqrt(65)) / 2):
        return most
    # The trigonometric form of the root that lies in the private range.
    p = e**4 + 14 * e**3 + 50 * e**2 - 2 * e + 25
    q = (e**6 + 21 * e**5 + 135 * e**4 + 202 * e**3 + 459 * e**2 - 15 * e + 125)
    angle = (math.pi + math.acos(q / p**1.5)) / 3
    root = (e**2 + 4 * e + 5 - 2 * math.sqrt(p) * math.cos(angle)) / 6
    return min(max(root, 0.0), most)


def _words(epsilon: float) -> tuple[int, int, int, int]:
    # Less than `a` by more than what rounding can have added to it.
    z0 = max(0, 2 * (int(zero_probability(epsilon) * (WORD // 2)) - 2**14))
    s0 = (WORD - z0) // 2
    with localcontext(prec=80, rounding=ROUND_CEILING):
        e = odds(epsilon)
        z1 = int((z0 / e).to_integral_value())
        s1 = int(((WORD - z1) / (e + 1)).to_integral_value())
    return z0, z1, s0, s1


@jit
def _shares(unit: float, words: Words) -> tuple[np.uint64, np.uint64]:
    # How many words give the lower output, and how many the middle one.
    z0, z1, s0, s1 = words[0], words[1], words[2], words[3]
    x = abs(unit)
    middle = z0 - min(z0 - z1, np.uint64(x * (z0 - z1)))
    unlikely = s0 - min(s0 - s1, np.uint64(x * (s0 - s1)))
    if unit >= 0:
        return unlikely, middle
    return np.uint64(0) - middle - unlikely, middle  # Modulo 2**64.


@jit
def _draw(units: Array, words: Words, parameters: Words) -> Array:
    out = np.empty(units.shape)
    for i in range(units.shape[0]):
        for j in range(units.shape[1]):
            low, middle = _shares(units[i, j], parameters[j])
            word = words[i, j]
            if word < low:
                out[i, j] = -1.0
            else:
                out[i, j] = 0.0 if word - low < middle else 1.0
    return out
