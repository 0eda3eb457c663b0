r"""How several releases about the same person add up.

**Pure epsilons** add up (basic composition), and add up exactly, as the
decimal numbers they were written as: three times 0.1 is 0.3.

**Pairs** :math:`(\varepsilon_i, \delta_i)` compose by the optimal theorem of
Kairouz, Oh and Viswanath (ICML 2015), in the form for unequal parameters of
Murtagh and Vadhan (TCC 2016). Every :math:`(\varepsilon_i, \delta_i)`
mechanism is a post-processing of one that reveals everything with probability
:math:`\delta_i` and is a biased coin, right with odds
:math:`e^{\varepsilon_i}`, otherwise. So the composition is at least as private
as a row of coins, whose loss is a sum of :math:`\pm \varepsilon_i`:

.. math::
    \delta(\varepsilon) = 1 - \prod_i (1 - \delta_i)
    \Big(1 - \sum_{s \in \{\pm 1\}^k} \max(P(s) - e^{\varepsilon} P(-s), 0)
    \Big)

No smaller :math:`\delta` holds for all such mechanisms. Coins with equal odds
are counted together; where even that leaves too many cases, the closed form of
the same theorem (an upper bound) is used.
"""
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

_MOST_CASES = 10**6
_MOST_KINDS = 20  # More of them are more than a million cases.


def exact_sum(epsilons: Iterable[float]) -> float:
    """The sum of floats, as the decimal numbers that they print as.

    .. code-block:: python

        exact_sum([0.1, 0.1, 0.1])   # 0.3
    """
    return float(sum((Decimal(repr(float(e))) for e in epsilons), Decimal(0)))


def total_delta(deltas: Iterable[float]) -> float:
    r""":math:`1 - \prod_i (1 - \delta_i)`, to full precision.

    .. code-block:: python

        total_delta([1e-5, 1e-5])   # 1.99999e-05
    """
    return Tally.of((0.0, delta) for delta in deltas).delta


def compose(costs: Iterable[tuple[float, float]], delta: float) -> float:
    r"""The smallest :math:`\varepsilon` such that mechanisms with the given
    :math:`(\varepsilon_i, \delta_i)` are together
    :math:`(\varepsilon, \delta)`-private; infinity if :obj:`delta` is less
    than what they need in any case.

    .. code-block:: python

        compose([(0.1, 0.0)] * 10, delta=0.0)    # 1.0
        compose([(0.1, 0.0)] * 10, delta=1e-3)   # 0.87...
    """
    return Tally.of(costs).epsilon(delta)


@dataclass(frozen=True)
class Tally:
    r"""Pairs of epsilon and delta as running sums: one more pair is as much
    work after a hundred thousand as after ten.

    Args:
        total (str, optional): The sum of all epsilons, a decimal number.
            (default: :obj:`"0"`)
        log_kept (float, optional): The sum of the logarithms of
            :math:`1 - \delta`. (default: :obj:`0.0`)
        lossy (int, optional): How many deltas are not zero.
            (default: :obj:`0`)
        last_delta (float, optional): The last of them. (default: :obj:`0.0`)
        mean (float, optional): The sum of the expected losses.
            (default: :obj:`0.0`)
        squares (float, optional): The sum of squared epsilons.
            (default: :obj:`0.0`)
        counts (tuple, optional): Pairs of an epsilon and how often it came, as
            long as there are few different ones; after that, :obj:`None`.
            (default: :obj:`()`)

    .. code-block:: python

        Tally().add(0.1, 0.0, count=3).epsilon(0.0)   # 0.3
    """
    total: str = '0'
    log_kept: float = 0.0
    lossy: int = 0
    last_delta: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    counts: tuple[tuple[float, int], ...] | None = ()

    @classmethod
    def of(cls, costs: Iterable[tuple[float, float]]) -> 'Tally':
        """The tally of some pairs."""
        tally = cls()
        for (epsilon, delta), count in Counter(costs).items():
            tally = tally.add(epsilon, delta, count)
        return tally

    def add(self, epsilon: float, delta: float, count: int = 1) -> 'Tally':
        """A tally with more pairs, all of them the same."""
        total = Decimal(self.total) + count * Decimal(repr(float(epsilon)))
        out = replace(self, total=str(total))
        if delta > 0:
            log_kept = -math.inf if delta >= 1 else math.log1p(-delta)
            out = replace(out, log_kept=self.log_kept + count * log_kept,
                          lossy=self.lossy + count, last_delta=float(delta))
        if epsilon <= 0 or not math.isfinite(epsilon):
            return out
        counts = self.counts
        if counts is not None:
            known = dict(counts)
            known[epsilon] = known.get(epsilon, 0) + count
            counts = tuple(known.items()) if len(known) <= _MOST_KINDS else None
        return replace(
            out, counts=counts, squares=self.squares + count * epsilon**2,
            mean=self.mean + count * epsilon * math.tanh(epsilon / 2))

    @property
    def delta(self) -> float:
        """The delta that all of them need in any case."""
        if self.lossy <= 1:
            return self.last_delta
        return -math.expm1(self.log_kept)

    def epsilon(self, delta: float, most_cases: int | None = None) -> float:
        """The smallest epsilon for all of them together; infinity if
        :obj:`delta` is less than what they need.
        """
        needed = self.delta
        if delta < needed:
            return math.inf
        basic = float(Decimal(self.total))
        # What is left of delta for the coins.
        slack = 1 - (1 - delta) / (1 - needed) if delta > needed else 0.0
        if slack <= 0 or not math.isfinite(basic):
            return basic
        if self.counts is None or (
                math.prod(n + 1 for _, n in self.counts)
                > (most_cases or _MOST_CASES)):
            return min(basic, self._closed_form(slack))
        return min(basic, _optimal(self.counts, slack))

    def _closed_form(self, slack: float) -> float:
        # Theorem 3.5 of Kairouz, Oh and Viswanath.
        tail = min(math.e + math.sqrt(self.squares) / slack, 1 / slack)
        return self.mean + math.sqrt(2 * self.squares * math.log(tail))


def _optimal(counts: Iterable[tuple[float, int]], slack: float) -> float:
    loss, log_p = np.zeros(1), np.zeros(1)
    for epsilon, n in counts:
        right = np.arange(n + 1)
        ways = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
                for k in range(n + 1)]
        log_right = -math.log1p(math.exp(-epsilon))
        log_here = np.array(ways) + n * log_right - (n - right) * epsilon
        loss = np.add.outer(loss, (2 * right - n) * epsilon).ravel()
        log_p = np.add.outer(log_p, log_here).ravel()
    order = np.argsort(-loss, kind='stable')
    loss, log_p = loss[order], log_p[order]
    # The sum of positive parts is the largest over the prefixes, so epsilon
    # has to satisfy one linear inequality in e^epsilon for every prefix.
    p, q = np.cumsum(np.exp(log_p)), np.cumsum(np.exp(log_p - loss))
    open_ = (p > slack) & (q > 0)
    if not open_.any():
        return 0.0
    return max(0.0, float(np.log((p - slack)[open_] / q[open_]).max()))
