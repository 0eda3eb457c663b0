"""What happened, for tight accounting: noise of a known shape."""
import math
from dataclasses import dataclass

from torch_geometric_dp.accountant.text import constructed, number, whole


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


@constructed
@dataclass(frozen=True)
class SampledGaussianNoise(_Noise):
    r"""Gaussian noise on sums of random batches, step by step: see
    :mod:`torch_geometric_dp.accountant.sampled`.

    Args:
        multiplier (float): The noise's scale, in norms of an example.
        rate (float): The probability of each example to be in a batch.
        steps (int): The number of batches.
        others (int, optional): How many examples one person changes beside
            their own. (default: :obj:`0`)
        own (int, optional): By how much they change their own, in norms: by 1
            if it comes or goes, by 2 if it is replaced. (default: :obj:`1`)

    .. code-block:: python

        SampledGaussianNoise(2.0, rate=0.01, steps=1000).others   # 0
    """
    rate: float = 1.0
    steps: int = 1
    others: int = 0
    own: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, 'rate', number('rate', self.rate))
        if not 0 < self.rate <= 1:
            raise ValueError(f"'rate' must lie in (0, 1] (got {self.rate})")
        for name, choices in (('steps', range(2**31)), ('own', (1, 2)),
                              ('others', range(2**31))):
            value = whole(getattr(self, name))
            if value is None or value not in choices:
                raise ValueError(f"'{name}' must be an integer from "
                                 f"{choices[0]} to {choices[-1]} "
                                 f"(got {getattr(self, name)!r:.80})")
            object.__setattr__(self, name, value)


Event = GaussianNoise | LaplaceNoise | SampledGaussianNoise
EVENTS = {kind.__name__: kind for kind in (GaussianNoise, LaplaceNoise,
                                           SampledGaussianNoise)}
