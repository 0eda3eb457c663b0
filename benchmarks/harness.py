"""Measures several ways to do one thing, in turn, and compares them.

These machines are noisy: a time means nothing, and a ratio means something only
if both sides were measured in one run, one after the other, again and again.
"""
import ctypes
import itertools
import multiprocessing
import resource
import statistics
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from operator import truediv

import numpy as np
import torch

_MMAP_THRESHOLD = -3  # Of mallopt.


@dataclass(frozen=True)
class Row:
    """One way to do it: items a second, and its speed against that of another
    way, as the median over repeats with the quartiles. That other way is a
    peer, or the limit: the cheapest work that anybody must do.
    """
    task: str
    name: str
    rate: float
    ratio: float
    low: float
    high: float
    against: str
    goal: float | None = None
    limit: bool = False

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.ratio >= self.goal

    def __str__(self) -> str:
        goal = '' if self.goal is None else f'   goal {self.goal:.3g}: '
        return (f'{self.task}: {self.name} {self.rate:.3g}/s, '
                f'{self.ratio:.3g} [{self.low:.3g}, {self.high:.3g}] times '
                f'{self.against}{" (limit)" * self.limit}{goal}'
                f'{verdict(self.met)}')


@dataclass(frozen=True)
class Fact:
    """One number, and between what it should lie."""
    task: str
    name: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool | None:
        if self.least is None and self.most is None:
            return None
        least = -inf if self.least is None else self.least
        most = inf if self.most is None else self.most
        return bool(least <= self.value <= most)

    def __str__(self) -> str:
        goal = ''.join(f'   goal: {word} {bound:,.6g}, '
                       for word, bound in (('at least', self.least),
                                           ('at most', self.most))
                       if bound is not None)
        return (f'{self.task}: {self.name} {self.value:,.6g} {self.unit}'
                f'{goal}{verdict(self.met)}')


@dataclass(frozen=True)
class Growth(Fact):
    """The exponent with which time grows, fitted to what was measured: the
    seconds for each number of items. Between low and high lie those that come
    of a part of the repeats.
    """
    sizes: Sequence[float] = ()
    seconds: Sequence[float] = ()
    low: float = 0.0
    high: float = 0.0


def verdict(met: bool | None) -> str:
    return '' if met is None else 'met' if met else 'MISSED'


def compare(task, items, ours, peers, goals=None, repeats=15,
            clock=time.perf_counter, limit=None):
    """The speed of `ours` (a name and a function) against each of `peers`: a
    function, or a pair of a function and the number of items that it does. One
    of them may be the `limit`.
    """
    name, function = ours
    times = in_turn({name: (function, items), **{
        key: peer if isinstance(peer, tuple) else (peer, items)
        for key, peer in peers.items()}}, repeats, clock)
    return against(task, name, times.pop(name), times, goals, limit)


def in_turn(work, repeats, clock):
    """Seconds an item, in each repeat, for each way: a function and the number
    of items that it does.
    """
    for function, _ in work.values():  # Compilers, caches, page tables.
        function()
    times = {key: [] for key in work}
    for _ in range(repeats):
        for key, (function, count) in work.items():
            times[key].append(took(function, clock) / count)
    return times


def against(task, name, ours, peers, goals=None, limit=None):
    """A row for each peer, from the times of one run."""
    for peer, theirs in peers.items():
        low, middle, high = statistics.quantiles(
            [b / a for a, b in zip(ours, theirs)], n=4)
        yield Row(task, name, 1 / statistics.median(ours), middle, low, high,
                  peer, (goals or {}).get(peer), peer == limit)


def took(function, clock):
    begin = clock()
    function()
    return clock() - begin


