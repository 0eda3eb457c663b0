
from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp._typing import Bounds
from torch_geometric_dp.transforms.feature_transform import (
    FeatureTransform,
)


@functional_transform('dp_duchi_multi')
class DuchiMulti(FeatureTransform):
    r"""Releases node features by the mechanism of Duchi et al. for whole rows:
    one of the corners of a cube, unbiased (functional name:
    :obj:`dp_duchi_multi`).

    Takes the arguments of :class:`FeatureTransform`, except for scores: the
    columns are released together. The proof stands in
    :mod:`torch_geometric_dp.mechanisms.duchi_multi`.

    .. code-block:: python

        data = DigitsGraph()[0]
        private = DuchiMulti(epsilon=4.0, bounds=(0.0, 1.0))(data)
        private.privacy.epsilon('features')   # 4.0
    """
    def __init__(self, epsilon: float, bounds: Bounds,
                 clip: bool = False, seed: int | None = None) -> None:
        super().__init__(epsilon, bounds, clip=clip, seed=seed)

    def mechanism(self, num_features: int) -> mechanisms.DuchiMulti:
        """The mechanism for rows with so many columns."""
        return mechanisms.DuchiMulti(self.epsilon, num_features, self.bounds)
