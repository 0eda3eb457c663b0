import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.conftest import FALSE_ALARM
from torch_geometric_dp.mechanisms import (
    GRRFS,
    RandomizedResponse,
    frequency_estimate,
    frequency_variance,
    simplex_projection,
)
from torch_geometric_dp.noise import NoiseSource

# Shares of the values of each column: mixed sizes, one column that is constant
# and one that is nearly so.
POPULATION = [[0.3, 0.7], [0.5, 0.2, 0.3], [1.0, 0.0],
              [0.0, 0.0, 1.0, 0.0, 0.0], [0.99, 0.01], [0.1, 0.2, 0.3, 0.4]]
SIZES = [len(shares) for shares in POPULATION]


def estimates(mechanism, x, seed):
    """The estimate, and that of its variance, for every value of a column."""
    out = mechanism(x, NoiseSource.from_seed(seed))
    for i, size in enumerate(mechanism.domain_sizes.tolist()):
        keep, other = map(float, mechanism.marginal(i))
        counts = out[:, i].bincount(minlength=size).double()
        yield (frequency_estimate(counts, keep, other),
               frequency_variance(counts / len(x), len(x), keep, other))


@pytest.mark.parametrize('m, epsilon_x', [(2, 1.0), (6, 0.3)])
def test_unbiased_with_the_variance_of_equation_3(m, epsilon_x):
    users, repeats = 10**5, 40
    mechanism = GRRFS(m * epsilon_x, m, SIZES)
    generator = np.random.RandomState(0)
    found = [[] for _ in SIZES]
    spread = [[] for _ in SIZES]
    for seed in range(repeats):
        x = np.stack([generator.choice(len(p), users, p=p)
                      for p in POPULATION], axis=1)
        for i, (estimate, variance) in enumerate(estimates(
                mechanism, torch.from_numpy(x), seed)):
            found[i].append(estimate)
            spread[i].append(variance)
    alarm = FALSE_ALARM / sum(SIZES) / 2
    for i, population in enumerate(POPULATION):
        size, d = len(population), len(SIZES)
        e = math.exp(epsilon_x)
        p, q = e / (e + size - 1), 1 / (e + size - 1)
        truth = torch.tensor(population, dtype=torch.double)
        share = m / d * (truth * (p - q) + q) + (1 - m / d) / size
        exact = share * (1 - share) * d**2 / (users * m**2 * (p - q)**2)
        estimate, variance = torch.stack(found[i]), torch.stack(spread[i])
        assert torch.allclose(estimate.sum(dim=1), torch.ones(repeats).double())
        z = (estimate.mean(dim=0) - truth) / (exact / repeats).sqrt()
        assert z.abs().max() < stats.norm.isf(alarm / 2)
        # The spread of the estimates; with 10^5 users they are normal.
        ratio = estimate.var(dim=0) * (repeats - 1) / exact
        assert ratio.min() > stats.chi2.ppf(alarm / 2, repeats - 1)
        assert ratio.max() < stats.chi2.isf(alarm / 2, repeats - 1)
        # And Equation 3 knows it from one release.
        assert torch.allclose(variance, exact.expand_as(variance), rtol=0.05)


def test_more_columns_than_users():
    # 20 users, 600 columns, all rows zero: the estimates of all columns have
    # the mean 1 for value 0. Six standard deviations of their mean.
    mechanism = GRRFS(100.0, 100, 3, 600)
    x = torch.zeros(20, 600).long()
    found, spread = map(torch.stack, zip(*estimates(mechanism, x, 0)))
    assert spread.shape == (600, 3)
    bound = 6 * (spread.mean(dim=0) / 600).sqrt()
    assert ((found.mean(dim=0) - torch.tensor([1.0, 0, 0])).abs() < bound).all()


@pytest.mark.parametrize('size, m, d, epsilon', [(2, 10, 1433, 1.0),
                                                 (5, 3, 7, 0.1)])
def test_equation_2(size, m, d, epsilon):
    # As printed; and for any frequencies, not those of one release alone.
    mechanism = GRRFS(m * epsilon, m, size, d)
    keep, other = map(float, mechanism.marginal())
    shares = torch.rand(50, size, dtype=torch.double)
    shares /= shares.sum(dim=1, keepdim=True)
    e = math.exp(epsilon)
    p, q = e / (e + size - 1), 1 / (e + size - 1)
    expected = shares * d / (m * (p - q)) + (m - d - m * size * q) / (
        m * size * (p - q))
    assert torch.allclose(frequency_estimate(shares, keep, other), expected)
    assert torch.allclose(frequency_estimate(shares, keep, other, 1.0),
                          expected)
    assert torch.allclose(frequency_estimate(7 * shares, keep, other),
                          expected)
    variance = frequency_variance(shares, 11, keep, other)
    assert torch.allclose(variance, d**2 * shares * (1 - shares) / (
        m**2 * 10 * (p - q)**2))


def test_the_inverse_of_the_transition_matrix():
    mechanism = RandomizedResponse(1.0, 7)
    shares = torch.rand(20, 7, dtype=torch.double)
    shares /= shares.sum(dim=1, keepdim=True)
    expected = shares @ mechanism.transition_matrix().inverse()
    estimate = frequency_estimate(shares, float(mechanism.keep),
                                  float(mechanism.other))
    assert torch.allclose(estimate, expected)


def test_nothing_reported():
    shares = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    estimate = frequency_estimate(shares, 0.75, 0.25)
    assert estimate.tolist() == [[0.0, 0.0], [0.0, 1.0]]
    total = torch.tensor([[0.0], [4.0]])
    assert torch.equal(frequency_estimate(shares, 0.75, 0.25, total), estimate)


@pytest.mark.parametrize('count', [1, 0, math.nan])
def test_one_report_has_no_spread(count):
    with pytest.raises(ValueError, match=f"'count' must be at least 2: one "
                       f"report has no spread .got {count}"):
        frequency_variance(torch.tensor([0.5, 0.5]), count, 0.75, 0.25)


def nearest(row):
    """The projection, by bisection for the constant that is taken away."""
    low, high = row.min() - 1, row.max()
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(row - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    return np.maximum(row - middle, 0)


@given(st.lists(st.floats(-20, 20), min_size=1, max_size=9))
def test_simplex_projection(row):
    row = np.array(row)
    out = simplex_projection(torch.from_numpy(row)).numpy()
    assert np.allclose(out, nearest(row), atol=1e-12)
    assert out.sum() == pytest.approx(1) and (out >= 0).all()


def test_distributions_stay_as_they_are():
    rows = torch.rand(4, 5, 6, dtype=torch.double)
    rows /= rows.sum(dim=-1, keepdim=True)
    assert torch.allclose(simplex_projection(rows), rows)
