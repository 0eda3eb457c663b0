"""Discrete Laplace and Gaussian noise."""
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp._jit import jit
from torch_geometric_dp.noise.source import (
    WORD,
    NoiseSource,
    Shape,
    Words,
    grid,
)

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
    law = _geometric(*laplace_grid(scale))
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


def laplace_grid(scale: float) -> tuple[int, int]:
    """Integers :obj:`t` and :obj:`s` with ``scale <= t / s``, and :obj:`t` of
    about 30 bits: rounded up, never down.
    """
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
