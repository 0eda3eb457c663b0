import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mechanisms.family import at_most_odds, column_loss, grid
from torch_geometric_dp.mechanisms import Duchi
from torch_geometric_dp.mechanisms.duchi import coin_limit, coins
from torch_geometric_dp.noise import WORD

EPSILONS = (0.01, 0.5, 1.0, 3.0, 10.0)


@pytest.mark.parametrize('epsilon', EPSILONS)
def test_exact_epsilon(epsilon):
    loss = column_loss(Duchi(epsilon))
    assert epsilon - 1e-9 < loss <= epsilon + 1e-12


@settings(deadline=None)
@given(st.floats(1e-9, 50), st.floats(-1, 1))
def test_rounding_never_costs_privacy(epsilon, unit):
    half = int(Duchi(epsilon)._half[0])
    lowest, highest = WORD // 2 - half, WORD // 2 + half
    assert 0 < lowest <= highest < WORD
    assert at_most_odds(highest, lowest, epsilon)
    # And no input gets out of the two ends.
    assert lowest <= coin_limit(unit, np.int64(half)) <= highest
    # Which are reached, up to what a float can tell.
    assert coin_limit(-1.0, np.int64(half)) <= lowest + half // 2**52
    assert coin_limit(1.0, np.int64(half)) >= highest - half // 2**52


@pytest.mark.parametrize('epsilon', EPSILONS)
def test_formulas_of_the_paper(epsilon):
    mechanism, e = Duchi(epsilon), math.exp(epsilon)
    scale = (e + 1) / (e - 1)
    for x in grid(mechanism):
        outputs, law = mechanism.distribution(x)
        heads = (e - 1) / (2 * e + 2) * x + 1 / 2
        assert outputs == pytest.approx([-scale, scale], rel=1e-12)
        assert law == pytest.approx([1 - heads, heads], rel=1e-11)
        assert mechanism.bias(x) == pytest.approx(0, abs=1e-14 * scale)
        assert mechanism.variance(x) == pytest.approx(scale**2 - x**2,
                                                      rel=1e-12)
        assert mechanism.expected_error(x) == pytest.approx(
            scale - x**2 / scale, rel=1e-12)


def test_every_word_decides_as_the_threshold_says():
    half = Duchi([1.0])._half
    for unit in (-1.0, -0.3, 0.0, 0.7, 1.0):
        limit = int(coin_limit(unit, half[0]))
        words = [0, limit - 1, limit, limit + 1, WORD - 1]
        out = coins(np.full((5, 1), unit), np.array(words, np.uint64)[:, None],
                    half)
        assert out[:, 0].tolist() == [1, 1, -1, -1, -1]
