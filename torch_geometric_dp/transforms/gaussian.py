from dataclasses import replace
from typing import Optional

from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp import mechanisms
from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.transforms.feature_transform import (
    Bound,
    FeatureTransform,
)


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
    def __init__(self, epsilon: float, bounds: tuple[Bound, Bound],
                 delta: float = 1e-5, clip: bool = False,
                 seed: Optional[int] = None) -> None:
        super().__init__(epsilon, bounds, clip=clip, seed=seed)
        if not 0 < delta < 1:
            raise ValueError(f"'delta' must lie between 0 and 1 (got {delta})")
        self.delta = float(delta)

    @property
    def guarantee(self) -> Guarantee:
        """One node's whole row, in the local model."""
        return replace(super().guarantee, delta=self.delta)

    def promise(self, stores: list[tuple[BaseStorage, str]]) -> Guarantee:
        """The same, with the noise that was drawn for rows of this length."""
        widths = {store[field].size(1) for store, field in stores}
        least = min(self.mechanism(width).multiplier for width in widths)
        return replace(self.guarantee, event=('gaussian', least))

    def mechanism(self, num_features: int) -> mechanisms.Gaussian:
        """The mechanism for rows with so many columns."""
        return mechanisms.Gaussian(self.epsilon, num_features, self.delta,
                                   self.bounds)

    def arguments(self) -> list[str]:
        """What :obj:`repr` shows between the brackets."""
        args = super().arguments()
        args.insert(2, f'delta={self.delta}')
        return args
