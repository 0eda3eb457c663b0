
from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp._typing import Bounds
from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.transforms.feature_transform import (
    FeatureTransform,
)


@functional_transform('dp_multi_bit')
class MultiBit(FeatureTransform):
    r"""Releases node features by the multi-bit mechanism of LPGNN: some columns
    of each row are sent as one bit each, the others not at all; unbiased
    (functional name: :obj:`dp_multi_bit`).

    Takes the arguments of :class:`FeatureTransform`, except for scores: the
    columns are released together. The proof stands in
    :mod:`torch_geometric_dp.mechanisms.multi_bit`.

    Args:
        epsilon (float): The privacy loss of one node's whole row.
        bounds (tuple): The lowest and the highest value, each of them one for
            all columns or one for each; public numbers.
        num_sampled (int, optional): How many columns each node sends. By
            default, the number that LPGNN found best for :obj:`epsilon`.
            (default: :obj:`None`)
        clip (bool, optional): If set to :obj:`True`, values outside the bounds
            are moved to them; by default, they are refused.
            (default: :obj:`False`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data = DigitsGraph()[0]
        private = MultiBit(epsilon=4.0, bounds=(0.0, 1.0))(data)
        private.privacy.epsilon('features')   # 4.0
    """
    def __init__(self, epsilon: float, bounds: Bounds,
                 num_sampled: int | None = None, clip: bool = False,
                 seed: int | None = None) -> None:
        super().__init__(epsilon, bounds, clip=clip, seed=seed)
        if num_sampled is not None:
            check_integer('num_sampled', num_sampled, 1)
        self.num_sampled = num_sampled

    @property
    def num_features(self) -> int:
        """As many columns that are sent as not, unless bounds tell."""
        told = any(isinstance(bound, list) for bound in self.bounds)
        return super().num_features if told or self.num_sampled is None else (
            2 * self.num_sampled)

    def mechanism(self, num_features: int) -> mechanisms.MultiBit:
        """The mechanism for rows with so many columns."""
        return mechanisms.MultiBit(self.epsilon, num_features, self.bounds,
                                   self.num_sampled)
