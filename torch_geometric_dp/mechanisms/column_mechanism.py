import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._typing import Array, Bounds
from torch_geometric_dp._validate import check_epsilon
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.accountant.composition import exact_sum
from torch_geometric_dp.mechanisms.mechanism import (
    RowPair,
    WorstCase,
    largest_loss,
    row_pairs,
)
from torch_geometric_dp.noise import (
    NoiseSource,
    Words,
    block_rows,
    in_threads,
)
from torch_geometric_dp.storage import empty, row_blocks


class ColumnMechanism(Captured, ABC):
    r"""The base of all local mechanisms for rows of numbers: :math:`d` columns
    with public bounds, and a privacy loss for each of them.

    A row's total loss is the sum over its columns, by basic composition. A
    subclass works on *units*: values scaled from their bounds to
    :math:`[-1, 1]`. It draws in :meth:`draw`, and knows its exact distribution
    (:meth:`distribution`), from which its exact error follows.

    Args:
        epsilons (float or sequence of floats): The privacy loss of each
            column. Zero is allowed: the output then tells nothing.
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)
    """
    #: How many 64-bit words a cell needs.
    depth = 1
    #: Whether values outside the bounds are moved to them; otherwise, they are
    #: refused.
    clip = False

    def __init__(self, epsilons: float | Sequence[float],
                 bounds: Bounds = (-1.0, 1.0)) -> None:
        values = np.atleast_1d(np.asarray(epsilons, np.float64))
        for column, epsilon in enumerate(values):
            if epsilon != 0:
                check_epsilon(float(epsilon), f'epsilons[{column}]')
        self.epsilons: Array = values
        #: The privacy loss of a whole row.
        self.epsilon: float = exact_sum(values.tolist())
        low, high = (np.asarray(bound, np.float64) for bound in bounds)
        for bound in (low, high):
            if bound.shape not in ((), (1, ), values.shape):
                raise ValueError(
                    f"'bounds' must have one number for all columns, or one "
                    f"for each of the {len(values)} columns "
                    f"(got {bound.size})")
        low, high = (np.broadcast_to(b, values.shape) for b in (low, high))
        with np.errstate(over='ignore'):  # A width may be beyond floats, too.
            good = (low < high) & np.isfinite(high - low)
        if not good.all():
            column = int(np.argmin(good))
            raise ValueError(
                f"'bounds' must be finite, and the lower one below the upper "
                f"one (got {low[column]} and {high[column]} for column "
                f"{column})")
        self.low: Array = low
        self.high: Array = high

    @property
    def num_features(self) -> int:
        """The number of columns."""
        return len(self.epsilons)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to a whole row."""
        return Guarantee(self.epsilon, Unit.FEATURES, Relation.REPLACE)

    @abstractmethod
    def distribution(self, value: float,
                     column: int = 0) -> tuple[Array, Array]:
        """The possible outputs for a value (both in the column's own scale),
        in increasing order, and their exact probabilities.
        """

    def draw(self, units: Array, words: Words) -> Array:
        """The released units of a block of rows, from :obj:`depth` words for
        each of their cells: :obj:`words` has shape
        :obj:`[rows, num_features, depth]`. A subclass overrides this, or
        :meth:`_release` if its cells need more or less words by chance.
        """
        raise NotImplementedError

    def expected_error(self, value: float, column: int = 0) -> float:
        """The exact expected distance of the output from the value."""
        outputs, probabilities = self.distribution(value, column)
        return float(np.abs(outputs - value) @ probabilities)

    def bias(self, value: float, column: int = 0) -> float:
        """The exact expected output, less the value."""
        outputs, probabilities = self.distribution(value, column)
        return float((outputs - value) @ probabilities)

    def variance(self, value: float, column: int = 0) -> float:
        """The exact variance of the output."""
        outputs, probabilities = self.distribution(value, column)
        error = outputs - value
        return float((error - error @ probabilities)**2 @ probabilities)

    def worst_case(self) -> WorstCase:
        """The exact epsilon of a row: columns draw independently, so that their
        losses add up.
        """
        known: dict[tuple[float, ...], tuple[float, tuple[Any, Any], Any]] = {}
        columns = []
        for column in range(self.num_features):
            # Columns with the same parameters have the same law.
            kind = tuple(float(part[column]) for part in (
                self.epsilons, self.low, self.high))
            if kind not in known:
                known[kind] = self.column_loss(column)
            columns.append(known[kind])
        losses, pairs, outputs = zip(*columns)
        one, other = zip(*pairs)
        return WorstCase(math.fsum(losses), Unit.FEATURES, (one, other),
                         outputs, losses)

    def column_loss(self, column: int) -> tuple[float, tuple[Any, Any], Any]:
        """The exact epsilon of a column, the two values and the output: over
        all outputs, for values at both bounds, in the middle and between. Each
        output's probability is monotone in the value between those.
        """
        values = self.from_units(np.linspace(-1, 1, 5), column)
        values[[0, -1]] = self.low[column], self.high[column]  # To the last bit
        return largest_loss((value, self.distribution(value, column))
                            for value in values.tolist())

    def canaries(self) -> list[RowPair]:
        """Rows at the bounds, or far beyond where values are clipped."""
        low, high = self.low, self.high
        if self.clip:
            low, high = 2 * low - high, 2 * high - low
        return row_pairs(low, high)

    def check(self, x: Tensor, name: str = 'x') -> None:
        """Raises an error that names the first value that is out of bounds,
        infinite or not a number.
        """
        if x.dim() != 2 or x.size(1) != self.num_features:
            raise ValueError(f"'{name}' must have shape [num_nodes, "
                             f"{self.num_features}] (got {list(x.shape)})")
        if x.is_complex():
            raise TypeError(f"'{name}' must hold real numbers (got {x.dtype})")
        for start, stop in row_blocks(x.size(0), 8 * self.num_features):
            block = self._read(x, slice(start, stop))
            good = (block >= self.low) & (block <= self.high)
            if not good.all():  # Also for NaN, which no comparison likes.
                row, column = np.argwhere(~good)[0]
                raise ValueError(
                    f"'{name}' must lie within its bounds, from "
                    f"{self.low[column]} to {self.high[column]} in column "
                    f"{column} (got another value, or none, in row "
                    f"{start + row})")

    def __call__(self, x: Tensor, source: NoiseSource) -> Tensor:
        """Releases a matrix, with the words of :obj:`source`."""
        self.check(x)
        kind = torch.double if x.dtype == torch.double else torch.float
        out = empty(x.shape, kind)
        self._release(x, out, source)
        if x.is_floating_point() and x.dtype != kind:
            out = empty(x.shape, x.dtype).copy_(out)
        return out.to(x.device)  # Integers cannot hold what comes out.

    def _release(self, x: Tensor, out: Tensor, source: NoiseSource) -> None:
        # Block by block: no more memory than input, output and one block.
        width, target = self.num_features * self.depth, out.numpy()

        def release(first: int, last: int) -> None:
            for start, stop, words in source.blocks(last, width, first):
                block = self._read(x, slice(start, stop))
                units = self.draw(self.to_units(block), words.reshape(
                    *block.shape, self.depth))
                target[start:stop] = self.from_units(units)

        in_threads(release, x.size(0), block_rows(width))

    def _read(self, x: Tensor, rows: Any, columns: Any = slice(None)) -> Array:
        # Some cells, moved to the bounds if asked for; NaN stays.
        values: Array = x[rows, columns].detach().cpu().double().numpy()
        if not self.clip:
            return values
        return np.clip(values, self.low[columns], self.high[columns])

    def unit(self, value: float, column: int = 0) -> float:
        """One value scaled to [-1, 1]; it must lie within its bounds."""
        low, high = self.low[column], self.high[column]
        if not low <= value <= high:
            raise ValueError(f"'value' must lie within its bounds, from {low} "
                             f"to {high} in column {column} (got {value})")
        return float(self.to_units(value, column))

    def to_units(self, values: Any, column: Any = slice(None)) -> Array:
        """Values scaled from their column's bounds to [-1, 1]."""
        low, high = self.low[column], self.high[column]
        units: Array = (values - low) / (high - low) * 2.0 - 1.0
        return units

    def from_units(self, units: Any, column: Any = slice(None)) -> Array:
        """Units scaled to their column's bounds."""
        low, high = self.low[column], self.high[column]
        values: Array = low + (units + 1.0) / 2.0 * (high - low)
        return values
