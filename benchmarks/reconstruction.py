"""GRRFS and the reconstruction of features against plain loops over the columns
(RGNN, Algorithm 2), and against the sparse products that a reconstruction needs
at the least, on a graph of Cora's size.
"""
import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import add_self_loops, scatter

from benchmarks.harness import compare, peak_memory
from torch_geometric_dp.mechanisms import GRRFS
from torch_geometric_dp.mechanisms.propagation import mean_adjacency
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms import GRRFS as Release
from torch_geometric_dp.transforms import ReconstructFeatures

NODES, EDGES, COLUMNS, SAMPLED, HOPS = 2708, 5278, 1433, 10, 16


def run():
    torch.set_num_threads(2)
    source, rows = NoiseSource.from_os(), []
    for size in (2, 3):
        x = torch.randint(0, size, (NODES, COLUMNS)).float()
        mechanism = GRRFS(10.0, SAMPLED, size, COLUMNS)
        rows += compare(f'GRRFS, {size} values', x.numel(),
                        ('GRRFS', lambda m=mechanism, x=x: m(x, source)), {
                            'a loop over the columns':
                            lambda x=x, size=size: loop_release(x, size, 1.0),
                        }, goals={'a loop over the columns': 15}, repeats=3)
    graph = released(NODES, EDGES, COLUMNS)
    adjacency = mean_adjacency(graph.edge_index, NODES)
    for output in ('soft', 'hard', 'expectation'):
        transform = ReconstructFeatures(HOPS, output)
        rows += compare(f'reconstruction, {output}', graph.x.numel(),
                        (output, lambda t=transform: t(graph)), {
                            'a loop over the columns': loop(graph),
                            'one sparse product a hop':
                            lambda: products(adjacency, graph.x),
                        }, goals={'a loop over the columns': 50,
                                  'one sparse product a hop': 0.5}, repeats=3)
    return rows


def released(nodes, edges, columns):
    """A released random graph with binary features."""
    edge_index = torch.randint(0, nodes, (2, edges))
    data = Data(x=torch.randint(0, 2, (nodes, columns)).float(),
                edge_index=torch.cat([edge_index, edge_index.flip(0)], dim=1))
    return Release(10.0, SAMPLED, 2)(data)


def loop_release(x, size, epsilon_x):
    """The plain way to release: a choice for each row, then column by column,
    with noise that is neither secret nor exact.
    """
    x = x.numpy()
    n, d = x.shape
    keep = np.exp(epsilon_x) / (np.exp(epsilon_x) + size - 1)
    chosen = np.zeros((n, d), bool)
    for row in range(n):
        chosen[row, np.random.choice(d, SAMPLED, replace=False)] = True
    out = np.empty_like(x)
    for i in range(d):
        other = (x[:, i] + np.random.randint(1, size, n)) % size
        response = np.where(np.random.rand(n) < keep, x[:, i], other)
        out[:, i] = np.where(chosen[:, i], response,
                             np.random.randint(0, size, n))
    return out


def loop(graph, columns=20):
    """The plain way to reconstruct, Algorithm 2, on some of the columns."""
    (source, target), _ = add_self_loops(graph.edge_index)
    n, d, m, size = graph.num_nodes, graph.num_features, SAMPLED, 2
    keep = np.exp(1.0) / (np.exp(1.0) + size - 1)
    other = (1 - keep) / (size - 1)

    def reconstruct():
        out = []
        for i in range(columns):
            share = torch.nn.functional.one_hot(graph.x[:, i].long(), size)
            share = share.float()
            for _ in range(HOPS):
                share = scatter(share[source], target, dim_size=n,
                                reduce='mean')
            estimate = (d * share / (m * (keep - other)) +
                        (m - d - m * size * other) / (m * size *
                                                      (keep - other)))
            out.append(estimate.argmax(dim=1))
        return torch.stack(out, dim=1)

    return reconstruct, n * columns


def products(adjacency, x):
    """As many sparse products as there are hops, and nothing else."""
    for _ in range(HOPS):
        x = adjacency @ x
    return x


def memory():
    """The most that a reconstruction of a large graph has resident, its input
    and output among it, and all that Python needs.
    """
    graph = released(10**6, 5 * 10**6, 128)
    peak = peak_memory(lambda: ReconstructFeatures(2)(graph))
    return ('reconstruction of 1,000,000 nodes x 128 features with 10,000,000 '
            'edges, all in all', peak, '8192 MiB')
