"""Coins and dice: exact, by integer thresholds on random words."""
import math
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp._jit import jit, multiply_high
from torch_geometric_dp._sort import distinct, sort
from torch_geometric_dp.noise.source import (
    WORD,
    NoiseSource,
    Shape,
    Words,
    grid,
)

Probability = Fraction | Decimal | float
Accepted = tuple[NDArray[Any], NDArray[np.bool_]]  # Values, and which count.

_DARTS = 32  # Darts at a cell, on average, or up to half as few.
_UNCLEAR = 255  # No number of darts.


def threshold(probability: Probability) -> int:
    """The smallest integer :obj:`t` with ``t / 2**64 >= probability``: a word
    lies below it with probability exactly ``t / 2**64``.

    .. code-block:: python

        threshold(0.5) == 2**63   # True
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"'probability' must lie in [0, 1] "
                         f"(got {probability})")
    if isinstance(probability, Decimal):
        with localcontext(prec=80):
            return int((probability * WORD).to_integral_value(ROUND_CEILING))
    return math.ceil(Fraction(probability) * WORD)


def bernoulli(source: NoiseSource, probability: Probability,
              shape: Shape) -> NDArray[np.bool_]:
    """Coins that show :obj:`True` with :obj:`probability`, rounded up to a
    multiple of ``2**-64``.

    .. code-block:: python

        bernoulli(NoiseSource.from_os(), 0.25, (1000, 3)).mean()   # around 1/4
    """
    limit = threshold(probability)
    if limit == WORD:
        return np.ones(shape, np.bool_)
    rows, width = grid(shape)
    out = np.empty(rows * width, np.bool_)
    for start, stop, words in source.blocks(rows, width):
        np.less(words, np.uint64(limit), out=out[start * width:stop * width])
    return out.reshape(shape)


def sparse_bernoulli(source: NoiseSource, probability: Probability,
                     count: int) -> NDArray[np.int64]:
    r"""The places, in increasing order, of the coins that show heads, out of
    :obj:`count` coins. Time and memory are those of the heads, not of the
    coins.

    Darts are thrown at the coins, and a coin that is hit shows heads. The coins
    are parted into cells of :math:`2^b`, and the number of darts at each cell
    is Poisson, with mean :math:`2^b \lambda`. Each of them hits a uniform coin
    of its cell, which is :math:`b` bits of a word. Darts that hit disjoint
    coins are independent, and Poisson, too. So the coins are exactly
    independent, and each shows heads with probability :math:`1 - e^{-\lambda}`.
    Cells follow each other, so that only a few darts at a time are sorted.

    .. code-block:: python

        places = sparse_bernoulli(NoiseSource.from_os(), 1e-9, 10**12)
        len(places)   # around 1000
    """
    if not 0 <= count <= 2**61:
        raise ValueError(f"'count' must lie in [0, 2**61] (got {count})")
    if count == 0 or threshold(probability) == 0:
        return np.empty(0, np.int64)
    if 16 * probability > 1:  # Then to toss all coins is less work.
        return np.flatnonzero(bernoulli(source, probability, count))
    rate, bits = dart_board(probability)
    with localcontext(prec=80):
        darts = _poisson(source, rate * 2**bits, -(-count // 2**bits))
    places = np.empty(int(darts.sum(dtype=np.int64)), np.int64)
    state, done = np.zeros(3, np.int64), 0
    for _, _, words in source.derive('points').blocks(len(places), 1):
        _throw(words, darts, bits, places, state)
        sort(places[done:state[2]])  # While they are in the cache.
        done = state[2]
    sort(places[done:])
    places = distinct(places)
    return places[:np.searchsorted(places, count)]


def dart_board(probability: Probability) -> tuple[Decimal, int]:
    """The rate of darts at one coin, at least ``-log(1 - p)``, and the
    bits that number the coins of a cell, at which 32 darts are thrown on
    average, or half as few; or two at the least, if coins hardly ever show
    heads, and one cell has them all.
    """
    with localcontext(prec=80):
        exact = Fraction(probability)
        chance = Decimal(exact.numerator) / exact.denominator
        chance = max(chance, Decimal(2)**-60)
        # Rounded up by more than all 80-digit roundings together.
        rate = -(1 - chance).ln() * (1 + Decimal(10)**-58)
        return rate, min(int(_DARTS / rate).bit_length() - 1, 61)


def _poisson(source: NoiseSource, mean: Decimal,
             count: int) -> NDArray[np.uint8]:
    # Poisson variables. A word has the first bits of a uniform number from 0 to
    # 1, and which sum of probabilities is the first above it is the result.
    # Where 64 bits are too few to tell, others follow: the law is exact.
    limits = _limits(mean)
    out, unclear = np.empty(count, np.uint8), 0
    for start, stop, words in source.blocks(count, 1):
        unclear += _fill_poisson(words, limits, out[start:stop])
    if unclear > 0:
        for cell in np.flatnonzero(out == _UNCLEAR).tolist():
            # 2**-400 is more than the chance that the result is no byte.
            out[cell] = _poisson_at(mean, _bits_of(source, cell))
    return out


def _limits(mean: Decimal) -> Words:
    # The probability of at most k, in words, and two words more: the word
    # before it is the last one that does not tell on which side it is. Those
    # that tell start three words earlier, since roundings may cost one.
    limits: list[int] = []
    term = total = (-mean).exp()
    while (limit := int(total * WORD) + 2) < WORD:
        limits.append(limit)
        term *= mean / len(limits)
        total += term
    return np.array(limits, np.uint64)


@jit
def _fill_poisson(words: Words, limits: Words, out: NDArray[np.uint8]) -> int:
    unclear = 0
    for i in range(words.size):
        k = 0
        while k < limits.size and words[i] >= limits[k]:
            k += 1
        if k == limits.size or words[i] >= limits[k] - np.uint64(3):
            k, unclear = _UNCLEAR, unclear + 1
        out[i] = k
    return unclear


def _bits_of(source: NoiseSource, cell: int) -> Iterator[int]:
    for _, _, words in source.blocks(cell + 1, 1, cell):
        yield int(words[0])
    for _, _, words in source.derive('more', cell).blocks(2**20, 1):
        yield from words.tolist()


def _poisson_at(mean: Decimal, words: Iterator[int]) -> int:
    # The same for one number, by as many words as it takes.
    number, bits = 0, 0
    for word in words:
        number, bits = number << 64 | word, bits + 64
        with localcontext(prec=bits):  # So many digits, which is plenty.
            slack = Decimal(10)**-(bits // 2)
            k, term = 0, (-mean).exp()
            total = term
            while total < Decimal(number) / 2**bits - slack:
                k += 1
                term *= mean / k
                total += term
            if total > Decimal(number + 1) / 2**bits + slack:
                return k
    raise RuntimeError('a number ran out of bits')  # After eight megabytes.


@jit
def _throw(words: Words, darts: NDArray[np.uint8], bits: int,
           places: NDArray[np.int64], state: NDArray[np.int64]) -> None:
    # One word a dart. The state has the number of darts that were thrown, the
    # cell of the last one, and how many were thrown at cells before that.
    thrown, cell, before = state
    shift = np.uint64(64 - bits)
    for word in words:
        while thrown - before == darts[cell]:
            before, cell = thrown, cell + 1
        places[thrown] = (cell << bits) + np.int64(word >> shift)
        thrown += 1
    state[0], state[1], state[2] = thrown, cell, before


def uniform_integers(source: NoiseSource, high: int,
                     shape: Shape) -> NDArray[np.int64]:
    """Integers from 0 to :obj:`high - 1`, all equally likely: the upper half of
    a word times :obj:`high`, and words that would favour some of them are
    rejected (Lemire, 2019).

    .. code-block:: python

        uniform_integers(NoiseSource.from_os(), 6, 10) + 1   # ten dice
    """
    if not 1 <= high <= 2**63:
        raise ValueError(f"'high' must lie in [1, 2**63] (got {high})")

    def accept(words: Words) -> Accepted:
        return _scaled(words, np.uint64(high), np.uint64(WORD % high))

    return _rejection(source, shape, accept, np.int64)


@jit
def _scaled(words: Words, high: np.uint64, unfair: np.uint64) -> Accepted:
    out, fair = np.empty(words.size, np.int64), np.empty(words.size, np.bool_)
    for i in range(words.size):
        out[i] = multiply_high(words[i], high)
        fair[i] = words[i] * high >= unfair
    return out, fair


def uniforms(source: NoiseSource,
             shape: Shape) -> NDArray[np.float64]:
    """Multiples of ``2**-53`` strictly between 0 and 1, equally likely.

    .. code-block:: python

        uniforms(NoiseSource.from_os(), (1000, 3)).shape   # (1000, 3)
    """
    def accept(words: Words) -> Accepted:
        top = words >> np.uint64(11)
        return top * 2.0**-53, top != 0

    return _rejection(source, shape, accept, np.float64)


def _rejection(source: NoiseSource, shape: Shape,
               accept: Callable[[Words], Accepted], dtype: Any) -> NDArray[Any]:
    rows, width = grid(shape)
    out = np.empty(rows * width, dtype)
    rejected = [np.empty(0, np.int64)]
    for start, stop, words in source.blocks(rows, width):
        value, accepted = accept(words)
        out[start * width:stop * width] = value
        if not accepted.all():
            rejected.append(start * width + np.flatnonzero(~accepted))
    cells, attempt = np.concatenate(rejected), 0
    while len(cells) > 0:
        again = source.derive('retry', attempt)
        words = again.gather(cells // width, cells % width, width, 2)[:, 0]
        out[cells], accepted = accept(words)
        cells, attempt = cells[~accepted], attempt + 1
    return out.reshape(shape)
