import itertools
import math

import numpy as np
import pytest
from scipy import stats

from torch_geometric_dp.audit import epsilon_from_guesses


def test_transcription():
    p = stats.beta.ppf(0.01, 731, 270)
    assert float(epsilon_from_guesses(731, 1000, 0.99)) == pytest.approx(
        math.log(p / (1 - p)))
    assert epsilon_from_guesses(0, 0, 0.99) < -500
    assert epsilon_from_guesses(500, 1000, 0.99) < 0


@pytest.mark.parametrize('epsilon', [0.3, 1.5])
def test_randomised_response_meets_the_theorem(epsilon):
    # Every guess is right with the same probability: nothing can be gained.
    r, p = 200, 1 / (1 + math.exp(-epsilon))
    right = np.arange(r + 1)
    bounds = epsilon_from_guesses(right, r, 0.99)
    wrong = stats.binom.pmf(right, r, p)[bounds > epsilon].sum()
    assert 0.001 < wrong <= 0.01


def joint_laws(epsilon, m, seed):
    """A mechanism with four outputs that looks at all coins together, and is
    epsilon-private for each of them: by an exponential mechanism.
    """
    scores = np.random.RandomState(seed).rand(2**m, 4)
    coins = np.array(list(itertools.product([0, 1], repeat=m)))
    # The largest change of a score by one coin.
    change = max(np.abs(scores[i] - scores[i ^ 1 << bit]).max()
                 for i in range(2**m) for bit in range(m))
    law = np.exp(epsilon * scores / (2 * change))
    return coins, law / law.sum(axis=1, keepdims=True)


@pytest.mark.parametrize('seed', range(5))
def test_the_theorem_by_brute_force(seed):
    # Coins that share all of their noise, and any guesses, with abstention.
    epsilon, m = 1.0, 4
    coins, law = joint_laws(epsilon, m, seed)
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    given = law / law.sum(axis=0)  # Of all coins, given the output.
    for guesses in itertools.product([-1, 0, 1], repeat=m):
        guess = np.array(guesses)
        right = ((guess != 0) & ((guess > 0) == (coins == 1))).sum(axis=1)
        r = int((guess != 0).sum())
        for k in range(1, r + 1):
            tail = given[right >= k].sum(axis=0).max()
            assert tail <= stats.binom.sf(k - 1, r, p) + 1e-12
