import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import FALSE_ALARM
from tests.mechanisms.family import fit_rows, grid, largest_loss, release
from torch_geometric_dp.mechanisms import Duchi, DuchiMulti
from torch_geometric_dp.noise import WORD, NoiseSource

CASES = [(d, epsilon) for d in (1, 2, 3, 4) for epsilon in (0.1, 1.0, 4.0)]


def rows(d):
    return itertools.product([-1.0, 0.3, 1.0], repeat=d)


@pytest.mark.parametrize('d, epsilon', CASES)
def test_exact_epsilon(d, epsilon):
    mechanism = DuchiMulti(epsilon, d)
    loss = largest_loss(map(mechanism.row_distribution, rows(d)))
    # With an even number of columns, few tries cost a little of the noise.
    assert loss <= epsilon + 1e-12
    assert loss > epsilon - (1e-9 if d % 2 == 1 else 1e-6)


@settings(deadline=None)
@given(st.integers(1, 300), st.floats(1e-9, 60))
def test_rounding_never_costs_privacy(d, epsilon):
    mechanism = DuchiMulti(epsilon, d)
    # In exact numbers: a corner of T, one next to it, and one without signal.
    noise = mechanism._noise
    level = math.comb(d, d // 2) if d % 2 == 0 else 0
    upper = (2**d - level) // 2
    assert mechanism._peak * upper <= 1
    rest = (1 - mechanism._peak * upper) / max(1, level)
    assert rest <= mechanism._peak
    odds = 1 + (WORD - noise) * mechanism._peak * 2**d / noise
    assert math.log(odds) <= epsilon * (1 + 1e-15) + 1e-15


@pytest.mark.parametrize('d', [2, 4])
@pytest.mark.parametrize('epsilon', [0.5, 2.0])
def test_the_published_one_is_not_private_for_an_even_number(d, epsilon):
    # A corner with t * v = 0 counts for both halves.
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=d)))
    dot = corners @ corners.T
    keep = math.exp(epsilon) / (math.exp(epsilon) + 1)
    law = (keep * (dot >= 0) / (dot >= 0).sum(1, keepdims=True) +
           (1 - keep) * (dot <= 0) / (dot <= 0).sum(1, keepdims=True))
    loss = largest_loss((corners, row) for row in law)
    assert loss == pytest.approx(math.log(math.exp(epsilon) + 1))


@pytest.mark.parametrize('d, epsilon', [(1, 1.0), (2, 1.0), (3, 1.0), (4, 3.0),
                                        (5, 0.3)])
def test_whole_rows_follow_their_distribution(d, epsilon):
    mechanism = DuchiMulti(epsilon, d, (0.0, 1.0))
    row = [0.1, 0.9, 0.5, 0.0, 1.0][:d]
    outputs, law = mechanism.row_distribution(row)
    assert law.sum() == pytest.approx(1, abs=1e-14)
    assert fit_rows(release(mechanism, row), outputs, law) > FALSE_ALARM
    # A column on its own is what is left of the row, and unbiased.
    assert law @ outputs == pytest.approx(row, abs=1e-12)
    for column in range(d):
        for output, p in zip(*mechanism.distribution(row[column], column)):
            whole = law[outputs[:, column] == output].sum()
            assert p == pytest.approx(whole, abs=1e-13)


@pytest.mark.parametrize('d', [1, 2, 3, 8, 99, 100])
@pytest.mark.parametrize('epsilon', [0.1, 1.0, 6.0])
def test_formulas(d, epsilon):
    # With |T| corners on the right side, and e^epsilon times their chance.
    e = math.exp(epsilon)
    upper = sum(math.comb(d, k) for k in range(d // 2 + 1, d + 1))
    signal = sum(math.comb(d, k) * (2 * k - d)
                 for k in range(d // 2 + 1, d + 1)) / d
    scale = ((e - 1) * upper + 2**d) / ((e - 1) * signal)
    mechanism = DuchiMulti(epsilon, d)
    assert mechanism._scale == pytest.approx(scale, rel=2e-6)
    if d % 2 == 1:  # As published.
        ratio = 2**(d - 1) / math.comb(d - 1, (d - 1) // 2)
        assert mechanism._scale == pytest.approx(
            ratio * (e + 1) / (e - 1), rel=1e-11)
    for x in grid(mechanism, 5):
        assert mechanism.variance(x) == pytest.approx(
            scale**2 - x**2, abs=4e-6 * scale**2)


def test_one_column_is_that_of_duchi():
    row, column = DuchiMulti(1.0, 1), Duchi(1.0)
    for x in (-1.0, 0.0, 0.3):
        for one, other in zip(row.distribution(x), column.distribution(x)):
            assert one == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize('d', [64, 65, 1433])
def test_many_columns(d):
    # More than one word of bits; unbiased within six standard errors.
    mechanism = DuchiMulti(5.0, d)
    x = torch.linspace(-1, 1, d).double().expand(2000, -1)
    out = mechanism(x, NoiseSource.from_seed(0))
    assert set(out.abs().unique().tolist()) == {mechanism._scale}
    # All columns at once, along the direction of the row.
    signal = (out * x).mean(dim=1)
    assert signal.mean().item() == pytest.approx(
        (x[0]**2).mean().item(), abs=6 * signal.std().item() / math.sqrt(2000))
    heads = (out > 0).double().mean(dim=0)
    assert (heads - (1 + x[0] / mechanism._scale) / 2).abs().max() < 6 * 0.5 / (
        math.sqrt(2000))
