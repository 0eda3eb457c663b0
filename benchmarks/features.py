"""FeatureRR against one random number a cell, against a draw from the k
probabilities themselves, and against packages that randomise one value in k.
"""
import importlib

import numpy as np
import torch

from benchmarks.harness import compare, peak_memory
from torch_geometric_dp.mechanisms import FeatureRR
from torch_geometric_dp.noise import NoiseSource

ROWS, COLUMNS = 100_000, 512


def run():
    torch.set_num_threads(2)
    source, x = NoiseSource.from_os(), torch.rand(ROWS, COLUMNS)
    rows = []
    for k in (4, 16, 256, 4096):
        mechanism = FeatureRR([2.0] * COLUMNS, (0.0, 1.0), k)
        rows += compare(f'features, {k} bins', x.numel(),
                        ('FeatureRR', lambda m=mechanism: m(x, source)), {
                            'torch.rand': lambda: torch.rand(ROWS, COLUMNS),
                            'torch.multinomial': multinomial(mechanism, k),
                        }, goals={'torch.rand': 0.25}, repeats=3)
    theta = np.random.RandomState(0).dirichlet(np.ones(COLUMNS)) * 1024
    mechanism = FeatureRR(theta, (0.0, 1.0), 16)
    rows += compare('features, 16 bins, an epsilon for each column', x.numel(),
                    ('FeatureRR', lambda: mechanism(x, source)),
                    {'torch.rand': lambda: torch.rand(ROWS, COLUMNS)},
                    repeats=3)
    mechanism = FeatureRR([1.0] * COLUMNS, (0.0, 1.0), 16)
    rows += compare('one value in 16', x.numel(),
                    ('FeatureRR', lambda: mechanism(x, source)), peers(16),
                    repeats=3)
    return rows


def multinomial(mechanism, k):
    """The plain way: a row of k probabilities for every cell."""
    n = max(1, 2**20 // k)
    matrix = torch.from_numpy(mechanism.transition_matrix())
    bins = torch.randint(0, k, (n, ))
    return lambda: torch.multinomial(matrix[bins], 1), n


def peers(k, n=500):
    """What other packages have for one value in k: one call a value."""
    values = np.random.RandomState(0).randint(0, k, n).tolist()
    found = {}

    def add(name, module, make):
        try:
            importlib.import_module(module)
        except ImportError:
            print(f'{name} is not installed, and left out')
            return
        call = make()
        found[name] = (lambda: [call(value) for value in values]), n

    def diffprivlib():
        from diffprivlib.mechanisms import GeometricTruncated
        return GeometricTruncated(epsilon=1.0, sensitivity=k - 1, lower=0,
                                  upper=k - 1).randomise

    def multi_freq_ldpy():
        from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
        return lambda value: GRR_Client(value, k, 1.0)

    def pure_ldp():
        from pure_ldp.frequency_oracles.direct_encoding import DEClient
        return DEClient(epsilon=1.0, d=k).privatise

    def opendp():
        import opendp.prelude as dp
        dp.enable_features('contrib')
        keep = np.e / (np.e + k - 1)
        return dp.m.make_randomized_response(list(range(k)), prob=keep)

    add('diffprivlib (truncated geometric)', 'diffprivlib', diffprivlib)
    add('multi-freq-ldpy (randomised response)', 'multi_freq_ldpy',
        multi_freq_ldpy)
    add('pure-ldp (randomised response)',
        'pure_ldp.frequency_oracles.direct_encoding', pure_ldp)
    add('opendp (randomised response)', 'opendp', opendp)
    return found


def memory():
    """Bytes beyond input and output."""
    x = torch.rand(ROWS, COLUMNS)
    mechanism = FeatureRR([2.0] * COLUMNS, (0.0, 1.0), 16)
    mechanism(x[:10], NoiseSource.from_os())
    before = peak_memory(lambda: x.sum())
    peak = peak_memory(lambda: mechanism(x, NoiseSource.from_os()))
    return (f'{ROWS:,} x {COLUMNS} features', peak - before - x.nbytes,
            'one block')
