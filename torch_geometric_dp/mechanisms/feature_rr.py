r"""Heterogeneous randomised response on ordered bins (HeteroRR, Algorithm 1).

A column's range is cut into :math:`k` bins. A value in bin :math:`t` is
released as bin :math:`u` with probability

.. math::
    P(u | t) = \frac{a^{|u-t|}}{C_t}, \quad
    a = e^{-\varepsilon_i / (k-1)}, \quad C_t = \sum_u a^{|u-t|},

so near bins are likelier than far ones, and each column :math:`i` has its own
:math:`\varepsilon_i`.

**Theorem.** Column :math:`i` is :math:`\varepsilon_i`-locally private, no
smaller epsilon holds, and a row is :math:`\sum_i \varepsilon_i`-private.

*Proof.* Let bins :math:`t, t'` have distance :math:`s`. Then :math:`P(u|t) /
P(u|t') \leq a^{-s} C_{t'} / C_t`. With :math:`g(m) = 1 + a + \dots + a^m`
and :math:`p` the distance of :math:`t` from the nearer end, :math:`C_t = C(p) =
g(p) + g(k-1-p) - 1`, which grows with :math:`p`, and :math:`C(p) - a\,C(p+1) =
(1+a)(1-a^{p+1}) \geq 0`. So :math:`C_{t'} / C_t \leq 1` if :math:`p' \leq p`,
and :math:`C_{t'}/C_t \leq a^{-(p'-p)}` otherwise. In the second case :math:`t'`
keeps :math:`p'` away from both ends, so :math:`s \leq k-1-p'-p` and :math:`s +
p' - p \leq k-1`. In both, the ratio is at most :math:`a^{-(k-1)} =
e^{\varepsilon_i}`; it is reached at :math:`u = t = 0`, :math:`t' = k-1`.
Columns draw independently, so their losses add up. ∎

**In integers.** :math:`a^j` becomes an integer :math:`A_j`, with :math:`A_0 a^j
\leq A_j \leq A_0 a^j (1 + \eta)`, and the sampler draws a uniform integer below
:math:`T_t = \sum_u A_{|u-t|}` without bias: :math:`P(u|t) = A_{|u-t|}/T_t`
exactly. That multiplies every ratio by at most :math:`(1+\eta)^2`, so
:math:`a` is computed for :math:`\varepsilon_i - 2 \eta`, and what the machine
does keeps the promise. :math:`\eta` is about :math:`e^{\varepsilon_i} k
2^{-56}`; it is kept below :math:`2^{-20}` by more noise than asked for where
:math:`\varepsilon_i` is beyond about 20. A guide table finds the bin of an
integer in constant time, whatever :math:`k` is, and columns with the same
parameters share one table.

**Decoding** is post-processing and free. The release is pulled towards the
middle of the range; :obj:`"unbiased"` undoes that on average, by the inverse of
the transition matrix, which is tridiagonal up to a scaling; :obj:`"posterior"`
returns the mean of the values that may have been there, if they are uniform.
"""
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_dp._jit import jit, multiply_high
from torch_geometric_dp._typing import Array, Bounds
from torch_geometric_dp._validate import check_choice, check_integer
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.mechanisms.mechanism import largest_loss
from torch_geometric_dp.noise import (
    NoiseSource,
    Words,
    block_rows,
    in_threads,
)

DECODERS = ('none', 'unbiased', 'posterior')

# An index without a sign: numba asks of all others whether they count from the
# end, which was almost half of the sampler's time.
_at = np.uint64

