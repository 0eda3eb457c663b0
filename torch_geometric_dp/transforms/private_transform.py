r"""What all private transforms share: charge first, then draw, and draw once.

**Theorem (permanent randomised response).** Let :math:`M` be a mechanism that
is :math:`\varepsilon`-private with fresh noise. A transform that draws the
noise of :math:`M` from a stream addressed by (secret key, graph identity,
keyed fingerprint of the raw field, row) is :math:`\varepsilon`-private for
any number of applications to the same content.

*Proof.* To whoever lacks the key, streams at different addresses are
independent fair bits (AES and HMAC are pseudo-random functions). All
applications to one content read one address, so they return one and the same
sample of :math:`M`, and copies of a sample tell nothing new. Changed content,
or another graph, is another address: fresh noise, and a new release with its
own charge. ∎

The identity matters: with the content alone as address, whoever may call the
transform could release a guess and compare. So does the fingerprint: with the
identity alone, two contents would meet the same noise, which cancels in their
difference.

**Batches of one graph.** A loader that samples neighbours shows a transform
other rows in every batch, and tells their global number in :obj:`n_id`. There,
the address of a row is (key, identity, :obj:`n_id`, keyed hash of the row's own
content), so a node looks the same in every batch, and all batches are one
release. What no batch can show is whether a row has changed since an earlier
one: that it has not is an assumption, and is recorded as such.
"""
import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Optional, Union

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.transforms import BaseTransform

from torch_geometric_dp.accountant import (
    Guarantee,
    PrivacyAccountant,
    PrivacyBudget,
    Release,
)
from torch_geometric_dp.accountant.budget import NO_BUDGET
from torch_geometric_dp.accountant.guarantee import Parameter
from torch_geometric_dp.noise import NoiseSource, grid
from torch_geometric_dp.storage import row_blocks

# Released contents are no secret: everybody may compute their digest.
PUBLIC = NoiseSource(bytes(32))

_SAME_ROWS = ("the rows that 'n_id' numbers hold the same values in all "
              "batches of the graph")


class PrivateTransform(BaseTransform):
    r"""The base of all transforms that release something private.

    A subclass says what it reads (:meth:`read`), what it promises
    (:attr:`guarantee`), and draws (:meth:`write`). The order of things is kept
    here: refuse bad input, charge, draw, record.

    Args:
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed; the ledger says so. By default, the noise is
            drawn from a secret key from the operating system.
            (default: :obj:`None`)
    """
    def __init__(self, seed: Optional[int] = None) -> None:
        self.seed = None if seed is None else int(seed)
        self._source = (NoiseSource.from_os() if seed is None else
                        NoiseSource.from_seed(seed))
        self._releases = 0  # Numbers the fresh releases of a seeded run.

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What one application promises."""

    def promise(self, stores: list[tuple[BaseStorage, str]]) -> Guarantee:
        """What an application to these fields promises, where their shape
        makes a difference.
        """
        return self.guarantee

    @property
    def parameters(self) -> tuple[tuple[str, Parameter], ...]:
        """What later steps need to know about the noise."""
        return ()

    def describe(self, stores: list[tuple[BaseStorage, str]],
                 ) -> tuple[tuple[str, Parameter], ...]:
        """The same for an application to these fields, where their shape
        makes a difference.
        """
        return self.parameters

    @abstractmethod
    def read(self, data: Any) -> list[tuple[BaseStorage, str]]:
        """The private fields, all of them checked."""

    @abstractmethod
    def write(self, store: BaseStorage, field: str,
              source: NoiseSource) -> None:
        """Replaces one private field by its release."""

    def content(self, store: BaseStorage, field: str) -> tuple[Tensor, ...]:
        """All that the release of a field depends on: where it is the same,
        so is the release.
        """
        return store[field],

    def forward(self, data: Any) -> Any:
        """Releases a graph, or every graph of a batch."""
        if isinstance(data, Batch):
            return each_graph(self.forward, data)
        stores = self.read(data)
        _check_n_id(stores)
        source, release, paid = self._charge(data, stores)
        for store, field in stores:
            self.write(store, field, self._address(source, store, field))
        output = self._digest(PUBLIC, stores)
        ledger = PrivacyAccountant.of(data)
        data.privacy = (ledger.rewrite(release, output, repr(self)) if paid else
                        ledger.spend(replace(release, output=output)))
        return data

    def _charge(self, data: Any, stores: list[tuple[BaseStorage, str]],
                ) -> tuple[NoiseSource, Release, bool]:
        # The noise's source, the entry for the ledger, and whether it was
        # paid for before: then the input is a release, and all that comes
        # of it is post-processing.
        ledger, budget = PrivacyAccountant.of(data), _budget(data)
        if ledger.releases:
            seen = self._digest(PUBLIC, stores)
            for release in ledger.releases:
                if release.output == seen:
                    return self._fresh(stores), release, True

        guarantee = self.promise(stores)
        if budget is None:
            source = self._fresh(stores)
        else:
            content = self._digest(self._source, stores)
            if any('n_id' in store for store, _ in stores):
                content = 'n_id'
                guarantee = replace(
                    guarantee,
                    assumptions=guarantee.assumptions + (_SAME_ROWS, ))
            # The arguments, too: were they changed, the same bits would mean
            # another mechanism, and nobody would have paid for that.
            source = self._source.derive(repr(self), budget.identity, content)
        release = Release(
            guarantee=guarantee,
            mechanism=repr(self),
            fields=tuple(field_name(store, field) for store, field in stores),
            release_id=source.digest('release').hex()[:32],
            graph=None if budget is None else budget.identity,
            seed=self.seed,
            parameters=self.describe(stores),
        )
        if budget is not None:
            budget.charge(release)
        return source, release, False

    def _fresh(self, stores: list[tuple[BaseStorage, str]]) -> NoiseSource:
        if self.seed is None:
            return NoiseSource.from_os()
        # Repeatable from the instance on; the content keeps apart what forked
        # workers, which all count from the same number, release.
        self._releases += 1
        return self._source.derive('fresh', self._releases,
                                   self._digest(self._source, stores))

    def _digest(self, source: NoiseSource,
                stores: list[tuple[BaseStorage, str]]) -> str:
        return digest(source, [
            (field_name(store, field), self.content(store, field))
            for store, field in stores
        ])

    def _address(self, source: NoiseSource, store: BaseStorage,
                 field: str) -> NoiseSource:
        source, value = source.derive(field_name(store, field)), store[field]
        if 'n_id' not in store or value.numel() == 0:
            return source
        tags = [source.tags(block) for block in _bytes(value)]
        return source.at(store['n_id'].cpu().numpy(), np.concatenate(tags))


def each_graph(forward: Callable[[Any], Any], batch: Any) -> Any:
    """Applies a function to the graphs of a batch, each of which has its own
    identity, ledger and noise, so that it makes no difference whether it is
    released before or after batching.
    """
    graphs = batch.to_data_list()
    fields = set().union(*(data.keys() for data in graphs))
    followed = [key for key in fields if f'{key}_batch' in batch]
    out = Batch.from_data_list([forward(copy.copy(data)) for data in graphs],
                               followed)
    # What was added to the batch as a whole stays, but not what belonged to
    # the graphs: a release may have removed it.
    gone = fields.union(*({f'{key}_batch', f'{key}_ptr'} for key in followed))
    for old, new in zip(batch.stores, out.stores):
        for key, value in old.items():
            if key not in new and key not in gone:
                new[key] = value
    return out


def node_stores_with(data: Any, field: str) -> list[BaseStorage]:
    """The stores of a graph's node types that have a field."""
    if not isinstance(data, (Data, HeteroData)):
        raise TypeError(f"Expected 'Data' or 'HeteroData' "
                        f"(got '{type(data).__name__}')")
    stores = [s for s in data.node_stores if s.get(field) is not None]
    if not stores:
        raise ValueError(f"'{field}' is missing: the graph has no node type "
                         f"with it (got the fields {sorted(data.keys())})")
    return stores


