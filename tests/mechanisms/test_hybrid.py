import math

import pytest

from tests.mechanisms.family import column_loss, grid
from torch_geometric_dp.mechanisms import Duchi, Hybrid, Piecewise
from torch_geometric_dp.mechanisms.hybrid import _FIRST

EPSILONS = (0.1, 0.6, 0.62, 1.0, 3.0, 6.0)


@pytest.mark.parametrize('epsilon', EPSILONS)
def test_exact_epsilon(epsilon):
    loss = column_loss(Hybrid(epsilon))
    assert epsilon - 1e-9 < loss <= epsilon + 1e-12


@pytest.mark.parametrize('epsilon', EPSILONS)
def test_formulas_of_the_paper(epsilon):
    mechanism, e, t = Hybrid(epsilon), math.exp(epsilon), math.exp(epsilon / 2)
    for x in grid(mechanism):
        expected = ((e + 1) / (e - 1))**2 - x**2
        if epsilon > 0.61:  # The same for all inputs.
            expected = (t + 3) / (3 * t * (t - 1)) + (e + 1)**2 / (
                t * (e - 1)**2)
        assert mechanism.variance(x) == pytest.approx(expected, rel=1e-4)


def test_where_the_piecewise_mechanism_begins_to_help():
    # The paper rounds it to 0.61. There, the largest variance is the same with
    # and without it.
    assert round(_FIRST, 2) == 0.61
    assert Hybrid(_FIRST)._alpha(0) == 0
    above = Hybrid(_FIRST + 1e-9)
    assert above._alpha(0) == pytest.approx(1 - math.exp(-_FIRST / 2))
    assert above.variance(0.0) == pytest.approx(Duchi(_FIRST).variance(0.0))


@pytest.mark.parametrize('epsilon', [0.3, 2.0])
def test_a_mixture(epsilon):
    mechanism = Hybrid(epsilon)
    alpha = 0.0 if epsilon < 0.61 else 1 - math.exp(-epsilon / 2)
    for x in (-0.2, 0.9):
        for method in ('expected_error', 'bias'):
            one, two = (getattr(cls(epsilon), method)(x)
                        for cls in (Piecewise, Duchi))
            assert getattr(mechanism, method)(x) == pytest.approx(
                alpha * one + (1 - alpha) * two, rel=1e-12, abs=1e-15)
