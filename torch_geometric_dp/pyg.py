"""How a ledger travels through PyTorch Geometric.

PyG keeps what it does not know as it is, with two exceptions that would lose a
ledger. Both are dealt with here, once, at import:

* a dataset that was saved is loaded safely only if the classes in it are
  registered;
* a batch takes its fields from its first graph. If only some graphs carry a
  ledger or a budget, the others' are dropped without a word, or the batch
  fails. So before graphs are collated, those without get an empty ledger, or
  the word that they have no budget.
"""
import copy
import functools
from typing import Any

import torch
import torch_geometric.data.batch
import torch_geometric.data.in_memory_dataset
from torch_geometric.data.data import BaseData

from torch_geometric_dp.accountant import (
    Guarantee,
    PrivacyAccountant,
    PrivacyBudget,
    Release,
)
from torch_geometric_dp.accountant.budget import NO_BUDGET, restore_budget


def align(data_list: list[BaseData]) -> list[BaseData]:
    """The same graphs, all of them with the fields :obj:`privacy` and
    :obj:`privacy_budget` if any of them has it.

    .. code-block:: python

        released = LabelRR(epsilon=1.0, num_classes=7)(data)
        align([released, data])[1].privacy.releases   # ()
    """
    for key, empty in (('privacy', PrivacyAccountant()),
                       ('privacy_budget', NO_BUDGET)):
        missing = [getattr(data, key, None) is None for data in data_list]
        if any(missing) and not all(missing):
            data_list = [copy.copy(data) if lacks else data
                         for data, lacks in zip(data_list, missing)]
            for data, lacks in zip(data_list, missing):
                if lacks:
                    setattr(data, key, empty)
    return data_list


def _aligned(collate: Any) -> Any:
    if hasattr(collate, '__wrapped__'):  # The module was loaded again.
        return collate

    @functools.wraps(collate)
    def wrapper(cls: Any, data_list: Any, *args: Any, **kwargs: Any) -> Any:
        return collate(cls, align(list(data_list)), *args, **kwargs)

    return wrapper


def install() -> None:
    """Makes PyG keep ledgers. Called when :obj:`torch_geometric_dp` is
    imported; a second call changes nothing.
    """
    torch.serialization.add_safe_globals(
        [Guarantee, Release, PrivacyAccountant, PrivacyBudget, restore_budget])
    for module in (torch_geometric.data.batch,
                   torch_geometric.data.in_memory_dataset):
        module.collate = _aligned(module.collate)
