r"""What noise promises on the sum of a random batch, of which one person may be
in several examples.

**Setting.** A step draws each of some places with probability :math:`q`,
independently (Poisson sampling), sums the vectors at the places that were
drawn, each of a norm of at most 1, and adds Gaussian noise of the scale
:math:`\sigma`. When one person changes, the vectors at :math:`m + 1` places
change, at the most: the one at their own place by at most :math:`a`, and those
at :math:`m` others by at most :math:`b`. Here :math:`a = 1` for a person who
comes or goes, as the own vector is then there or not, :math:`a = 2` for one who
is replaced, and :math:`b = 2`.

**Theorem.** Let :math:`k` be the sum of a coin with :math:`q` times :math:`a`
and of :math:`\textrm{Bin}(m, q)` times :math:`b`, with probabilities
:math:`w_k`. With :math:`H_\alpha(P \| Q) = \sup_S P(S) - \alpha Q(S)`, two
neighbours have, for all :math:`\alpha' \geq 1`,

.. math::
    H_{\alpha'}(P \| Q) \leq f(\alpha') = \min \sum_{k > 0} w_k \,
    H_{\alpha_k} \big(\mathcal{N}(k, \sigma^2) \,\|\, \mathcal{N}(0, \sigma^2)
    \big)

over all :math:`\alpha_k \geq \alpha'` with :math:`\sum_{k > 0} w_k (\alpha_k -
\alpha') \leq w_0 (\alpha' - 1)`, and :math:`H_{\alpha'}(P \| Q) \leq 1 -
\alpha' + \alpha' f(1/\alpha')` for :math:`\alpha' < 1`.

*Proof.* What is drawn of all other places is the same sum on both sides, and
independent of the rest: by convexity of :math:`H`, let it be fixed, and be
zero. Let :math:`S` be the affected places that were drawn, and :math:`\mu_S,
\mu'_S` their sums. The two are at most :math:`k` apart, which is :math:`a` for
the own place and :math:`b` for each other one, and :math:`\mu_S` is at most
:math:`|S| \leq k` from zero. Let :math:`P_k, Q_k` be the laws of the release
given :math:`k`, and :math:`W = P_0 = Q_0 = \mathcal{N}(0, \sigma^2)`. Then

.. math::
    P - \alpha' Q \leq \sum_{k > 0} w_k P_k - \Big( w_0 (\alpha' - 1) W +
    \alpha' \sum_{k > 0} w_k Q_k \Big) \leq \sum_{k > 0} w_k \big( P_k -
    \alpha' Q_k - (\alpha_k - \alpha') W \big),

where each :math:`k` has got a share of :math:`W`. The bracket is :math:`P_k -
\alpha_k R_k` for a mixture :math:`R_k` of :math:`Q_k` and :math:`W`, and by
joint convexity, with the same :math:`S` on both sides, :math:`H_{\alpha_k}(P_k
\| R_k)` is at most that of two normal laws at a distance of :math:`k`, with
which it grows. For :math:`\alpha' < 1`, :math:`H_{\alpha'}(P \| Q) = 1 -
\alpha' + \alpha' H_{1/\alpha'}(Q \| P)`, and :math:`Q, P` are neighbours, too.
∎

The derivative of :math:`H_\alpha(\mathcal{N}(k) \| \mathcal{N}(0))` is a tail
of :math:`\mathcal{N}(0)`, and at the minimum, all tails that matter start at
one :math:`t`: :math:`\alpha_k = \max(\alpha', e^{(k t - k^2/2)/\sigma^2})`. For
:math:`m = 0`, this is amplification by sampling as it is known (Balle, Barthe
and Gaboardi, NeurIPS 2018).

**Composition.** :math:`f`, the minimum of a convex program, is convex, and so
is its continuation to :math:`\alpha' < 1`, also at 1, where no slope is below
:math:`-(1 - f(1))/2`. It is then the profile of a pair of laws, which dominates
each step, whatever the steps before have shown, and its :math:`T`-fold product
dominates all :math:`T` steps (Zhu, Dong and Wang, AISTATS 2022, Theorem 10). It
is discretised from above by connecting the dots, and composed, with
:obj:`dp-accounting`. For :math:`m = 0` and :math:`a = 1`, the pairs of the two
directions are known exactly, and are taken in place of :math:`f`.

**Why not a mixture against one normal law.** :math:`\sum_k P(k)
\mathcal{N}(k, \sigma^2)` against :math:`\mathcal{N}(0, \sigma^2)`, the
mixture-of-Gaussians mechanism (Choquette-Choo et al., ICLR 2024), is right for
examples that come or go. It does *not* dominate examples that change: with
:math:`m + 1 = 2` places, :math:`q = 1/2` and :math:`\sigma = 2`, vectors 1 that
become -1 have :math:`H_\alpha = 0.3306` at :math:`\ln \alpha = 0.1`, and the
mixture 0.3297. The bound above has 0.3358. (Daigavane et al., 2021, who have
the number of affected examples in a Rényi bound, compare the same batches with
each other, as it is done here.)
"""
import math
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp.accountant.events import SampledGaussianNoise

