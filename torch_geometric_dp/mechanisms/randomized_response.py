r"""Generalised randomised response over a finite domain.

A value :math:`v` out of :math:`c` is kept with probability :math:`p` and
becomes each other value with probability :math:`q = (1-p)/(c-1)`, where
:math:`p / q = e^{\varepsilon}`, that is :math:`q = 1/(e^{\varepsilon}+c-1)`.

**Theorem.** The output is :math:`\varepsilon`-locally private, and no smaller
epsilon holds.

*Proof.* For any output :math:`u` and inputs :math:`v \neq v'`,
:math:`P(u|v)/P(u|v')` is :math:`p/q`, :math:`q/p` or :math:`1`, and
:math:`q \leq p \leq e^{\varepsilon} q`. The ratio :math:`p/q` is reached at
:math:`u = v`. ∎

**In integers.** One 64-bit word :math:`w` decides: the words below :math:`(c-1)
Q` are :math:`c-1` intervals of length :math:`Q = \lceil 2^{64} q \rceil`, one
for each other value, and the rest keeps. So :math:`q' = Q / 2^{64}` and
:math:`p' = 1 - (c-1) q'` hold exactly, and rounding :math:`Q` *up* makes
:math:`p'/q' \leq e^{\varepsilon}`: the theorem holds for what the machine does.
"""
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._jit import jit
from torch_geometric_dp._validate import check_epsilon, check_integer
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.mechanisms.mechanism import (
    EveryLabel,
    LabelPair,
    WorstCase,
    largest_loss,
)
from torch_geometric_dp.noise import (
    WORD,
    NoiseSource,
    Words,
    block_rows,
    grid,
    in_threads,
    threshold,
)
from torch_geometric_dp.storage import empty, row_blocks


