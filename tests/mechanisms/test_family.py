"""What holds for every mechanism for bounded columns."""
import math

import numpy as np
import pytest
import torch

from tests.conftest import FALSE_ALARM
from tests.mechanisms.family import (
    COLUMNS,
    FAMILY,
    ROWS,
    fit,
    grid,
    make,
    release,
)
from torch_geometric_dp import noise
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.mechanisms import Gaussian
from torch_geometric_dp.noise import NoiseSource

BOUNDS = ([-1.0, 0.0, 10.0], [1.0, 1.0, 30.0])
every = pytest.mark.parametrize('cls', FAMILY)


@every
@pytest.mark.parametrize('epsilon', [0.3, 2.0])
def test_draws_follow_the_distribution(cls, epsilon):
    mechanism = make(cls, epsilon, BOUNDS, steps=100)
    row = [-1.0, 0.3, 26.7]
    draws = release(mechanism, row)
    for column, value in enumerate(row):
        law = mechanism.distribution(value, column)
        assert fit(draws[:, column], *law) > FALSE_ALARM / 100


@every
@pytest.mark.parametrize('epsilon', [0.3, 2.0])
def test_moments(cls, epsilon):
    # Closed forms against sums over all outputs.
    mechanism = make(cls, epsilon, BOUNDS, steps=64)
    for column in range(3):
        for value in grid(mechanism, 5, column):
            outputs, law = mechanism.distribution(value, column)
            error = outputs - value
            scale = math.sqrt(error**2 @ law)
            bias = mechanism.bias(value, column)
            assert bias == pytest.approx(error @ law, abs=1e-11 * scale)
            assert mechanism.expected_error(value, column) == pytest.approx(
                np.abs(error) @ law, rel=1e-11)
            assert mechanism.variance(value, column) == pytest.approx(
                (error - bias)**2 @ law, rel=1e-11)


@every
@pytest.mark.parametrize('epsilon', [0.01, 1.0, 8.0])
def test_unbiased_up_to_the_grid(cls, epsilon):
    mechanism = make(cls, epsilon, BOUNDS)
    for column in range(3):
        width = mechanism.high[column] - mechanism.low[column]
        for value in grid(mechanism, 7, column):
            assert abs(mechanism.bias(value, column)) < 8e-6 * width


@pytest.mark.parametrize('cls', [cls for cls in FAMILY if cls is not Gaussian])
@pytest.mark.parametrize('epsilon', [0, 0.0])
def test_epsilon_zero_tells_nothing(cls, epsilon):
    mechanism = make(cls, epsilon, BOUNDS)
    middle = torch.tensor([0.0, 0.5, 20.0])
    x = torch.tensor(BOUNDS).repeat(50, 1)
    out = mechanism(x, NoiseSource.from_seed(0))
    assert torch.equal(out, middle.expand(100, -1))
    outputs, law = mechanism.distribution(10.5, 2)
    assert outputs.tolist() == [20.0] and law.tolist() == [1.0]
    assert mechanism.expected_error(10.5, 2) == 9.5
    assert mechanism.bias(10.5, 2) == 9.5
    assert mechanism.variance(10.5, 2) == 0
    assert mechanism.guarantee.epsilon == 0


@pytest.mark.parametrize('cls', COLUMNS)
def test_every_column_has_its_own_epsilon(cls):
    # Also one that may tell nothing, between two that may.
    together = cls([0.5, 0.0, 3.0])
    assert together.guarantee == Guarantee(
        3.5, Unit.FEATURES, Relation.REPLACE)
    for column, epsilon in enumerate([0.5, 0.0, 3.0]):
        alone = cls(epsilon)
        for method in ('expected_error', 'variance', 'bias'):
            assert getattr(together, method)(0.3, column) == (
                getattr(alone, method)(0.3))
    out = release(together, [0.3, 0.3, 0.3], 20_000)
    assert (out[:, 1] == 0).all()
    # Six standard errors, with a kurtosis of at most 6.
    for column in (0, 2):
        variance = together.variance(0.3, column)
        assert out[:, column].mean() == pytest.approx(
            0.3, abs=6 * math.sqrt(variance / 20_000))
        assert out[:, column].var() == pytest.approx(
            variance, rel=6 * math.sqrt(5 / 20_000))


