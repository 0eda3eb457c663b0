from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp.transforms.feature_transform import FeatureTransform


@functional_transform('dp_laplace')
class Laplace(FeatureTransform):
    r"""Releases node features by Laplace noise on each column, on a grid;
    unbiased (functional name: :obj:`dp_laplace`).

    Takes the arguments of :class:`FeatureTransform`; the proof stands in
    :mod:`torch_geometric_dp.mechanisms.laplace`.

    .. code-block:: python

        data = DigitsGraph()[0]
        private = Laplace(epsilon=64.0, bounds=(0.0, 1.0))(data)
        private.privacy.epsilon('features')   # 64.0
    """
    def mechanism(self, num_features: int) -> mechanisms.Laplace:
        """The mechanism for rows with so many columns."""
        return mechanisms.Laplace(self.epsilons(num_features), self.bounds)
