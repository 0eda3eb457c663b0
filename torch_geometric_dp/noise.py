r"""One secure source of random bits, and the exact samplers on top of it.

A :class:`NoiseSource` is the keystream of AES-256 in counter mode. It knows
nothing of privacy: it maps an address to random bits, and nobody without the
key can tell these bits from fair coins.

**Addresses.** A sampler asks for a grid of cells, and every cell owns its own
words of the stream, at a place given by its row and column alone. What comes
out therefore does not depend on block size, number of workers or partition.
Rejection never shifts the stream: whoever is rejected reads on in a derived
stream, at the address of the same cell.

**Errors.** With fair bits,

* :func:`uniform_integers` is exactly uniform, and an integer threshold (see
  :func:`threshold`) is hit with probability exactly ``threshold / 2**64``;
* :func:`sparse_bernoulli` tosses exactly independent coins, all with the same
  probability: the one asked for, rounded up by less than a part in ``2**60``
  of itself (and to ``2**-60`` at least);
* :func:`uniforms` is exactly uniform on the multiples of ``2**-53`` that lie
  strictly between 0 and 1;
* :func:`discrete_laplace` returns every integer :math:`z` with a probability
  within a factor of :math:`1 \pm (1 + |z|/s) 2^{-50}` of the ideal one, where
  :math:`s` is the scale, and :func:`discrete_gaussian` within
  :math:`1 \pm (1 + z^2/\sigma^2) 2^{-48}`: acceptance probabilities are
  rounded to doubles, and what is rare is split into several steps that are
  not, and keep their relative precision. Two outcomes' odds are
  therefore off by less than :math:`10^{-12}` wherever an outcome has a chance
  of more than :math:`2^{-1000}`.
  Scales are rounded *up* to a multiple of :math:`2^{-30}` of themselves, so
  there is never less noise than asked for.
"""
import hashlib
import hmac
import math
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, Union

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import (
    Cipher,
    CipherContext,
    algorithms,
    modes,
)
from numpy.typing import NDArray

from torch_geometric_dp._jit import jit, multiply_high
from torch_geometric_dp._sort import distinct, sort

T = TypeVar('T')
Words = NDArray[np.uint64]
Shape = Union[int, tuple[int, ...]]
Address = Union[str, int, bytes]
Probability = Union[Fraction, Decimal, float]
Accepted = tuple[NDArray[Any], NDArray[np.bool_]]  # Values, and which count.

WORD = 2**64  # How many values a word has.
BLOCK_WORDS = 2**15  # 256 KiB: a block and its cells stay in the L2 cache.

_ZEROS = memoryview(bytes(8 * BLOCK_WORDS))
_DARTS = 32  # Darts at a cell, on average, or up to half as few.
_UNCLEAR = 255  # No number of darts.


