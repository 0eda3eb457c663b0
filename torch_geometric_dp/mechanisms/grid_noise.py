from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_dp._typing import Array, Bounds
from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.noise import NoiseSource, block_rows, in_threads
from torch_geometric_dp.storage import row_blocks


class GridNoise(ColumnMechanism):
    r"""The base of mechanisms that add noise. Values are rounded to a grid of
    :obj:`steps` equal steps between their bounds, and integers are added to
    the steps, so that an output tells nothing by its last bits.

    Rounding comes first and is part of the input: two values of a column are
    never more than :obj:`steps` steps apart, exactly.

    Args:
        epsilons (float or sequence of floats): The privacy loss of each
            column.
        bounds (tuple): The lowest and the highest value, each of them one for
            all columns or one for each; public numbers.
        steps (int): The number of steps between the bounds.
    """
    def __init__(self, epsilons: float | Sequence[float], bounds: Bounds,
                 steps: int) -> None:
        super().__init__(epsilons, bounds)
        self.steps = check_integer('steps', steps, 1)

    @abstractmethod
    def noise(self, first: int, last: int, column: int,
              source: NoiseSource) -> NDArray[np.int64]:
        """The integers that are added to a column, from row :obj:`first` to
        the one before :obj:`last`.
        """

    @abstractmethod
    def noise_law(self, column: int) -> tuple[float, float, float]:
        """The variance of the noise, the mean of its distance from zero, and
        the probability of zero; all in steps.
        """

    @abstractmethod
    def log_odds(self, noise: Any, column: int) -> Any:
        """The logarithm of an integer's probability, less that of zero's."""

    @abstractmethod
    def reach(self, column: int) -> int:
        """Noise beyond this has a probability of less than 1e-15."""

    def distribution(self, value: float,
                     column: int = 0) -> tuple[Array, Array]:
        """The outputs for a value that carry all but 1e-15 of the
        probability, and their probabilities.
        """
        self.unit(value, column)  # Refuses what is out of bounds.
        reach = self.reach(column)
        if reach > 2**25:
            raise ValueError(f"'steps' is too large to list all outputs: "
                             f"there would be {2 * reach + 1}")
        noise = np.arange(-reach, reach + 1)
        at_zero = self.noise_law(column)[2]
        probabilities = at_zero * np.exp(self.log_odds(noise, column))
        return self._values(self._steps(value, column) + noise,
                            column), probabilities

    def expected_error(self, value: float, column: int = 0) -> float:
        """The exact expected distance of the output from the value."""
        # For an offset of less than a step, distances on the two sides of zero
        # add up as without it.
        _, distance, at_zero = self.noise_law(column)
        return (distance * self._step(column) +
                abs(self.bias(value, column)) * at_zero)

    def bias(self, value: float, column: int = 0) -> float:
        """The exact expected output, less the value: what rounding does."""
        self.unit(value, column)
        return float(self._values(self._steps(value, column), column) - value)

    def variance(self, value: float, column: int = 0) -> float:
        """The exact variance of the output, for all values the same."""
        self.unit(value, column)  # Refuses the same values as the others.
        return self.noise_law(column)[0] * self._step(column)**2

    def _release(self, x: Tensor, out: Tensor, source: NoiseSource) -> None:
        # Column by column, each of which has a stream of its own: in blocks
        # that are tall enough to make up for that.
        target = out.numpy()

        def release(first: int, last: int) -> None:
            for start, stop in row_blocks(last, 32, first):
                for column in range(self.num_features):
                    values = self._read(x, slice(start, stop), column)
                    steps = self._steps(values, column)
                    steps += self.noise(start, stop, column,
                                        source.derive('column', column))
                    target[start:stop, column] = self._values(steps, column)

        in_threads(release, x.size(0), block_rows(self.num_features))

    def _step(self, column: int) -> float:
        return float(self.high[column] - self.low[column]) / self.steps

    def _steps(self, values: Any, column: int) -> Array:
        steps: Array = np.rint((self.to_units(values, column) + 1) / 2 *
                               self.steps)
        return steps

    def _values(self, steps: Array, column: int) -> Array:
        return self.from_units(2 * steps / self.steps - 1, column)
