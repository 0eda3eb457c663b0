"""Features in a mapped file, released to another one: what that holds in memory
beyond the maps, its time against the same release in memory, and how its time
grows with the number of rows. Times in one thread, and in processor time;
memory with as many threads as torch starts.
"""
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from benchmarks import harness
from benchmarks.harness import Fact
from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.storage import empty, on_disk, row_blocks
from torch_geometric_dp.transforms import GRRFS, FeatureRR

COLUMNS = 64
TRANSFORMS = {
    'FeatureRR': FeatureRR(64.0, (0.0, 1.0)),
    'GRRFS': GRRFS(10.0, num_sampled=10, domain_sizes=2),
}


def run(quick=False):
    torch.set_num_threads(1)
    sizes = (10**4, 10**5) if quick else (10**5, 10**6, 10**7)
    for name in TRANSFORMS:
        with tempfile.TemporaryDirectory() as folder:
            write(name, sizes[-1], folder)
            yield from memory(name, sizes[-1], folder)
            yield from against_memory(name, min(sizes[-1], 10**6), folder)
            yield from growth(name, sizes, folder)


def write(name, rows, folder):
    """Random features, in a file."""
    x = np.memmap(Path(folder, 'x'), np.float32, 'w+', shape=(rows, COLUMNS))
    for start, stop in row_blocks(rows, COLUMNS):
        part = torch.rand(stop - start, COLUMNS)
        x[start:stop] = part.round() if name == 'GRRFS' else part


def graph(rows, folder):
    """A graph with an identity, whose features are the first rows of it."""
    x = np.memmap(Path(folder, 'x'), np.float32, 'c', shape=(rows, COLUMNS))
    data = Data(x=torch.from_numpy(x))
    data.privacy_budget = PrivacyBudget(float('inf'))
    return data


def release(name, data, folder):
    with on_disk(folder):
        return TRANSFORMS[name](data)


def memory(name, rows, folder):
    """The most that a process has resident, less what it had before."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context('spawn').Process(
        target=child, args=(name, rows, folder, there))
    process.start()
    there.close()  # So that its end is the end of it.
    here.recv()
    before = peak = resident(process.pid, 'RssAnon')
    here.send('go')
    while not here.poll(0.005):
        peak = max(peak, resident(process.pid, 'RssAnon'))
    seconds = here.recv()
    highest = resident(process.pid, 'VmHWM')
    here.send('leave')
    process.join()
    task = f'{name}, {rows:,} x {COLUMNS} float32 from file to file'
    yield Fact(task, 'resident beyond the maps', peak - before, 'MiB',
               most=1024)
    yield Fact(task, 'resident, in all, with the maps', highest, 'MiB')
    yield Fact(task, 'takes', seconds, 's')


def child(name, rows, folder, pipe):
    data = graph(rows, folder)
    release(name, graph(1000, folder), folder)  # Compiles.
    pipe.send('ready')
    pipe.recv()
    begin = time.perf_counter()
    release(name, data, folder)
    pipe.send(time.perf_counter() - begin)
    pipe.recv()


def resident(pid, kind):
    """What the system says about a process, in MiB."""
    for line in Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith(f'{kind}:'):
            return int(line.split()[1]) / 1024
    raise ValueError(f"'{kind}' is not known")


def against_memory(name, rows, folder, repeats=5):
    mapped = graph(rows, folder)
    held = Data(x=mapped.x.clone(), privacy_budget=mapped.privacy_budget)
    ratios = []
    for _ in range(repeats + 1):
        one = seconds(lambda: TRANSFORMS[name](held))
        two = seconds(lambda: release(name, mapped, folder))
        ratios.append(two / one)
    yield Fact(f'{name}, {rows:,} x {COLUMNS} float32',
               'processor time from file to file',
               statistics.median(ratios[1:]), 'times that in memory')


def growth(name, sizes, folder):
    """Against the limit, which is a copy of the file."""
    data = {rows: graph(rows, folder) for rows in sizes}
    yield from harness.growth(f'{name}, from file to file', {
        name: {rows: lambda each=each: release(name, each, folder)
               for rows, each in data.items()},
        'a copy': {rows: lambda each=each: copy(each, folder)
                   for rows, each in data.items()},
    }, repeats=3)


def copy(data, folder):
    with on_disk(folder):
        empty(tuple(data.x.shape), data.x.dtype).copy_(data.x)


def seconds(function):
    return harness.took(function, time.process_time)