@pytest.mark.parametrize('cls', ROWS)
def test_rows_have_one_epsilon(cls):
    mechanism = cls(0.7, 3)
    assert mechanism.guarantee.epsilon == 0.7
    assert mechanism.guarantee.unit == Unit.FEATURES


@every
@pytest.mark.parametrize('size', [2, 64])
def test_any_block_size(cls, size, monkeypatch):
    mechanism = make(cls, 1.0, BOUNDS)
    x = torch.rand(97, 3, generator=torch.Generator().manual_seed(0))
    x[:, 2] = 10 + 20 * x[:, 2]
    source = NoiseSource.from_seed(0)
    expected = mechanism(x, source)
    # A row's noise is its own, whoever else there is.
    assert torch.equal(mechanism(x[:50], source), expected[:50])
    # A tensor of any layout.
    assert torch.equal(mechanism(x.t().contiguous().t(), source), expected)
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', size)
    assert torch.equal(mechanism(x, source), expected)


@every
def test_columns_have_their_own_noise(cls):
    # The same noise twice would be gone from the difference. Six standard
    # errors of a correlation of zero.
    out = release(make(cls, 1.0), [0.0, 0.0, 0.0], 20_000)
    correlation = np.corrcoef(out.T) - np.eye(3)
    assert np.abs(correlation).max() < 6 / math.sqrt(20_000)


@every
def test_types_and_shapes(cls):
    mechanism = make(cls, 2.0)
    source = NoiseSource.from_seed(0)
    x = torch.tensor([[-1, 0, 1], [1, 1, -1]] * 10)
    expected = mechanism(x.double(), source)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        out = mechanism(x.to(dtype), source)
        assert out.dtype == dtype
        assert torch.allclose(out.double(), expected, rtol=1e-2, atol=1e-2)
    out = mechanism(x, source)  # Integers cannot hold the output.
    assert out.dtype == torch.float32 and torch.allclose(out.double(), expected)
    assert mechanism(x[:0].double(), source).shape == (0, 3)


@every
@pytest.mark.parametrize('value', [1.01, -1.01, math.nan, math.inf, -math.inf])
def test_values_out_of_bounds(cls, value):
    mechanism = make(cls, 1.0)
    x = torch.zeros(5000, 3)
    x[4500, 1] = value
    with pytest.raises(ValueError, match="'x' must lie within its bounds, from "
                       r'-1.0 to 1.0 in column 1 \(got .* in row 4500\)'):
        mechanism(x, NoiseSource.from_seed(0))
    for method in ('distribution', 'expected_error', 'variance', 'bias'):
        with pytest.raises(ValueError, match="'value' must lie within"):
            getattr(mechanism, method)(value, 1)


@every
def test_wrong_shape(cls):
    with pytest.raises(ValueError, match=r'\[num_nodes, 3\] \(got \[4, 2\]\)'):
        make(cls, 1.0)(torch.zeros(4, 2), NoiseSource.from_seed(0))


@every
@pytest.mark.parametrize('bounds', [(1.0, 1.0), (1.0, -1.0), (0.0, math.inf),
                                    (math.nan, 1.0), (-1e308, 1e308)])
def test_bad_bounds(cls, bounds):
    with pytest.raises(ValueError, match="'bounds' must be finite, and the "):
        make(cls, 1.0, bounds)


@every
@pytest.mark.parametrize('epsilon', [-1.0, math.nan, math.inf])
def test_bad_epsilon(cls, epsilon):
    with pytest.raises(ValueError, match='must be a positive, finite number'):
        make(cls, epsilon)


@pytest.mark.parametrize('cls', ROWS)
def test_bad_number_of_columns(cls):
    with pytest.raises(ValueError, match="'num_features' must be an integer"):
        cls(1.0, 0)


@every
def test_huge_and_tiny_epsilons(cls):
    # No overflow, no division by zero.
    for epsilon in (1e-5, 1e5):
        mechanism = make(cls, epsilon)
        x = torch.tensor([[-1.0, 0.0, 0.6]] * 20, dtype=torch.double)
        out = mechanism(x, NoiseSource.from_seed(0))
        assert out.isfinite().all()
        assert mechanism.variance(0.3) > 0


@every
def test_repr(cls):
    mechanism = make(cls, 0.1)
    assert repr(mechanism).startswith(
        f'{cls.__name__}(epsilon=0.1, ' if cls in ROWS else
        f'{cls.__name__}(epsilons=(0.1, 0.1, 0.1)')
