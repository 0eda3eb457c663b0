"""What happened, for tight accounting: noise of a known shape."""
import math
from dataclasses import dataclass

from torch_geometric_dp.accountant.text import constructed, number


@dataclass(frozen=True)
class _Noise:
    multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, 'multiplier',
                           number('multiplier', self.multiplier))
        if not 0 < self.multiplier < math.inf:
            raise ValueError(f"'multiplier' must be positive and finite "
                             f"(got {self.multiplier})")


@constructed
class GaussianNoise(_Noise):
    """Gaussian noise, whose scale is a multiple of the sensitivity.

    .. code-block:: python

        GaussianNoise(3.73).multiplier   # 3.73
    """


@constructed
class LaplaceNoise(_Noise):
    """Laplace noise, whose scale is a multiple of the sensitivity.

    .. code-block:: python

        LaplaceNoise(1.0).multiplier   # 1.0
    """


Event = GaussianNoise | LaplaceNoise
EVENTS = {kind.__name__: kind for kind in (GaussianNoise, LaplaceNoise)}
