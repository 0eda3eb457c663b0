r"""Learns to tell the releases of two inputs apart, and when to say nothing.

Nothing is known of the mechanism. A release is a row of numbers, which are
looked at in several ways: in narrow and in wide ranges, one by one, only the
one that tells most, as a whole row, by their sum, by their norm, and by their
lowest bits, which is how noise that was added in floating point gives itself
away. For each of them, one half of the trials says how often a value came from
the one input and how often from the other: the logarithm of the ratio, summed
over the row, is its score. One more score is how far a row lies along the line
from the one mean to the other, which is as good as it gets against Gaussian
noise. The other half of the trials chooses the way to look, and the scores from
which on to guess.

Whatever is chosen here may be poor, but never wrong: the bound is computed on
trials that had no part in it.
"""
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp._typing import Array
from torch_geometric_dp.audit.clopper_pearson import epsilon_from_trials
from torch_geometric_dp.audit.one_run import epsilon_from_guesses

Coins = NDArray[np.bool_]

_BINS = 32  # For columns with more values than that.
_FEW_BINS = 6  # Where each value tells little, it takes many trials to see it.
_MOST_VALUES = 512  # That are counted one by one.
_MOST_THRESHOLDS = 64
_LEAST = 1e-30  # Of a variance that one divides by.
_EXACT = ('single values', 'the lowest bits', 'whole rows')


class Distinguisher:
    r"""Tells from a release which of two inputs it came from.

    Args:
        outcomes (numpy.ndarray): One row of numbers for each trial.
        coins (numpy.ndarray): Which of the two inputs it was.
        confidence (float): That of the bound to make large.
        delta (float, optional): The delta of the promise on trial.
            (default: :obj:`0.0`)

    .. code-block:: python

        import numpy as np
        rng = np.random.default_rng(0)
        coins = rng.random(1000) < 0.5
        noisy = coins[:, None] + rng.integers(-2, 3, (1000, 1))
        told = Distinguisher(noisy, coins, confidence=0.99)
        told.guess(np.array([[3], [-2]]))   # [ 1 -1]
    """
    def __init__(self, outcomes: Array, coins: Coins, confidence: float,
                 delta: float = 0.0) -> None:
        # Alternately, so that both halves have canaries of every release.
        fit, choose = slice(0, None, 2), slice(1, None, 2)
        self.delta = delta
        #: The bound on the trials of the choice, which is too good to be true.
        self.promise = -np.inf
        # What is always the same tells nothing.
        self._telling = np.ptp(outcomes, axis=0) > 0 if len(
            outcomes) else np.zeros(outcomes.shape[1], np.bool_)
        self._telling[0] |= not self._telling.any()
        outcomes = outcomes[:, self._telling]
        ways: list[_Line | _Table] = [
            _Table(view, outcomes[fit], coins[fit])
            for view in _views(outcomes[fit])
        ]
        for way in [*ways, _Line(outcomes[fit], coins[fit])]:
            low, high, bound = _thresholds(way.scores(outcomes[choose]),
                                           coins[choose], confidence, delta)
            if bound > self.promise:
                self.promise = bound
                self.view, self._way = way.name, way
                self.low, self.high = low, high

    def scores(self, outcomes: Array) -> Array:
        """How much likelier each release is under the one input than under the
        other, as a logarithm.
        """
        return self._way.scores(outcomes[:, self._telling])

    def guess(self, outcomes: Array) -> NDArray[np.int64]:
        """Which input it was, 1 or -1, or 0 where that is hard to say."""
        scores = self.scores(outcomes)
        return (scores >= self.high).astype(int) - (scores <= self.low)

    def bound(self, outcomes: Array, coins: Coins, confidence: float) -> float:
        """A lower bound on epsilon, from trials that are new to this."""
        guesses = self.guess(outcomes)
        right = int(((guesses != 0) & ((guesses > 0) == coins)).sum())
        bound = _bound(right, int((guesses != 0).sum()), len(coins),
                       confidence, self.delta)
        return max(0.0, float(bound))


def _bound(right: Any, guesses: Any, trials: int, confidence: float,
           delta: float) -> Array:
    if delta == 0:  # No matter how trials depend on each other.
        return epsilon_from_guesses(right, guesses, confidence)
    return epsilon_from_trials(right, guesses, trials, confidence, delta)


@dataclass(frozen=True)
class _View:
    name: str
    edges: Array  # Between coarse ranges of values, for the lowest bits.

    def __call__(self, outcomes: Array) -> Array:
        seen = outcomes
        if self.name == 'the sum':
            seen = outcomes.sum(axis=1, keepdims=True)
        elif self.name == 'the norm':
            seen = np.abs(outcomes).sum(axis=1, keepdims=True)
        elif self.name == 'whole rows':  # Equal rows have equal numbers.
            weights = np.random.RandomState(0).rand(outcomes.shape[1])
            seen = (outcomes * weights).sum(axis=1, keepdims=True)
        elif self.name == 'the lowest bits':
            seen = lowest_bit(outcomes) + 4096.0 * np.searchsorted(
                self.edges, outcomes)
        return seen


def _views(outcomes: Array) -> list[_View]:
    names = ['values', 'ranges', 'single values', 'the lowest bits']
    if outcomes.shape[1] > 1:
        names += ['one number', 'the sum', 'the norm', 'whole rows']
    edges = np.quantile(outcomes, np.linspace(0, 1, 9)[1:-1]) if len(
        outcomes) else np.empty(0)
    return [_View(name, edges) for name in names]


