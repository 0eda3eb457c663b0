from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp.transforms.feature_transform import FeatureTransform


@functional_transform('dp_hybrid')
class Hybrid(FeatureTransform):
    r"""Releases node features by the hybrid mechanism of Wang et al. on
    each column: piecewise or one-bit by chance, on a grid; unbiased
    (functional name: :obj:`dp_hybrid`).

    Takes the arguments of :class:`FeatureTransform`; the proof stands in
    :mod:`torch_geometric_dp.mechanisms.hybrid`.

    .. code-block:: python

        data = DigitsGraph()[0]
        private = Hybrid(epsilon=64.0, bounds=(0.0, 1.0))(data)
        private.privacy.epsilon('features')   # 64.0
    """
    def mechanism(self, num_features: int) -> mechanisms.Hybrid:
        """The mechanism for rows with so many columns."""
        return mechanisms.Hybrid(self.epsilons(num_features), self.bounds)
