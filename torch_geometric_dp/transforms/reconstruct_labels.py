import math
from typing import Optional

import torch
from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp.accountant import Release
from torch_geometric_dp.mechanisms import (
    RandomizedResponse,
    frequency_estimate,
    simplex_projection,
)
from torch_geometric_dp.mechanisms.propagation import propagate
from torch_geometric_dp.transforms.reconstruction import Reconstruction


@functional_transform('dp_reconstruct_labels')
class ReconstructLabels(Reconstruction):
    r"""Estimates the labels in the neighbourhood of each node from those that
    :class:`LabelRR` released, as in `RGNN` (functional name:
    :obj:`dp_reconstruct_labels`).

    The released labels, as one-hot rows, and zero rows for all others, become
    :math:`\lambda_v` by :math:`K` hops of the mean over a node and its
    neighbours. The estimate of how often each class occurs is

    .. math::
        \tilde{\pi}_v = \frac{\lambda_v - q \sum_j \lambda_{vj}}
        {(p - q) \sum_j \lambda_{vj}},

    with :math:`p` and :math:`q` from the ledger, :obj:`data.privacy`. It is
    post-processing, and costs nothing: the graph is public.

    The output has two fields: :obj:`y_soft` of shape :obj:`[num_nodes,
    num_classes]` holds the distribution next to the estimate, for all nodes
    that a released label reaches, and zeros for the others; :obj:`y` holds the
    most frequent class where a label was released, and otherwise what it held
    before, which is -1 unless :class:`LabelRR` was told to keep it.

    Multi-label :obj:`y` is estimated label by label.

    Args:
        hops (int, optional): The number of hops :math:`K`.
            (default: :obj:`16`)

    .. code-block:: python

        private = LabelRR(epsilon=2.0, num_classes=7, mask='train_mask')(data)
        estimate = ReconstructLabels(hops=2)(private)
        estimate.y_soft.shape                # torch.Size([30, 7])
        estimate.privacy.epsilon('labels')   # 2.0
    """
    field = 'y'
    releaser = 'LabelRR'

    def reconstruct(self, store: BaseStorage, adjacency: Tensor,
                    release: Release) -> None:
        """Replaces the labels of one node type."""
        y, classes = store.y, int(release.parameter('num_classes'))
        released = (y >= 0).view(len(y), -1).all(dim=1)
        mask = dict(release.parameters).get('kept_outside')
        if mask is not None:
            released &= store[mask]
        response = RandomizedResponse(release.guarantee.epsilon, classes)
        one_hot = torch.zeros(len(y), classes)
        rows = released.nonzero().view(-1)
        one_hot[rows, y.view(-1)[rows].long()] = 1
        shares = propagate(adjacency, one_hot, self.hops)
        estimate = frequency_estimate(shares, float(response.keep),
                                      float(response.other))
        reached = shares.sum(1, keepdim=True) > 0
        store.y_soft = simplex_projection(estimate) * reached
        guess = estimate.argmax(dim=1).view_as(y).to(y.dtype)
        store.y = torch.where(released.view_as(y), guess, y)

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}(hops={self.hops})'
