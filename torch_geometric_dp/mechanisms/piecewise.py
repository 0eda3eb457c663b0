r"""The Piecewise mechanism of Wang et al. (ICDE 2019), on a fixed grid.

A value :math:`x \in [-1, 1]` becomes a number in :math:`[-A, A]` whose density
is :math:`e^{\varepsilon}` times as high within a window as outside it. The
window covers a share :math:`1/(t+1)` of the range and moves linearly with
:math:`x`, from one end at :math:`x = -1` to the other at :math:`x = 1`. The
paper has :math:`t = e^{\varepsilon/2}` and :math:`A = (t+1)/(t-1)`.

**The grid.** An output computed in floats from the input would give the input
away by its last bits. So the range is cut into :math:`N` equal cells, for every
input the same ones; the window is :math:`w` of them, and starts at cell
:math:`s(x) = \lfloor (N-w)(x+1)/2 \rceil`. An output is the middle of a cell.

**Theorem.** If every cell has a probability between :math:`q` and
:math:`e^{\varepsilon} q` for every input, the output is
:math:`\varepsilon`-locally private. If moreover all cells outside the window
are equally likely, and all inside, the output of :math:`x` has the mean
:math:`2 s(x)/(N-w) - 1`, which is within :math:`1/(N-w)` of :math:`x`, for one
width of the cells that does not depend on :math:`x`.

*Proof.* The first part is the definition. For the second, the cells lie
symmetrically around 0, so the mean is the window's excess probability times its
middle: a linear function of :math:`s` that is odd around :math:`(N-w)/2`.
Choose the width of the cells so that it is 1 at :math:`s = N - w`. ∎

**In integers.** One 64-bit word decides. Each of the :math:`M = N - w` cells
outside gets :math:`Q = \lceil 2^{64}/(w e^{\varepsilon} + M) \rceil + 1` words.
The other :math:`2^{64} - M Q` words go to the :math:`w` cells inside, as evenly
as integers allow: :math:`P` or :math:`P + 1` each. By the choice of :math:`Q`,

.. math::
    P + 1 \leq \frac{2^{64} - M Q}{w} + 1 \leq
    e^{\varepsilon} (Q - 1) + 1 \leq e^{\varepsilon} Q,

so the first part of the theorem holds for what the machine does. The odd words
move the mean by less than :math:`1/(P - Q)`.

At :math:`\varepsilon = 0` (and where 64 bits cannot tell epsilon from it) no
finite width is unbiased: the output is 0, the middle of the bounds, whatever
the input.
"""
import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from torch_geometric_dp._jit import jit
from torch_geometric_dp._typing import Array, Bounds
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.mechanisms.odds import odds
from torch_geometric_dp.noise import WORD, Words, threshold


