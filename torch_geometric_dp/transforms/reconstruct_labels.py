from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp.accountant import Release
from torch_geometric_dp.graph.propagation import propagate
from torch_geometric_dp.mechanisms import (
    frequency_estimate,
    simplex_projection,
)
from torch_geometric_dp.transforms.label_rr import label_response
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
                    release: Release) -> list[str]:
        """Replaces the labels of one node type."""
        y, parameters = store.y, dict(release.parameters)
        classes: Any = parameters['num_classes']
        response = label_response(y, release.guarantee.epsilon, classes)
        released = (y.view(len(y), -1) >= 0).all(dim=1)
        if 'kept_outside' in parameters:
            released &= store[parameters['kept_outside']]
        if len(y) > 0 and not released.any():
            raise ValueError("'y' must hold at least one released label (got "
                             "unlabelled nodes only)")
        response.check(y, 'y', released)

        many = y.dim() == 2 and y.size(1) > 1
        values = y if many else y.view(-1, 1) == torch.arange(
            classes, device=y.device)
        # The last column tells how much was reported at all.
        reports = torch.cat([values, values.new_ones(len(y), 1)], dim=1)
        reports = reports.float() * released.view(-1, 1)
        reports = propagate(adjacency.to(y.device), reports, self.hops)
        estimate = frequency_estimate(reports[:, :-1], float(response.keep),
                                      float(response.other), reports[:, -1:])
        if many:
            guess, soft = estimate > 0.5, estimate.clamp(0, 1)
        else:
            guess, soft = estimate.argmax(dim=1), simplex_projection(estimate)
        store.y_soft = soft * (reports[:, -1:] > 0)
        rows = released.view(-1, *[1] * (y.dim() - 1))
        store.y = torch.where(rows, guess.view_as(y).to(y.dtype), y)
        return ['y', 'y_soft']
