from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp.transforms.feature_transform import FeatureTransform


@functional_transform('dp_three_outputs')
class ThreeOutputs(FeatureTransform):
    r"""Releases node features by the three-output mechanism of Zhao et al.
    on each column: one of three values, unbiased (functional name:
    :obj:`dp_three_outputs`).

    Takes the arguments of :class:`FeatureTransform`; the proof stands in
    :mod:`torch_geometric_dp.mechanisms.three_outputs`.

    .. code-block:: python

        data = DigitsGraph()[0]
        private = ThreeOutputs(epsilon=64.0, bounds=(0.0, 1.0))(data)
        private.privacy.epsilon('features')   # 64.0
    """
    def mechanism(self, num_features: int) -> mechanisms.ThreeOutputs:
        """The mechanism for rows with so many columns."""
        return mechanisms.ThreeOutputs(self.epsilons(num_features), self.bounds)
