r"""Generalised randomised response with feature sampling (GRR-FS, of RGNN).

A row has :math:`d` columns, and column :math:`i` has :math:`\gamma_i` values.
Of its columns, :math:`m` are chosen at random. These are reported by randomised
response with :math:`\varepsilon_x`: as they are with probability :math:`p_i =
e^{\varepsilon_x} q_i`, and as each other value with probability :math:`q_i =
1/(e^{\varepsilon_x} + \gamma_i - 1)`. All others are reported as a uniform
value. Nobody sees which columns were chosen.

**Lemma.** Let :math:`r_i` be :math:`\gamma_i p_i` if :math:`u_i = x_i`, and
:math:`\gamma_i q_i` otherwise. The row :math:`x` is reported as :math:`u` with
a probability that is proportional to :math:`e_m(r)`, the elementary symmetric
polynomial: the sum over all choices of the products of :math:`m` of the
:math:`r_i`.

**Theorem (a whole row).** The release is :math:`m \varepsilon_x`-locally
private, and no smaller epsilon holds.

*Proof.* From one row to another, :math:`r_i` grows by a factor of at most
:math:`p_i/q_i = e^{\varepsilon_x}`, so a product of :math:`m` of them by at
most :math:`e^{m \varepsilon_x}`. All of them grow by as much if the rows differ
everywhere, and :math:`u` is the second of them. ∎

**Theorem (one attribute).** If only rows that differ in one column are to be
kept apart, the release is :math:`\varepsilon_a`-private, and no smaller epsilon
holds, where

.. math::
    \varepsilon_a = \max_i \ln \frac{A_i e^{\varepsilon_x} + 1}{A_i + 1}, \quad
    A_i = a_i \frac{e_{m-1}(a_{-i})}{e_m(a_{-i})}, \quad a_j = \gamma_j q_j,

and :math:`a_{-i}` are all :math:`a_j` but the :math:`i`-th. If all domains have
the same size, :math:`\varepsilon_a = \ln(1 + \frac{m}{d} (e^{\varepsilon_x} -
1))`; otherwise, it is larger.

*Proof.* Let the rows differ in column :math:`i`. As :math:`e_m(r) = r_i
e_{m-1}(r_{-i}) + e_m(r_{-i})`, the ratio is :math:`(r_i t + 1) / (r'_i t + 1)`
with :math:`t = e_{m-1}(r_{-i}) / e_m(r_{-i})`, which is largest for :math:`r_i
= e^{\varepsilon_x} a_i`, :math:`r'_i = a_i` and the largest :math:`t`. By
Newton's inequalities, :math:`t` falls in each :math:`r_j`, so it is largest for
:math:`r_j = a_j`: where all other columns are reported falsely. If all
:math:`a_j` are equal, :math:`A_i = {d-1 \choose m-1} / {d-1 \choose m} =
m/(d-m)`. Since :math:`A_i` grows with :math:`a_i` and falls in the others, the
maximum is at a column with the largest domain; there, :math:`a_i \geq a_j`
makes :math:`A_i` at least as large as for equal sizes. ∎

**Theorem 1 of the paper** claims :math:`\ln(1 + \frac{m}{d}(e^{m \varepsilon_x}
- 1))` for a whole row, which is less than :math:`m \varepsilon_x` if :math:`m <
d`. By the first theorem above, that is false. It is on record as a claim.

**In integers.** For the chosen columns, see
:mod:`torch_geometric_dp.mechanisms.randomized_response`; rounding makes
:math:`p_i/q_i` smaller, never larger. The choice (by Floyd's algorithm) and the
uniform values are digits of a number with mixed radices, several of which are
drawn from one 64-bit word :math:`w`: they are the digits of :math:`\lfloor w G
/ 2^{64} \rfloor`, where :math:`G` is the product of their radices. Words with
:math:`w G \bmod 2^{64} < 2^{64} \bmod G` are rejected, which makes this exactly
uniform (Lemire, 2019), and the whole row is drawn again, from other words. A
binary column takes one bit, and is never rejected.
"""
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._jit import jit, multiply_high
from torch_geometric_dp._typing import Sizes
from torch_geometric_dp._validate import (
    check_epsilon,
    check_integer,
    check_integers,
)
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.mechanisms.mechanism import (
    RowPair,
    WorstCase,
    row_pairs,
)
from torch_geometric_dp.mechanisms.odds import log_ratio
from torch_geometric_dp.mechanisms.randomized_response import (
    RandomizedResponse,
    respond,
)
from torch_geometric_dp.noise import (
    WORD,
    NoiseSource,
    Words,
    block_rows,
    in_threads,
)
from torch_geometric_dp.storage import empty, row_blocks