def _check_n_id(stores: list[tuple[BaseStorage, str]]) -> None:
    # Rows without a number of their own would be addressed by their place in
    # the batch alone, where other rows stand next time.
    if not any('n_id' in store for store, _ in stores):
        return
    for store, field in stores:
        n_id, rows = store.get('n_id'), store[field].size(0)
        if (not isinstance(n_id, Tensor) or n_id.is_floating_point()
                or n_id.shape != (rows, )):
            got = list(n_id.shape) if isinstance(n_id, Tensor) else n_id
            raise ValueError(
                f"'n_id' must hold the number of each of the {rows} rows of "
                f"'{field_name(store, field)}', since the graph is a batch of "
                f"a larger one (got {got})")


def _budget(data: Any) -> Optional[PrivacyBudget]:
    budget = getattr(data, 'privacy_budget', None)
    if budget is None or budget == NO_BUDGET:
        return None
    if isinstance(budget, PrivacyBudget):
        return budget
    raise TypeError(f"'privacy_budget' must be a 'PrivacyBudget' "
                    f"(got '{type(budget).__name__}')")


def field_name(store: BaseStorage, field: str) -> str:
    """A field's name in the ledger: with its node or edge type."""
    if store._key is None:
        return field
    key = store._key if isinstance(store._key, tuple) else (store._key, )
    return '__'.join(key) + f'.{field}'


def digest(source: NoiseSource,
           contents: list[tuple[str, tuple[Tensor, ...]]]) -> str:
    """A keyed digest of named tensors."""
    parts: list[Union[str, bytes]] = []
    for key, values in contents:
        parts.append(key)
        for value in values:
            parts += [f'{value.dtype}{tuple(value.shape)}',
                      source.fingerprint(_bytes(value))]
    return source.digest(*parts).hex()


def _bytes(value: Tensor) -> Iterator[NDArray[np.uint8]]:
    # Those of the rows, block by block.
    value = value.detach().view(1) if value.dim() == 0 else value.detach()
    rows, width = grid(tuple(value.shape))
    if width > 0:
        for start, stop in row_blocks(rows, width):
            block = value[start:stop].cpu().contiguous().view(-1)
            yield block.view(torch.uint8).numpy().reshape(stop - start, -1)
