
from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp._typing import Bounds
from torch_geometric_dp._validate import check_choice
from torch_geometric_dp.mechanisms.feature_rr import DECODERS, check_bins
from torch_geometric_dp.transforms.feature_transform import (
    FeatureTransform,
    Scores,
)


@functional_transform('dp_feature_rr')
class FeatureRR(FeatureTransform):
    r"""Releases node features by heterogeneous randomised response on ordered
    bins, the first half of `HeteroRR` (functional name:
    :obj:`dp_feature_rr`).

    Column :math:`i` gets the share :math:`\varepsilon_i = \theta_i \varepsilon`
    of the row's epsilon, more if it is important and less if it is sensitive
    (see :class:`~torch_geometric_dp.explain.HeteroScores`). A value in bin
    :math:`t` of :math:`k` becomes bin :math:`u` with probability

    .. math::
        P(u|t) \propto \exp \left( - \frac{|u - t|}{k - 1} \varepsilon_i
        \right).

    A node's released row is :math:`\varepsilon`-locally private; the proof
    stands in :mod:`torch_geometric_dp.mechanisms.feature_rr`.

    Args:
        epsilon (float): The privacy loss of one node's whole row.
        bounds (tuple): The lowest and the highest value, each of them one for
            all columns or one for each; public numbers.
        bins (int or str, optional): The number of bins :math:`k`, or
            :obj:`"auto"` for the number that gives the least expected error
            for each column. (default: :obj:`"auto"`)
        scores (HeteroScores, optional): How :obj:`epsilon` is split over the
            columns. By default, all get the same share.
            (default: :obj:`None`)
        decode (str, optional): What to return for a released bin: its centre
            (:obj:`"none"`), an unbiased estimate (:obj:`"unbiased"`), or the
            posterior mean for uniform values (:obj:`"posterior"`). All of them
            are post-processing, and free. (default: :obj:`"none"`)
        clip (bool, optional): If set to :obj:`True`, values outside the bounds
            are moved to them; by default, they are refused.
            (default: :obj:`False`)
        private_scores (bool, optional): If set to :obj:`True`, accepts scores
            that were computed on private data, which voids the guarantee; the
            ledger says so. (default: :obj:`False`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data = DigitsGraph()[0]
        private = FeatureRR(epsilon=64.0, bounds=(0.0, 1.0))(data)
        private.privacy.epsilon('features')   # 64.0
    """
    def __init__(self, epsilon: float, bounds: Bounds,
                 bins: int | str = 'auto',
                 scores: Scores | None = None, decode: str = 'none',
                 clip: bool = False, private_scores: bool = False,
                 seed: int | None = None) -> None:
        super().__init__(epsilon, bounds, scores, clip, private_scores, seed)
        self.bins = check_bins(bins)
        self.decode = check_choice('decode', decode, DECODERS)

    def mechanism(self, num_features: int) -> mechanisms.FeatureRR:
        """The mechanism for rows with so many columns."""
        return mechanisms.FeatureRR(self.epsilons(num_features), self.bounds,
                                    self.bins, self.decode)
