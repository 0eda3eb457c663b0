"""What all private transforms share: which fields they read and write. The
order of things is kept by the door, :mod:`torch_geometric_dp.release`.
"""
import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.transforms import BaseTransform

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp.accountant import Guarantee, PrivacyAccountant, Unit
from torch_geometric_dp.accountant.entry import Pairs
from torch_geometric_dp.mechanisms.mechanism import Canary
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.pyg import remember
from torch_geometric_dp.release import (
    Part,
    Releaser,
    added_to,
    budget_of,
    check_batch,
    digest,
    field_name,
    paid_before,
    refuse_n_id,
    written,
)


@dataclass
class Field:
    """A private field of a graph, checked, and ready to be released."""
    store: BaseStorage
    key: str
    #: All that the release depends on: where it is the same, so is the release.
    content: tuple[Tensor, ...]
    #: What the transform has found out on the way, for when it draws.
    ready: Any = None

    @property
    def name(self) -> str:
        """Its name in the ledger."""
        return field_name(self.store, self.key)


class PrivateTransform(Captured, BaseTransform):
    r"""The base of all transforms that release something private.

    A subclass says what it reads (:meth:`read`), what it promises
    (:attr:`guarantee`), and draws (:meth:`write`).

    Args:
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed; the ledger says so. By default, the noise is
            secret. (default: :obj:`None`)
    """
    def __init__(self, seed: int | None = None) -> None:
        self._releaser = Releaser(seed)

    @property
    def seed(self) -> int | None:
        """The seed, if the noise is repeatable."""
        return self._releaser.seed

    def renew(self) -> 'PrivateTransform':
        """Makes the next application a new release, which costs again, even if
        there is one already. Returns the transform itself.
        """
        self._releaser.renew()
        return self

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What one application promises."""

    def promise(self, fields: list[Field]) -> Guarantee:
        """What an application to these fields promises, where their shape
        makes a difference.
        """
        return self.guarantee

    def describe(self, fields: list[Field]) -> Pairs:
        """What later steps need to know about the noise in these fields."""
        return ()

    def public(self, fields: list[Field],
               ) -> tuple[tuple[str, Unit | None], ...]:
        """What is read raw, besides these fields, and taken as public."""
        return ()

    def canaries(self, data: Any | None = None) -> Sequence[Canary]:
        """The pairs of neighbours that are told apart best, for
        :func:`~torch_geometric_dp.audit.audit`. Of a graph, nothing counts but
        its form.
        """
        return ()

    @abstractmethod
    def read(self, data: Any) -> list[Field]:
        """The private fields, all of them checked."""

    @abstractmethod
    def write(self, field: Field, source: NoiseSource) -> list[str]:
        """Replaces one private field by its release; returns the keys of all
        that was written.
        """

    def forward(self, data: Any) -> Any:
        """Releases a graph, or every graph of a batch."""
        if isinstance(data, Batch):
            return each_graph(self.forward, data)
        if not isinstance(data, (Data, HeteroData)):
            raise TypeError(f"Expected 'Data' or 'HeteroData' "
                            f"(got '{type(data).__name__}')")
        refuse_n_id(data, type(self).__name__)
        budget, ledger = budget_of(data), PrivacyAccountant.of(data)
        fields = self.read(data)
        paid = paid_before(ledger, {
            field.name: partial(digest, field.store[field.key])
            for field in fields})
        content = [(field.name, field.content) for field in fields]
        public = self.public(fields)
        if paid is not None:  # What is made of a release is free.
            ticket = self._releaser.bind(repr(self), (), content, None)
            outputs = self._write(fields, ticket.source)
            after, = written([paid], outputs)
            data.privacy = ledger.rewrite(paid, after.outputs, repr(self),
                                          public)
            return data
        promise = self.promise(fields)
        part = Part(
            self, PrivateTransform, promise,
            tuple(field.name for field in fields), public,
            self.describe(fields),
            max(ledger.stability(field.name) for field in fields))
        ticket = self._releaser.admit([part], content, budget)
        outputs = self._write(fields, ticket.source)
        data.privacy = ledger.spend(*written(ticket.releases, outputs))
        return data

    def _write(self, fields: list[Field],
               source: NoiseSource) -> dict[str, Tensor]:
        outputs = {}
        for field in fields:
            for key in self.write(field, source.derive(field.name)):
                outputs[field_name(field.store, key)] = field.store[key]
                # A layer sees tensors alone.
                remember(field.store[key], released=True)
        return outputs


def each_graph(forward: Callable[[Any], Any], batch: Any) -> Any:
    """Applies a function to the graphs of a batch, each of which has its own
    identity, ledger and noise, so that it makes no difference whether it is
    released before or after batching.
    """
    check_batch(batch)
    graphs = batch.to_data_list()
    followed = [key for key in set().union(*(data.keys() for data in graphs))
                if f'{key}_batch' in batch]
    out = Batch.from_data_list([forward(copy.copy(data)) for data in graphs],
                               followed)
    # What was added to the batch as a whole stays, but not what belonged to
    # the graphs: a release may have removed it.
    for old, new in zip(batch.stores, out.stores):
        for key in added_to(batch, old):
            new[key] = old[key]
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
