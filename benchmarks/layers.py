"""NAP against PyG's sum over neighbours and the same noise, drawn by itself;
all layers against the sparse products that they need at the least (NAP: and the
noise), and against loops over nodes, as the paper prints them. How NAP's time
grows, and its memory. In one thread, and in processor time.
"""
import time
import warnings

import torch
from torch_geometric.nn import SimpleConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_torch_csr_tensor

from benchmarks.harness import compare, growth, memory, second_thread
from benchmarks.papers import aca, nap, tnie
from torch_geometric_dp.nn import ACA, NAP, TNIE
from torch_geometric_dp.noise import (
    NoiseSource,
    discrete_gaussian,
    discrete_laplace,
)

FEATURES = 64
CONV, PRODUCTS = 'SimpleConv, and the noise', 'one sparse product a hop'
LIMIT = 'one sparse product, and the noise'
LOOP = 'a loop over the nodes'
NOISE = {'Laplace': (None, discrete_laplace),
         'Gaussian': (1e-5, discrete_gaussian)}


def run(quick=False):
    torch.set_num_threads(1)
    nodes = 10**4 if quick else 10**5
    options = {'repeats': 3 if quick else 5, 'clock': time.process_time}
    graph, small = random_graph(nodes), random_graph(300)
    for name, (delta, _) in NOISE.items():
        yield from compare(
            f'private sums, {name}', nodes, ('NAP', ours(graph, delta)),
            {CONV: and_noise(convolution(graph), graph, name),
             LIMIT: and_noise(product(graph), graph, name),
             LOOP: (lambda: nap.sums(*small), len(small[0]))},
            goals={CONV: 1 / 1.2}, limit=LIMIT, **options)
        yield second_thread(f'private sums, {name}', ours(graph, delta),
                            options['repeats'])
    layer, conv = NAP(4.0, max_degree=100), SimpleConv(aggr='sum')
    layer(*graph)
    yield from compare('private sums, a second forward', nodes,
                       ('NAP', lambda: layer(*graph)),
                       {'SimpleConv': lambda: conv(*graph)}, **options)
    yield from products(graph, small, options)
    # Neighbours have numbers that are near: otherwise, what grows is the share
    # of rows that are not in a cache.
    graphs = [random_graph(int(nodes * times), 16, 500)
              for times in (0.1, 1, 10)]
    yield from growth('private sums', {
        'NAP': {items(each): ours(each, None) for each in graphs},
        LIMIT: {items(each): and_noise(product(each), each, 'Laplace')
                for each in graphs},
    }, repeats=3 if quick else 7)
    x = graph[0]
    yield memory(f'private sums, {nodes:,} nodes x {FEATURES} features with '
                 f'{10 * nodes:,} edges',
                 ours(graph, None), x.nbytes)


def random_graph(nodes, features=FEATURES, reach=None):
    """Rows, and ten edges for each of them, which reach as far."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(nodes, (2, 10 * nodes), generator=generator)
    if reach is not None:
        edges[1] = (edges[0] + edges[1] % reach) % nodes
    return torch.rand(nodes, features, generator=generator), edges


def items(graph):
    """Rows in and out, and edges."""
    x, edge_index = graph
    return 2 * x.numel() + edge_index.size(1)


def ours(graph, delta):
    layer = NAP(4.0, max_degree=100, delta=delta)

    def run():
        layer.renew()  # Or the first release would be the only one.
        layer(*graph)

    return run


def convolution(graph):
    conv = SimpleConv(aggr='sum')
    return lambda: conv(*graph)


def product(graph):
    x, edge_index = graph
    adjacency = sparse(edge_index, None, len(x))
    return lambda: adjacency @ x


def and_noise(sums, graph, noise):
    """Somebody's sums, and then as much noise as ours have."""
    source = NoiseSource.from_os()
    delta, draw = NOISE[noise]
    layer = NAP(4.0, max_degree=100, delta=delta)
    scale = float(layer.mechanism.scale(graph[0].size(1)))

    def run():
        sums()
        draw(source, scale, graph[0].shape)

    return run


@torch.no_grad()
def products(graph, small, options):
    x, edge_index = graph
    layer = ACA(hops=8, tau=0.5)
    adjacency = normalised(*graph)
    yield from compare(
        'ACA, 8 hops', len(x), ('ACA', lambda: layer(*graph)),
        {PRODUCTS: lambda: hops(adjacency, x, 8),
         LOOP: (lambda: aca.embeddings(*small, 8, 0.5), len(small[0]))},
        limit=PRODUCTS, **options)
    rank = TNIE(FEATURES, 32, hops=2)
    yield from compare(
        'TNIE, 2 hops', len(x), ('TNIE', lambda: rank(*graph)),
        {'its perceptron, and ' + PRODUCTS: lambda: hops(
            adjacency, rank.mlp(x), 2),
         LOOP: (lambda: tnie.influence(rank, *small), len(small[0]))},
        limit='its perceptron, and ' + PRODUCTS, **options)


def normalised(x, edge_index):
    return sparse(*gcn_norm(edge_index, num_nodes=len(x)), len(x))


def sparse(edge_index, weight, n):
    with warnings.catch_warnings():  # That CSR tensors are new.
        warnings.simplefilter('ignore')
        return to_torch_csr_tensor(edge_index.flip(0), weight, (n, n))


def hops(adjacency, x, count):
    for _ in range(count):
        x = adjacency @ x
    return x
