import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from tests.mechanisms.family import at_most_odds, column_loss, grid
from torch_geometric_dp.mechanisms import Duchi, ThreeOutputs
from torch_geometric_dp.mechanisms.three_outputs import (
    _draw,
    _shares,
    zero_probability,
)
from torch_geometric_dp.noise import WORD

# On both sides of the two borders, ln 2 and ln((3 + sqrt 65) / 2) = 1.7105.
EPSILONS = (0.01, 0.5, 0.69, 0.7, 1.0, 1.7, 1.71, 1.72, 3.0, 10.0)


def formulas(epsilon, a, x):
    """The law and the scale as printed, for x of any sign."""
    e = math.exp(epsilon)
    zero = a + (a / e - a) * abs(x)
    towards = (1 - a) / 2 + ((e - a) / (e + 1) - (1 - a) / 2) * abs(x)
    away = (1 - a) / 2 - ((1 - a) / 2 - (e - a) / (e * (e + 1))) * abs(x)
    low, high = (away, towards) if x >= 0 else (towards, away)
    return [low, zero, high], e * (e + 1) / ((e - 1) * (e - a))


def worst_variance(epsilon, a):
    e = math.exp(epsilon)
    scale = e * (e + 1) / ((e - 1) * (e - a))
    # C^2 (1 - P(0|x)) - x^2 is a parabola in |x|, with its top at `x`.
    x = min(1.0, scale**2 * a * (1 - 1 / e) / 2)
    return scale**2 * (1 - a + a * (1 - 1 / e) * x) - x**2


@pytest.mark.parametrize('epsilon', EPSILONS)
def test_exact_epsilon(epsilon):
    loss = column_loss(ThreeOutputs(epsilon))
    assert epsilon - 1e-9 < loss <= epsilon + 1e-12


@settings(deadline=None)
@given(st.floats(1e-9, 50) | st.floats(0.693, 1.711), st.floats(-1, 1))
def test_rounding_never_costs_privacy(epsilon, unit):
    words = ThreeOutputs(epsilon)._words[0]
    z0, z1, s0, s1 = map(int, words)
    most = WORD - z1 - s1
    assert 0 < s1 <= s0 <= most and 0 <= z1 <= z0
    assert at_most_odds(most, s1, epsilon) and at_most_odds(z0, z1, epsilon)
    # No input gets out of the ends.
    for x in (unit, -1.0, 1.0, 0.0):
        low, middle = _shares(x, words)
        assert z1 <= middle <= z0
        assert s1 <= low <= most and s1 <= WORD - low - middle <= most


@pytest.mark.parametrize('epsilon', EPSILONS)
def test_the_zero_has_the_smallest_worst_variance(epsilon):
    # Whatever the closed form looks like, this is what it is for.
    a, e = zero_probability(epsilon), math.exp(epsilon)
    best = optimize.minimize_scalar(lambda a: worst_variance(epsilon, a),
                                    bounds=(0, e / (e + 2)), method='bounded',
                                    options={'xatol': 1e-12})
    assert worst_variance(epsilon, a) <= best.fun * (1 + 1e-9)
    assert a == pytest.approx(best.x, abs=1e-4)
    assert (a == 0) == (epsilon < math.log(2))


@pytest.mark.parametrize('epsilon', EPSILONS)
def test_formulas_of_the_paper(epsilon):
    mechanism = ThreeOutputs(epsilon)
    for x in grid(mechanism):
        law, scale = formulas(epsilon, zero_probability(epsilon), x)
        outputs, exact = mechanism.distribution(x)
        expected = [(-scale, law[0]), (0.0, law[1]), (scale, law[2])]
        expected = [(u, p) for u, p in expected if p > 0]
        assert outputs == pytest.approx([u for u, _ in expected], rel=1e-11)
        assert exact == pytest.approx([p for _, p in expected], rel=1e-10)
        assert mechanism.bias(x) == pytest.approx(0, abs=1e-14 * scale)
        assert mechanism.variance(x) == pytest.approx(
            scale**2 * (1 - law[1]) - x**2, rel=1e-10)
        assert mechanism.expected_error(x) == pytest.approx(
            law[0] * (scale + x) + law[1] * abs(x) + law[2] * (scale - x),
            rel=1e-10)


def test_small_epsilons_are_those_of_duchi():
    three, two = ThreeOutputs(0.5), Duchi(0.5)
    for x in grid(three):
        for one, other in zip(three.distribution(x), two.distribution(x)):
            assert one == pytest.approx(other, rel=1e-12)


def test_every_word_decides_as_the_thresholds_say():
    parameters = ThreeOutputs(2.0)._words
    for unit in (-1.0, -0.3, 0.0, 0.7, 1.0):
        low, middle = map(int, _shares(unit, parameters[0]))
        words = [0, low - 1, low, low + middle - 1, low + middle, WORD - 1]
        out = _draw(np.full((6, 1), unit), np.array(words, np.uint64)[:, None],
                    parameters)
        assert out[:, 0].tolist() == [-1, -1, 0, 0, 1, 1]
