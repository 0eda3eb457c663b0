r"""From noisy frequencies to unbiased ones (RGNN, Eq. 2 to 4).

A value out of :math:`c` is reported as itself with probability :math:`p`, and
as each other one with probability :math:`q`. So the value :math:`j`, which a
share :math:`\pi_j` of the users holds, is reported by an expected share of

.. math::
    \lambda_j = \pi_j p + (1 - \pi_j) q.

**Theorem.** If a share :math:`\lambda'_j` of :math:`n` users reports :math:`j`,

.. math::
    \tilde{\pi}_j = \frac{\lambda'_j - q}{p - q} \quad \text{and} \quad
    \frac{\lambda'_j (1 - \lambda'_j)}{(n - 1)(p - q)^2}

are unbiased: the first for :math:`\pi_j`, the second for the variance of the
first if the users are a random sample and :math:`\pi_j` is the population's
share.

*Proof.* The first is the equation above, solved for :math:`\pi_j`. The users of
a random sample report :math:`j` independently, with probability
:math:`\lambda_j`, so :math:`\lambda'_j` has the variance :math:`\lambda_j (1 -
\lambda_j)/n`, and :math:`E[\lambda'_j (1 - \lambda'_j)] = \lambda_j (1 -
\lambda_j)(n-1)/n`. ∎

If the users are fixed and only their noise is random, the variance is
:math:`\left( \pi_j p (1-p) + (1-\pi_j) q (1-q) \right) / (n (p-q)^2)`, which is
less.

For randomised response, :math:`p` and :math:`q` are its own. For a column of
:class:`GRRFS` they are those of :meth:`GRRFS.marginal`, and the theorem is Eq.
2 and 3 of RGNN. (Its Eq. 9 has a square too much, and its :math:`\lambda` lacks
a factor :math:`1/\gamma_i`.)

Estimates may leave :math:`[0, 1]`; :func:`simplex_projection` returns the
nearest distribution, at the price of a bias.
"""

import torch
from torch import Tensor

Number = float | Tensor


def frequency_estimate(shares: Tensor, keep: Number, other: Number,
                       total: Number | None = None) -> Tensor:
    r"""The unbiased estimate of true shares from those of noisy reports,
    :math:`(\lambda - q \sum_j \lambda_j) / (p - q)`, divided by the total
    :math:`\sum_j \lambda_j`.

    Args:
        shares (torch.Tensor): How often each value was reported, in its last
            dimension: counts, shares, or weights of any kind.
        keep (float or torch.Tensor): The probability :math:`p` that a value is
            reported as it is.
        other (float or torch.Tensor): The probability :math:`q` of each other
            value.
        total (float or torch.Tensor, optional): The sum over all values, for
            shares that do not hold all of them. (default: :obj:`None`)

    Returns estimates that sum to one over all values; where nothing was
    reported, they are zero.

    .. code-block:: python

        counts = torch.tensor([30.0, 70.0])
        frequency_estimate(counts, keep=0.75, other=0.25)
        # tensor([0.1000, 0.9000])
    """
    if total is None:
        total = shares.sum(dim=-1, keepdim=True)
    if not isinstance(total, Tensor):
        return (shares - total * other) / (total * (keep - other))
    nothing = total == 0
    shares = shares / total.masked_fill(nothing, 1)
    return ((shares - other) / (keep - other)).masked_fill(nothing, 0)


def frequency_variance(shares: Tensor, count: Number, keep: Number,
                       other: Number) -> Tensor:
    r"""The unbiased estimate of the variance of :func:`frequency_estimate`,
    :math:`\lambda (1 - \lambda) / ((n - 1)(p - q)^2)`.

    Args:
        shares (torch.Tensor): The shares :math:`\lambda` of the users who
            reported each value.
        count (float or torch.Tensor): The number of users :math:`n`, at least
            two.
        keep (float or torch.Tensor): The probability :math:`p` that a value is
            reported as it is.
        other (float or torch.Tensor): The probability :math:`q` of each other
            value.

    .. code-block:: python

        shares = torch.tensor([0.3, 0.7])
        frequency_variance(shares, 101, keep=0.75, other=0.25)
        # tensor([0.0084, 0.0084])
    """
    if not (torch.as_tensor(count) >= 2).all():
        raise ValueError(f"'count' must be at least 2: one report has no "
                         f"spread (got {count})")
    return shares * (1 - shares) / ((count - 1) * (keep - other)**2)


def simplex_projection(estimate: Tensor) -> Tensor:
    r"""The nearest distribution to each row (over the last dimension), in
    Euclidean distance: negative entries become zero, and a constant is taken
    from the others.

    .. code-block:: python

        simplex_projection(torch.tensor([1.25, 0.75, -1.0])).tolist()
        # [0.75, 0.25, 0.0]
    """
    ordered, _ = estimate.sort(dim=-1, descending=True)
    rank = torch.arange(1, estimate.size(-1) + 1, device=estimate.device)
    shift = (ordered.cumsum(dim=-1) - 1) / rank
    # The largest shift belongs to the last entry that stays positive.
    return (estimate - shift.amax(dim=-1, keepdim=True)).clamp_(min=0)
