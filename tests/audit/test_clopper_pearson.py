import math

import numpy as np
import pytest
from scipy import stats

from torch_geometric_dp.audit import epsilon_from_trials, lower_limit


@pytest.mark.parametrize('n', [1, 7, 40])
@pytest.mark.parametrize('risk', [0.3, 0.01, 1e-6])
def test_the_limit_is_wrong_as_rarely_as_it_says(n, risk):
    # All outcomes, for many probabilities, also at the limits themselves.
    limits = lower_limit(np.arange(n + 1), n, risk)
    assert (np.diff(limits) > 0).all() and limits[0] == 0
    for p in np.concatenate([np.linspace(0, 1, 101), limits - 1e-9, limits]):
        p = min(max(p, 0.0), 1.0)
        wrong = stats.binom.pmf(np.arange(n + 1), n, p)[limits > p].sum()
        assert wrong <= risk * (1 + 1e-6)


def test_the_limit_is_the_largest_such():
    for k, n in ((1, 1), (3, 10), (10, 10)):
        limit = float(lower_limit(k, n, 0.01))
        assert stats.binom.sf(k - 1, n, limit) == pytest.approx(0.01)


def test_no_trials_tell_nothing():
    assert lower_limit(0, 0, 0.01) == 0
    assert epsilon_from_trials(0, 0, 0, 0, 0.99) < -500


def exact_error(n, p, q, delta, truth, confidence):
    """The probability that a bound from n trials each is above the truth."""
    k = np.arange(n + 1)
    bounds = epsilon_from_trials(k[:, None], n, k, n, confidence, delta)
    law = stats.binom.pmf(k, n, p)[:, None] * stats.binom.pmf(k, n, q)
    return law[bounds > truth + 1e-12].sum()


@pytest.mark.parametrize('delta', [0.0, 0.05])
def test_two_inputs(delta):
    for epsilon in (0.0, 0.5, 2.0):
        for q in (0.01, 0.1, 0.3):
            p = min(math.exp(epsilon) * q + delta, 1.0)
            error = exact_error(60, p, q, delta, epsilon, 0.9)
            assert error <= 0.1
    # And not for want of daring: a bound of zero would never be wrong.
    assert exact_error(60, 0.5, 0.1, 0.0, 0.5, 0.9) > 0.3


def test_transcription():
    p = stats.beta.ppf(0.005, 730, 271)
    q = stats.beta.ppf(0.995, 271, 730)
    assert float(epsilon_from_trials(730, 1000, 270, 1000, 0.99)) == (
        pytest.approx(math.log(p / q)))
    assert float(epsilon_from_trials(730, 1000, 270, 1000, 0.99, 0.1)) == (
        pytest.approx(math.log((p - 0.1) / q)))
    assert epsilon_from_trials(270, 1000, 730, 1000, 0.99) < -0.9
