from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp.transforms.feature_transform import FeatureTransform


@functional_transform('dp_piecewise')
class Piecewise(FeatureTransform):
    r"""Releases node features by the piecewise mechanism of Wang et al. on
    each column, on a grid: likely near the value, possible everywhere,
    unbiased (functional name: :obj:`dp_piecewise`).

    Takes the arguments of :class:`FeatureTransform`; the proof stands in
    :mod:`torch_geometric_dp.mechanisms.piecewise`.

    .. code-block:: python

        data = DigitsGraph()[0]
        private = Piecewise(epsilon=64.0, bounds=(0.0, 1.0))(data)
        private.privacy.epsilon('features')   # 64.0
    """
    def mechanism(self, num_features: int) -> mechanisms.Piecewise:
        """The mechanism for rows with so many columns."""
        return mechanisms.Piecewise(self.epsilons(num_features), self.bounds)
