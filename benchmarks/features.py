"""FeatureRR against one random number a cell, against a draw from the k
probabilities themselves, and against packages that randomise one value in k;
how its time grows, and its memory. In one thread, and in processor time; what
the second thread is good for, in seconds.
"""
import time

import numpy as np
import torch

from benchmarks import peers
from benchmarks.harness import (
    against,
    compare,
    growth,
    in_turn,
    memory,
    second_thread,
)
from benchmarks.limits import DRAWS, draws
from benchmarks.papers.feature_rr import transition_matrix
from torch_geometric_dp.mechanisms import FeatureRR
from torch_geometric_dp.noise import NoiseSource

COLUMNS, BINS, RAND = 512, (4, 16, 256, 4096), 'torch.rand'


def run(quick=False):
    torch.set_num_threads(1)
    rows, repeats = (10_000, 3) if quick else (100_000, 7)
    source, x = NoiseSource.from_os(), torch.rand(rows, COLUMNS)
    yield from bins(x, source, repeats)
    options = {'repeats': repeats, 'clock': time.process_time, 'limit': DRAWS}
    theta = np.random.RandomState(0).dirichlet(np.ones(COLUMNS)) * 1024
    mechanism = FeatureRR(theta, (0.0, 1.0), 16)
    yield from compare('features, 16 bins, an epsilon for each column',
                       x.numel(), ('FeatureRR', lambda: mechanism(x, source)),
                       {RAND: lambda: torch.rand(x.shape),
                        DRAWS: draws(source, x)}, **options)
    plain = FeatureRR([1.0] * COLUMNS, (0.0, 1.0), 16)
    yield from compare('one value in 16', x.numel(),
                       ('FeatureRR', lambda: plain(x, source)),
                       peers.categories(16), **options)
    parts = [x[:int(rows * share)] for share in (0.01, 0.1, 1.0)]
    yield from growth('features, 16 bins', {
        'FeatureRR': {2 * part.numel(): lambda part=part: plain(part, source)
                      for part in parts},
        DRAWS: {2 * part.numel(): draws(source, part) for part in parts},
    }, repeats)
    yield memory(f'{rows:,} x {COLUMNS} features', lambda: plain(x, source),
                 x.nbytes, most=32)
    yield second_thread('features, 16 bins', lambda: plain(x, source), repeats)


def bins(x, source, repeats):
    """All numbers of bins in one run, since they are compared with each other,
    too.
    """
    work = {RAND: (lambda: torch.rand(x.shape), x.numel()),
            DRAWS: (draws(source, x), x.numel())}
    for k in BINS:
        mechanism = FeatureRR([2.0] * COLUMNS, (0.0, 1.0), k)
        work['FeatureRR', k] = lambda m=mechanism: m(x, source), x.numel()
        work['torch.multinomial', k] = multinomial(k)
    times = in_turn(work, repeats, time.process_time)
    for k in BINS:
        yield from against(f'features, {k} bins', 'FeatureRR',
                           times['FeatureRR', k], {
                               RAND: times[RAND], DRAWS: times[DRAWS],
                               'torch.multinomial':
                               times['torch.multinomial', k],
                           }, {RAND: 0.25}, DRAWS)


def multinomial(k):
    """The plain way: a row of k probabilities for every cell."""
    n = max(1, 2**20 // k)
    matrix = torch.from_numpy(transition_matrix(2.0, k))
    bins = torch.randint(0, k, (n, ))
    return lambda: torch.multinomial(matrix[bins], 1), n
