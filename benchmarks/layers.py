"""NAP against PyG's sum over neighbours and the same noise, drawn by itself;
DegreePreservingRR at two sizes, for one edge of its output.
"""
import numpy as np
import torch
from torch_geometric.nn import SimpleConv

from benchmarks.harness import compare
from torch_geometric_dp.mechanisms import DegreePreservingRR
from torch_geometric_dp.mechanisms.pairs import num_pairs, to_pairs
from torch_geometric_dp.nn import NAP
from torch_geometric_dp.noise import (
    NoiseSource,
    discrete_gaussian,
    discrete_laplace,
)

NODES, EDGES, FEATURES = 10**5, 10**6, 64


def run():
    torch.set_num_threads(1)
    edge_index = torch.randint(NODES, (2, EDGES))
    x = torch.rand(NODES, FEATURES)
    conv, source, rows = SimpleConv(aggr='sum'), NoiseSource.from_os(), []
    for name, delta, draw in (('Laplace', None, discrete_laplace),
                              ('Gaussian', 1e-5, discrete_gaussian)):
        layer = NAP(4.0, max_degree=100, delta=delta)
        scale = float(layer.mechanism.scale(FEATURES))

        def ours(layer=layer):
            layer.renew()  # Or the first release would be the only one.
            layer(x, edge_index)

        def theirs(draw=draw, scale=scale):
            conv(x, edge_index)
            draw(source, scale, (NODES, FEATURES))

        peer = 'SimpleConv, and the noise'
        rows += compare(f'private sums, {name}', NODES, ('NAP', ours),
                        {peer: theirs}, goals={peer: 1 / 1.2}, repeats=5)
        layer(x, edge_index)
        rows += compare('a second forward', NODES,
                        ('NAP', lambda layer=layer: layer(x, edge_index)),
                        {'SimpleConv': lambda: conv(x, edge_index)},
                        repeats=5)
    return rows + _degrees(source)


def _degrees(source):
    # The same number of edges for each node: time is that of the output.
    mechanism, work = DegreePreservingRR(4.0), {}
    for nodes in (10**5, 10**6):
        ends = np.random.default_rng(0).integers(0, nodes, (2, 2 * nodes))
        edges = to_pairs(torch.from_numpy(ends))
        work[nodes] = (lambda edges=edges, nodes=nodes: mechanism.release(
            edges, num_pairs(nodes), source)), len(edges)
    large, small = work[10**6], work[10**5]
    return compare('edges that preserve degrees', large[1],
                   ('10^6 nodes', large[0]), {'10^5 nodes': small}, repeats=3)
