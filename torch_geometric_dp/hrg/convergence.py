r"""Have several chains forgotten where they started?

Split :math:`\hat{R}` cuts every chain into two halves of length :math:`h` and
compares the variance *within* them, :math:`W`, with that of their means,
:math:`B`:

.. math:: \hat{R} = \sqrt{\frac{h-1}{h} + \frac{B}{W}}.

It is near 1 if all halves look alike. Chains that stand in different places, or
one that still drifts, make it larger.
"""
import math

import numpy as np
from numpy.typing import NDArray


def split_r_hat(draws: NDArray[np.float64]) -> float:
    r"""Split :math:`\hat{R}` of an array of shape :obj:`[draws, chains]`;
    infinite for fewer than four draws, which cannot tell.

    .. code-block:: python

        trace = uniforms(NoiseSource.from_seed(0), (1000, 4))
        split_r_hat(trace)   # 0.99...
        split_r_hat(trace + [0, 0, 0, 1])   # 1.9...
    """
    half = len(draws) // 2
    if half < 2:
        return math.inf
    halves = np.concatenate([draws[:half], draws[-half:]], axis=1)
    within = halves.var(axis=0, ddof=1).mean()
    between = halves.mean(axis=0).var(ddof=1)
    if within == 0:
        return 1.0 if between == 0 else math.inf
    return math.sqrt((half - 1) / half + between / within)
