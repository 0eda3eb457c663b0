"""What a released graph says about its labels."""
from typing import Any

import torch
from torch import Tensor

from torch_geometric_dp.accountant import PrivacyAccountant
from torch_geometric_dp.mechanisms import RandomizedResponse


def released_labels(data: Any) -> tuple[Tensor, RandomizedResponse]:
    """The labels that :class:`LabelRR` released, with -1 for all others, and
    the noise in them, as it stands in the ledger.

    .. code-block:: python

        private = LabelRR(epsilon=1.0, num_classes=7, mask='train_mask')(data)
        y, response = released_labels(private)
        response   # RandomizedResponse(epsilon=1.0, num_classes=7)
    """
    found = [r for r in PrivacyAccountant.of(data).releases
             if 'y' in r.fields and r.mechanism.startswith('LabelRR')]
    if len(found) != 1:
        raise ValueError(f"'privacy' must hold one release of 'y' by "
                         f"'LabelRR', which tells what noise is in it "
                         f"(got {len(found)})")
    parameters: dict[str, Any] = dict(found[0].parameters)
    if 'processed' in parameters:
        raise ValueError(f"'y' must be as it was released (got the output of "
                         f"{parameters['processed']})")
    y = data.y
    if y.dim() != 1:
        raise ValueError(f"'y' must hold one label for each node "
                         f"(got the shape {list(y.shape)})")
    if 'kept_outside' in parameters:  # True labels, which nobody may train on.
        y = torch.where(data[parameters['kept_outside']], y, -1)
    response = RandomizedResponse(found[0].guarantee.epsilon,
                                  parameters['num_classes'])
    if not (y >= 0).any():
        raise ValueError("'y' must hold at least one released label (got "
                         "unlabelled nodes only)")
    response.check(y, 'y', y >= 0)
    return y, response
