import itertools
import math

import numpy as np
import pytest
import torch

from tests.conftest import FALSE_ALARM
from tests.mechanisms.family import fit_rows, grid, largest_loss, release
from torch_geometric_dp.mechanisms import MultiBit
from torch_geometric_dp.noise import NoiseSource

CASES = [(d, m, epsilon) for d in (1, 2, 3) for m in range(1, d + 1)
         for epsilon in (0.2, 1.0, 4.0)]


@pytest.mark.parametrize('d, m, epsilon', CASES)
def test_exact_epsilon(d, m, epsilon):
    # All rows on a coarse grid, among them all corners; all outputs.
    mechanism = MultiBit(epsilon, d, num_sampled=m)
    rows = itertools.product([-1.0, -0.4, 0.0, 1.0], repeat=d)
    loss = largest_loss(map(mechanism.row_distribution, rows))
    assert epsilon - 1e-9 < loss <= epsilon + 1e-12


@pytest.mark.parametrize('d, m', [(2, 1), (3, 2), (3, 3), (4, 2)])
def test_whole_rows_follow_their_distribution(d, m):
    mechanism = MultiBit(2.0, d, (0.0, 1.0), m)
    row = [0.1, 0.9, 0.5, 0.0][:d]
    outputs, law = mechanism.row_distribution(row)
    assert len(law) == 2**m * math.comb(d, m)
    assert law.sum() == pytest.approx(1, abs=1e-14)
    assert fit_rows(release(mechanism, row), outputs, law) > FALSE_ALARM
    # A column on its own is what is left of the row.
    for column in range(d):
        for output, p in zip(*mechanism.distribution(row[column], column)):
            whole = law[outputs[:, column] == output].sum()
            assert p == pytest.approx(whole, abs=1e-14)


@pytest.mark.parametrize('d, epsilon', [(10, 1.0), (10, 8.0), (1433, 20.0)])
def test_formulas_of_the_paper(d, epsilon):
    mechanism = MultiBit(epsilon, d, (2.0, 5.0))
    m = max(1, min(d, int(epsilon / 2.18)))
    assert mechanism.num_sampled == m
    e = math.exp(epsilon / m)
    for x in grid(mechanism, 5):
        outputs, law = mechanism.distribution(x)
        scale = d * 3.0 / (2 * m) * (e + 1) / (e - 1)
        assert outputs == pytest.approx([3.5 - scale, 3.5, 3.5 + scale])
        heads = 1 / (e + 1) + (x - 2) / 3 * (e - 1) / (e + 1)
        assert law[2] == pytest.approx(m / d * heads, rel=1e-10)
        assert mechanism.bias(x) == pytest.approx(0, abs=1e-13 * scale)
        assert mechanism.variance(x) == pytest.approx(
            d / m * (3 / 2 * (e + 1) / (e - 1))**2 - (x - 3.5)**2, rel=1e-10)


@pytest.mark.parametrize('epsilon, sampled', [
    (0.1, 1), (2.17, 1), (4.35, 1), (4.36, 2), (10.9, 5), (1e6, 6)])
def test_default_number_of_columns(epsilon, sampled):
    assert MultiBit(epsilon, 6).num_sampled == sampled


def test_exactly_m_columns_are_sent():
    mechanism = MultiBit(9.0, 50, num_sampled=4, rectify=False)
    x = torch.zeros(3000, 50)
    out = mechanism(x, NoiseSource.from_seed(0))
    assert ((out != 0).sum(dim=1) == 4).all()
    assert out.abs().max() == 1
    # Every column equally often: 240 times, and six standard deviations.
    counts = (out != 0).sum(dim=0)
    assert (counts - 240).abs().max() < 6 * math.sqrt(240)


def test_bits_and_values():
    bounds = ([0.0, -3.0, 1.0, 0.0], [1.0, 5.0, 1.5, 10.0])
    x = torch.tensor([[0.2, 4.0, 1.1, 0.0]]).expand(500, -1)
    source = NoiseSource.from_seed(0)
    values = MultiBit(5.0, 4, bounds)(x, source)
    plain = MultiBit(5.0, 4, bounds, rectify=False)
    bits = plain(x, source)
    assert set(bits.unique().tolist()) == {-1.0, 0.0, 1.0}
    assert torch.allclose(plain.decode(bits), values, atol=1e-4)
    outputs, law = plain.distribution(0.2)
    assert outputs.tolist() == [-1, 0, 1]
    assert np.array_equal(law, MultiBit(5.0, 4, bounds).distribution(0.2)[1])


def test_too_many_columns():
    with pytest.raises(ValueError) as info:
        MultiBit(1.0, 3, num_sampled=4)
    assert str(info.value) == (
        "'num_sampled' must be at most 'num_features', which is 3 (got 4)")


def test_repr():
    assert repr(MultiBit(5, 3)) == (
        'MultiBit(epsilon=5.0, num_features=3, num_sampled=2)')
