import math
import secrets
from typing import Any

import torch

from torch_geometric_dp.accountant import (
    Guarantee,
    PrivacyAccountant,
    Relation,
    Release,
    Trust,
    Unit,
)
from torch_geometric_dp.release import verify


def model_ledger(model: torch.nn.Module, data: Any,
                 labels: str | None = 'y') -> PrivacyAccountant:
    r"""The ledger of a trained model: what was released from the graph before,
    and what the model's layers have released. One release counts once, however
    many parts of a model tell of it.

    If the model was trained on labels that were not released, neither by a
    transform nor by the model, the ledger says that they were taken as public.
    It does not know what else a model reads:
    :func:`~torch_geometric_dp.nn.check_private` finds out.

    Args:
        model (torch.nn.Module): The model.
        data (Data): The graph that it was trained on.
        labels (str, optional): The node field of the labels that it was
            trained on; :obj:`None` if there are none.
            (default: :obj:`"y"`)

    .. code-block:: python

        model = NAPConv(4, 7, epsilon=4.0, max_degree=50)
        model(data.x, data.edge_index)
        model_ledger(model, data).epsilon('labels')               # inf
        private = LabelRR(epsilon=1.0, num_classes=7)(data)
        model_ledger(model, private).epsilon('node')              # 5.0
    """
    known = PrivacyAccountant.of(data)
    own = PrivacyAccountant.merge(
        ledger for module in model.modules()
        if isinstance(ledger := getattr(module, 'privacy', None),
                      PrivacyAccountant))
    ledger = PrivacyAccountant.merge([known, own])
    if labels is None or any(labels in r.fields and r not in known.releases
                             for r in own.releases):
        return ledger
    if data.get(labels) is None:
        raise ValueError(f"'{labels}' is missing: if the model was not trained "
                         f"on labels, say labels=None")
    if verify(known, data)[labels] == 'covered':
        return ledger
    return ledger.spend(Release(
        Guarantee(math.inf, Unit.LABELS, Relation.REPLACE,
                  model=Trust.CENTRAL),
        mechanism=type(model).__name__, arguments=(), fields=(labels, ),
        release_id=secrets.token_hex(16), public=((labels, Unit.LABELS), )))
