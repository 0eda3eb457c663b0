"""What a released graph says about its labels."""
import copy
from typing import Any

import torch
from torch import Tensor

from torch_geometric_dp.accountant import PrivacyAccountant
from torch_geometric_dp.mechanisms import RandomizedResponse
from torch_geometric_dp.release import check_released, written


def released_labels(data: Any) -> tuple[Tensor, RandomizedResponse]:
    """The labels that :class:`LabelRR` released, with -1 for all others, and
    the noise in them, as it stands in the ledger. Labels that are not those
    which the ledger tells of are refused: they are raw, or were changed.

    .. code-block:: python

        private = LabelRR(epsilon=1.0, num_classes=7, mask='train_mask')(data)
        y, response = released_labels(private)
        response   # RandomizedResponse(epsilon=1.0, num_classes=7)
    """
    release = PrivacyAccountant.of(data).find('y', 'LabelRR')
    y, parameters = data.y, dict(release.parameters)
    check_released(release, 'y', y)
    if y.dim() != 1:
        raise ValueError(f"'y' must hold one label for each node "
                         f"(got the shape {list(y.shape)})")
    if 'kept_outside' in parameters:  # True labels, which nobody may train on.
        y = torch.where(data[parameters['kept_outside']], y, -1)
    classes: Any = parameters['num_classes']
    response = RandomizedResponse(release.guarantee.epsilon, classes)
    if not (y >= 0).any():
        raise ValueError("'y' must hold at least one released label (got "
                         "unlabelled nodes only)")
    response.check(y, 'y', y >= 0)
    return y, response


def with_labels(data: Any, y: Tensor) -> Any:
    """A copy of a released graph that has some of its released labels, and -1
    for all others. The ledger knows them again.
    """
    ledger = PrivacyAccountant.of(data)
    release = ledger.find('y', 'LabelRR')
    after, = written([release], {'y': y})
    data = copy.copy(data)
    data.y = y
    data.privacy = PrivacyAccountant(
        tuple(after if r is release else r for r in ledger.releases),
        ledger.projections)
    return data
