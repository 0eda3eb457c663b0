"""GRRFS and the reconstruction of features against plain loops over the columns
(RGNN, Algorithms 1 and 2), and against the sparse products that a
reconstruction needs at the least, on a graph of Cora's size; how their time
grows, and their memory. In one thread, and in processor time, but for what is
said to be in seconds, which has two threads.
"""
import time

import torch
from torch_geometric.data import Data

from benchmarks import peers
from benchmarks.harness import compare, growth, memory
from benchmarks.limits import DRAWS, draws
from benchmarks.papers.grrfs import release
from benchmarks.papers.reconstruct_features import estimates
from torch_geometric_dp.graph.propagation import (
    mean_adjacency,
    propagate,
)
from torch_geometric_dp.mechanisms import GRRFS
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms import GRRFS as Release
from torch_geometric_dp.transforms import ReconstructFeatures

SAMPLED, HOPS = 10, 16
LOOP, PRODUCTS = 'a loop over the columns', 'one sparse product a hop'
RAND = 'torch.rand'


def run(quick=False):
    torch.set_num_threads(1)
    nodes, columns = (1000, 200) if quick else (2708, 1433)
    options = {'repeats': 3 if quick else 5, 'clock': time.process_time}
    source = NoiseSource.from_os()
    for size in (2, 3):
        x = torch.randint(0, size, (nodes, columns)).float()
        mechanism = GRRFS(10.0, SAMPLED, size, columns)
        yield from compare(
            f'GRRFS, {size} values', x.numel(),
            ('GRRFS', lambda m=mechanism, x=x: m(x, source)),
            {LOOP: lambda x=x, size=size: release(x.numpy(), size, SAMPLED,
                                                  1.0),
             RAND: lambda x=x: torch.rand(x.shape),
             DRAWS: draws(source, x)}, limit=DRAWS,
            goals={LOOP: 15}, **options)
    x = torch.randint(0, 2, (nodes, 100))
    single = GRRFS(1.0, 1, 2, 100)
    yield from compare('GRRFS, one column of 100 sampled', x.numel(),
                       ('GRRFS', lambda: single(x, source)),
                       peers.sampled_columns(x[:50].numpy(), 1.0), **options)
    torch.set_num_threads(2)  # As users have them; their loops have them, too.
    options['clock'] = time.perf_counter
    graph = released(nodes, 2 * nodes, columns)
    adjacency = mean_adjacency(graph.edge_index, nodes)
    for output in ('soft', 'hard', 'expectation'):
        transform = ReconstructFeatures(HOPS, output)
        yield from compare(
            f'reconstruction, {output}, in seconds', graph.x.numel(),
            (output, lambda t=transform: t(graph)),
            {LOOP: loop(graph), PRODUCTS: lambda: propagate(
                adjacency, graph.x, HOPS)}, limit=PRODUCTS,
            goals={LOOP: 50, PRODUCTS: 0.5}, **options)
    torch.set_num_threads(1)
    yield from growths(quick, source)
    graph = (released(10**5, 5 * 10**5, 32) if quick else
             released(10**6, 5 * 10**6, 128))
    yield memory(f'reconstruction, {graph.num_nodes:,} nodes x '
                 f'{graph.num_features} features with {graph.num_edges:,} '
                 f'edges', lambda: ReconstructFeatures(2)(graph), most=8192)


def released(nodes, edges, columns, reach=None):
    """A released random graph with binary features, whose edges reach as
    far.
    """
    edge_index = torch.randint(0, nodes, (2, edges))
    if reach is not None:
        edge_index[1] = (edge_index[0] + edge_index[1] % reach) % nodes
    data = Data(x=torch.randint(0, 2, (nodes, columns)).float(),
                edge_index=torch.cat([edge_index, edge_index.flip(0)], dim=1))
    return Release(10.0, SAMPLED, 2)(data)


def loop(graph, columns=20):
    """The plain way to reconstruct, on some of the columns."""
    sizes = [2] * graph.num_features

    def reconstruct():
        return torch.stack([estimate.argmax(dim=1) for estimate in estimates(
            graph.x, graph.edge_index, sizes, SAMPLED, 1.0, HOPS, columns)])

    return reconstruct, graph.num_nodes * columns


def growths(quick, source):
    """Of a release, and of a reconstruction over two hops."""
    repeats, most = (3, 10**5) if quick else (7, 10**6)
    x = torch.randint(0, 2, (2 * most, 64)).float()
    parts = [x[:int(most * share)] for share in (0.02, 0.2, 2.0)]
    mechanism = GRRFS(10.0, SAMPLED, 2, 64)
    yield from growth('GRRFS', {
        'GRRFS': {2 * part.numel(): lambda part=part: mechanism(part, source)
                  for part in parts},
        DRAWS: {2 * part.numel(): draws(source, part) for part in parts},
    }, repeats)
    yield memory(f'GRRFS, {len(x):,} x 64 features',
                 lambda: mechanism(x, source), x.nbytes)
    transform, ours, limit = ReconstructFeatures(2, 'soft'), {}, {}
    for share in (0.01, 0.1, 1.0):
        # Neighbours have numbers that are near: otherwise, what grows is the
        # share of rows that are not in a cache.
        nodes = int(most * share)
        graph = released(nodes, 5 * nodes, 64, reach=500)
        items = 2 * graph.x.numel() + graph.num_edges
        adjacency = mean_adjacency(graph.edge_index, nodes)
        ours[items] = lambda graph=graph: transform(graph)
        limit[items] = lambda a=adjacency, x=graph.x: propagate(a, x, 2)
    yield from growth('reconstruction', {'ReconstructFeatures': ours,
                                         PRODUCTS: limit}, repeats)
