"""The source's 64-bit integers against insecure generators."""
import numpy as np
import torch

from benchmarks.harness import compare
from torch_geometric_dp.noise import (
    NoiseSource,
    discrete_gaussian,
    discrete_laplace,
    uniforms,
)


def run():
    source, generator = NoiseSource.from_os(), np.random.default_rng()
    torch.set_num_threads(1)  # Like against like: one core each.
    n = 2**22
    rows = compare(
        '64-bit words', n, ('NoiseSource', lambda: source._words(n)), {
            'numpy integers': lambda: generator.integers(
                0, 2**64, n, dtype=np.uint64),
            'torch.rand': lambda: torch.rand(n),
        }, goals={'numpy integers': 1.5, 'torch.rand': 1.5})
    rows += compare(
        'uniforms', n, ('uniforms', lambda: uniforms(source, n)), {
            'numpy random': lambda: generator.random(n),
            'torch.rand double': lambda: torch.rand(n, dtype=torch.double),
        })
    n = 2**18
    rows += compare(
        'Laplace noise', n,
        ('discrete_laplace', lambda: discrete_laplace(source, 100.0, n)),
        {'numpy laplace': lambda: generator.laplace(size=n)})
    rows += compare(
        'Gaussian noise', n,
        ('discrete_gaussian', lambda: discrete_gaussian(source, 100.0, n)),
        {'numpy normal': lambda: generator.normal(size=n)})
    return rows
