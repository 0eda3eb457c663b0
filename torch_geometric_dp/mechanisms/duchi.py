r"""The mechanism of Duchi, Jordan and Wainwright (JASA 2018) for one number.

A value :math:`x \in [-1, 1]` becomes :math:`B` or :math:`-B`, where

.. math::
    B = \frac{e^{\varepsilon} + 1}{e^{\varepsilon} - 1}
    \quad \textrm{and} \quad
    P(\pm B \mid x) = \frac{1}{2} \pm \frac{x}{2B}.

**Theorem.** The output is :math:`\varepsilon`-locally private, no smaller
epsilon holds, and its mean is :math:`x`.

*Proof.* Both probabilities lie between :math:`1/(e^{\varepsilon}+1)` and
:math:`e^{\varepsilon}/(e^{\varepsilon}+1)`, whose ratio is
:math:`e^{\varepsilon}`, and both ends are reached at :math:`x = \pm 1`. The
mean is :math:`B (P(B|x) - P(-B|x)) = x`. ∎

**In integers.** One 64-bit word decides: the output is positive if the word
lies below :math:`2^{63} + \lfloor x h \rceil`, where :math:`h = 2^{63} -
\lceil 2^{64}/(e^{\varepsilon}+1) \rceil` and :math:`x h` is a float that is cut
off to an integer between :math:`-h` and :math:`h`. However it was rounded, both
probabilities lie between :math:`1/2 - h/2^{64}` and :math:`1/2 + h/2^{64}`, and
rounding :math:`h` *down* makes their ratio at most :math:`e^{\varepsilon}`. The
output is :math:`\pm 2^{63}/h`, which is unbiased for these probabilities.

At :math:`\varepsilon = 0` no finite scale is unbiased: the output is 0, the
middle of the bounds, whatever the input.
"""
from collections.abc import Sequence
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp._jit import jit
from torch_geometric_dp._typing import Array, Bounds
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.mechanisms.odds import odds
from torch_geometric_dp.noise import WORD, Words, threshold


class Duchi(ColumnMechanism):
    r"""The two-point mechanism of Duchi et al.: every column becomes one of two
    values, :math:`\pm (e^{\varepsilon}+1)/(e^{\varepsilon}-1)` in units of
    half its range, and is unbiased.

    Args:
        epsilons (float or sequence of floats): The privacy loss of each
            column. At zero, the output is the middle of the bounds.
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)

    .. code-block:: python

        mechanism = Duchi([1.0, 0.5], bounds=(0.0, 1.0))
        noisy = mechanism(torch.rand(100, 2), NoiseSource.from_os())
        mechanism.expected_error(0.5)   # 1.0819...
    """
    def __init__(self, epsilons: float | Sequence[float],
                 bounds: Bounds = (-1.0, 1.0)) -> None:
        super().__init__(epsilons, bounds)
        self._half = np.array([coin_range(epsilon)
                               for epsilon in self.epsilons.tolist()])
        self._scale = coin_scale(self._half)

    def distribution(self, value: float,
                     column: int = 0) -> tuple[Array, Array]:
        """The two outputs for a value, and their exact probabilities."""
        if self._scale[column] == 0:
            return self.from_units(np.zeros(1), column), np.ones(1)
        limit = int(coin_limit(self.unit(value, column), self._half[column]))
        outputs = self._scale[column] * np.array([-1.0, 1.0])
        probabilities = np.array([(WORD - limit) / WORD, limit / WORD])
        return self.from_units(outputs, column), probabilities

    def draw(self, units: Array, words: Words) -> Array:
        """The released units of a block, one word for each cell."""
        return coins(units, words[..., 0], self._half) * self._scale


def coin_range(epsilon: float | Decimal) -> int:
    r"""The integer :math:`h` of a coin that is right with odds of at most
    :math:`e^{\varepsilon}` (see the head of this file).

    .. code-block:: python

        coin_range(0.0)   # 0
    """
    with localcontext(prec=80):
        return WORD // 2 - threshold(1 / (odds(epsilon) + 1))


def coin_scale(half: NDArray[np.int64]) -> Array:
    """What to multiply coins with so that their mean is the input; 0 for
    those that tell nothing.
    """
    return np.divide(2.0**63, half, out=np.zeros(half.shape), where=half > 0)


@jit
def coin_limit(unit: float, half: np.int64) -> np.uint64:
    """The number of words for which a coin shows heads."""
    shift = max(-half, min(half, np.int64(unit * half)))
    return (np.uint64(1) << np.uint64(63)) + np.uint64(shift)


@jit
def coins(units: Array, words: Words, half: NDArray[np.int64]) -> Array:
    """One coin for each cell: 1 for heads, and -1 for tails."""
    out = np.empty(units.shape)
    for i in range(units.shape[0]):
        for j in range(units.shape[1]):
            heads = words[i, j] < coin_limit(units[i, j], half[j])
            out[i, j] = 1.0 if heads else -1.0
    return out
