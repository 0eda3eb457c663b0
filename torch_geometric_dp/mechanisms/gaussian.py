r"""The Gaussian mechanism with the analytic calibration of Balle and Wang (ICML
2018), on a grid.

All :math:`d` values of a row are rounded to one of :math:`n` equal steps
between their bounds, and each becomes :math:`z` steps more with probability
proportional to :math:`e^{-z^2/(2\sigma^2)}` for all integers :math:`z`: the
discrete Gaussian law of Canonne, Kamath and Steinke (NeurIPS 2020). Two rounded
rows have a Euclidean distance of at most :math:`\Delta = n \sqrt{d}`, exactly.

**Theorem.** Let :math:`\kappa` and :math:`r` be as below, and

.. math::
    \Phi\Big(\frac{\Delta}{2\sigma} - \frac{\varepsilon_0 \sigma}{\Delta}\Big) -
    e^{\varepsilon_0} \Phi\Big(-\frac{\Delta}{2\sigma} -
    \frac{\varepsilon_0 \sigma}{\Delta}\Big) \leq \delta_0
    \quad \textrm{with} \quad
    \varepsilon_0 = \varepsilon - 2 \kappa, \;
    \delta_0 = (1 - 2^{-30}) e^{-\kappa} \delta.

Then the released row is :math:`(\varepsilon, \delta)`-locally private.

*Proof.* The condition is that of Balle and Wang: continuous Gaussian noise
:math:`Y` is :math:`(\varepsilon_0, \delta_0)`-private for rows at a distance of
:math:`\Delta`. Rounding a sum of integers and :math:`Y` to integers is
post-processing, and is the same as adding rounded noise. So rounded noise
:math:`R` is :math:`(\varepsilon_0, \delta_0)`-private. The discrete law
:math:`P` is nearly the same. In one column, with the density :math:`\varphi` of
:math:`Y`,

.. math::
    \frac{R(z)}{\varphi(z)} = \int_{-1/2}^{1/2}
    e^{-z u/\sigma^2 - u^2/(2\sigma^2)} \, du \in
    \Big[ e^{-1/(24 \sigma^2)}, \; e^{z^2/(24 \sigma^4)} \Big]

by Jensen's inequality from below, and by :math:`\sinh(y) \leq y e^{y^2/6}` from
above; and :math:`\varphi(z)/P(z)` lies between 1 and :math:`1 + 3 e^{-2 \pi^2
\sigma^2}` by Poisson's summation formula. With the sampler's own error (see
:mod:`torch_geometric_dp.noise`), the logarithms of the two laws of a row differ
by at most

.. math::
    \kappa = d \Big( (1 + r^2) \Big(\frac{1}{24 \sigma^2} + 2^{-47}\Big) +
    3 e^{-2 \pi^2 \sigma^2} \Big)

where no column's noise exceeds :math:`r \sigma`. For :math:`\sigma \geq 1` it
does so with a probability of at most :math:`\tau = 4 d e^{-(r - 1/2)^2/2}`
under both laws. For rows :math:`x, x'` and any set of outputs :math:`S`,

.. math::
    P_x(S) \leq e^{\kappa} R_x(S) + \tau \leq
    e^{\kappa} (e^{\varepsilon_0} R_{x'}(S) + \delta_0) + \tau \leq
    e^{\varepsilon} P_{x'}(S) + e^{\kappa} \delta_0 +
    (1 + e^{\varepsilon}) \tau,

and :math:`r` is chosen such that :math:`(1 + e^{\varepsilon}) \tau \leq 2^{-30}
\delta`. ∎

With 65,536 steps :math:`\kappa` is around :math:`10^{-10}`, so that the grid
costs nothing that could be measured.
"""
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from operator import truediv
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp._typing import Bounds
from torch_geometric_dp._validate import (
    check_delta,
    check_epsilon,
    check_integer,
)
from torch_geometric_dp.accountant import (
    GaussianNoise,
    Guarantee,
    Relation,
    Unit,
)
from torch_geometric_dp.accountant.gaussian import (
    gaussian_delta,
    gaussian_loss,
)
from torch_geometric_dp.mechanisms.grid_noise import GridNoise
from torch_geometric_dp.mechanisms.mechanism import WorstCase
from torch_geometric_dp.noise import NoiseSource, discrete_gaussian
from torch_geometric_dp.noise.discrete import laplace_grid


