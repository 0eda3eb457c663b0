r"""The mechanism of Duchi, Jordan and Wainwright (JASA 2018) for whole rows, in
the form that is private for an even number of columns, too.

A row :math:`x \in [-1, 1]^d` becomes a corner of the cube :math:`\{-B, B\}^d`.
First, :math:`v \in \{-1, 1\}^d` is drawn with independent :math:`v_j` of mean
:math:`x_j`. With :math:`T = \{t \in \{-1, 1\}^d : t \cdot v > 0\}`, the output
is :math:`B` times

* a uniform element of :math:`\{-1, 1\}^d`, with probability :math:`\lambda`,
* a uniform element of :math:`T`, otherwise.

**Theorem.** With :math:`\lambda \geq 2^d / (2^d + (e^{\varepsilon} - 1) |T|)`
the output is :math:`\varepsilon`-locally private for the whole row. No smaller
epsilon holds with equality, and the mean is :math:`x` for

.. math::
    B = \frac{|T|}{1 - \lambda} {d - 1 \choose \lfloor d/2 \rfloor}^{-1}.

*Proof.* For each :math:`v`, a corner's probability is at least
:math:`\lambda/2^d`, and at most :math:`\lambda/2^d + (1-\lambda)/|T|`; their
ratio is at most :math:`e^{\varepsilon}`. For a row, both are averaged over
:math:`v`. Opposite corners as rows reach it. The mean of the output is
parallel to :math:`v` by symmetry, and :math:`\sum_{t \in T} t \cdot v =
\sum_{k > d/2} {d \choose k} (2k - d) = d {d-1 \choose \lfloor d/2 \rfloor}`. ∎

In the published mechanism :math:`t \cdot v = 0` counts for both halves. Such a
corner then has :math:`e^{\varepsilon} + 1` times the smallest probability, more
than is allowed: for even :math:`d` it is not :math:`\varepsilon`-private.

**In integers.** One word for each :math:`v_j`, one for :math:`\lambda`, which
is rounded *up*, and fair bits for corners. If a corner has :math:`t \cdot v <
0`, its opposite has the right sign. If it is 0, which happens for even
:math:`d` alone, the next bits are tried, as often as makes it unlikely
(:math:`2^{-20}`) that none is left; then the corner stands. So :math:`T` has
less than its share and a corner with :math:`t \cdot v = 0` less than one in
:math:`T`: the proof holds as it is, and :math:`B` is set for what the machine
does.

At :math:`\varepsilon = 0` the output is 0, the middle of the bounds, whatever
the input.
"""
import itertools
import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from torch_geometric_dp._jit import jit
from torch_geometric_dp._typing import Array, Bounds
from torch_geometric_dp._validate import check_epsilon, check_integer
from torch_geometric_dp.accountant import Unit
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.mechanisms.duchi import coin_limit, coins
from torch_geometric_dp.mechanisms.mechanism import WorstCase
from torch_geometric_dp.mechanisms.odds import log_ratio, odds
from torch_geometric_dp.noise import WORD, Words, threshold

_SURE = 2**63 - 2**11  # The range of coins whose mean is the input.


