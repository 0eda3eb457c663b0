"""The law is tested together with that of the Piecewise mechanism."""
import math

import pytest
from scipy import optimize

from torch_geometric_dp.mechanisms import SquareWave


def information(epsilon, b):
    """What the output tells of a uniform value, in nats: the entropy of a
    nearly flat law over [-b, 1 + b], as in the paper, less that of the noise.
    """
    e = math.exp(epsilon)
    q = 1 / (2 * b * e + 1)
    p = e * q
    return math.log(2 * b + 1) + 2 * b * p * math.log(p) + q * math.log(q)


@pytest.mark.parametrize('epsilon', [0.1, 0.5, 1.0, 3.0, 6.0])
def test_the_window_that_tells_most(epsilon):
    best = optimize.minimize_scalar(lambda b: -information(epsilon, b),
                                    bounds=(1e-4, 1), method='bounded',
                                    options={'xatol': 1e-9}).x
    mechanism = SquareWave(epsilon)
    share = int(mechanism._words[0, 0]) / mechanism.cells
    assert share / (1 - share) == pytest.approx(2 * best, rel=1e-3)
    e = math.exp(epsilon)
    b = (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))
    assert share == pytest.approx(2 * b / (1 + 2 * b), rel=1e-3)


@pytest.mark.parametrize('epsilon', [1e-300, 1e-12, 36.0, 1e5])
def test_any_epsilon_has_a_window(epsilon):
    inside = int(SquareWave(epsilon)._words[0, 0])
    assert 1 <= inside <= SquareWave.cells // 2
