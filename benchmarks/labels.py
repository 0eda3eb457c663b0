"""LabelRR against one random integer a label, and its memory."""
import numpy as np
import torch
from torch_geometric.data import Data

from benchmarks.harness import compare, peak_memory
from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.mechanisms import RandomizedResponse
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms import LabelRR


def run():
    torch.set_num_threads(1)
    source, generator = NoiseSource.from_os(), np.random.default_rng()
    n, rows = 10**7, []

    def integers():
        generator.integers(0, 2**64, n, dtype=np.uint64)

    data = Data(y=torch.randint(0, 40, (n, )))
    for classes, epsilon in ((2, 1.0), (7, 1.0), (40, 5.0)):
        y = data.y % classes
        mechanism = RandomizedResponse(epsilon, classes)
        rows += compare(f'labels, {classes} classes', n,
                        ('randomised response', lambda m=mechanism, y=y: m(
                            y, source)),
                        {'one integer a label': integers},
                        goals={'one integer a label': 0.5}, repeats=7)
    transform = LabelRR(1.0, 40)
    rows += compare('labels, 40 classes', n,
                    ('LabelRR on a graph', lambda: transform(data)),
                    {'one integer a label': integers}, repeats=7)
    data.privacy_budget = PrivacyBudget(epsilon=1.0)
    rows += compare('labels, 40 classes', n,
                    ('LabelRR, permanent', lambda: transform(data)),
                    {'one integer a label': integers}, repeats=7)
    return rows


def memory():
    """Bytes beyond input and output."""
    n = 10**8
    y = torch.zeros(n, dtype=torch.long)  # In place before the fork.
    y[::3] = 1
    before = peak_memory(lambda: y.sum())
    peak = peak_memory(lambda: LabelRR(1.0, 2)(Data(y=y)))
    return '10^8 labels', peak - before - y.nbytes, '1024'
