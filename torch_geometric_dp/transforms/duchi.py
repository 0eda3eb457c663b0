from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp.transforms.feature_transform import FeatureTransform


@functional_transform('dp_duchi')
class Duchi(FeatureTransform):
    r"""Releases node features by the one-bit mechanism of Duchi et al. on
    each column: one of two values, unbiased (functional name:
    :obj:`dp_duchi`).

    Takes the arguments of :class:`FeatureTransform`; the proof stands in
    :mod:`torch_geometric_dp.mechanisms.duchi`.

    .. code-block:: python

        data = DigitsGraph()[0]
        private = Duchi(epsilon=64.0, bounds=(0.0, 1.0))(data)
        private.privacy.epsilon('features')   # 64.0
    """
    def mechanism(self, num_features: int) -> mechanisms.Duchi:
        """The mechanism for rows with so many columns."""
        return mechanisms.Duchi(self.epsilons(num_features), self.bounds)