class NoiseSource:
    r"""A keyed stream of random bits.

    Args:
        key (bytes): 32 secret bytes. Use :meth:`from_os` for secure noise and
            :meth:`from_seed` for a run that can be repeated (and undone) by
            everybody who knows the seed.

    .. code-block:: python

        source = NoiseSource.from_os()
        uniforms(source, (1000, 3))                  # three draws a row
        uniforms(source.derive("again"), (1000, 3))  # other bits
    """
    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError(f"'key' must have 32 bytes (got {len(key)})")
        self._key = key
        self._cipher = algorithms.AES(self.digest('stream'))

    @classmethod
    def from_os(cls) -> 'NoiseSource':
        """A fresh key from the operating system's entropy."""
        return cls(secrets.token_bytes(32))

    @classmethod
    def from_seed(cls, seed: int) -> 'NoiseSource':
        """A key that everybody who knows :obj:`seed` can compute."""
        return cls(hashlib.sha256(f'seed {int(seed)}'.encode()).digest())

    def digest(self, *address: Address) -> bytes:
        """32 bytes that belong to an address, and tell nothing of the key."""
        message = b''
        for part in address:
            if not isinstance(part, bytes):
                part = f'{type(part).__name__} {part}'.encode()
            message += len(part).to_bytes(8, 'big') + part
        return hmac.digest(self._key, message, 'sha256')

    def derive(self, *address: Address) -> 'NoiseSource':
        """An independent source that belongs to an address."""
        return NoiseSource(self.digest('derive', *address))

    def fingerprint(self, content: Union[
            NDArray[np.uint8], Iterable[NDArray[np.uint8]]]) -> bytes:
        """A keyed fingerprint of bytes, or of the bytes of several blocks.

        The polynomial hash of AES-GCM, at the speed of memory, and then a
        keyed hash: without the key, nobody can test a guess of the content
        against the fingerprint.
        """
        mac = Cipher(algorithms.AES(self.digest('fingerprint key')),
                     modes.GCM(bytes(12))).encryptor()
        for block in [content] if isinstance(content, np.ndarray) else content:
            for start in range(0, block.size, 2**24):
                chunk = block[start:start + 2**24]
                mac.authenticate_additional_data(chunk.data)
        mac.finalize()
        return self.digest('fingerprint', mac.tag)

    def at(self, rows: NDArray[np.integer], tags: Words) -> 'NoiseSource':
        """The same source with the rows of a grid at chosen addresses: row
        :obj:`i` reads what belongs to the pair of :obj:`rows[i]` (who) and
        :obj:`tags[i]` (with what content), see :meth:`tags`.
        """
        return _RowSource(self.digest('rows'), rows.astype(np.uint64), tags)

    def tags(self, content: NDArray[np.uint8]) -> Words:
        """One keyed 64-bit hash for the bytes of every row."""
        padding = -content.shape[1] % 4
        content = np.pad(content, ((0, 0), (0, padding)))
        halves = content.view(np.uint32)
        keys = self.derive('tags')._words(2 * (halves.shape[1] + 1))
        return _multilinear(halves, keys.reshape(2, -1))

    def blocks(self, rows: int, width: int,
               first: int = 0) -> Iterator[tuple[int, int, Words]]:
        """Yields :obj:`(start, stop, words)`: the words of rows
        :obj:`start` to :obj:`stop`, :obj:`width` each, from row :obj:`first`
        to the one before :obj:`rows`. The buffer is used again for the next
        block.
        """
        step = block_rows(width)
        counter, odd = divmod(first * width, 2)  # A block holds two words.
        stream = Cipher(self._cipher, modes.CTR(
            counter.to_bytes(16, 'big'))).encryptor()
        stream.update(bytes(8 * odd))
        buffer = np.empty(step * width, '<u8')
        for start in range(first, rows, step):
            stop = min(rows, start + step)
            words = buffer[:(stop - start) * width]
            _fill(stream, words)
            yield start, stop, words.astype(np.uint64, copy=False)

    def gather(self, rows: NDArray[np.integer], columns: NDArray[np.integer],
               width: int, depth: int) -> Words:
        """The words of scattered cells of a grid with :obj:`width` columns
        and :obj:`depth` (an even number) words a cell.
        """
        blocks = np.empty((len(rows), depth // 2, 2), '>u8')
        first = self._place(rows, blocks) * np.uint64(width)
        first = (first + columns.astype(np.uint64)) * np.uint64(depth // 2)
        blocks[:, :, 1] = first[:, None] + np.arange(depth // 2, dtype='u8')
        out = np.empty(blocks.nbytes + 15, np.uint8)
        cipher = Cipher(self._cipher, modes.ECB()).encryptor()
        cipher.update_into(blocks.reshape(-1).view(np.uint8).data, out.data)
        words = out[:blocks.nbytes].view('<u8').reshape(len(rows), depth)
        return words.astype(np.uint64, copy=False)

    def _place(self, rows: NDArray[np.integer],
               blocks: NDArray[np.uint64]) -> Words:
        blocks[:, :, 0] = 0  # The upper half of the counter.
        return rows.astype(np.uint64)

    def _words(self, count: int) -> Words:
        words = np.empty(count, '<u8')
        _fill(Cipher(self._cipher, modes.CTR(bytes(16))).encryptor(), words)
        return words.astype(np.uint64, copy=False)

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}(key=<secret>)'


class _RowSource(NoiseSource):
    # Rows at the addresses that `NoiseSource.at` was given.
    def __init__(self, key: bytes, rows: Words, tags: Words) -> None:
        super().__init__(key)
        self._rows = rows
        self._tags = tags

    def derive(self, *address: Address) -> NoiseSource:
        return _RowSource(self.digest('derive', *address), self._rows,
                          self._tags)

    def blocks(self, rows: int, width: int,
               first: int = 0) -> Iterator[tuple[int, int, Words]]:
        step = block_rows(width)
        depth = width + width % 2
        for start in range(first, rows, step):
            index = np.arange(start, min(rows, start + step))
            words = self.gather(index, np.zeros_like(index), 1, depth)
            words = np.ascontiguousarray(words[:, :width])
            yield start, start + len(index), words.reshape(-1)

    def _place(self, rows: NDArray[np.integer],
               blocks: NDArray[np.uint64]) -> Words:
        blocks[:, :, 0] = self._tags[rows][:, None]
        places: Words = self._rows[rows]
        return places


def _fill(stream: CipherContext, words: Words) -> None:
    # A cipher stream is the encryption of zeros.
    out = words.view(np.uint8).data
    for start in range(0, len(out), len(_ZEROS)):
        part = out[start:start + len(_ZEROS)]
        stream.update_into(_ZEROS[:len(part)], part)


@jit
def _multilinear(halves: NDArray[np.uint32], keys: Words) -> Words:
    # Two multilinear hashes of 32 bits: a collision has probability 2**-64.
    out = np.empty(halves.shape[0], np.uint64)
    for i in range(halves.shape[0]):
        a, b = keys[0, 0], keys[1, 0]
        for j in range(halves.shape[1]):
            a += keys[0, j + 1] * np.uint64(halves[i, j])
            b += keys[1, j + 1] * np.uint64(halves[i, j])
        high = (a >> np.uint64(32)) << np.uint64(32)
        out[i] = high | (b >> np.uint64(32))
    return out


def block_rows(width: int) -> int:
    """The rows of a block, if there are :obj:`width` words in each."""
    return max(1, BLOCK_WORDS // max(width, 1))


def in_threads(function: Callable[[int, int], T], rows: int,
               least: int = 1) -> list[T]:
    """Calls a function on as many parts :obj:`(first, last)` of the rows as
    torch has threads, all at once, but on no part of less than :obj:`least`
    rows, which takes no longer than to start a thread. It pays where kernels do
    most of the work: they run without the interpreter's lock.
    """
    count = max(1, min(torch.get_num_threads(), rows // least))
    ends = [rows * i // count for i in range(count + 1)]
    if count == 1:
        return [function(0, rows)]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, ends[:-1], ends[1:]))


def grid(shape: Shape) -> tuple[int, int]:
    """Rows, and cells in a row, of an array's shape."""
    shape = (shape, ) if isinstance(shape, int) else tuple(shape)
    return (shape[0], math.prod(shape[1:])) if shape else (1, 1)


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
    rate, bits = _board(probability)
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


def _board(probability: Probability) -> tuple[Decimal, int]:
    # The rate of darts at one coin, at least -log(1 - probability), and the
    # bits that number the coins of a cell, at which _DARTS darts are thrown on
    # average, or half as few; or two at the least, if coins hardly ever show
    # heads, and one cell has them all.
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


# Discrete Laplace and Gaussian noise. A geometric variable X with ratio exp(-r)
# is parted into blocks of 2**b integers: how many whole blocks it has, and its
# place within the next are independent, since exp(-r X) is a product of the
# two. The place is uniform, but for a rejection with exp(-r * place), which is
# rare if blocks are short; the number of blocks is geometric, and is read off a
# table. Gaussian noise is Laplace noise with a rejection (Canonne, Kamath and
# Steinke, NeurIPS 2020). #

_ONE_IN_E = int((Decimal(-1).exp() * WORD).to_integral_value())
_TOO_FEW = -2**63  # What a sampler returns when a cell has run out of words.
_BLOCKS = 8  # In a scale, or up to twice as many.
_SCALES = 4  # In a table: none of its entries is rare.
_GUIDE_BITS = 8


def discrete_laplace(source: NoiseSource, scale: float, shape: Shape,
                     first: int = 0) -> NDArray[np.int64]:
    r"""Integers with :math:`P(z) \propto \exp(-|z| / \text{scale})`, from row
    :obj:`first` of the stream on.

    .. code-block:: python

        discrete_laplace(NoiseSource.from_os(), 2.5, 1000).mean()   # around 0
    """
    law = _geometric(*_laplace_grid(scale))
    return _sample(source, shape, law, 0.0, 6, first)


def discrete_gaussian(source: NoiseSource, sigma: float, shape: Shape,
                      first: int = 0) -> NDArray[np.int64]:
    r"""Integers with :math:`P(z) \propto \exp(-z^2 / (2 \sigma^2))`, from row
    :obj:`first` of the stream on.

    .. code-block:: python

        discrete_gaussian(NoiseSource.from_os(), 2.5, 1000).std()   # about 2.5
    """
    sigma = _check_scale('sigma', sigma)
    law = _geometric(math.floor(sigma) + 1, 1)
    return _sample(source, shape, law, sigma, 10, first)


def _check_scale(name: str, scale: float) -> float:
    if not 0 < scale <= 2.0**40:
        raise ValueError(f"'{name}' must lie in (0, 2**40], in units of the "
                         f"grid (got {scale})")
    return float(scale)


def _laplace_grid(scale: float) -> tuple[int, int]:
    # scale <= t / s with t of about 30 bits: rounded up, never down.
    scale = _check_scale('scale', scale)
    s = 2**max(0, 30 - math.frexp(scale)[1])
    return math.ceil(Fraction(scale) * s), s


class _Geometric(NamedTuple):
    # The law of an integer whose chance falls by exp(-rate) with each step.
    rate: float
    bits: int  # Of the place in a block.
    limits: Words  # Below the k-th of them lie words of more than k blocks.
    guide: NDArray[np.int64]  # How many blocks words have at the least.


@lru_cache(maxsize=64)
def _geometric(t: int, s: int) -> _Geometric:
    # For a rate of s / t. Powers of exp(-2**bits s / t) are rounded to words
    # from 60 digits; they are at least exp(-4), and the smallest difference of
    # two is above 2**-10: that one is right to a part in 2**53.
    bits = max(0, (t // (_BLOCKS * s)).bit_length() - 1)
    powers = [Decimal(WORD)]
    with localcontext(prec=60):
        ratio = (-Decimal(s * 2**bits) / t).exp()
        for _ in range(_SCALES * t // (s * 2**bits)):
            powers.append(powers[-1] * ratio)
    limits = np.array([int(power.to_integral_value()) for power in powers[1:]],
                      np.uint64)
    starts = np.arange(2**_GUIDE_BITS, dtype=np.uint64)
    beyond = limits >> np.uint64(64 - _GUIDE_BITS) > starts[:, None]
    return _Geometric(s / t, bits, limits, beyond.sum(axis=1))


def _sample(source: NoiseSource, shape: Shape, law: _Geometric, sigma: float,
            depth: int, first: int) -> NDArray[np.int64]:
    # A cell that runs out of words starts again with the same words and some
    # more: nothing is conditioned on the number of words it took.
    rows, width = grid(shape)
    out = np.empty(rows * width, np.int64)
    for start, stop, words in source.blocks(first + rows, width * depth, first):
        part = out[(start - first) * width:(stop - first) * width]
        _cells(words, depth, part, law, sigma)
    cells, sources = np.flatnonzero(out == _TOO_FEW), [source]
    while len(cells) > 0:
        sources.append(source.derive('more', len(sources)))
        words = np.concatenate([
            part.gather(first + cells // width, cells % width, width, depth)
            for part in sources
        ], axis=1)
        part = np.empty(len(cells), np.int64)
        _cells(words.reshape(-1), words.shape[1], part, law, sigma)
        out[cells] = part
        cells = cells[part == _TOO_FEW]
    return out.reshape(shape)


# Kernels are given all words of a block, and the places of a cell's: `at` is
# the next of them, `end` that of the next cell. #


@jit
def _exp_coin(gamma: float, words: Words, at: int, end: int) -> tuple[int, int]:
    # A coin with probability exp(-gamma): floor(gamma) coins of 1/e, which
    # keep their relative precision, and one for the rest. -1: out of words.
    while gamma >= 1.0:
        if at == end:
            return -1, at
        at += 1
        if words[at - 1] >= np.uint64(_ONE_IN_E):
            return 0, at
        gamma -= 1.0
    if gamma == 0.0:
        return 1, at
    if at == end:
        return -1, at
    # exp(-gamma) < 1, and the product is rounded to at most 2**64 - 2048
    # unless exp(-gamma) rounds to 1, which is right to within 2**-53.
    probability = math.exp(-gamma)
    if probability >= 1.0:
        return 1, at + 1
    hit = words[at] < np.uint64(probability * 18446744073709551616.0)
    return (1 if hit else 0), at + 1


@jit
def _cells(words: Words, depth: int, out: NDArray[np.int64], law: _Geometric,
           sigma: float) -> None:
    # Laplace noise; Gaussian noise if there is a sigma. All in one function:
    # calls and their results would take longer than what they do.
    rate, bits, limits, guide = law
    shift, size = np.uint64(63 - bits), limits.size
    for i in range(out.size):
        at, end = i * depth, (i + 1) * depth
        out[i] = _TOO_FEW
        while at < end:
            # A word has more bits than a place and a sign need.
            word = words[at]
            at += 1
            place = np.int64((word >> np.uint64(1)) >> shift)
            negative = word & np.uint64(1)
            blocks, more = 0, True
            while more and at < end:
                if size == 0:  # Blocks of one integer are rare: coins.
                    k, at = _exp_coin(rate, words, at, end)
                    if k < 0:
                        break
                    more = k == 1
                else:  # Beyond the table, all is as at its start.
                    word = words[at]
                    at += 1
                    k = guide[word >> np.uint64(64 - _GUIDE_BITS)]
                    while k < size and word < limits[k]:
                        k += 1
                    more = k == size
                blocks += k
            if more:
                break
            value = (blocks << bits) + place
            if negative and value == 0:  # Zero has one sign.
                continue
            gamma = place * rate
            if sigma > 0.0:
                # (value - sigma^2 rate)^2 / (2 sigma^2)
                excess = (value - sigma * sigma * rate) / sigma
                gamma += 0.5 * excess * excess
            coin, at = _exp_coin(gamma, words, at, end)
            if coin == 1:
                out[i] = -value if negative else value
            if coin != 0:
                break