class DuchiMulti(ColumnMechanism):
    r"""The mechanism of Duchi et al. for whole rows: one of the :math:`2^d`
    corners of a cube, unbiased, with one epsilon for all columns together.

    Args:
        epsilon (float): The privacy loss of a whole row.
        num_features (int): The number of columns :math:`d`.
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)

    .. code-block:: python

        mechanism = DuchiMulti(4.0, num_features=3, bounds=(0.0, 1.0))
        noisy = mechanism(torch.rand(100, 3), NoiseSource.from_os())
        mechanism.variance(0.5)   # 1.0760...
    """
    def __init__(self, epsilon: float, num_features: int,
                 bounds: Bounds = (-1.0, 1.0)) -> None:
        if epsilon != 0:
            epsilon = check_epsilon(epsilon)
        d = check_integer('num_features', num_features, 1)
        super().__init__([epsilon] * d, bounds)
        self.epsilon = float(epsilon)
        level = math.comb(d, d // 2) if d % 2 == 0 else 0
        upper = (2**d - level) // 2  # The size of T.
        with localcontext(prec=80):
            # Rounded down, so that lambda is rounded up.
            share = Decimal(upper * WORD**2 // 2**d) / WORD**2
            self._noise = threshold(1 / (1 + (odds(self.epsilon) - 1) * share))
        chance = Fraction(level, 2**d)  # Of t * v = 0.
        self._tries = 1 if level == 0 else math.ceil(20 / -math.log2(chance))
        # The probability of each corner of T, without noise.
        self._peak = (1 - chance**self._tries) / upper
        signal = (1 - Fraction(self._noise, WORD)) * self._peak
        self._scale = 0.0 if signal == 0 else float(
            1 / (signal * math.comb(d - 1, d // 2)))
        # Coins for v, one word for lambda, and the bits of all tries.
        words = d + 1 + self._tries * -(-d // 64)
        self.depth = -(-words // d)

    def distribution(self, value: float,
                     column: int = 0) -> tuple[Array, Array]:
        """The two outputs for a value, and their exact probabilities."""
        if self._scale == 0:
            return self.from_units(np.zeros(1), column), np.ones(1)
        tilt = self._mean(self.unit(value, column)) / self._scale
        outputs = self._scale * np.array([-1.0, 1.0])
        return (self.from_units(outputs, column),
                np.array([1 - tilt, 1 + tilt]) / 2)

    def row_distribution(self, row: Sequence[float]) -> tuple[Array, Array]:
        """All :math:`2^d` outputs for a whole row, and their exact
        probabilities.
        """
        d = self.num_features
        corners = np.array(list(itertools.product([-1.0, 1.0], repeat=d)))
        means = [self._mean(self.unit(value, column))
                 for column, value in enumerate(row)]
        weights = np.prod((1 + corners * means) / 2, axis=1)  # Of every v.
        dot = corners @ corners.T
        noise = self._noise / WORD
        peak = float(self._peak)
        level = (1 - peak * (dot[0] > 0).sum()) / max(1, (dot[0] == 0).sum())
        law = np.where(dot > 0, peak, np.where(dot == 0, level, 0.0))
        law = noise / 2**d + (1 - noise) * law
        return self.from_units(corners * self._scale), weights @ law

    def draw(self, units: Array, words: Words) -> Array:
        """The released units of a block, :obj:`depth` words for each cell."""
        rows, d = units.shape
        words = words.reshape(rows, -1)
        v = coins(units, words[:, :d], np.full(d, _SURE))
        return _corners(v, words[:, d:], self._tries,
                        np.uint64(self._noise - 1)) * self._scale

    def worst_case(self) -> WorstCase:
        """For rows at opposite corners: a corner on the row's side, and one on
        the other, compared as fractions.
        """
        noise = Fraction(self._noise, WORD)
        least = noise / 2**self.num_features
        loss = 0.0 if self._scale == 0 else log_ratio(
            (least + (1 - noise) * self._peak) / least)
        return WorstCase(loss, Unit.FEATURES, (tuple(self.high.tolist()),
                                               tuple(self.low.tolist())),
                         'the corner next to the first')

    def _mean(self, unit: float) -> float:
        return int(coin_limit(unit, np.int64(_SURE))) / 2**63 - 1


@jit
def _corners(v: Array, words: Words, tries: int, last: np.uint64) -> Array:
    # The first word up to `last` is noise; the others hold bits.
    rows, d = v.shape
    out = np.empty((rows, d))
    for i in range(rows):
        noise = words[i, 0] <= last
        at = 1
        dot = 0.0
        for _ in range(tries):
            dot = 0.0
            for j in range(d):
                word = words[i, at + j // 64] >> np.uint64(j % 64)
                out[i, j] = 1.0 if word & np.uint64(1) else -1.0
                dot += out[i, j] * v[i, j]
            if noise or dot != 0.0:
                break
            at += (d + 63) // 64
        if dot < 0.0 and not noise:
            out[i] *= -1.0
    return out
