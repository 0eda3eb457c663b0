"""The source's words and samplers against insecure generators, and against
packages with integer noise. In one thread, and in processor time.
"""
import time
from collections import deque

import numpy as np
import torch

from benchmarks import peers
from benchmarks.harness import compare
from benchmarks.limits import DRAWS, draws, words
from torch_geometric_dp.noise import (
    NoiseSource,
    block_rows,
    discrete_gaussian,
    discrete_laplace,
    uniforms,
)


def consume(blocks):
    deque(blocks, maxlen=0)  # One at a time, and none is kept.


def run(quick=False):
    source, generator = NoiseSource.from_os(), np.random.default_rng()
    torch.set_num_threads(1)  # Like against like: one core each.
    options = {'repeats': 7 if quick else 15, 'clock': time.process_time,
               'limit': DRAWS}
    n = 2**22

    def integers(count):
        return generator.integers(0, 2**64, count, dtype=np.uint64)

    goals = {'numpy integers': 1.5, 'torch.rand': 1.5}
    blocks = [block_rows(1)] * (n // block_rows(1))
    # Block by block, as all of the library reads them; and as one array, where
    # all of them pay for the first touch of its memory, too.
    yield from compare(
        '64-bit words, in blocks', n,
        ('NoiseSource', lambda: consume(source.blocks(n, 1))), {
            'numpy integers': lambda: consume(map(integers, blocks)),
            'torch.rand': lambda: consume(map(torch.rand, blocks)),
        }, goals, **options)
    yield from compare(
        '64-bit words, as one array', n,
        ('NoiseSource', lambda: words(source, n)), {
            'numpy integers': lambda: integers(n),
            'torch.rand': lambda: torch.rand(n),
        }, goals, **options)
    yield from compare(
        'uniforms', n, ('uniforms', lambda: uniforms(source, n)), {
            'numpy random': lambda: generator.random(n),
            'torch.rand double': lambda: torch.rand(n, dtype=torch.double),
            DRAWS: draws(source, np.empty(n)),
        }, **options)
    m, scale = 2**16 if quick else 2**18, 100.0
    yield from compare(
        'Laplace noise', m,
        ('discrete_laplace', lambda: discrete_laplace(source, scale, m)), {
            'numpy laplace': lambda: generator.laplace(size=m),
            'torch Laplace': lambda: torch.distributions.Laplace(
                0.0, scale).sample((m, )),
            DRAWS: draws(source, np.empty(m)), **peers.laplace(scale),
        }, **options)
    yield from compare(
        'Gaussian noise', m,
        ('discrete_gaussian', lambda: discrete_gaussian(source, scale, m)), {
            'numpy normal': lambda: generator.normal(size=m),
            'torch.randn': lambda: torch.randn(m),
            DRAWS: draws(source, np.empty(m)), **peers.gaussian(scale),
        }, **options)