class Gaussian(GridNoise):
    r"""The Gaussian mechanism for whole rows: adds the same noise to every
    column, in units of its range, on a grid.

    Args:
        epsilon (float): The privacy loss of a whole row.
        num_features (int): The number of columns.
        delta (float, optional): The probability with which the loss may be
            larger. (default: :obj:`1e-5`)
        bounds (tuple, optional): The lowest and the highest value, each of them
            one for all columns or one for each; public numbers.
            (default: :obj:`(-1.0, 1.0)`)
        steps (int, optional): The number of steps of the grid between the
            bounds. (default: :obj:`65536`)

    .. code-block:: python

        mechanism = Gaussian(1.0, num_features=4, bounds=(0.0, 1.0))
        noisy = mechanism(torch.rand(100, 4), NoiseSource.from_os())
        mechanism.multiplier   # 3.7306...
    """
    def __init__(self, epsilon: float, num_features: int, delta: float = 1e-5,
                 bounds: Bounds = (-1.0, 1.0), steps: int = 2**16) -> None:
        epsilon = check_epsilon(epsilon)
        num_features = check_integer('num_features', num_features, 1)
        super().__init__([epsilon] * num_features, bounds, steps)
        self.epsilon = epsilon
        self.delta = check_delta(delta)
        #: The noise's scale, in steps.
        self.sigma = gaussian_scale(epsilon, self.delta,
                                    self.steps * math.sqrt(num_features),
                                    num_features)
        self._law = _law(self.sigma)

    @property
    def multiplier(self) -> float:
        """The noise's scale over the distance of two rows."""
        return self.sigma / (self.steps * math.sqrt(self.num_features))

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to a whole row."""
        return Guarantee(self.epsilon, Unit.FEATURES, Relation.REPLACE,
                         delta=self.delta, event=GaussianNoise(self.multiplier))

    def noise(self, first: int, last: int, column: int,
              source: NoiseSource) -> NDArray[np.int64]:
        """The integers that are added to a column, from row :obj:`first` to
        the one before :obj:`last`.
        """
        return discrete_gaussian(source, self.sigma, last - first, first)

    def noise_law(self, column: int) -> tuple[float, float, float]:
        """The variance of the noise, the mean of its distance from zero, and
        the probability of zero; all in steps.
        """
        return self._law

    def log_odds(self, noise: Any, column: int) -> Any:
        """The logarithm of an integer's probability, less that of zero's."""
        return -0.5 * (noise / self.sigma)**2

    def reach(self, column: int) -> int:
        """Noise beyond this has a probability of less than 1e-15."""
        return math.ceil(9 * self.sigma)

    def worst_case(self) -> WorstCase:
        """The smallest epsilon for the delta that is promised, for rows at
        opposite bounds; the theorem says how little the grid changes that.
        """
        return WorstCase(
            gaussian_loss(self.multiplier, self.delta), Unit.FEATURES,
            (tuple(self.high.tolist()), tuple(self.low.tolist())),
            'rows far beyond the first', delta=self.delta)


def gaussian_scale(epsilon: float, delta: float, distance: float,
                   cells: int) -> float:
    r"""The scale of discrete Gaussian noise that makes integers
    :math:`(\varepsilon, \delta)`-private which differ in at most :obj:`cells`
    places, by a Euclidean distance of at most :obj:`distance`: the theorem
    above, with :obj:`cells` for :math:`d` and :obj:`distance` for
    :math:`\Delta`.

    .. code-block:: python

        gaussian_scale(1.0, 1e-5, distance=1e6, cells=1)   # 3730...
    """
    most = min(epsilon, 1e6)  # Noise far below a step is no use.
    r = 0.5 + math.sqrt(2 * (math.log(4 * cells) + most + math.log(2) +
                             math.log(2.0**30 / delta)))

    def private(sigma: float) -> bool:
        kappa = cells * ((1 + r**2) * (1 / (24 * sigma**2) + 2.0**-47) +
                         3 * math.exp(-2 * math.pi**2 * sigma**2))
        if most <= 2 * kappa:
            return False
        return gaussian_delta(most - 2 * kappa, sigma / distance) <= (
            (1 - 2.0**-30) * math.exp(-kappa) * delta)

    if not private(2.0**39):
        raise ValueError(
            f"'epsilon' is too small for {cells} cells at a distance of "
            f"{distance:g} steps and delta={delta} (got {epsilon})")
    return 1.0 if private(1.0) else _first(private, 1.0, 2.0**39)


def noise_loss(distances: Sequence[float], scales: Sequence[float],
               delta: float | None) -> float:
    """What discrete noise of some scales leaves of some distances, all in
    steps: the exact epsilon of Laplace noise, or that of Gaussian noise for a
    :obj:`delta`.

    .. code-block:: python

        noise_loss([2.0], [4.0], delta=None)   # 0.5
    """
    if delta is not None:
        return gaussian_loss(1 / math.hypot(*map(truediv, distances, scales)),
                             delta)
    # The scales of the sampler's integers, which are what is drawn.
    grids = map(laplace_grid, scales)
    return float(sum(int(distance) * Fraction(s, t)
                     for distance, (t, s) in zip(distances, grids)))


def _first(holds: Callable[[float], bool], low: float, high: float) -> float:
    # The smallest number for which a condition holds, by bisection; it holds
    # for `high`, and for what is returned.
    while high / low > 1 + 2.0**-45:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _law(sigma: float) -> tuple[float, float, float]:
    if sigma < 64:
        z = np.arange(math.ceil(10 * sigma), 0, -1)
        weights = 2 * np.exp(-0.5 * (z / sigma)**2)
        total = 1 + weights.sum()
        return (float(z**2 @ weights / total), float(z @ weights / total),
                float(1 / total))
    # Sums that are integrals up to exp(-2 pi^2 sigma^2), by Poisson's formula,
    # and one that is not smooth at zero, by that of Euler and Maclaurin.
    at_zero = 1 / (sigma * math.sqrt(2 * math.pi))
    distance = 2 * at_zero * (sigma**2 - 1 / 12 - 1 / (240 * sigma**2))
    return sigma**2, distance, at_zero
