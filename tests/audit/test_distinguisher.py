import numpy as np
import pytest

from torch_geometric_dp.audit import Distinguisher
from torch_geometric_dp.audit.distinguisher import lowest_bit


def trials(draw, n=4000, seed=0):
    rng = np.random.RandomState(seed)
    coins = rng.rand(n) < 0.5
    return draw(rng, coins), coins


def told(draw, **kwargs):
    outcomes, coins = trials(draw)
    new = trials(draw, seed=1)
    judge = Distinguisher(outcomes, coins, 0.99, **kwargs)
    return judge, judge.bound(*new, 0.99)


def test_lowest_bit():
    values = np.array([1.0, 3.0, -3.0, 0.75, 2.0**-30, 6.0, 0.0, np.inf,
                       np.nan, 1 + 2.0**-52, 2.0**-1074])
    assert lowest_bit(values).tolist() == [0, 0, 0, -2, -30, 1, 1024, 1024,
                                           1024, -52, -1074]


def test_values():
    # Heads: 0, 1 or 2; tails: 1, 2 or 3.
    judge, bound = told(lambda rng, c: rng.randint(0, 3, (len(c), 1)) + ~c[
        :, None])
    assert judge.guess(np.array([[0], [1], [2], [3]])).tolist() == [1, 0, 0,
                                                                    -1]
    assert bound > 4


def test_what_only_the_norm_shows():
    # The same mean in every column, and another spread.
    judge, bound = told(lambda rng, c: rng.normal(size=(len(c), 20)) *
                        np.where(c, 2.0, 1.0)[:, None])
    assert bound > 4


def test_what_only_the_sum_shows():
    judge, bound = told(lambda rng, c: rng.normal(size=(len(c), 50)) +
                        0.1 * c[:, None])
    assert bound > 0.3


def test_what_only_whole_rows_show():
    # Each column, and the sum, are the same for heads and tails.
    def draw(rng, coins):
        first = rng.randint(0, 3, len(coins))
        return np.stack([first, (first + 1 + coins) % 3], axis=1).astype(float)

    judge, bound = told(draw)
    assert judge.view == 'whole rows' and bound > 5


def test_what_only_the_lowest_bits_show():
    def draw(rng, coins):
        noise = rng.randint(0, 2**40, (len(coins), 1)) * 2
        return (noise + coins[:, None]) * 2.0**-45

    judge, bound = told(draw)
    assert judge.view == 'the lowest bits' and bound > 5


@pytest.mark.parametrize('columns', [1, 3])
@pytest.mark.parametrize('delta', [0.0, 1e-3])
def test_where_there_is_nothing_to_see(columns, delta):
    judge, bound = told(lambda rng, c: rng.normal(size=(len(c), columns)),
                        delta=delta)
    assert bound < 0.15


def test_what_a_difference_of_means_shows_best():
    # Gaussian noise, small and large, and a change in proportion to it: the
    # sum hears the loudest columns alone, and one column tells little.
    noise = np.geomspace(0.1, 100, 50)
    judge, bound = told(lambda rng, c: noise * (
        rng.normal(size=(len(c), 50)) + 0.2 * c[:, None]), delta=1e-5)
    assert judge.view == 'the difference of means' and bound > 1.2
    # What is no number may be a very large one.
    huge = np.full((2, 50), [[2e300], [-2e300]])
    assert np.isfinite(judge.scores(huge)).all()


def test_with_delta_it_guesses_both_sides():
    judge, bound = told(lambda rng, c: rng.normal(size=(len(c), 1)) +
                        4.0 * c[:, None], delta=1e-5)
    assert np.isfinite(judge.low) and np.isfinite(judge.high)
    assert bound > 4


def test_never_seen_values_and_constant_columns():
    judge = Distinguisher(np.zeros((100, 2)), np.arange(100) % 3 == 0, 0.99)
    assert judge.guess(np.full((3, 2), 7.0)).shape == (3, )
    assert judge.bound(np.zeros((5, 2)), np.ones(5, bool), 0.99) < 3
