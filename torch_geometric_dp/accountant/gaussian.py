"""What Gaussian noise promises, exactly."""
import math


def gaussian_delta(epsilon: float, multiplier: float) -> float:
    r"""The smallest :math:`\delta` at :math:`\varepsilon` of continuous
    Gaussian noise whose scale is :obj:`multiplier` times the sensitivity
    (Balle and Wang, Theorem 8), or a little more, never less: what rounding in
    this function may have lost is added.

    .. code-block:: python

        gaussian_delta(1.0, 3.7306)   # 1.0000...
    """
    half, shift = 0.5 / multiplier, epsilon * multiplier
    first = math.exp(_log_tail(shift - half))
    second = math.exp(epsilon + _log_tail(shift + half))
    lost = 1e-15 * (10 + epsilon + (shift + half)**2) * first
    return first - second + lost


def gaussian_loss(multiplier: float, delta: float) -> float:
    """The smallest epsilon for which :obj:`delta` is enough, with Gaussian
    noise whose scale is :obj:`multiplier` times the sensitivity.

    .. code-block:: python

        gaussian_loss(3.7307, 1e-5)   # 0.9999...
    """
    low, high = 0.0, 1.0
    while gaussian_delta(high, multiplier) > delta:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        enough = gaussian_delta(middle, multiplier) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high


def _log_tail(x: float) -> float:
    # The logarithm of the probability that a normal variable exceeds x.
    if x < 25:
        return math.log(math.erfc(x / math.sqrt(2)) / 2)
    series = -1 / x**2 + 3 / x**4 - 15 / x**6 + 105 / x**8 - 945 / x**10
    return math.log1p(series) - x**2 / 2 - math.log(x * math.sqrt(2 * math.pi))