def lowest_bit(values: Array) -> Array:
    """The place of the lowest bit that is set in a floating point number: 0 for
    odd integers, -1 for odd multiples of one half, and 1024 for zero.

    .. code-block:: python

        import numpy as np
        lowest_bit(np.array([3.0, 0.75]))   # [ 0. -2.]
    """
    mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 0.0))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = np.log2(np.maximum(whole & -whole, 1)) + exponent - 53
    places: Array = np.where(whole == 0, 1024.0, lowest)
    return places


class _Table:
    # For each column of a view, the logarithm of how much likelier a value is.
    def __init__(self, view: _View, outcomes: Array, coins: Coins) -> None:
        self.name = view.name
        self._view = view
        self._columns = [
            _column(column, coins, view.name in _EXACT,
                    _FEW_BINS if view.name == 'ranges' else _BINS)
            for column in view(outcomes).T
        ]
        self._used = list(range(len(self._columns)))
        if view.name == 'one number':  # All others are noise, if it is enough.
            told = [np.where(coins, part, -part).sum()
                    for part in self._parts(outcomes)]
            self._used = [int(np.argmax(told))]

    def scores(self, outcomes: Array) -> Array:
        return sum(self._parts(outcomes), np.zeros(len(outcomes)))

    def _parts(self, outcomes: Array) -> Iterator[Array]:
        # What each of the columns in use adds to the scores.
        seen = self._view(outcomes)
        for i in self._used:
            (values, odds, exact), column = self._columns[i], seen[:, i]
            if exact:
                at = np.minimum(np.searchsorted(values, column),
                                len(values) - 1)
                yield np.where(values[at] == column, odds[at], 0.0)
            else:
                yield odds[np.searchsorted(values, column, 'right')]


class _Line:
    # How far along the line from the one mean to the other, where columns with
    # less noise count for more.
    name = 'the difference of means'

    def __init__(self, outcomes: Array, coins: Coins) -> None:
        one, other = (_tame(outcomes[side]) for side in (coins, ~coins))
        self._weights = np.zeros(outcomes.shape[1])
        if len(one) and len(other):
            spread = one.var(axis=0) + other.var(axis=0)
            change = one.mean(axis=0) - other.mean(axis=0)
            self._weights = change / np.maximum(spread, _LEAST)

    def scores(self, outcomes: Array) -> Array:
        total: Array = _tame(outcomes) @ self._weights
        return total


def _tame(outcomes: Array) -> Array:
    # Their squares can be added up.
    return np.clip(outcomes, -1e100, 1e100)


def _column(column: Array, coins: Coins, exact: bool,
            bins: int) -> tuple[Array, Array, bool]:
    values, index, total = np.unique(column, return_inverse=True,
                                     return_counts=True)
    if exact and len(values) > _MOST_VALUES:  # The most frequent ones.
        common = np.sort(np.argsort(-total, kind='stable')[:_MOST_VALUES])
        kept = np.isin(index, common)
        values, index = values[common], np.searchsorted(common, index[kept])
        coins = coins[kept]
    elif not exact and len(values) > bins:
        values = np.unique(np.quantile(column,
                                       np.linspace(0, 1, bins + 1)[1:-1]))
        index = np.searchsorted(values, column, 'right')
        return values, _log_odds(index, coins, len(values) + 1), False
    return values, _log_odds(index, coins, len(values)), True


def _log_odds(index: NDArray[np.int64], coins: Coins, count: int) -> Array:
    ours = np.bincount(index[coins], minlength=count).astype(float)
    others = np.bincount(index[~coins], minlength=count).astype(float)
    others *= max(coins.sum(), 1) / max((~coins).sum(), 1)
    # What is within the standard error may well be nothing, but adds up.
    error = (ours + others) / np.maximum((ours - others)**2, 1e-9)
    odds: Array = np.log((ours + 0.5) / (others + 0.5))
    odds *= np.maximum(1 - error, 0.0)
    return odds


def _thresholds(scores: Array, coins: Coins, confidence: float,
                delta: float) -> tuple[float, float, float]:
    # The scores up to which, and from which on, to guess; and the bound that
    # this gives.
    places = _places(scores)
    ours, others = (np.sort(scores[side]) for side in (coins, ~coins))
    above = [len(part) - np.searchsorted(part, places, 'left')
             for part in (ours, others)]
    below = [np.searchsorted(part, places, 'right')
             for part in (ours, others)]
    # The last place stands for no guess at all.
    high_right, high_wrong = (np.append(part, 0) for part in above)
    low_wrong, low_right = (np.append(part, 0) for part in below)
    right = high_right[:, None] + low_right
    wrong = high_wrong[:, None] + low_wrong
    bounds = _bound(right, right + wrong, len(coins), confidence, delta)
    apart = np.append(places, np.inf)[:, None] > np.append(places, -np.inf)
    bounds = np.where(apart, bounds, -np.inf)
    i, j = divmod(int(bounds.argmax()), bounds.shape[1])
    return (float(np.append(places, -np.inf)[j]),
            float(np.append(places, np.inf)[i]), float(bounds[i, j]))


def _places(scores: Array) -> Array:
    # Some of the scores, closer to each other at both ends.
    ordered: Any = np.sort(scores)
    if len(ordered) == 0:
        return np.empty(0)
    tail = np.geomspace(1, max(len(ordered) / 2, 1), _MOST_THRESHOLDS // 2)
    index = np.concatenate([tail, len(ordered) - tail]).astype(int)
    places: Array = np.unique(ordered[np.clip(index, 0, len(ordered) - 1)])
    return places
