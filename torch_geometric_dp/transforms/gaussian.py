from dataclasses import replace

from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp._typing import Bounds
from torch_geometric_dp._validate import check_delta
from torch_geometric_dp.accountant import GaussianNoise, Guarantee
from torch_geometric_dp.transforms.feature_transform import (
    FeatureTransform,
)
from torch_geometric_dp.transforms.private_transform import Field


@functional_transform('dp_gaussian')
class Gaussian(FeatureTransform):
    r"""Releases node features by Gaussian noise on whole rows, on a grid, with
    the analytic calibration; unbiased (functional name: :obj:`dp_gaussian`).

    Takes the arguments of :class:`FeatureTransform`, except for scores: the
    columns are released together. The proof stands in
    :mod:`torch_geometric_dp.mechanisms.gaussian`.

    Args:
        epsilon (float): The privacy loss of one node's whole row.
        bounds (tuple): The lowest and the highest value, each of them one for
            all columns or one for each; public numbers.
        delta (float, optional): The probability with which the loss may be
            larger. (default: :obj:`1e-5`)
        clip (bool, optional): If set to :obj:`True`, values outside the bounds
            are moved to them; by default, they are refused.
            (default: :obj:`False`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data = DigitsGraph()[0]
        private = Gaussian(epsilon=4.0, bounds=(0.0, 1.0))(data)
        private.privacy.epsilon('features', delta=1e-5)   # 4.0
    """
    def __init__(self, epsilon: float, bounds: Bounds,
                 delta: float = 1e-5, clip: bool = False,
                 seed: int | None = None) -> None:
        super().__init__(epsilon, bounds, clip=clip, seed=seed)
        self.delta = check_delta(delta)

    @property
    def guarantee(self) -> Guarantee:
        """One node's whole row, in the local model."""
        return replace(super().guarantee, delta=self.delta)

    def promise(self, fields: list[Field]) -> Guarantee:
        """The same, with the noise that was drawn for rows of this length."""
        least = min(field.ready.multiplier for field in fields)
        return replace(self.guarantee, event=GaussianNoise(least))

    def mechanism(self, num_features: int) -> mechanisms.Gaussian:
        """The mechanism for rows with so many columns."""
        return mechanisms.Gaussian(self.epsilon, num_features, self.delta,
                                   self.bounds)
