"""PM-SUB's law is tested together with that of the Piecewise mechanism."""
import math

import pytest
from scipy import optimize

from torch_geometric_dp.mechanisms import Piecewise, PMSub


def worst(epsilon, t):
    """The variance at one, the worst input, of a window of any width."""
    e = math.exp(epsilon)
    return (t + 1) / (e - 1) + (t + e) * ((t + 1)**3 + e - 1) / (
        3 * t**2 * (e - 1)**2)


@pytest.mark.parametrize('epsilon', [0.5, 1.0, 3.0, 6.0])
def test_close_to_the_best_window(epsilon):
    best = optimize.minimize_scalar(lambda t: worst(epsilon, t),
                                    bounds=(1, math.exp(epsilon)),
                                    method='bounded').fun
    variance = PMSub(epsilon).variance(1.0)
    assert best * (1 - 1e-4) < variance < 1.05 * best
    assert variance < Piecewise(epsilon).variance(1.0)


def test_the_window_is_wider():
    assert PMSub(3.0)._words[0, 0] == round(2**20 / (math.e + 1))
