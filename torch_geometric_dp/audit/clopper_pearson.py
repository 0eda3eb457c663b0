r"""Lower bounds on epsilon from independent trials.

**Theorem (Clopper and Pearson, 1934).** Let :math:`k` of :math:`n` independent
trials succeed, each with probability :math:`p`. The smallest :math:`L` with
:math:`P(\textrm{Bin}(n, L) \geq k) \geq \alpha` is above :math:`p` with a
probability of at most :math:`\alpha`.

*Proof.* :math:`L(k)` grows with :math:`k`. Let :math:`k_0` be the first
:math:`k` with :math:`L(k) > p`. Then :math:`P(\textrm{Bin}(n, p) \geq k_0) <
\alpha`, by the choice of :math:`L`, and that is the probability that the limit
fails. (It is enough that :math:`k` is *stochastically at most* a binomial
variable; :mod:`torch_geometric_dp.audit.one_run` needs that.) ∎

**Theorem (two inputs).** In each of :math:`n` independent trials, a fair coin
picks one of two neighbours, and its release is guessed: rightly with
probability :math:`R`, wrongly with :math:`W`, and not at all otherwise. Let
:math:`g = R + W` and :math:`\rho = R/g`. If the mechanism is
:math:`(\varepsilon, \delta)`-private, then

.. math::
    \varepsilon \geq \ln \frac{\rho - \delta/g}{1 - \rho}.

With lower limits for :math:`\rho` and for :math:`g` that fail with probability
:math:`\alpha_1` and :math:`\alpha_2` at the most, this is a lower bound on
epsilon that fails with probability :math:`\alpha_1 + \alpha_2` at the most, for
any way to guess that does not depend on the trials that are counted.

*Proof.* Let :math:`E` be the releases that are guessed to be of the first
input, and :math:`F` those of the second. By definition, :math:`2R = P(E) +
P'(F) \leq e^{\varepsilon} (P'(E) + P(F)) + 2\delta = 2 (e^{\varepsilon} W +
\delta)`; division by :math:`g` gives the bound, which grows with :math:`\rho`
and with :math:`g`. The number of guesses is binomial with :math:`g`, and given
which trials are guessed, that of the right ones is binomial with :math:`\rho`.
If the way to guess was chosen on other trials, this holds given the choice, and
so without it. ∎
"""
from typing import Any

import numpy as np

from torch_geometric_dp._typing import Array

_TINY = 1e-300  # In the place of zero, which has no logarithm.
# Of the risk, for how often one guesses: that matters little if delta is small.
_SHARE = 0.1


def lower_limit(successes: Any, trials: Any, risk: float) -> Array:
    r"""A lower limit for the probability of success that is wrong with a
    probability of at most :obj:`risk`.

    Args:
        successes (int or array): How many trials succeeded.
        trials (int or array): How many trials there were.
        risk (float): The probability of a wrong limit.

    .. code-block:: python

        float(lower_limit(90, 100, risk=0.01))   # 0.80...
    """
    try:
        from scipy.special import betaincinv
    except ImportError as error:
        raise ImportError("Audits need scipy: pip install "
                          "'torch_geometric_dp[audit]'") from error
    k, n = np.broadcast_arrays(np.asarray(successes, float), trials)
    # Where nothing succeeded, or nothing was tried, zero is the only limit.
    limit = betaincinv(np.maximum(k, 1), np.maximum(n - k, 0) + 1, risk)
    limits: Array = np.where(k > 0, limit, 0.0)
    return limits


def epsilon_from_trials(right: Any, guesses: Any, trials: Any,
                        confidence: float, delta: float) -> Array:
    r"""A lower bound on epsilon from guesses in independent trials, by the
    second theorem above. If it is negative, it says nothing.

    Args:
        right (int or array): How many guesses were right.
        guesses (int or array): How many guesses there were.
        trials (int or array): How many trials there were.
        confidence (float): The probability with which the bound is true.
        delta (float): The delta of the promise.

    .. code-block:: python

        float(epsilon_from_trials(731, 1000, 2000, 0.99, 1e-5))   # 0.8...
    """
    risk = 1 - confidence
    rho = lower_limit(right, guesses, (1 - _SHARE) * risk)
    g = lower_limit(guesses, trials, _SHARE * risk)
    excess = rho - delta / np.maximum(g, _TINY)
    return np.log(np.maximum(excess, _TINY) / (1 - rho))
