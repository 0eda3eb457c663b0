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
from collections.abc import Iterable, Sequence
from decimal import Decimal

import numpy as np

_MOST_CASES = 10**6


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
    deltas = [delta for delta in deltas if delta > 0]
    if len(deltas) <= 1:
        return deltas[0] if deltas else 0.0
    if max(deltas) >= 1:
        return 1.0
    return -math.expm1(math.fsum(math.log1p(-delta) for delta in deltas))


def compose(costs: Sequence[tuple[float, float]], delta: float) -> float:
    r"""The smallest :math:`\varepsilon` such that mechanisms with the given
    :math:`(\varepsilon_i, \delta_i)` are together
    :math:`(\varepsilon, \delta)`-private; infinity if :obj:`delta` is less
    than what they need in any case.

    .. code-block:: python

        compose([(0.1, 0.0)] * 10, delta=0.0)    # 1.0
        compose([(0.1, 0.0)] * 10, delta=1e-3)   # 0.87...
    """
    needed = total_delta(d for _, d in costs)
    if delta < needed:
        return math.inf
    epsilons = [epsilon for epsilon, _ in costs if epsilon > 0]
    basic = exact_sum(epsilons)
    # What is left of delta for the coins.
    slack = 1 - (1 - delta) / (1 - needed) if delta > needed else 0.0
    if slack <= 0 or not math.isfinite(basic):
        return basic
    counts = Counter(epsilons)
    if math.prod(n + 1 for n in counts.values()) > _MOST_CASES:
        return min(basic, _closed_form(epsilons, slack))
    return min(basic, _optimal(counts, slack))


def _optimal(counts: 'Counter[float]', slack: float) -> float:
    loss, log_p = np.zeros(1), np.zeros(1)
    for epsilon, n in counts.items():
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


def _closed_form(epsilons: Sequence[float], slack: float) -> float:
    # Theorem 3.5 of Kairouz, Oh and Viswanath.
    mean = math.fsum(e * math.tanh(e / 2) for e in epsilons)
    squares = math.fsum(e * e for e in epsilons)
    tail = min(math.e + math.sqrt(squares) / slack, 1 / slack)
    return mean + math.sqrt(2 * squares * math.log(tail))