class Piecewise(ColumnMechanism):
    r"""The Piecewise mechanism of Wang et al.: every column becomes a number
    that is likely to be near the value, and is unbiased up to the grid of
    :obj:`cells` cells that it lies on.

    Args:
        epsilons (float or sequence of floats): The privacy loss of each
            column. At zero, the output is the middle of the bounds.
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)

    .. code-block:: python

        mechanism = Piecewise([2.0, 0.5], bounds=(0.0, 1.0))
        noisy = mechanism(torch.rand(100, 2), NoiseSource.from_os())
        mechanism.variance(0.5)   # 0.1613...
    """
    #: How many outputs there are.
    cells = 2**20
    #: The window covers :math:`1/(t+1)` of the range, with
    #: :math:`t = e^{\varepsilon / \textrm{root}}`.
    root = 2

    def __init__(self, epsilons: float | Sequence[float],
                 bounds: Bounds = (-1.0, 1.0)) -> None:
        super().__init__(epsilons, bounds)
        layout = [self._layout(epsilon) for epsilon in self.epsilons.tolist()]
        # Cells inside the window, and words for a cell inside and outside.
        self._words = np.array(layout, np.uint64)
        # Half a cell's width, in units.
        self._half = np.array([
            WORD / ((p - q) * w * (self.cells - w)) if p > q else 0.0
            for w, p, q in layout
        ])

    def share(self, e: Decimal) -> float:
        r"""The share of the range that the window covers, given
        :math:`e^{\varepsilon}`.
        """
        return 1 / (math.exp(math.log(e) / self.root) + 1)

    def _layout(self, epsilon: float) -> tuple[int, int, int]:
        e = odds(epsilon)
        inside = max(1, round(self.cells * self.share(e)))
        outside = self.cells - inside
        with localcontext(prec=80):
            q = threshold(1 / (inside * e + outside)) + 1
        return inside, (WORD - outside * q) // inside, q

    def distribution(self, value: float,
                     column: int = 0) -> tuple[Array, Array]:
        """The possible outputs for a value (the middles of all cells), and
        their exact probabilities.
        """
        if self._half[column] == 0:
            return self.from_units(np.zeros(1), column), np.ones(1)
        inside, p, q, odd, start = self._window(value, column)
        words = np.full(self.cells, float(q))
        words[start:start + inside] = p
        words[start:start + odd] = p + 1
        units = self._units(np.arange(self.cells), column)
        return self.from_units(units, column), words / WORD

    def draw(self, units: Array, words: Words) -> Array:
        """The released units of a block, one word for each cell."""
        return self._units(_draw(units, words[..., 0], np.uint64(self.cells),
                                 self._words))

    def expected_error(self, value: float, column: int = 0) -> float:
        """The exact expected distance of the output from the value."""
        return self._moments(value, column)[2]

    def bias(self, value: float, column: int = 0) -> float:
        """The exact expected output, less the value."""
        return self._moments(value, column)[0]

    def variance(self, value: float, column: int = 0) -> float:
        """The exact variance of the output."""
        mean, square, _ = self._moments(value, column)
        return square - mean**2

    def _units(self, cell: Any, column: Any = slice(None)) -> Array:
        units: Array = (2 * cell + 1 - self.cells) * self._half[column]
        return units

    def _window(self, value: float,
                column: int) -> tuple[int, int, int, int, int]:
        inside, p, q = map(int, self._words[column])
        outside = self.cells - inside
        odd = WORD - outside * q - inside * p
        start = int(_start(self.unit(value, column), np.uint64(outside)))
        return inside, p, q, odd, start

    def _moments(self, value: float,
                 column: int) -> tuple[float, float, float]:
        # Of the error: its mean, and those of its square and its distance. All
        # cells, the window's excess and the odd words are three sums over
        # equidistant points.
        unit, half = self.unit(value, column), float(self._half[column])
        radius = float(self.high[column] - self.low[column]) / 2
        inside, p, q, odd, start = self._window(value, column)
        at_start = float(self._units(start, column)) - unit
        parts = ((q, (1 - self.cells) * half - unit, self.cells),
                 (p - q, at_start, inside), (1, at_start, odd))
        sums = [[words / WORD * s for s in _sums(first, 2 * half, count)]
                for words, first, count in parts]
        mean, square, distance = map(math.fsum, zip(*sums))
        return mean * radius, square * radius**2, distance * radius


def _sums(first: float, step: float, count: int) -> tuple[float, float, float]:
    # The sums over the terms of an arithmetic series, their squares and their
    # absolute values.
    def total(start: int, stop: int) -> float:
        return (stop - start) * (first + step * (start + stop - 1) / 2)

    middle = first + step * (count - 1) / 2
    square = count * (middle**2 + step**2 * (count**2 - 1) / 12)
    negative = count if first < 0 else 0
    if step > 0:
        negative = max(0, min(count, math.ceil(-first / step)))
    distance = total(negative, count) - total(0, negative)
    return total(0, count), square, distance


@jit
def _start(unit: float, outside: np.uint64) -> np.uint64:
    # The first cell of the window.
    return np.uint64(np.rint((unit + 1.0) * 0.5 * outside))


@jit
def _draw(units: Array, words: Words, cells: np.uint64,
          parameters: Words) -> Array:
    out = np.empty(units.shape)
    for i in range(units.shape[0]):
        for j in range(units.shape[1]):
            inside, p, q = parameters[j, 0], parameters[j, 1], parameters[j, 2]
            outside = cells - inside
            start = _start(units[i, j], outside)
            word = words[i, j]
            if word < outside * q:
                cell = word // q
                if cell >= start:
                    cell += inside
            else:
                word -= outside * q
                cell = word // p
                if cell >= inside:  # The odd words, one for a cell.
                    cell = word - inside * p
                cell += start
            out[i, j] = cell
    return out
