"""How ledgers and budgets travel through PyTorch Geometric.

PyG keeps what it does not know as it is, with exceptions that would lose a
ledger or overlook a budget. They are dealt with here, once, at import:

* a dataset that was saved is loaded safely only if the classes in it are
  registered;
* a batch takes its fields from its first graph. If only some graphs carry a
  ledger or a budget, the others' are dropped without a word, or the batch
  fails. So before graphs are collated, those without get an empty ledger, or
  the word that they have no budget; and the ledgers of a batch answer together;
* a budget on a dataset's collated graphs would be overlooked: it is refused;
* :obj:`print(data)` shows the ledger in one line;
* a layer is given tensors, not the graph. So the tensors of a graph that gets a
  budget are remembered, weakly, together with it (:func:`origin`).
"""
import copy
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
import torch_geometric.data.batch
import torch_geometric.data.data
import torch_geometric.data.hetero_data
import torch_geometric.data.in_memory_dataset
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import (
    BaseData,
    DataEdgeAttr,
    DataTensorAttr,
)
from torch_geometric.data.storage import (
    BaseStorage,
    EdgeStorage,
    GlobalStorage,
    NodeStorage,
)

from torch_geometric_dp.accountant import (
    GaussianNoise,
    Guarantee,
    LaplaceNoise,
    PrivacyAccountant,
    Projection,
    Relation,
    Release,
    SampledGaussianNoise,
    Trust,
    Unit,
)
from torch_geometric_dp.vault import PrivacyBudget
from torch_geometric_dp.vault.budget import restore_budget

#: What stands in the place of a budget where a batch needs something to stand
#: there: PyG cannot store :obj:`None`.
NO_BUDGET = 'none'


class Ledgers:
    """The ledgers of the graphs of a batch. They answer together, as one
    ledger would.

    .. code-block:: python

        from torch_geometric.data import Batch
        private = LabelRR(epsilon=1.0, num_classes=7)(data)
        Batch.from_data_list([private, private]).privacy.epsilon('labels')   # 1
    """
    def __init__(self, ledgers: Iterable[PrivacyAccountant]) -> None:
        self._ledgers = list(ledgers)
        for ledger in self._ledgers:
            if not isinstance(ledger, PrivacyAccountant):
                raise TypeError(f"'ledgers' must hold ledgers "
                                f"(got '{type(ledger).__name__}')")

    def __reduce__(self) -> tuple[Any, ...]:
        return Ledgers, (self._ledgers, )

    def __setstate__(self, state: Any) -> NoReturn:
        raise ValueError("'Ledgers' have no state that a file may set")

    def __len__(self) -> int:
        return len(self._ledgers)

    def __getitem__(self, index: int) -> PrivacyAccountant:
        return self._ledgers[index]

    def __iter__(self) -> Iterator[PrivacyAccountant]:
        return iter(self._ledgers)

    def __getattr__(self, name: str) -> Any:
        if name.startswith('_'):  # Not yet there, when a copy is made.
            raise AttributeError(name)
        return getattr(PrivacyAccountant.merge(self._ledgers), name)

    def __repr__(self) -> str:
        return f'[{len(self)} ledgers]'

    def __str__(self) -> str:
        return str(PrivacyAccountant.merge(self._ledgers))


@dataclass(frozen=True)
class Origin:
    """Where a tensor comes from: the budget of its graph, how many of its units
    one raw unit changes, and whether it was released.
    """
    budget: PrivacyBudget | None = None
    stability: int = 1
    released: bool = False


_ORIGINS: Any = WeakTensorKeyDictionary()


def origin(*tensors: Any) -> Origin:
    """What is known of some tensors together: a budget if any of them has one,
    the stability of all of them, and whether all were released.
    """
    known = [_ORIGINS.get(tensor, Origin()) if isinstance(tensor, Tensor) else
             Origin() for tensor in tensors]
    budgets = {id(o.budget): o.budget for o in known if o.budget is not None}
    if len(budgets) > 1:
        raise ValueError("The inputs of a layer must belong to one graph (got "
                         "tensors of graphs with different budgets)")
    return Origin(next(iter(budgets.values()), None),
                  max((o.stability for o in known), default=1),
                  all(o.released for o in known))


