import itertools
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
    assert epsilon_from_trials(0, 0, 0, 0.99, 0.0) < -500
    assert epsilon_from_trials(0, 0, 9, 0.99, 0.1) < -500


def exact_error(n, right, wrong, delta, truth, confidence):
    """The probability that a bound from n trials is above the truth."""
    r, k = np.arange(n + 1)[:, None], np.arange(n + 1)
    bounds = epsilon_from_trials(np.minimum(k, r), r, n, confidence, delta)
    guess = right + wrong
    law = stats.binom.pmf(r, n, guess) * stats.binom.pmf(k, r, right / guess)
    return law[bounds > truth + 1e-12].sum()


@pytest.mark.parametrize('delta', [0.0, 0.05])
def test_two_inputs(delta):
    for epsilon in (0.0, 0.5, 2.0):
        for wrong in (0.01, 0.03, 0.1):
            right = math.exp(epsilon) * wrong + delta
            error = exact_error(60, right, wrong, delta, epsilon, 0.9)
            assert error <= 0.1
    # And not for want of daring: a bound of zero would never be wrong.
    assert exact_error(60, 0.5, 0.1, 0.0, 0.5, 0.9) > 0.3


def test_any_guesses_of_what_is_private():
    # Pure randomised response, and with probability delta the truth itself:
    # all ways to guess from the four outputs are within the theorem.
    epsilon, delta = 1.0, 0.1
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    law = np.array([[(1 - delta) * p, (1 - delta) * (1 - p), delta, 0.0],
                    [(1 - delta) * (1 - p), (1 - delta) * p, 0.0, delta]])
    for guess in itertools.product([-1, 0, 1], repeat=4):
        heads, tails = np.array(guess) > 0, np.array(guess) < 0
        right = (law[0, heads].sum() + law[1, tails].sum()) / 2
        wrong = (law[1, heads].sum() + law[0, tails].sum()) / 2
        assert right <= math.exp(epsilon) * wrong + delta + 1e-12


def test_transcription():
    rho = stats.beta.ppf(0.009, 730, 271)
    g = stats.beta.ppf(0.001, 1000, 3001)
    assert float(epsilon_from_trials(730, 1000, 4000, 0.99, 0.0)) == (
        pytest.approx(math.log(rho / (1 - rho))))
    assert float(epsilon_from_trials(730, 1000, 4000, 0.99, 0.1)) == (
        pytest.approx(math.log((rho - 0.1 / g) / (1 - rho))))
    assert epsilon_from_trials(270, 1000, 4000, 0.99, 0.0) < -0.9
