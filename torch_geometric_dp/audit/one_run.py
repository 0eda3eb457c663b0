r"""Lower bounds on epsilon from guesses: many canaries, one release (after
Steinke, Nasr and Jagielski, NeurIPS 2023).

A canary is a unit of the raw data (a row, a label, an edge, a node) that is set
to one of two neighbouring values by the toss of a fair coin. All coins are
independent. Whoever sees the release guesses some of the coins.

**Theorem.** Let a mechanism be :math:`\varepsilon`-private (with :math:`\delta
= 0`) for each canary. Whatever is released, given the release, the number of
right ones among :math:`r` guesses is stochastically at most
:math:`\textrm{Bin}(r, p)` with :math:`p = e^{\varepsilon}/(1 +
e^{\varepsilon})`.

*Proof.* Let :math:`y` be the release, and fix all coins but the :math:`i`-th.
By Bayes' rule, the odds of its two sides given :math:`y` are the ratio of the
probabilities of :math:`y` under two inputs that differ in one unit, which is at
most :math:`e^{\varepsilon}`: any guess is right with a probability of at most
:math:`p`, whatever the other coins show. So, going through the guesses one by
one, each is right with a probability of at most :math:`p` whatever the ones
before were, and their sum is at most that of :math:`r` independent coins with
:math:`p`. ∎

The canaries may share noise, and need not be independent in any other way. They
may be spread over several releases: :math:`y` is all of them. How to guess may
be learned from canaries that are not guessed, as their coins are among those
that the proof fixes. With :mod:`torch_geometric_dp.audit.clopper_pearson`, a
lower limit for :math:`p` is one for :math:`\varepsilon = \ln(p / (1 - p))`.

For :math:`\delta > 0` the theorem of the paper loses a term that grows with the
number of canaries. Here, such promises are tried by independent trials
(:mod:`torch_geometric_dp.audit.clopper_pearson`).
"""
from typing import Any

import numpy as np

from torch_geometric_dp._typing import Array
from torch_geometric_dp.audit.clopper_pearson import _TINY, lower_limit


def epsilon_from_guesses(right: Any, guesses: Any,
                         confidence: float) -> Array:
    r"""A lower bound on epsilon from guesses of fair coins, by the theorem
    above. If it is negative, it says nothing.

    Args:
        right (int or array): How many guesses were right.
        guesses (int or array): How many guesses there were.
        confidence (float): The probability with which the bound is true.

    .. code-block:: python

        float(epsilon_from_guesses(731, 1000, 0.99))   # 0.8...
    """
    p = lower_limit(right, guesses, 1 - confidence)
    return np.log(np.maximum(p, _TINY) / (1 - p))
