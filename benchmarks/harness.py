"""Measures several ways to do one thing, in turn, and compares them.

These machines are noisy: a time means nothing, and a ratio means something only
if both sides were measured in one run, one after the other, again and again.
"""
import json
import multiprocessing
import platform
import resource
import statistics
import time
from dataclasses import asdict, dataclass
from math import inf

import numpy
import torch


@dataclass(frozen=True)
class Row:
    """One way to do it: items a second, and its speed against each of the
    others, as the median over repeats with the quartiles.
    """
    task: str
    name: str
    rate: float
    ratio: float
    low: float
    high: float
    against: str
    goal: float | None = None

    def __str__(self) -> str:
        goal = ''
        if self.goal is not None:
            met = 'met' if self.ratio >= self.goal else 'MISSED'
            goal = f'   goal {self.goal:g}: {met}'
        return (f'{self.task}: {self.name} {self.rate:.3g}/s, '
                f'{self.ratio:.2f} [{self.low:.2f}, {self.high:.2f}] times '
                f'{self.against}{goal}')


@dataclass(frozen=True)
class Fact:
    """One number, and between what it should lie."""
    task: str
    name: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        goal = ''.join(
            f'   goal: {word} {bound:,.6g}, {"met" if met else "MISSED"}'
            for word, bound, met in (
                ('at least', self.least, self.value >= (self.least or -inf)),
                ('at most', self.most, self.value <= (self.most or inf)),
            ) if bound is not None)
        return f'{self.task}: {self.name} {self.value:,.6g} {self.unit}{goal}'


def compare(task, items, ours, peers, goals=None, repeats=15,
            clock=time.perf_counter):
    """The speed of `ours` (a name and a function) against each of `peers`: a
    function, or a pair of a function and the number of items that it does.
    """
    name, function = ours
    work = {name: (function, items)}
    work |= {key: peer if isinstance(peer, tuple) else (peer, items)
             for key, peer in peers.items()}
    for each, _ in work.values():  # Compilers, caches, page tables.
        each()
    times = {key: [] for key in work}  # Of one item.
    for _ in range(repeats):
        for key, (each, count) in work.items():
            start = clock()
            each()
            times[key].append((clock() - start) / count)
    rows = []
    for peer in peers:
        ratios = [b / a for a, b in zip(times[name], times[peer])]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append(Row(task, name, 1 / statistics.median(times[name]),
                        middle, low, high, peer, (goals or {}).get(peer)))
    return rows


def peak_memory(function):
    """The most bytes a function had resident, in a process of its own."""
    def run(queue):
        torch.set_num_threads(1)  # A fork has no part in a pool of threads.
        function()
        queue.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)

    context = multiprocessing.get_context('fork')
    queue = context.Queue()
    process = context.Process(target=run, args=(queue, ))
    process.start()
    peak = queue.get()
    process.join()
    return peak


def machine():
    """What the numbers were measured on."""
    return {'python': platform.python_version(), 'machine': platform.machine(),
            'numpy': numpy.__version__, 'torch': torch.__version__,
            'threads': torch.get_num_threads()}


def to_json(rows):
    return json.dumps({'machine': machine(),
                       'rows': [asdict(row) for row in rows]}, indent=2)