# With totals below 2**56, one word in 256 is rejected at the most.
_TOTAL_BITS = 56
_MOST_BINS = 2**15  # Guide tables hold 16-bit bins.
_AUTO_BINS = (*range(2, 17), 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


class FeatureRR(ColumnMechanism):
    r"""Heterogeneous randomised response on the bins of bounded columns
    (HeteroRR): a value becomes bin :math:`u` with a probability that falls
    exponentially with the distance.

    Args:
        epsilons (float or sequence of floats): The privacy loss of each
            column. A column with zero is released as a uniform bin.
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)
        bins (int or str, optional): The number of bins :math:`k`, or
            :obj:`"auto"` for the number that gives the least expected error
            over uniform values, for each column. (default: :obj:`"auto"`)
        decode (str, optional): What to return for a released bin: its centre
            (:obj:`"none"`), an unbiased estimate (:obj:`"unbiased"`), or the
            posterior mean for uniform values (:obj:`"posterior"`).
            (default: :obj:`"none"`)

    .. code-block:: python

        mechanism = FeatureRR([0.5, 2.0], bounds=(0.0, 1.0), bins=16)
        released = mechanism(torch.rand(100, 2), NoiseSource.from_os())
        mechanism.guarantee.epsilon   # 2.5
        mechanism.expected_error(0.3, column=1)   # 0.2...
    """
    def __init__(self, epsilons: float | Sequence[float],
                 bounds: Bounds = (-1.0, 1.0), bins: int | str = 'auto',
                 decode: str = 'none') -> None:
        super().__init__(epsilons, bounds)
        bins = check_bins(bins)
        self.decode = check_choice('decode', decode, DECODERS)
        self.bins = np.array([
            best_bins(epsilon, decode) if bins == 'auto' else int(bins)
            for epsilon in self.epsilons.tolist()
        ])
        # Each different pair of parameters has one table.
        kinds = list(zip(self.epsilons.tolist(), self.bins.tolist()))
        index = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
        self._kind = np.array([index[kind] for kind in kinds])
        self._tables = [_table(*kind) for kind in index]
        self._codes = [_code(*kind, decode) for kind in index]

    def transition_matrix(self, column: int = 0) -> Array:
        """The exact probability of each released bin (matrix column) for each
        true one (matrix row).
        """
        table = self._tables[self._kind[column]]
        matrix: Array = table.probabilities(np.arange(self.bins[column]))
        return matrix

    def distribution(self, value: float,
                     column: int = 0) -> tuple[Array, Array]:
        """The possible outputs for a value, in increasing order, and their
        exact probabilities.
        """
        kind, k = self._kind[column], int(self.bins[column])
        t = np.int64((self.to_units(value, column) + 1.0) / 2.0 * k)
        probabilities = self._tables[kind].probabilities(min(t, k - 1))
        outputs = self.from_units(self._codes[kind], column)
        order = np.argsort(outputs, kind='stable')
        return outputs[order], probabilities[order]

    def column_loss(self, column: int) -> tuple[float, tuple[Any, Any], Any]:
        """Over all outputs, for the middles of all bins."""
        values = self.from_units(_centres(int(self.bins[column])), column)
        return largest_loss((value, self.distribution(value, column))
                            for value in values.tolist())

    def _release(self, x: Tensor, out: Tensor, source: NoiseSource) -> None:
        n, d = x.shape
        half = (self.high - self.low) / 2.0
        columns = (self.low, self.bins / (2.0 * half), self.low + half, half,
                   self.bins, self._kind)
        tables = _pack(self._tables, self._codes)
        target = out.numpy().reshape(-1)

        def respond(first: int, last: int) -> NDArray[np.int64]:
            rejected = [np.empty(0, np.int64)]
            column = np.empty(0, np.int64)
            for start, stop, words in source.blocks(last, d, first):
                if column.size != words.size:
                    column = np.tile(np.arange(d), stop - start)
                part = target[start * d:stop * d]
                raw = self._read(x, slice(start, stop)).reshape(-1)
                if _respond(words, raw, column, part, columns, tables):
                    rejected.append(start * d + np.flatnonzero(np.isnan(part)))
            return np.concatenate(rejected)

        parts = in_threads(respond, n, block_rows(d))
        cells, attempt = np.concatenate(parts), 0
        while len(cells) > 0:
            again = source.derive('retry', attempt)
            row, column = cells // d, cells % d
            words = again.gather(row, column, d, 2)[:, 0].copy()
            part = np.empty(len(cells), target.dtype)
            _respond(words, self._read(x, row, column), column, part, columns,
                     tables)
            target[cells] = part
            cells, attempt = cells[np.isnan(part)], attempt + 1


@dataclass(frozen=True)
class _Table:
    # What all columns with one epsilon and number of bins share.
    ratio: float  # a
    prefix: Words  # A_0 + ... + A_{j-1} for j = 0 ... k
    guide: NDArray[np.uint16]  # The bin at the start of a cell of integers.
    shift: int  # From an integer to its cell.

    def probabilities(self, t: Any) -> Array:
        weights = np.diff(self.prefix).astype(np.float64)
        distance = np.abs(np.arange(len(weights)) - np.asarray(t)[..., None])
        chosen = weights[distance]
        out: Array = chosen / chosen.sum(-1, keepdims=True)
        return out


@lru_cache(maxsize=2**14)
def _table(epsilon: float, bins: int) -> _Table:
    first = 2.0**(_TOTAL_BITS - math.ceil(math.log2(bins)))
    used = min(epsilon, math.log(first) - 20 * math.log(2))
    # Half an ulp of `exp`, and the rounding to an integer, both upwards.
    eta = math.exp(used) / first + 2.0**-48
    used = max(0.0, used - 2 * eta)
    exact = first * np.exp(-used / (bins - 1) * np.arange(bins))
    weights = np.ceil(exact * (1 + 2.0**-50)).astype(np.uint64)
    weights[0] = int(first)
    prefix = np.concatenate([np.zeros(1, np.uint64), np.cumsum(weights)])
    # Four cells a bin: three integers in four need no second look.
    shift = max(0, int(prefix[-1]).bit_length() - (4 * bins).bit_length())
    cells = np.arange((int(prefix[-1]) >> shift) + 1, dtype=np.uint64)
    guide = np.searchsorted(prefix, cells << np.uint64(shift), 'right') - 1
    return _Table(math.exp(-used / (bins - 1)), prefix,
                  guide.astype(np.uint16), shift)


def _pack(tables: list[_Table], codes: list[Array]) -> tuple[Any, ...]:
    # All tables behind each other, and where each of them starts.
    def starts(arrays: list[NDArray[Any]]) -> NDArray[np.int64]:
        return np.cumsum([0] + [len(array) for array in arrays])[:-1]

    prefixes = [table.prefix for table in tables]
    guides = [table.guide for table in tables]
    return (np.concatenate(prefixes), starts(prefixes), np.concatenate(guides),
            starts(guides), np.array([t.shift for t in tables], np.uint64),
            np.concatenate(codes), starts(codes))


@jit
def _respond(words: Words, x: NDArray[Any], column: NDArray[np.int64],
             out: NDArray[Any], columns: Any, tables: Any) -> int:
    # Releases cells, given the column of each; returns how many words were
    # rejected, and marks these cells by NaN.
    low, scale, centre, half, bins, kind = columns
    prefix, prefix_at, guide, guide_at, shift, code, code_at = tables
    rejected = 0
    for i in range(words.size):
        c = _at(column[i])
        kd, k = _at(kind[c]), bins[c]
        at = prefix_at[kd]
        t = min(np.int64((x[i] - low[c]) * scale[c]), k - 1)
        first, right = prefix[_at(at + 1)], prefix[_at(at + k - t)]
        total = prefix[_at(at + t + 1)] + right - first
        # A uniform integer below `total` (Lemire, 2019).
        integer = multiply_high(words[i], total)
        rest = words[i] * total
        if rest < total and rest < (np.uint64(0) - total) % total:
            out[i] = np.nan
            rejected += 1
            continue
        # Below `right`: bin t and those above; else those below.
        above = integer < right
        integer = integer if above else integer - right + first
        j = np.int64(guide[_at(guide_at[kd]) + (integer >> shift[kd])])
        while prefix[_at(at + j + 1)] <= integer:
            j += 1
        u = t + j if above else t - j
        out[i] = centre[c] + half[c] * code[_at(code_at[kd] + u)]
    return rejected


def _centres(bins: int) -> Array:
    return (2.0 * np.arange(bins) + 1.0) / bins - 1.0


@lru_cache(maxsize=2**14)
def _code(epsilon: float, bins: int, decode: str) -> Array:
    # The unit that a released bin stands for.
    centres = _centres(bins)
    if decode == 'none':
        return centres
    a = _table(epsilon, bins).ratio
    if a == 1.0:  # The bins tell nothing: the middle is the best guess.
        return np.zeros(bins)
    scale = _smooth(np.ones(bins), a)  # C_t
    if decode == 'posterior':
        return _smooth(centres / scale, a) / _smooth(1.0 / scale, a)
    # The inverse of a^|u-t| is tridiagonal (Kac, Murdock and Szego).
    wanted = scale * centres
    code = (1.0 + a * a) * wanted
    code[[0, -1]] = wanted[[0, -1]]
    code[1:] -= a * wanted[:-1]
    code[:-1] -= a * wanted[1:]
    return code / (1.0 - a * a)


@jit
def _smooth(values: Array, a: float) -> Array:
    # sum_t a^|u-t| values_t for every u, in one sweep each way.
    out = values.copy()
    for u in range(1, values.size):
        out[u] += a * out[u - 1]
    tail = 0.0
    for u in range(values.size - 2, -1, -1):
        tail = a * (tail + values[u + 1])
        out[u] += tail
    return out


def best_bins(epsilon: float, decode: str = 'none') -> int:
    """The number of bins with the least expected distance between a uniform
    value and its release. Public: it depends on nothing but the arguments.

    .. code-block:: python

        best_bins(1.0, 'posterior')   # 2
    """
    if epsilon == 0:
        return 2
    # Neighbouring epsilons share the answer: 2% make no difference.
    return _best_bins(1.02**round(math.log(epsilon, 1.02)), decode)


@lru_cache(maxsize=2**12)
def _best_bins(epsilon: float, decode: str) -> int:
    best, least, worse = 2, math.inf, 0
    for bins in _AUTO_BINS:
        error = _mean_error(epsilon, bins, decode)
        worse = 0 if error < least else worse + 1
        if error < least:
            best, least = bins, error
        if worse > 6:  # More bins only blur what is left.
            break
    return best


def _mean_error(epsilon: float, bins: int, decode: str) -> float:
    # The mean of |code_u - z| over a uniform z in bin t: outside the bin it is
    # the distance from the centre, inside a parabola.
    probabilities = _table(epsilon, bins).probabilities(np.arange(bins))
    far = np.abs(_code(epsilon, bins, decode) - _centres(bins)[:, None])
    width = 2.0 / bins
    near = far * far / width + width / 4.0
    distance = np.where(far < width / 2.0, near, far)
    return float((probabilities * distance).sum() / bins)


def check_bins(bins: int | str) -> int | str:
    """A number of bins, or :obj:`"auto"`."""
    if bins != 'auto' and check_integer('bins', bins, 2) > _MOST_BINS:
        raise ValueError(f"'bins' must be at most {_MOST_BINS} (got {bins})")
    return bins if bins == 'auto' else int(bins)
