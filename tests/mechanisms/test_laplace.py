from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_geometric_dp import noise
from torch_geometric_dp.mechanisms import Laplace


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 7.0])
@pytest.mark.parametrize('steps', [1, 16, 1000])
def test_exact_epsilon(epsilon, steps):
    # On the steps of the grid: outputs of one value against those of another.
    mechanism = Laplace(epsilon, (0.0, 1.0), steps)
    z = np.arange(-5 * steps, 6 * steps)
    law = mechanism.log_odds(z, 0)
    # The value at one end, against every other.
    losses = [np.abs(law - mechanism.log_odds(z - value, 0)).max()
              for value in np.unique(np.linspace(0, steps, 50).astype(int))]
    assert max(losses) == losses[-1]
    # Less than epsilon by what the sampler's own rounding may add.
    assert epsilon - 1e-8 < losses[-1] <= epsilon - 1e-12
    # What the class lists is that law.
    outputs, probabilities = mechanism.distribution(0.0)
    at = np.rint(outputs * steps).astype(int)
    expected = np.exp(-np.abs(at) * epsilon / steps)
    assert np.allclose(probabilities, expected / expected.sum(), 1e-6, 1e-17)


@settings(deadline=None)
@given(st.floats(1e-6, 1e6), st.integers(1, 2**18))
def test_the_scale_is_never_too_small(epsilon, steps):
    scale = Laplace(epsilon, steps=steps)._scale[0]
    exact = Fraction(steps) / Fraction(epsilon)
    assert Fraction(scale) > exact
    room = 1 + Fraction(1, 2**29) + Fraction(1, 2**38) / Fraction(epsilon)
    assert Fraction(scale) <= max(exact * room, Fraction(1, 64))
    # The sampler takes it as it is.
    t, s = noise.discrete.laplace_grid(scale)
    assert Fraction(t, s) == Fraction(scale)


@pytest.mark.parametrize('epsilon', [0.2, 1.0, 5.0])
def test_formulas_of_the_continuous_law(epsilon):
    mechanism = Laplace(epsilon, (10.0, 14.0))
    scale = 4.0 / epsilon
    assert mechanism.variance(11.0) == pytest.approx(2 * scale**2, rel=1e-6)
    assert mechanism.expected_error(11.0) == pytest.approx(scale, rel=1e-6)


def test_rounding():
    mechanism = Laplace(1.0, (0.0, 1.0), steps=4)
    assert mechanism.bias(0.3) == pytest.approx(-0.05)
    assert mechanism.bias(0.45) == pytest.approx(0.05)
    assert mechanism.bias(1.0) == 0
    outputs, _ = mechanism.distribution(0.3)
    assert np.isin(np.arange(-3, 5) / 4, outputs).all()


def test_an_epsilon_that_is_too_small_counts_as_zero():
    mechanism = Laplace([1e-8, 1e-6], (0.0, 1.0))
    assert mechanism.distribution(0.2)[0].tolist() == [0.5]
    assert mechanism.variance(0.2, 0) == 0
    assert mechanism.variance(0.2, 1) == pytest.approx(2e12, rel=1e-5)


def test_too_many_outputs_to_list():
    with pytest.raises(ValueError, match="'steps' is too large to list all"):
        Laplace(1e-3).distribution(0.0)


@pytest.mark.parametrize('steps', [0, -1, 2.5, True])
def test_bad_steps(steps):
    with pytest.raises(ValueError, match="'steps' must be an integer of at "):
        Laplace(1.0, steps=steps)
