"""LabelRR against one random integer a label, and against packages that
randomise one value in k; how its time grows, and its memory. In one thread, and
in processor time.
"""
import time

import numpy as np
import torch
from torch_geometric.data import Data

from benchmarks import peers
from benchmarks.harness import compare, growth, memory, second_thread
from benchmarks.limits import DRAWS, draws
from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.mechanisms import RandomizedResponse
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms import LabelRR

INTEGERS = 'one integer a label'


def run(quick=False):
    torch.set_num_threads(1)
    source = NoiseSource.from_os()
    n = 10**6 if quick else 10**7
    options = {'repeats': 3 if quick else 7, 'clock': time.process_time,
               'limit': DRAWS}
    data = Data(y=torch.randint(0, 40, (n, )))
    limit = {INTEGERS: integers(n), DRAWS: draws(source, data.y)}
    for classes, epsilon in ((2, 1.0), (7, 1.0), (40, 5.0)):
        y = data.y % classes
        mechanism = RandomizedResponse(epsilon, classes)
        yield from compare(
            f'labels, {classes} classes', n,
            ('randomised response', lambda m=mechanism, y=y: m(y, source)),
            {**limit, **peers.categories(classes, epsilon)},
            goals={INTEGERS: 0.5}, **options)
    transform = LabelRR(1.0, 40)
    yield from compare('labels, 40 classes', n,
                       ('LabelRR on a graph', lambda: transform(data)), limit,
                       goals={INTEGERS: 0.5}, **options)
    data.privacy_budget = PrivacyBudget(epsilon=1.0)
    yield from compare('labels, 40 classes', n,
                       ('LabelRR, permanent', lambda: transform(data)), limit,
                       goals={INTEGERS: 0.5}, **options)
    mechanism, y = RandomizedResponse(1.0, 40), data.y
    yield second_thread('labels, 40 classes', lambda: mechanism(y, source),
                        options['repeats'])
    sizes = [int(n * times) for times in (0.05, 0.5, 5.0)]
    graphs = {size: Data(y=torch.randint(0, 40, (size, ))) for size in sizes}
    yield from growth('labels', {
        'LabelRR': {2 * size: lambda graph=graph: transform(graph)
                    for size, graph in graphs.items()},
        DRAWS: {2 * size: draws(source, graph.y)
                for size, graph in graphs.items()},
    }, repeats=3 if quick else 7)
    n *= 10
    y = torch.zeros(n, dtype=torch.long)
    y[::3] = 1
    yield memory(f'{n:,} labels', lambda: LabelRR(1.0, 2)(Data(y=y)), y.nbytes,
                 most=1024)


def integers(n):
    generator = np.random.default_rng()
    return lambda: generator.integers(0, 2**64, n, dtype=np.uint64)
