r"""The multi-bit mechanism of LPGNN (Sajadmanesh and Gatica-Perez, CCS 2021).

Of the :math:`d` values of a row, :math:`m` are chosen at random. Each of them
is sent as one bit by the mechanism of :class:`Duchi` with
:math:`\varepsilon/m`, and the others as 0.

**Theorem.** The released row is :math:`\varepsilon`-locally private, and no
smaller epsilon holds. Times :math:`d B / m`, where :math:`B` is the scale of
:class:`Duchi` at :math:`\varepsilon/m`, it is unbiased.

*Proof.* Which columns are chosen does not depend on the row. Given the choice,
the ratio of the probabilities of a release for two rows is a product of
:math:`m` ratios of at most :math:`e^{\varepsilon/m}`, which all of them reach
for rows at opposite corners; so it is after summing over the choice. A value is
sent with probability :math:`m/d`, and its bit has the mean :math:`x/B`. ∎

**In integers.** Two words for each cell: the :math:`m` columns with the
smallest first words are chosen, and the second word decides on the bit as in
:mod:`torch_geometric_dp.mechanisms.duchi`. Two equal words are resolved by
their position; they occur with a probability of less than :math:`d^2/2^{65}`,
and privacy does not depend on how columns are chosen, as long as the row has
no part in it.

At :math:`\varepsilon = 0` the output is 0, the middle of the bounds, whatever
the input.
"""
import itertools
import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from torch import Tensor

from torch_geometric_dp._typing import Array, Bounds
from torch_geometric_dp._validate import check_epsilon, check_integer
from torch_geometric_dp.accountant import Unit
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.mechanisms.duchi import (
    coin_limit,
    coin_range,
    coin_scale,
    coins,
)
from torch_geometric_dp.mechanisms.mechanism import WorstCase
from torch_geometric_dp.mechanisms.odds import log_ratio
from torch_geometric_dp.noise import WORD, Words


class MultiBit(ColumnMechanism):
    r"""The multi-bit mechanism of LPGNN: :math:`m` columns of a row are sent as
    one bit each, the others not at all.

    Args:
        epsilon (float): The privacy loss of a whole row.
        num_features (int): The number of columns :math:`d`.
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)
        num_sampled (int, optional): The number of columns :math:`m` that are
            sent; by default :math:`\lfloor \varepsilon/2.18 \rfloor`, but at
            least 1 and at most :math:`d`, which is close to the smallest
            variance. (default: :obj:`None`)
        rectify (bool, optional): If set to :obj:`False`, the bits themselves
            are released (-1 or 1, and 0 for columns that were not sent), which
            :meth:`decode` turns into unbiased values. (default: :obj:`True`)

    .. code-block:: python

        mechanism = MultiBit(4.0, num_features=3, bounds=(0.0, 1.0))
        noisy = mechanism(torch.rand(100, 3), NoiseSource.from_os())
        mechanism.num_sampled   # 1
    """
    depth = 2

    def __init__(self, epsilon: float, num_features: int,
                 bounds: Bounds = (-1.0, 1.0),
                 num_sampled: int | None = None,
                 rectify: bool = True) -> None:
        if epsilon != 0:
            epsilon = check_epsilon(epsilon)
        d = check_integer('num_features', num_features, 1)
        super().__init__([epsilon] * d, bounds)
        self.epsilon = float(epsilon)
        if num_sampled is None:
            num_sampled = max(1, min(d, math.floor(self.epsilon / 2.18)))
        self.num_sampled = check_integer('num_sampled', num_sampled, 1)
        if self.num_sampled > d:
            raise ValueError(f"'num_sampled' must be at most 'num_features', "
                             f"which is {d} (got {num_sampled})")
        self.rectify = rectify
        with localcontext(prec=80):
            half = coin_range(Decimal(self.epsilon) / self.num_sampled)
        self._half = np.full(d, half)
        self._scale = float(coin_scale(self._half)[0]) * d / self.num_sampled

    def distribution(self, value: float,
                     column: int = 0) -> tuple[Array, Array]:
        """The possible outputs for a value, and their exact probabilities."""
        bits = np.array([-1.0, 0.0, 1.0]) * self._factor
        sent = self.num_sampled / self.num_features
        heads = sent * self._heads(self.unit(value, column))
        law = np.array([sent - heads, 1 - sent, heads])
        if self._scale == 0:
            bits, law = np.zeros(1), np.ones(1)
        return self.from_units(bits, column), law

    def row_distribution(self, row: Sequence[float]) -> tuple[Array, Array]:
        r"""All possible outputs for a whole row, of which there are
        :math:`2^m {d \choose m}`, and their exact probabilities.
        """
        d, m = self.num_features, self.num_sampled
        heads = [self._heads(self.unit(value, column))
                 for column, value in enumerate(row)]
        outputs, law = [], []
        for chosen in itertools.combinations(range(d), m):
            for bits in itertools.product([-1.0, 1.0], repeat=m):
                units = np.zeros(d)
                units[list(chosen)] = bits
                outputs.append(units * self._factor)
                law.append(math.prod(
                    heads[column] if bit > 0 else 1 - heads[column]
                    for column, bit in zip(chosen, bits)))
        return (self.from_units(np.array(outputs)),
                np.array(law) / math.comb(d, m))

    def draw(self, units: Array, words: Words) -> Array:
        """The released units of a block, two words for each cell."""
        bits = coins(units, words[..., 1], self._half)
        m = self.num_sampled
        chosen = np.argpartition(words[..., 0], m - 1, axis=1)[:, :m]
        out = np.zeros_like(units)
        sent = np.take_along_axis(bits, chosen, axis=1) * self._factor
        np.put_along_axis(out, chosen, sent, axis=1)
        return out

    def worst_case(self) -> WorstCase:
        """For rows at opposite corners. The output shows which columns were
        sent: given them, bits are independent.
        """
        half = int(self._half[0])
        loss = 0.0 if self._scale == 0 else self.num_sampled * log_ratio(
            Fraction(WORD // 2 + half, WORD // 2 - half))
        return WorstCase(loss, Unit.FEATURES, (tuple(self.high.tolist()),
                                               tuple(self.low.tolist())),
                         'all bits that are sent 1')

    def decode(self, bits: Tensor) -> Tensor:
        """Unbiased values from bits (-1, 0 or 1), in the scale of their
        columns. Costs no privacy.
        """
        low, high = (bits.new_tensor(bound) for bound in (self.low, self.high))
        return (low + high) / 2 + bits * self._scale * (high - low) / 2

    def from_units(self, units: Any, column: Any = slice(None)) -> Array:
        """Units scaled to their column's bounds; bits as they are."""
        return super().from_units(units, column) if self.rectify else units

    @property
    def _factor(self) -> float:
        return self._scale if self.rectify else float(self._scale > 0)

    def _heads(self, unit: float) -> float:
        return int(coin_limit(unit, self._half[0])) / WORD