class RandomizedResponse(Captured):
    r"""Generalised randomised response: keeps a value with probability
    :math:`e^{\varepsilon} / (e^{\varepsilon} + c - 1)`, and otherwise draws one
    of the other :math:`c - 1` values.

    Args:
        epsilon (float): The privacy loss of one value.
        num_classes (int): The size :math:`c` of the domain, a public number.

    .. code-block:: python

        mechanism = RandomizedResponse(epsilon=1.0, num_classes=3)
        noisy = mechanism(torch.tensor([0, 1, 2]), NoiseSource.from_os())
        mechanism.expected_error()   # 0.4238...
    """
    def __init__(self, epsilon: float, num_classes: int) -> None:
        self.epsilon = check_epsilon(epsilon)
        self.num_classes = check_integer('num_classes', num_classes, 2)
        if self.epsilon > 50:  # Beyond what 64 bits can tell from certainty.
            self._other = 1
        else:
            with localcontext(prec=80):
                odds = Decimal(self.epsilon).exp()
                self._other = threshold(1 / (odds + self.num_classes - 1))
        if (self.num_classes - 1) * self._other > WORD - self._other:
            raise ValueError(
                f"'epsilon' is too small for {num_classes} classes: 64 random "
                f"bits cannot tell it from zero (got {epsilon})")

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to one value."""
        return Guarantee(self.epsilon, Unit.LABELS, Relation.REPLACE)

    @property
    def other(self) -> Fraction:
        """The exact probability of each value but the true one."""
        return Fraction(self._other, WORD)

    @property
    def keep(self) -> Fraction:
        """The exact probability of the true value."""
        return 1 - (self.num_classes - 1) * self.other

    def transition_matrix(self) -> Tensor:
        """The probability of each output (column) for each input (row)."""
        c = self.num_classes
        matrix = torch.full((c, c), float(self.other), dtype=torch.double)
        return matrix.fill_diagonal_(float(self.keep))

    def expected_error(self) -> float:
        """The probability that the output is not the input."""
        return float((self.num_classes - 1) * self.other)

    def worst_case(self) -> WorstCase:
        """Over the whole transition matrix."""
        outputs, matrix = np.arange(self.num_classes), self.transition_matrix()
        loss, pair, output = largest_loss(
            (value, (outputs, law)) for value, law in enumerate(matrix.numpy()))
        return WorstCase(loss, Unit.LABELS, pair, output)

    def canaries(self) -> list[LabelPair | EveryLabel]:
        """The first two values, and each one or the next."""
        first = LabelPair(0, 1)
        return [first] if self.num_classes == 2 else [
            first, EveryLabel(self.num_classes)]

    def check(self, values: Tensor, name: str = 'values',
              mask: Tensor | None = None) -> None:
        """Raises an error that names the first value outside the domain."""
        if not _holds(values.dtype, self.num_classes - 1):
            raise ValueError(f"'{name}' must have a type that holds "
                             f"{self.num_classes - 1}, the largest class "
                             f"(got {values.dtype})")
        width = grid(tuple(values.shape))[1]
        flat = _flat(values)
        for start, stop in row_blocks(flat.size, 1):
            block = flat[start:stop]
            if mask is not None:
                cells = np.arange(start, stop)
                block = np.where(_flat(mask)[cells // width], block, 0)
            low, high = block.min(), block.max()  # NaN if there is one.
            if low >= 0 and high < self.num_classes and (
                    block.dtype.kind != 'f' or (block == np.rint(block)).all()):
                continue
            whole = np.isin(block, np.arange(self.num_classes))
            first = int(np.argmin(whole))
            raise ValueError(
                f"'{name}' must hold integers from 0 to "
                f"{self.num_classes - 1} (got another value, or none, in row "
                f"{(start + first) // width})")

    def __call__(self, values: Tensor, source: NoiseSource,
                 mask: Tensor | None = None) -> Tensor:
        """Randomises :obj:`values` (any type that holds the integers from 0 to
        :obj:`num_classes - 1`), one word of :obj:`source` each.

        With a boolean :obj:`mask` over the rows, rows outside it are returned
        as -1, whatever they held.
        """
        self.check(values, mask=mask)
        rows, width = grid(tuple(values.shape))
        flat, selected = _flat(values), None if mask is None else _flat(mask)
        signed = mask is None or values.dtype.is_signed  # Can hold a -1.
        kind = torch.from_numpy(flat[:0]).dtype if signed else torch.long
        out = empty(flat.shape, kind).numpy()

        def draw(first: int, last: int) -> None:
            for start, stop, words in source.blocks(last, width, first):
                part = slice(start * width, stop * width)
                target = out[part]
                if out.dtype != np.int64:
                    target = np.empty(words.size, np.int64)
                _respond(words, flat[part].astype(np.int64, copy=False), target,
                         np.uint64(self._other),
                         np.uint64(self._other * (self.num_classes - 1)))
                if selected is not None:
                    target[~selected[start:stop].repeat(width)] = -1
                if out.dtype != np.int64:
                    out[part] = target

        in_threads(draw, rows, block_rows(width))
        released = torch.from_numpy(out).view(values.shape)
        return released.to(values.device, values.dtype if signed else None)


def _holds(dtype: torch.dtype, largest: int) -> bool:
    if dtype == torch.bool:
        return largest <= 1
    if dtype.is_floating_point:
        return largest <= 2 / torch.finfo(dtype).eps
    return largest <= torch.iinfo(dtype).max


def _flat(values: Tensor) -> NDArray[Any]:
    values = values.detach().cpu().reshape(-1)
    if values.dtype == torch.bfloat16:  # Which numpy does not know.
        values = values.float()
    array: NDArray[Any] = values.numpy()
    return array


@jit
def respond(word: np.uint64, value: Any, other: np.uint64,
            others: np.uint64) -> Any:
    """What a word makes of a value: the kernel of randomised response, for
    other kernels. :obj:`others` is :obj:`(num_classes - 1) * other`.
    """
    # Which interval of length `other` holds the word: a rounded quotient is off
    # by one at the most, and integers put it right. No branch, no division:
    # both would cost more than the word itself.
    shift = np.int64(np.int64(word >> np.uint64(1)) * (2.0 / other))
    low = np.uint64(shift) * other
    shift += np.int64(word >= low + other) - np.int64(word < low)
    response = shift + np.int64(shift >= value)
    return value if word >= others else response


@jit
def _respond(words: Words, values: NDArray[np.int64], out: NDArray[np.int64],
             other: np.uint64, others: np.uint64) -> None:
    for i in range(words.size):
        out[i] = respond(words[i], values[i], other, others)