Array = NDArray[np.float64]

_TAIL = 1e-22  # What is cut off, and counted as lost.
_MOST = 200.0  # A larger loss, in one step, is as good as an infinite one.
_POINTS = 2**11  # Of a step's profile, at the most on either side.


def sampled_profile(event: SampledGaussianNoise, epsilon: Any) -> Array:
    r"""The bound :math:`f(e^\varepsilon)` of the theorem, for one step.

    .. code-block:: python

        event = SampledGaussianNoise(2.0, rate=0.5, steps=1, others=1, own=2)
        sampled_profile(event, 0.1)   # [0.3358...]
    """
    from scipy.special import ndtr
    given = np.atleast_1d(np.asarray(epsilon, np.float64))
    size, weight, none, lost = _distances(event)
    up, sigma = np.abs(given)[:, None], event.multiplier
    inner = np.maximum(up, (size * _tail_start(event, up) - size**2 / 2)
                       / sigma**2)
    shift, half = inner * sigma / size, size / (2 * sigma)
    with np.errstate(over='ignore', invalid='ignore'):
        gap = ndtr(half - shift) - np.nan_to_num(
            np.exp(inner) * ndtr(-half - shift), nan=0.0, posinf=0.0)
    total = np.minimum(np.maximum(gap, 0.0) @ weight + lost, 1.0)
    down = -np.expm1(-up[:, 0]) + np.exp(-up[:, 0]) * total
    out: Array = np.where(given >= 0, total, down)
    return out


def _tail_start(event: SampledGaussianNoise, up: Array) -> Array:
    # The t of the theorem for each epsilon, or a little less, by Newton's
    # method: what is left of the shares of W is convex in t, and grows, and the
    # first t has one of the k take all.
    size, weight, none, _ = _distances(event)
    sigma, least = event.multiplier, np.exp(up)
    spare = none * np.expm1(up)
    start = (sigma**2 / size * np.log(least + spare / weight) + size / 2).min(
        axis=1, keepdims=True)
    for _ in range(60):
        ratio = np.exp(np.minimum((size * start - size**2 / 2) / sigma**2,
                                  700.0))
        active = ratio > least
        excess = np.where(active, weight * (ratio - least), 0.0).sum(
            axis=1, keepdims=True) - spare
        slope = np.where(active, weight * ratio * size / sigma**2, 0.0).sum(
            axis=1, keepdims=True)
        move = np.where(slope > 0, excess / np.maximum(slope, 1e-300), 0.0)
        start = start - np.maximum(move, 0.0)
        if (move <= 1e-9 * np.abs(start)).all():
            break
    found: Array = start - 1e-8 * np.abs(start)
    return found


@lru_cache(maxsize=64)
def _distances(event: SampledGaussianNoise,
               ) -> tuple[Array, Array, float, float]:
    # How far apart two sums are, with which chance; the chance that they are
    # the same, and that of all that is left out.
    from scipy.special import gammaln
    n, number = event.others, np.arange(event.others + 1)
    chance = (number == n).astype(float)
    if event.rate < 1:
        chance = np.exp(gammaln(n + 1) - gammaln(number + 1) - gammaln(
            n - number + 1) + number * math.log(event.rate) + (
                n - number) * math.log1p(-event.rate))
    cut = (number > n * event.rate) & (chance[::-1].cumsum()[::-1] < _TAIL)
    lost = float(chance[cut].sum())
    law: Counter[float] = Counter()
    for count, part in zip(number[~cut].tolist(), chance[~cut].tolist()):
        law[2.0 * count] += (1 - event.rate) * part
        law[2.0 * count + event.own] += event.rate * part
    none = law.pop(0.0)
    parts = [(k, w) for k, w in law.items() if w > 0]
    return (np.array([k for k, _ in parts]), np.array([w for _, w in parts]),
            none, lost)


