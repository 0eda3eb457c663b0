import itertools
import math

import numpy as np
import pytest
from scipy import stats

from torch_geometric_dp.accountant import GaussianNoise
from torch_geometric_dp.accountant.gaussian import gaussian_delta
from torch_geometric_dp.mechanisms import Gaussian
from torch_geometric_dp.mechanisms.gaussian import _law


def exact_delta(mechanism, shift):
    """The smallest delta at the mechanism's epsilon for two rows that are
    `shift` steps apart: a sum over all outputs.
    """
    z = np.arange(-10 * math.ceil(mechanism.sigma) - mechanism.steps,
                  10 * math.ceil(mechanism.sigma) + 1)

    def law(shift):
        columns = [stats.norm.pdf((z + k) / mechanism.sigma) for k in shift]
        columns = [column / column.sum() for column in columns]
        out = columns[0]
        for column in columns[1:]:
            out = np.multiply.outer(out, column)
        return out

    e = math.exp(mechanism.epsilon)
    return np.maximum(law([0] * len(shift)) - e * law(shift), 0).sum()


def test_analytic_calibration():
    # Sensitivity 1, epsilon 1, delta 1e-5: a known number.
    mechanism = Gaussian(1.0, 1)
    assert mechanism.multiplier == pytest.approx(3.7306, abs=1e-4)
    # Against an independent solution: the curve of Balle and Wang.
    s = mechanism.multiplier
    curve = [stats.norm.cdf(1 / (2 * s) - s) -
             math.e * stats.norm.cdf(-1 / (2 * s) - s)
             for s in (s, s * (1 - 1e-8))]
    assert curve[0] <= 1e-5 < curve[1]


@pytest.mark.parametrize('epsilon, delta, multiplier', [
    (0.1, 1e-5, 30.0), (1.0, 1e-5, 3.7306), (1.0, 1e-10, 6.0), (8.0, 1e-5, 0.6),
    (50.0, 1e-6, 0.16), (900.0, 1e-6, 0.026), (1e-4, 1e-3, 400.0)])
def test_the_curve(epsilon, delta, multiplier):
    # In logarithms, with scipy's tails: never less, and hardly more.
    half, shift = 0.5 / multiplier, epsilon * multiplier
    first = stats.norm.logsf(shift - half)
    second = epsilon + stats.norm.logsf(shift + half)
    expected = -math.expm1(second - first) * math.exp(first)
    ours = gaussian_delta(epsilon, multiplier)
    room = 1e-14 * (10 + epsilon + (shift + half)**2) * math.exp(first)
    assert expected - 1e-2 * room <= ours <= expected + room


@pytest.mark.parametrize('steps, slack', [(2, 1.0), (32, 0.1), (1024, 1e-4)])
@pytest.mark.parametrize('epsilon, delta', [(1.0, 1e-5), (4.0, 1e-3),
                                            (0.3, 1e-6)])
def test_exact_delta_of_one_column(epsilon, delta, steps, slack):
    mechanism = Gaussian(epsilon, 1, delta, steps=steps)
    exact = exact_delta(mechanism, [steps])
    assert exact <= delta
    assert exact >= delta * (1 - slack)  # And little is wasted.
    # Neighbours that are closer are no easier to tell apart.
    for shift in range(1, steps, max(1, steps // 5)):
        assert exact_delta(mechanism, [shift]) <= exact


@pytest.mark.parametrize('epsilon, delta', [(1.0, 1e-5), (4.0, 1e-3)])
def test_exact_delta_of_two_columns(epsilon, delta):
    mechanism = Gaussian(epsilon, 2, delta, steps=8)
    worst = max(exact_delta(mechanism, shift)
                for shift in itertools.product((0, 3, 8), repeat=2))
    assert worst == exact_delta(mechanism, (8, 8))
    assert 0.5 * delta <= worst <= delta


def test_noise_grows_with_the_root_of_the_number_of_columns():
    one, many = Gaussian(1.0, 1), Gaussian(1.0, 100)
    assert many.multiplier == pytest.approx(one.multiplier, rel=1e-7)
    assert many.variance(0.0) == pytest.approx(100 * one.variance(0.0),
                                               rel=1e-6)
    assert one.variance(0.0) == pytest.approx(4 * 3.7306**2, rel=1e-4)
    assert one.expected_error(0.0) == pytest.approx(
        2 * 3.7306 * math.sqrt(2 / math.pi), rel=1e-4)


@pytest.mark.parametrize('sigma', [0.7, 1.0, 3.3, 63.9, 64.0, 300.0])
def test_moments_of_the_discrete_law(sigma):
    # Sums on one side of 64, formulas on the other.
    z = np.arange(-math.ceil(12 * sigma), math.ceil(12 * sigma) + 1)
    law = np.exp(-z**2 / (2 * sigma**2))
    law /= law.sum()
    assert _law(sigma) == pytest.approx(
        (z**2 @ law, np.abs(z) @ law, law[len(z) // 2]), rel=1e-13)


def test_guarantee():
    mechanism = Gaussian(1.0, 7, 1e-6, (0.0, 1.0))
    guarantee = mechanism.guarantee
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-6)
    assert guarantee.event == GaussianNoise(mechanism.multiplier)
    assert repr(mechanism) == (
        'Gaussian(epsilon=1.0, num_features=7, delta=1e-06, '
        'bounds=(0.0, 1.0))')


@pytest.mark.parametrize('delta', [0.0, 1.0, -1e-5, math.nan])
def test_bad_delta(delta):
    with pytest.raises(ValueError, match="'delta' must lie between 0 and 1"):
        Gaussian(1.0, 3, delta)


def test_an_epsilon_that_is_too_small():
    with pytest.raises(ValueError, match="'epsilon' is too small for 3 cel"):
        Gaussian(1e-13, 3, 1e-9)
