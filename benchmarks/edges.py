"""Releases of edges against an N x N matrix, and against the limit: one random
pair of nodes written for each pair that comes out; how their time grows, and
their memory. In one thread, and in processor time.
"""
import math
import statistics
import time

import numpy as np
import torch
from torch_geometric.data import Data

from benchmarks import harness
from benchmarks.graphs import planetoid_at_hand
from benchmarks.harness import Fact, compare, memory, peak_memory
from benchmarks.papers import lap_graph
from benchmarks.papers.edge_rand import pairs as matrix
from tests.mechanisms.test_degree_preserving_rr import (
    by_decile,
    expected_degrees,
)
from torch_geometric_dp import transforms
from torch_geometric_dp.graph.pairs import num_pairs, to_pairs
from torch_geometric_dp.mechanisms import (
    DegreePreservingRR,
    EdgeRand,
    LapGraph,
)
from torch_geometric_dp.noise import NoiseSource

LIMIT, MATRIX = 'random pairs by numpy', 'an N x N matrix'
OUTPUTS = (10**5, 10**6, 10**7)
NODES = (10**5, 10**6)


def run(quick=False):
    torch.set_num_threads(1)
    nodes, edges = (10_000, 100_000) if quick else (100_000, 1_000_000)
    large = graph(nodes, edges, 0.3)
    yield from end_to_end(f'EdgeRR, {nodes:,} nodes and {edges:,} edges, 30% '
                          f'private', large, 3, 2048)
    cora = planetoid_at_hand('Cora')
    if cora is not None:
        cora = Data(edge_index=cora.edge_index, num_nodes=cora.num_nodes)
        repeats = 3 if quick else 15
        yield from end_to_end('EdgeRR, Cora, all private', cora, repeats)
        yield from end_to_end('EdgeRR, Cora, 30% private', hide(cora, 0.3),
                              repeats)
        for epsilon in (1.0, 6.0):
            yield from against_matrix(cora, epsilon, repeats)
        yield from degrees(cora)
    yield from growth('EdgeRand', flips_alone, quick)
    yield from growth('LapGraph', lambda n, out: (
        LapGraph(8.0), graph(n, out // 2), out // 2), quick)
    # The degrees are a part of the input.
    yield from growth('DegreePreservingRR', lambda n, out: (
        DegreePreservingRR(4.0), graph(out // 5, 2 * out // 5),
        2 * out // 5), quick, nodes=(None, ))
    yield from at_scale(*(10**4, 10**5) if quick else (10**6, 10**7))


def flips_alone(n, out):
    """Flips alone make the output, but for 1,000 edges."""
    return EdgeRand(math.log(num_pairs(n) / out - 1)), graph(n, 1000), out


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
    yield memory(task, lambda: transform(data), most=most)
    released = int(out.edge_private.sum()) // 2
    yield Fact(task, 'pairs that come out', released, '')
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        transform(data)
        times.append(time.process_time() - begin)
    yield Fact(task, 'takes', statistics.median(times), 's')


def against_matrix(data, epsilon, repeats=15):
    n, source, ends = data.num_nodes, NoiseSource.from_os(), data.edge_index
    for mechanism, plain in (
        (EdgeRand(epsilon), lambda m: matrix(ends, n, m.flip)),
        (LapGraph(epsilon), lambda m: lap_graph.pairs(ends, n, m.epsilon)),
    ):
        name = type(mechanism).__name__
        out = mechanism(ends, n, source).size(1)
        yield from compare(
            f'{name}, Cora at epsilon {epsilon:g}', out,
            (name, lambda m=mechanism: m(ends, n, source)),
            {MATRIX: lambda m=mechanism, plain=plain: plain(m),
             LIMIT: random_pairs(n, out)}, goals={MATRIX: 1.0},
            repeats=repeats, clock=time.process_time, limit=LIMIT)


def random_pairs(n, count):
    generator = np.random.default_rng()
    return lambda: generator.integers(0, n, (2, count))


def growth(name, make, quick=False, nodes=NODES):
    """Time against edges in and out, for several numbers of nodes; `make`
    returns a mechanism, a graph, and how many pairs come out of it. Where
    `nodes` has none, the graph says how many there are.
    """
    source = NoiseSource.from_os()
    for n in nodes[:1] if quick else nodes:
        ours, limit = {}, {}
        for items in OUTPUTS[:2] if quick else OUTPUTS:
            mechanism, data, out = make(n, items)
            ours[items] = lambda m=mechanism, data=data: m(
                data.edge_index, data.num_nodes, source)
            limit[items] = random_pairs(data.num_nodes, out)
            output = 16 * out  # Two integers a pair.
        task = name if n is None else f'{name}, {n:,} nodes'
        yield from harness.growth(task, {name: ours, LIMIT: limit},
                                  repeats=3 if quick else 5)
        yield memory(f'{task}, {items:,} items', ours[items], output)


def degrees(data, epsilons=(0.5, 2.0, 4.0, 8.0)):
    """How far the expected degrees are from their targets, which come from
    noisy degrees: in the worst of ten parts of the nodes, by target; the
    median over the noise of ten seeds.
    """
    edges, n = to_pairs(data.edge_index), data.num_nodes
    for epsilon in epsilons:
        mechanism, errors = DegreePreservingRR(epsilon), []
        for seed in range(10):
            targets = mechanism.targets(edges, n, NoiseSource.from_seed(seed))
            parts = by_decile(expected_degrees(mechanism, edges, n, targets),
                              targets)
            errors.append(100 * float(np.abs(parts - 1).max()))
        yield Fact('DegreePreservingRR, Cora', f'error of the worst decile of '
                   f'the degrees at epsilon {epsilon:g}, median',
                   statistics.median(errors), '%', most=2)


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