def sampled_loss(event: SampledGaussianNoise,
                 interval: float | None = None) -> Any:
    """The privacy loss distribution of all steps, an object of
    :obj:`dp-accounting`, on multiples of :obj:`interval`.

    .. code-block:: python

        event = SampledGaussianNoise(2.0, rate=0.01, steps=1000)
        sampled_loss(event).get_delta_for_epsilon(1.0) < 1e-5   # True
    """
    try:
        from dp_accounting.pld import pld_pmf
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError as error:
        raise ImportError(
            "Noise on random batches needs the package 'dp-accounting': pip "
            "install 'torch_geometric_dp[accounting]'") from error
    high = _reach(event)
    if interval is None:
        interval = max(high / _POINTS, 1e-6)
    if event.others == 0 and event.own == 1:
        step = pld.from_gaussian_mechanism(
            event.multiplier, value_discretization_interval=interval,
            sampling_prob=event.rate)
        return step.self_compose(event.steps)
    last = math.ceil(high / interval)
    places = np.arange(-last, last + 1)
    profile = sampled_profile(event, places * interval)
    step = pld_pmf.create_pmf_pessimistic_connect_dots(
        interval, places, np.minimum.accumulate(profile))
    return pld.PrivacyLossDistribution(step.self_compose(event.steps))


def _reach(event: SampledGaussianNoise) -> float:
    # An epsilon that hardly any loss of one step is above.
    high = 1e-3
    while high < _MOST and float(sampled_profile(event, high)[0]) > 1e-17:
        high *= 1.3
    return high


@lru_cache(maxsize=256)
def sampled_epsilon(event: SampledGaussianNoise, delta: float) -> float:
    r"""The epsilon at :obj:`delta` of all steps; an upper bound.

    .. code-block:: python

        event = SampledGaussianNoise(2.0, rate=0.01, steps=1000)
        sampled_epsilon(event, delta=1e-5)   # 0.62...
    """
    if event.steps == 0:
        return 0.0
    if _reach(event) >= _MOST:
        return math.inf
    return float(sampled_loss(event).get_epsilon_for_delta(delta))


@lru_cache(maxsize=256)
def sampled_multiplier(epsilon: float, delta: float, rate: float, steps: int,
                       others: int = 0, own: int = 1) -> float:
    r"""The smallest noise, in clipping norms, for which all steps together are
    :math:`(\varepsilon, \delta)`-private; to a part in a thousand, from above.

    .. code-block:: python

        sampled_multiplier(1.0, 1e-5, rate=0.01, steps=1000)   # 1.7...
    """
    def loss(multiplier: float) -> float:
        event = SampledGaussianNoise(multiplier, rate, steps, others, own)
        return sampled_epsilon(event, delta)

    # The first guess is the distance that is to be expected.
    high = max(2.0**-6, (own + 2 * others) * rate)
    above, below = loss(high), math.inf
    while above > epsilon:
        high, below = 2 * high, above
        if high > 2.0**20:
            raise ValueError(f"'epsilon' is too small for {steps} steps, in "
                             f"which one person changes {others + 1} examples "
                             f"(got {epsilon})")
        above = loss(high)
    low = high / 2
    while math.isinf(below) and high > 2.0**-6:
        below = loss(low)
        if below <= epsilon:
            low, high, above, below = low / 2, low, below, math.inf
        else:
            break
    while high / low > 1.001:
        # As if both were powers of each other, and to both sides of it.
        middle = math.sqrt(low * high)
        if math.isfinite(below) and above > 0:
            share = math.log(below / epsilon) / math.log(below / above)
            guess = low * (high / low)**share
            middle = guess * 1.0004 if guess * 1.0004 < high / 1.0001 else (
                max(high / 1.0009, middle))
        found = loss(middle)
        if found <= epsilon:
            high, above = middle, found
        else:
            low, below = middle, found
    return high
