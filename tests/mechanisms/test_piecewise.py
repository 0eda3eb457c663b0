import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mechanisms.family import (
    at_most_odds,
    column_loss,
    grid,
    largest_loss,
)
from torch_geometric_dp.mechanisms import Piecewise, PMSub, SquareWave
from torch_geometric_dp.noise import WORD

EPSILONS = (0.05, 0.5, 1.0, 3.0, 6.0)
both = pytest.mark.parametrize('cls', [Piecewise, PMSub, SquareWave])


def small(cls, cells):
    """The same mechanism with few cells."""
    return type(cls.__name__, (cls, ), {'cells': cells})


def density(epsilon, t, x):
    """The range, the window's ends, and the densities inside and outside."""
    e = math.exp(epsilon)
    scale = (e + t) / (t * (e - 1))
    inside = e * t * (e - 1) / (2 * (t + e)**2)
    return (scale * (t + 1), scale * (x * t - 1), scale * (x * t + 1), inside,
            inside / e)


@both
@pytest.mark.parametrize('epsilon', EPSILONS)
def test_exact_epsilon(cls, epsilon):
    loss = column_loss(cls(epsilon))
    assert epsilon - 1e-9 < loss <= epsilon + 1e-12


@both
@pytest.mark.parametrize('cells', [2, 3, 7, 64])
@pytest.mark.parametrize('epsilon', [0.1, 1.0, 5.0])
def test_exact_epsilon_at_all_windows(cls, cells, epsilon):
    mechanism = small(cls, cells)(epsilon)
    starts = cells - int(mechanism._words[0, 0])
    values = np.linspace(-1, 1, starts + 1)
    assert [mechanism._window(x, 0)[-1] for x in values] == list(
        range(starts + 1))
    loss = largest_loss(mechanism.distribution(x) for x in values)
    assert epsilon - 1e-9 < loss <= epsilon + 1e-12
    # At these values, the grid adds no bias.
    for x in values:
        assert mechanism.bias(x) == pytest.approx(
            0, abs=1e-12 * math.sqrt(mechanism.variance(x)))


@both
@settings(deadline=None)
@given(epsilon=st.floats(1e-9, 50), x=st.floats(-1, 1))
def test_rounding_never_costs_privacy(cls, epsilon, x):
    mechanism = cls(epsilon)
    inside, p, q, odd, start = mechanism._window(x, 0)
    outside = mechanism.cells - inside
    assert inside * p + odd + outside * q == WORD
    assert 0 <= odd < inside and 0 <= start <= outside
    assert at_most_odds(p + (odd > 0), q, epsilon)
    assert p >= q or mechanism._half[0] == 0


@both
@pytest.mark.parametrize('epsilon', EPSILONS)
def test_formulas_of_the_papers(cls, epsilon):
    # The errors of the grid and of the window's width, which is an integer.
    close = {'rel': 1e-4 if epsilon > 5 else 1e-5}
    mechanism, e = cls(epsilon), math.exp(epsilon)
    if cls is SquareWave:
        b = (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))
        t = 1 / (2 * b)
    else:
        t = math.exp(epsilon / (2 if cls is Piecewise else 3))
    for x in grid(mechanism):
        end, left, right, inside, outside = density(epsilon, t, x)
        outputs, law = mechanism.distribution(x)
        assert [outputs[0], outputs[-1]] == pytest.approx([-end, end], **close)
        within = outputs[law > law.mean()]
        assert [within[0], within[-1]] == pytest.approx(
            [left, right], abs=5 * end / mechanism.cells + 1e-4 / e)
        assert mechanism.variance(x) == pytest.approx(
            (t + 1) / (e - 1) * x**2 + (t + e) * ((t + 1)**3 + e - 1) /
            (3 * t**2 * (e - 1)**2), **close)
        if cls is Piecewise:
            assert mechanism.variance(x) == pytest.approx(
                x**2 / (t - 1) + (t + 3) / (3 * (t - 1)**2), **close)

        def area(low, high, x=x):  # The integral of |y - x|.
            f = [(y - x) * abs(y - x) / 2 for y in (low, high)]
            return f[1] - f[0]

        assert mechanism.expected_error(x) == pytest.approx(
            outside * area(-end, end) + (inside - outside) * area(left, right),
            **close)


@both
def test_every_word_decides_as_the_intervals_say(cls):
    mechanism = small(cls, 61)(1.0)
    for x in (-1.0, -0.4, 0.0, 0.9, 1.0):
        inside, p, q, odd, start = mechanism._window(x, 0)
        outside = 61 - inside
        others = [c for c in range(61) if not start <= c < start + inside]
        cells = {}  # The first and the last word of every interval.
        for i, cell in enumerate(others):
            cells[i * q] = cells[i * q + q - 1] = cell
        for i in range(inside):
            first = outside * q + i * p
            cells[first] = cells[first + p - 1] = start + i
        for i in range(odd):
            cells[outside * q + inside * p + i] = start + i
        assert max(cells) == WORD - 1 and odd > 1
        words = np.array(list(cells), np.uint64)[:, None, None]
        out = mechanism.draw(np.full((len(cells), 1), x), words)
        expected = mechanism._units(np.array(list(cells.values())), 0)
        assert np.array_equal(out[:, 0], expected)