def growth(task, ways, repeats=7, most=1.05):
    """How the time of two ways grows, ours and the limit, each a function for
    every number of items, which are those of the input and of the output
    together. Our exponent is to be at most `most`. At each size, the two are
    compared as well.

    Sizes take turns, so that a busy minute falls on all of them; what counts is
    processor time, and of all repeats the fastest, which was disturbed least.
    Results of all sizes lie in fresh memory, whose first touch takes as long as
    the work: otherwise, small ones would get what was touched before, and a
    line through small and large ones would be too steep for anybody.
    """
    times = {name: [] for name in ways}  # A row for each repeat.
    with fresh_memory():
        for work in ways.values():
            for function in work.values():
                function()
        for _ in range(repeats):
            for name, work in ways.items():
                times[name].append([took(function, time.process_time)
                                    for function in work.values()])
    (ours, work), (limit, _) = ways.items()
    for i, size in enumerate(work):
        each = {name: [row[i] / size for row in times[name]] for name in ways}
        yield from against(f'{task}, {size:,} items', ours, each[ours],
                           {limit: each[limit]}, limit=limit)
    for name in ways:
        low, high = spread(work, times[name])
        best = np.min(times[name], axis=0)
        yield Growth(f'{task}, time against items', name, exponent(work, best),
                     'as exponent', most=most if name == ours else None,
                     sizes=tuple(map(int, work)),
                     seconds=tuple(map(float, best)), low=low, high=high)


def spread(sizes, times):
    """The lowest and the highest exponent that come of any half of the repeats,
    or more of them: how far the one that comes of all is to be trusted.
    """
    count = len(times)
    found = [exponent(sizes, np.min(part, axis=0))
             for some in range(-(-count // 2), count + 1)
             for part in itertools.combinations(times, some)]
    return min(found), max(found)


@contextmanager
def fresh_memory(least=2**19):
    """Within it, so many bytes or more are always asked of the system, and
    given back to it (by glibc; elsewhere, it does nothing).
    """
    if _glibc('mallopt', _MMAP_THRESHOLD, least) is None:
        yield
        return
    libc, held = ctypes.CDLL(None), []
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [
        ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    # Pieces that are free are used all the same, and small tasks would find
    # their memory there: all of them are taken, up to the first one that is the
    # system's, which says so in the word before it.
    system = False
    while not system:
        held.append(libc.malloc(least))
        system = ctypes.c_size_t.from_address(held[-1] - 8).value & 2
    try:
        yield
    finally:
        for piece in held:
            libc.free(piece)
        _glibc('mallopt', _MMAP_THRESHOLD, 2**25)  # As after a while of work.


def _glibc(name, *arguments):
    function = getattr(ctypes.CDLL(None), name, None)
    return None if function is None else function(*arguments)


def second_thread(task, function, repeats):
    """What a second thread is good for: by the clock on the wall, so that it
    depends on who else is at work. One thread is left behind.
    """
    def run(count):
        torch.set_num_threads(count)
        function()

    times = in_turn({count: (lambda count=count: run(count), 1)
                     for count in (2, 1)}, repeats, time.perf_counter)
    torch.set_num_threads(1)
    return Fact(f'{task}, in seconds', 'speed of two threads',
                statistics.median(map(truediv, times[1], times[2])),
                'of that of one')


def exponent(sizes, seconds):
    """The slope of a line through the points, both axes in logarithms."""
    x, y = np.log(list(sizes)), np.log(list(seconds))
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())


def memory(task, function, output=None, most=None):
    """The most MiB that a function had resident, in a process of its own, as a
    fact: in all; or beyond the input, which is there before, and the bytes of
    the output, where these are given.
    """
    peak, name = peak_memory(function), 'memory in all'
    if output is not None:
        peak -= peak_memory(lambda: None) + output
        name = 'memory beyond input and output'
    return Fact(task, name, max(peak, 0) / 2**20, 'MiB', most=most)


def peak_memory(function):
    """The most bytes a function had resident, in a process of its own."""
    def run(end):
        torch.set_num_threads(1)  # A fork has no part in a pool of threads.
        function()
        end.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)

    # What is free but still ours, a fork could use, and nobody would see it.
    _glibc('malloc_trim', 0)
    context = multiprocessing.get_context('fork')
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(theirs, ))
    process.start()
    theirs.close()  # So that its end is the end of it.
    try:
        return ours.recv()
    except EOFError:
        raise RuntimeError('the process whose memory was to be measured '
                           'ended early') from None
    finally:
        process.join()
