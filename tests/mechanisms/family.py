"""What the tests of all mechanisms for bounded columns share."""
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from scipy import stats

from torch_geometric_dp.mechanisms import (
    Duchi,
    DuchiMulti,
    Gaussian,
    Hybrid,
    Laplace,
    MultiBit,
    Piecewise,
    PMSub,
    SquareWave,
    ThreeOutputs,
)
from torch_geometric_dp.noise import NoiseSource

COLUMNS = (Duchi, ThreeOutputs, Piecewise, PMSub, SquareWave, Hybrid, Laplace)
ROWS = (DuchiMulti, MultiBit, Gaussian)
FAMILY = COLUMNS + ROWS
NOISE = (Laplace, Gaussian)  # Have infinitely many outputs.


def make(cls, epsilon, bounds=(-1.0, 1.0), steps=2**16):
    """A mechanism for three columns; columns get `epsilon` each, rows in
    total.
    """
    options = {'steps': steps} if cls in NOISE else {}
    if cls in ROWS:
        return cls(epsilon, 3, bounds=bounds, **options)
    return cls([epsilon] * 3, bounds, **options)


def largest_loss(laws):
    """The largest logarithm of a ratio between the probabilities of one output
    under two of the laws, all of which are over the same outputs.
    """
    laws = iter(laws)
    outputs, low = next(laws)
    high = low
    for others, law in laws:
        assert np.array_equal(outputs, others)
        low, high = np.minimum(low, law), np.maximum(high, law)
    assert (low > 0).all()
    return float(np.log(high / low).max())


def grid(mechanism, count=21, column=0):
    """Values from one bound to the other."""
    return np.linspace(mechanism.low[column], mechanism.high[column], count)


def column_loss(mechanism, column=0):
    """The largest loss over a grid of values of one column."""
    return largest_loss(mechanism.distribution(value, column)
                        for value in grid(mechanism, column=column))


def release(mechanism, row, count=10**5, seed=0):
    """Independent releases of one row."""
    x = torch.tensor([row], dtype=torch.double).expand(count, -1)
    return mechanism(x, NoiseSource.from_seed(seed)).numpy()


def fit(draws, outputs, law, bins=50):
    """The p-value of draws under a law; many outputs are put together in bins
    of about equal probability.
    """
    assert (law > 0).all() and (np.diff(outputs) > 0).all()
    assert law.sum() == pytest.approx(1, abs=2e-15 * math.sqrt(len(law)))
    index = np.searchsorted(outputs, draws)
    inside = index < len(outputs)
    index = np.minimum(index, len(outputs) - 1)
    # Whatever is drawn is a possible output, to the last bit.
    assert (outputs[index] == draws)[inside].all()
    assert (~inside).mean() < 1e-4
    edges = np.arange(len(law))
    if len(law) > bins:
        edges = np.minimum((np.cumsum(law) * bins).astype(int), bins - 1)
        edges = np.unique(edges, return_inverse=True)[1]
    expected = np.bincount(edges, law) / law.sum() * len(draws)
    observed = np.bincount(edges[index], minlength=len(expected))
    assert (expected > 5).all()  # Or else chi-square is a poor fit itself.
    return stats.chisquare(observed, expected).pvalue


def fit_rows(draws, outputs, law):
    """The p-value of drawn rows under a law over whole rows."""
    places = {tuple(row): i for i, row in enumerate(outputs.tolist())}
    index = [places[tuple(row)] for row in draws.tolist()]
    counts = np.bincount(index, minlength=len(law))
    return stats.chisquare(counts, law * len(draws)).pvalue


def at_most_odds(larger, smaller, epsilon):
    """Whether two integers have a ratio of at most exp(epsilon), to 80
    digits.
    """
    with localcontext(prec=80):
        return Decimal(int(larger)) <= Decimal(epsilon).exp() * int(smaller)
