import math

import numpy as np
import pytest

from torch_geometric_dp.hrg import split_r_hat


def test_the_textbook_formula():
    draws = np.random.RandomState(0).randn(100, 3).cumsum(axis=0)
    halves = [draws[k:k + 50, j] for k in (0, 50) for j in range(3)]
    means = [half.mean() for half in halves]
    w = np.mean([sum((half - half.mean())**2) / 49 for half in halves])
    b = 50 / 5 * sum((mean - np.mean(means))**2 for mean in means)
    expected = math.sqrt((49 / 50 * w + b / 50) / w)
    assert split_r_hat(draws) == pytest.approx(expected, rel=1e-12)
    assert split_r_hat(7 * draws - 3) == pytest.approx(expected, rel=1e-9)


def test_what_it_sees():
    draws = np.random.RandomState(1).randn(1000, 4)
    assert split_r_hat(draws) < 1.01
    assert split_r_hat(draws + [0, 0, 0, 2]) > 1.2  # One chain elsewhere.
    assert split_r_hat(draws + np.linspace(0, 4, 1000)[:, None]) > 1.2  # Drift.
    assert split_r_hat(draws[:, :1] + np.linspace(0, 4, 1000)[:, None]) > 1.2


def test_borders():
    assert split_r_hat(np.zeros((3, 2))) == math.inf  # Too few to tell.
    assert split_r_hat(np.zeros((4, 2))) == 1.0  # All the same.
    assert split_r_hat(np.ones((4, 2)) * [0, 1]) == math.inf
    draws = np.random.RandomState(2).randn(101, 2)
    assert split_r_hat(draws) == split_r_hat(np.delete(draws, 50, axis=0))