_MOST_VALUES = 2**32  # Of a column.
_PRODUCT = 2**48  # One word in 2**16 is rejected at the most.


class GRRFS(Captured):
    r"""Generalised randomised response with feature sampling: :math:`m` columns
    of a row are randomised with :math:`\varepsilon/m` each, and all others are
    reported as uniform values.

    Args:
        epsilon (float): The privacy loss of a whole row.
        num_sampled (int): The number of columns :math:`m` that are randomised.
        domain_sizes (int or sequence of ints): The number of values of all
            columns, or of each of them; public numbers. Column :math:`i` holds
            integers from 0 to :math:`\gamma_i - 1`.
        num_features (int, optional): The number of columns :math:`d`; needed
            if :obj:`domain_sizes` is one number. (default: :obj:`None`)

    .. code-block:: python

        mechanism = GRRFS(2.0, num_sampled=2, domain_sizes=[2, 2, 3, 5])
        noisy = mechanism(torch.tensor([[0, 1, 2, 4]]), NoiseSource.from_os())
        mechanism.epsilon_x           # 1.0
        mechanism.attribute_epsilon   # 0.6...
        mechanism.claimed_epsilon     # 1.4...
    """
    def __init__(self, epsilon: float, num_sampled: int, domain_sizes: Sizes,
                 num_features: int | None = None) -> None:
        self.epsilon = check_epsilon(epsilon)
        self.num_sampled = check_integer('num_sampled', num_sampled, 1)
        sizes = check_integers('domain_sizes', domain_sizes, 2)
        if isinstance(sizes, int):
            sizes = (sizes, ) * check_integer('num_features', num_features, 1)
        elif not sizes or num_features not in (None, len(sizes)):
            raise ValueError(f"'domain_sizes' must be one number, or one for "
                             f"each of the {num_features} columns "
                             f"(got {len(sizes)})")
        if max(sizes) > _MOST_VALUES:
            raise ValueError(f"'domain_sizes' must be at most {_MOST_VALUES} "
                             f"(got {max(sizes)})")
        #: The number of values of each column.
        self.domain_sizes: NDArray[np.int64] = np.array(sizes)
        if self.num_sampled > self.num_features:
            raise ValueError(
                f"'num_sampled' must be at most the number of columns, which "
                f"is {self.num_features} (got {num_sampled})")
        # Rounded down, so that the parts never add up to more.
        part = math.nextafter(self.epsilon / self.num_sampled, 0.0)
        self._responses = {
            size: RandomizedResponse(part, size)
            for size in sorted(set(self.domain_sizes.tolist()))
        }
        self._plan: _Plan | None = None

    @property
    def num_features(self) -> int:
        """The number of columns."""
        return len(self.domain_sizes)

    @property
    def epsilon_x(self) -> float:
        """The privacy loss of one chosen column."""
        return self.epsilon / self.num_sampled

    @property
    def attribute_epsilon(self) -> float:
        """The privacy loss of one column, if all others stay the same."""
        eps, m, d = self.epsilon_x, self.num_sampled, self.num_features
        if m == d:
            return eps
        if len(self._responses) == 1:
            log_odds = math.log(m / (d - m))
        else:  # A column with the largest domain, against all others.
            sizes = np.sort(self.domain_sizes)
            logs = np.log(sizes) - np.logaddexp(eps, np.log(sizes - 1))
            log_odds = float(logs[-1] - _log_ratio(logs[:-1], m))
        return float(np.logaddexp(log_odds + eps, 0.0) -
                     np.logaddexp(log_odds, 0.0))

    @property
    def claimed_epsilon(self) -> float:
        """What Theorem 1 of the paper claims for a whole row."""
        share = self.num_sampled / self.num_features
        if share == 1:
            return self.epsilon
        return float(np.logaddexp(math.log(share) + self.epsilon,
                                  math.log1p(-share)))

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to a whole row."""
        return Guarantee(self.epsilon, Unit.FEATURES, Relation.REPLACE)

    def marginal(self, column: int = 0) -> tuple[Fraction, Fraction]:
        """The exact probabilities that a column, chosen or not, is reported as
        it is, and as any one other value.
        """
        size = int(self.domain_sizes[column])
        response = self._responses[size]
        share: Fraction = Fraction(self.num_sampled, self.num_features)
        rest = (1 - share) / size
        return share * response.keep + rest, share * response.other + rest

    def transition_matrix(self, column: int = 0) -> Tensor:
        """The probability of each output (matrix column) for each input
        (matrix row) of a column.
        """
        keep, other = map(float, self.marginal(column))
        size = int(self.domain_sizes[column])
        matrix = torch.full((size, size), other, dtype=torch.double)
        return matrix.fill_diagonal_(keep)

    def probability(self, row: Sequence[int],
                    released: Sequence[int]) -> Fraction:
        """The exact probability that a whole row is released as another."""
        sums = [Fraction(1)] + [Fraction(0)] * self.num_sampled
        for value, report, size in zip(row, released,
                                       self.domain_sizes.tolist()):
            response = self._responses[size]
            r = size * (response.keep if value == report else response.other)
            sums = [sums[0]] + [new + r * old
                                for old, new in zip(sums, sums[1:])]
        cases = math.comb(self.num_features, self.num_sampled)
        return sums[-1] / (cases * math.prod(map(int, self.domain_sizes)))

    def worst_case(self) -> WorstCase:
        """For rows that differ everywhere, by the first theorem."""
        ones, zeros = (1, ) * self.num_features, (0, ) * self.num_features
        loss = log_ratio(self.probability(ones, ones) /
                         self.probability(zeros, ones))
        return WorstCase(loss, Unit.FEATURES, (ones, zeros), ones)

    def canaries(self) -> list[RowPair]:
        """Rows of the first values, of the last, and of those between."""
        last = self.domain_sizes - 1.0
        return row_pairs(0 * last, last, np.floor(last / 2))

    def check(self, x: Tensor, name: str = 'x') -> None:
        """Raises an error that names the first value outside its domain."""
        if x.dim() != 2 or x.size(1) != self.num_features:
            raise ValueError(f"'{name}' must have shape [num_nodes, "
                             f"{self.num_features}] (got {list(x.shape)})")
        for start, stop in row_blocks(x.size(0), self.num_features):
            cell = _first_outside(_cells(x[start:stop]), self.domain_sizes)
            if cell >= 0:
                row, column = divmod(cell, self.num_features)
                raise ValueError(
                    f"'{name}' must hold integers from 0 to "
                    f"{self.domain_sizes[column] - 1} in column {column} "
                    f"(got another value, or none, in row {start + row})")

    def __call__(self, x: Tensor, source: NoiseSource) -> Tensor:
        """Releases a matrix, with the words of :obj:`source`."""
        self.check(x)
        dtype = _wide_enough(x.dtype, int(self.domain_sizes.max()) - 1)
        # Kernels know two types; what has another goes through a buffer.
        kind = torch.float if dtype == torch.float else torch.long
        out = empty(x.shape, dtype)
        if self._plan is None:
            self._plan = _Plan(self)
        plan = self._plan

        def draw(rows: Any, words: Words) -> NDArray[np.int64]:
            raw = _cells(x[rows].to(kind))
            direct = dtype == kind and isinstance(rows, slice)
            part = out[rows].numpy() if direct else np.empty_like(raw)
            rejected = plan.draw(words, raw, part)
            if not direct:
                out[rows] = torch.from_numpy(part).to(dtype)
            return rejected

        def release(first: int, last: int) -> NDArray[np.int64]:
            rejected = [np.empty(0, np.int64)]
            for start, stop, words in source.blocks(last, plan.depth, first):
                rejected.append(start + draw(slice(start, stop), words))
            return np.concatenate(rejected)

        parts = in_threads(release, x.size(0), block_rows(plan.depth))
        rows, attempt = np.concatenate(parts), 0
        while len(rows) > 0:
            words = source.derive('retry', attempt).gather(
                rows, np.zeros_like(rows), 1, plan.depth)
            rows, attempt = rows[draw(rows, words)], attempt + 1
        return out.to(x.device)


class _Plan:
    # Which words of a row decide what: some for the choice, some for the
    # uniform values, one for each chosen column.
    def __init__(self, mechanism: GRRFS) -> None:
        m, d = mechanism.num_sampled, mechanism.num_features
        choice = _groups(list(range(d - m + 1, d + 1)))
        values = _groups(mechanism.domain_sizes.tolist())
        words = len(choice[1]) + len(values[1]) + m
        self.depth = words + words % 2  # A cipher block is two words.
        self.radices = choice, values
        sizes = mechanism.domain_sizes.tolist()
        other = [mechanism._responses[size]._other for size in sizes]
        self.other = np.array(other, np.uint64)
        self.others = np.array([o * (size - 1) for o, size in
                                zip(other, sizes)], np.uint64)

    def draw(self, words: Words, x: NDArray[Any],
             out: NDArray[Any]) -> NDArray[np.int64]:
        rejected = np.zeros(len(x), np.bool_)
        choice, values = self.radices
        _draw(words.reshape(len(x), self.depth), x, out, rejected, choice,
              values, self.other, self.others)
        return np.flatnonzero(rejected)


def _groups(radices: list[int]) -> tuple[Words, Words, NDArray[np.int64]]:
    # The radices, and for the digits of each word what is rejected, and where
    # they end.
    limits, ends, product = [], [], 1
    for at, radix in enumerate(radices):
        new = product * radix
        if at > 0 and new > (_PRODUCT if new & (new - 1) else WORD):
            limits.append(WORD % product)
            ends.append(at)
            new = radix
        product = new
    return (np.array(radices, np.uint64),
            np.array([*limits, WORD % product], np.uint64),
            np.array([*ends, len(radices)]))


@jit
def _draw(words: Words, x: NDArray[Any], out: NDArray[Any],
          rejected: NDArray[np.bool_], choice: Any, values: Any,
          other: Words, others: Words) -> None:
    radices, limits, ends = choice
    sizes, size_limits, size_ends = values
    m, d = radices.size, sizes.size
    chosen = np.full(d, -1)  # The last row in which a column was chosen.
    columns = np.empty(m, np.int64)
    for i in range(out.shape[0]):
        at = 0
        for group in range(limits.size):  # Floyd: any m columns, equally likely
            word = words[i, group]
            for k in range(at, ends[group]):
                column = np.int64(multiply_high(word, radices[k]))
                word *= radices[k]
                if chosen[column] == i:
                    column = d - m + k
                chosen[column] = i
                columns[k] = column
            rejected[i] |= word < limits[group]
            at = ends[group]
        first, at = limits.size, 0
        for group in range(size_limits.size):
            word = words[i, first + group]
            for k in range(at, size_ends[group]):
                out[i, k] = multiply_high(word, sizes[k])
                word *= sizes[k]
            rejected[i] |= word < size_limits[group]
            at = size_ends[group]
        first += size_limits.size
        for k in range(m):
            c = columns[k]
            out[i, c] = respond(words[i, first + k], int(x[i, c]),
                                other[c], others[c])


@jit
def _first_outside(x: NDArray[Any], sizes: NDArray[np.int64]) -> Any:
    # The first cell that holds no value of its domain, or -1.
    for i in range(x.shape[0]):
        good = True
        for c in range(x.shape[1]):
            v = x[i, c]
            good &= (v >= 0) & (v < sizes[c]) & (v == np.floor(v))
        if not good:
            for c in range(x.shape[1]):
                v = x[i, c]
                if not (v >= 0 and v < sizes[c] and v == np.floor(v)):
                    return i * x.shape[1] + c
    return -1


def _log_ratio(logs: NDArray[np.float64], m: int) -> float:
    # The logarithm of e_m / e_(m - 1), of numbers given by their logarithms.
    sums = np.full(m + 1, -np.inf)
    sums[0] = 0.0
    for log in logs:
        sums[1:] = np.logaddexp(sums[1:], log + sums[:-1])
    return float(sums[m] - sums[m - 1])


def _cells(x: Tensor) -> NDArray[Any]:
    x = x.detach().cpu().contiguous()
    if x.dtype not in (torch.float, torch.double, torch.long):
        x = x.float() if x.is_floating_point() else x.long()
    array: NDArray[Any] = x.numpy()
    return array


def _wide_enough(dtype: torch.dtype, largest: int) -> torch.dtype:
    # The same type, if it can hold all values that may be released.
    if dtype.is_floating_point:
        for wide in (dtype, torch.float):
            if largest <= 2 / torch.finfo(wide).eps:
                return wide
        return torch.double
    most = 1 if dtype == torch.bool else torch.iinfo(dtype).max
    return dtype if largest <= most else torch.long
