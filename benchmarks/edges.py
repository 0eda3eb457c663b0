"""Releases of edges against an N x N matrix, and against the limit: one random
pair of nodes written for each pair that comes out. In one thread, and in
processor time.
"""
import math
import statistics
import time

import numpy as np
import torch
from torch_geometric.data import Data

from benchmarks.graphs import planetoid
from benchmarks.harness import Fact, compare, peak_memory
from torch_geometric_dp import transforms
from torch_geometric_dp.mechanisms import (
    DegreePreservingRR,
    EdgeRand,
    LapGraph,
)
from torch_geometric_dp.mechanisms.pairs import num_pairs
from torch_geometric_dp.noise import NoiseSource

LIMIT = 'random pairs by numpy'
OUTPUTS = (10**5, 10**6, 10**7)
NODES = (10**5, 10**6)


def run():
    torch.set_num_threads(1)
    large = graph(100_000, 1_000_000, 0.3)
    yield from end_to_end('EdgeRR, 100,000 nodes and 1,000,000 edges, 30% '
                          'private', large, 3, 2 * 2**30)
    cora = planetoid('Cora')
    cora = Data(edge_index=cora.edge_index, num_nodes=cora.num_nodes)
    yield from end_to_end('EdgeRR, Cora, all private', cora, 15)
    yield from end_to_end('EdgeRR, Cora, 30% private', hide(cora, 0.3), 15)
    for epsilon in (1.0, 6.0):
        yield from against_matrix(cora, epsilon)
    yield from growth('EdgeRand', lambda n, out: (
        # Flips alone make the output, but for 1,000 edges.
        EdgeRand(math.log(num_pairs(n) / out - 1)), graph(n, 1000)))
    yield from growth('LapGraph', lambda n, out: (
        LapGraph(8.0), graph(n, out)))
    yield from growth('DegreePreservingRR', lambda n, out: (
        DegreePreservingRR(8.0), graph(n, out)))
    yield from at_scale(10**6, 10**7)


def graph(n, edges, share=1.0):
    """A random graph without directions."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, n, (2, edges), generator=generator)
    ends = ends[:, ends[0] != ends[1]]
    data = Data(edge_index=torch.cat([ends, ends.flip(0)], dim=1), num_nodes=n)
    return data if share == 1.0 else hide(data, share)


def hide(data, share):
    """Makes a random share of the pairs private."""
    low, high = data.edge_index.sort(dim=0).values
    lot = torch.rand(2**20, generator=torch.Generator().manual_seed(1))
    private = lot[(low * 7919 + high) % len(lot)] < share
    return Data(edge_index=data.edge_index, edge_private=private,
                num_nodes=data.num_nodes)


def end_to_end(task, data, repeats, most=None):
    transform = transforms.EdgeRR(1.0)
    out = transform(data)  # Compiles, too.
    yield Fact(task, 'resident, in all',
               peak_memory(lambda: transform(data)) / 2**20, 'MiB',
               most=None if most is None else most / 2**20)
    released = int(out.edge_private.sum()) // 2
    yield Fact(task, 'pairs that come out', released, '')
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        transform(data)
        times.append(time.process_time() - begin)
    yield Fact(task, 'takes', statistics.median(times), 's')


def against_matrix(data, epsilon):
    n, source = data.num_nodes, NoiseSource.from_os()
    mechanism = EdgeRand(epsilon)
    out = mechanism(data.edge_index, n, source).size(1)
    return compare(
        f'EdgeRand, Cora at epsilon {epsilon:g}, {out:,} pairs out', out,
        ('EdgeRand', lambda: mechanism(data.edge_index, n, source)),
        {'an N x N matrix': lambda: matrix(data.edge_index, n, mechanism.flip),
         LIMIT: random_pairs(n, out)}, goals={'an N x N matrix': 1.0},
        clock=time.process_time)


def matrix(edge_index, n, flip):
    """The plain way, by one coin for each cell above the diagonal."""
    edges = torch.zeros(n, n, dtype=torch.bool)
    edges[edge_index[0], edge_index[1]] = True
    flips = torch.rand(n, n) < flip
    return (edges ^ flips).triu(1).nonzero().t()


def random_pairs(n, count):
    generator = np.random.default_rng()
    return lambda: generator.integers(0, n, (2, count))


def growth(name, make):
    """Time against input plus output, for several numbers of nodes."""
    source, times, counts = NoiseSource.from_os(), [], []
    for n in NODES:
        for wanted in OUTPUTS:
            mechanism, data = make(n, wanted)
            out = mechanism(data.edge_index, n, source).size(1)
            [row] = compare(f'{name}, {n:,} nodes, {out:,} pairs out', out,
                            (name, lambda m=mechanism, data=data: m(
                                data.edge_index, data.num_nodes, source)),
                            {LIMIT: random_pairs(n, out)}, repeats=5,
                            clock=time.process_time)
            yield row
            times.append(out / row.rate)
            counts.append(out + data.num_edges // 2)
    slope = np.polyfit(np.log(counts), np.log(times), 1)[0]
    yield Fact(f'{name}, time against input plus output', 'exponent', slope, '',
               most=1.05)


def at_scale(n, edges):
    """Whole transforms, with checks, ledger and all; every pair of nodes is two
    columns of `edge_index`.
    """
    data = graph(n, edges)
    every = {
        # About as many flips as edges.
        'EdgeRand': transforms.EdgeRand(math.log(num_pairs(n) / edges),
                                        max_edges=10**8),
        'LapGraph': transforms.LapGraph(8.0, max_edges=10**8),
        'DegreePreservingRR': transforms.DegreePreservingRR(
            8.0, max_edges=10**8),
        'BoundDegree': transforms.BoundDegree(15),
    }
    before = peak_memory(lambda: None)
    for name, transform in every.items():
        task = f'{name}, {n:,} nodes and {edges:,} edges'
        transform(graph(1000, 3000))  # Compiles.
        begin = time.process_time()
        out = transform(data)
        seconds = time.process_time() - begin
        columns = data.num_edges + out.num_edges
        size = columns * 2 * data.edge_index.element_size()
        del out
        more = peak_memory(lambda t=transform: t(data)) - before
        yield Fact(task, 'takes', seconds, 's')
        yield Fact(task, 'columns in and out', columns / seconds, '/s')
        yield Fact(task, 'memory, beyond the input', more / size,
                   'times input plus output')
