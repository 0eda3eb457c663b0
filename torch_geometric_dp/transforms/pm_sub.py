from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp.transforms.feature_transform import FeatureTransform


@functional_transform('dp_pm_sub')
class PMSub(FeatureTransform):
    r"""Releases node features by the sub-optimal piecewise mechanism PM-SUB
    of Zhao et al. on each column, on a grid; unbiased (functional name:
    :obj:`dp_pm_sub`).

    Takes the arguments of :class:`FeatureTransform`; the proof stands in
    :mod:`torch_geometric_dp.mechanisms.pm_sub`.

    .. code-block:: python

        data = DigitsGraph()[0]
        private = PMSub(epsilon=64.0, bounds=(0.0, 1.0))(data)
        private.privacy.epsilon('features')   # 64.0
    """
    def mechanism(self, num_features: int) -> mechanisms.PMSub:
        """The mechanism for rows with so many columns."""
        return mechanisms.PMSub(self.epsilons(num_features), self.bounds)
