"""Sorts many integers in linear time, which does not depend on what the
processor has for it: numpy's sort is fast with some, and slow with others.
"""
import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp._jit import jit

Integers = NDArray[np.int64]

_FEW = 2**11  # For so few, numpy is fast enough.
_BITS = 11  # Of a digit: the numbers of all digits stay in the fastest cache.


def sort(integers: Integers) -> None:
    """Sorts an array, in place: digit by digit, from the lowest on."""
    if integers.size <= _FEW:
        integers.sort()
    elif not _is_increasing(integers):
        _sort_digits(integers, np.empty_like(integers))


def distinct(integers: Integers) -> Integers:
    """The integers in increasing order, each of them once. The array itself is
    sorted, and its front is returned.
    """
    sort(integers)
    return integers[:_drop_repetitions(integers)]


@jit
def _is_increasing(integers: Integers) -> bool:
    i = 1
    while i < integers.size and integers[i - 1] <= integers[i]:
        i += 1
    return i >= integers.size


@jit
def _sort_digits(integers: Integers, spare: Integers) -> None:
    low = integers.min()
    most = np.uint64(integers.max() - low)
    last = np.uint64(2**_BITS - 1)
    places = np.empty(2**_BITS, np.int64)
    now, then, shift = integers, spare, 0
    while shift < 64 and most >> np.uint64(shift) > 0:
        places[:] = 0
        for value in now:
            places[np.uint64(value - low) >> np.uint64(shift) & last] += 1
        start = 0
        for digit in range(places.size):
            start, places[digit] = start + places[digit], start
        for value in now:
            at = np.uint64(value - low) >> np.uint64(shift) & last
            then[places[at]] = value
            places[at] += 1
        now, then, shift = then, now, shift + _BITS
    if shift // _BITS % 2 == 1:
        integers[:] = now


@jit
def _drop_repetitions(integers: Integers) -> int:
    # Moves the first of each to the front; returns how many there are.
    count = 0
    for i in range(integers.size):
        if i == 0 or integers[i] != integers[count - 1]:
            integers[count] = integers[i]
            count += 1
    return count