def remember(tensor: Any, **known: Any) -> None:
    """Remembers where a tensor comes from, as long as it lives."""
    if isinstance(tensor, Tensor):
        _ORIGINS[tensor] = replace(_ORIGINS.get(tensor, Origin()), **known)


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
                    _global(data)[key] = empty
    return data_list


def _global(data: BaseData) -> Any:
    return data._global_store if isinstance(data, HeteroData) else data._store


def _aligned(collate: Any) -> Any:
    if hasattr(collate, '__wrapped__'):  # The module was loaded again.
        return collate

    @functools.wraps(collate)
    def wrapper(cls: Any, data_list: Any, *args: Any, **kwargs: Any) -> Any:
        out = collate(cls, align(list(data_list)), *args, **kwargs)
        store = _global(out[0])
        if isinstance(store.get('privacy'), list):
            store['privacy'] = Ledgers(store['privacy'])
        return out

    return wrapper


def _guarded(separate: Any) -> Any:
    if hasattr(separate, '__wrapped__'):
        return separate

    @functools.wraps(separate)
    def wrapper(cls: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(_global(batch).get('privacy_budget'), PrivacyBudget):
            raise ValueError(
                "'privacy_budget' of several graphs at once would be "
                "overlooked: one budget is for one graph. Give each graph its "
                "own, see PrivacyBudget.for_each")
        return separate(cls, batch, *args, **kwargs)

    return wrapper


def _short(size_repr: Any) -> Any:
    if hasattr(size_repr, '__wrapped__'):
        return size_repr

    @functools.wraps(size_repr)
    def wrapper(key: Any, value: Any, indent: int = 0) -> Any:
        if isinstance(value, (PrivacyAccountant, Ledgers)):
            return f"{' ' * indent}{key}={value!r}"
        return size_repr(key, value, indent)

    return wrapper


def _remembering(apply: Any) -> Any:
    # Copies, and what is moved elsewhere, come from where the original does.
    if hasattr(apply, '__wrapped__'):
        return apply

    @functools.wraps(apply)
    def wrapper(data: BaseData, *args: Any, **kwargs: Any) -> Any:
        before = [(store, dict(store.items())) for store in data.stores]
        out = apply(data, *args, **kwargs)
        for store, values in before:
            for key, value in values.items():
                if isinstance(value, Tensor) and value in _ORIGINS:
                    remember(store.get(key), **vars(_ORIGINS[value]))
        return out

    return wrapper


def _get_budget(data: BaseData) -> Any:
    store = data._store
    if 'privacy_budget' not in store:
        raise AttributeError(f"'{type(data).__name__}' has no "
                             f"'privacy_budget'")
    return store['privacy_budget']


def _set_budget(data: BaseData, budget: Any) -> None:
    data._store['privacy_budget'] = budget
    if isinstance(budget, PrivacyBudget):
        for value in data._store.values():
            remember(value, budget=budget)


def install() -> None:
    """Makes PyG keep ledgers. Called when :obj:`torch_geometric_dp` is
    imported; a second call changes nothing.
    """
    torch.serialization.add_safe_globals(
        [GaussianNoise, Guarantee, LaplaceNoise, Ledgers, PrivacyAccountant,
         Projection, Relation, Release, SampledGaussianNoise, Trust, Unit,
         restore_budget,
         # What a graph consists of, of which PyG names only a part.
         BaseStorage, DataEdgeAttr, DataTensorAttr, EdgeStorage, GlobalStorage,
         NodeStorage])
    for module in (torch_geometric.data.batch,
                   torch_geometric.data.in_memory_dataset):
        module.collate = _aligned(module.collate)
        module.separate = _guarded(module.separate)
    for module in (torch_geometric.data.data,
                   torch_geometric.data.hetero_data):
        module.size_repr = _short(module.size_repr)
    BaseData.apply = _remembering(BaseData.apply)
    # Heterogeneous graphs set all fields the same way, whatever they are.
    Data.privacy_budget = property(_get_budget, _set_budget)
