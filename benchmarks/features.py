"""FeatureRR against one random number a cell, against a draw from the k
probabilities themselves, and against packages that randomise one value in k;
how its time grows, and its memory. In two threads against the first two, and
otherwise in one, and in processor time.
"""
import time

import numpy as np
import torch

from benchmarks import peers
from benchmarks.harness import compare, growth, memory
from benchmarks.papers.feature_rr import transition_matrix
from torch_geometric_dp.mechanisms import FeatureRR
from torch_geometric_dp.noise import NoiseSource

COLUMNS, LIMIT = 512, 'torch.rand'


def run(quick=False):
    torch.set_num_threads(2)
    rows = 10_000 if quick else 100_000
    source, x = NoiseSource.from_os(), torch.rand(rows, COLUMNS)
    limit = {LIMIT: lambda: torch.rand(rows, COLUMNS)}
    options = {'repeats': 3 if quick else 7, 'limit': LIMIT}
    for k in (4, 16, 256, 4096):
        mechanism = FeatureRR([2.0] * COLUMNS, (0.0, 1.0), k)
        yield from compare(f'features, {k} bins', x.numel(),
                           ('FeatureRR', lambda m=mechanism: m(x, source)),
                           {**limit, 'torch.multinomial': multinomial(k)},
                           goals={LIMIT: 0.25}, **options)
    theta = np.random.RandomState(0).dirichlet(np.ones(COLUMNS)) * 1024
    mechanism = FeatureRR(theta, (0.0, 1.0), 16)
    yield from compare('features, 16 bins, an epsilon for each column',
                       x.numel(), ('FeatureRR', lambda: mechanism(x, source)),
                       limit, **options)
    torch.set_num_threads(1)
    options |= {'clock': time.process_time}
    plain = FeatureRR([1.0] * COLUMNS, (0.0, 1.0), 16)
    yield from compare('one value in 16', x.numel(),
                       ('FeatureRR', lambda: plain(x, source)),
                       peers.categories(16), **options)
    parts = [x[:int(rows * share)] for share in (0.01, 0.1, 1.0)]
    yield from growth('features, 16 bins', {
        'FeatureRR': {2 * part.numel(): lambda part=part: plain(part, source)
                      for part in parts},
        LIMIT: {2 * part.numel(): lambda part=part: torch.rand(part.shape)
                for part in parts},
    }, repeats=3 if quick else 7)
    yield memory(f'{rows:,} x {COLUMNS} features', lambda: plain(x, source),
                 x.nbytes, most=32)


def multinomial(k):
    """The plain way: a row of k probabilities for every cell."""
    n = max(1, 2**20 // k)
    matrix = torch.from_numpy(transition_matrix(2.0, k))
    bins = torch.randint(0, k, (n, ))
    return lambda: torch.multinomial(matrix[bins], 1), n
