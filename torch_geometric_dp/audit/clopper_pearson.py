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

**Theorem (two inputs).** Let a release of the first input lie in a set
:math:`E` with probability :math:`p`, and one of the second with :math:`q`. If
the mechanism is :math:`(\varepsilon, \delta)`-private, then :math:`\varepsilon
\geq \ln((p - \delta)/q)`. With a lower limit for :math:`p` and an upper one for
:math:`q`, each of which fails with probability :math:`\alpha/2` at the most,
this is a lower bound on epsilon that fails with probability :math:`\alpha` at
the most, for any :math:`E` that does not depend on the trials that are counted.

*Proof.* :math:`p \leq e^{\varepsilon} q + \delta` is the definition, and the
bound grows with :math:`p` and falls with :math:`q`. If :math:`E` was chosen on
other trials, this holds given the choice, and so without it. ∎
"""
from typing import Any

import numpy as np

from torch_geometric_dp.mechanisms.column_mechanism import Array

_TINY = 1e-300  # In the place of zero, which has no logarithm.


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
                          "'torch_geometric_dp[examples]'") from error
    k, n = np.broadcast_arrays(np.asarray(successes, float), trials)
    # Where nothing succeeded, or nothing was tried, zero is the only limit.
    limit = betaincinv(np.maximum(k, 1), np.maximum(n - k, 0) + 1, risk)
    limits: Array = np.where(k > 0, limit, 0.0)
    return limits


def epsilon_from_trials(hits: Any, trials: Any, other_hits: Any,
                        other_trials: Any, confidence: float,
                        delta: float = 0.0) -> Array:
    r"""A lower bound on epsilon from independent releases of two neighbours
    and one set of outputs, by the second theorem above. If it is negative, it
    says nothing.

    Args:
        hits (int or array): How many releases of one input lay in the set.
        trials (int or array): How many releases of it there were.
        other_hits (int or array): The same for the other input.
        other_trials (int or array): The same for the other input.
        confidence (float): The probability with which the bound is true.
        delta (float, optional): The delta of the promise.
            (default: :obj:`0.0`)

    .. code-block:: python

        float(epsilon_from_trials(730, 1000, 270, 1000, 0.99))   # 0.8...
    """
    risk = (1 - confidence) / 2
    p = lower_limit(hits, trials, risk) - delta
    # An upper limit for a probability is a lower one for that of the opposite.
    q = 1 - lower_limit(np.subtract(other_trials, other_hits), other_trials,
                        risk)
    return np.log(np.maximum(p, _TINY) / q)
