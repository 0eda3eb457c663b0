r"""A cap on the degrees of a graph, and what it does to its neighbours.

All pairs of nodes stand in one random order, which is drawn whatever the graph.
An edge stays if it is among the first :math:`D` edges at both of its ends.

**Lemma.** No node has more than :math:`D` edges that stay. One edge more in the
raw graph changes at most three of the edges that stay: it may come in itself,
and push out one other at each of its ends. One node more, with :math:`m` edges,
brings at most :math:`\min(m, D)` edges, and pushes out at most one at each of
its :math:`m` neighbours. Both bounds are reached.

*Proof.* The place of an edge at one of its ends depends on the edges at that
end alone. A new edge moves those behind it by one place, so that only the one
in place :math:`D` falls out of the first :math:`D`; and no edge moves forward,
so that none comes in but the new one. For a node, that happens once at each of
its neighbours. ∎

So what is :math:`\varepsilon`-private for one edge of the graph that is left is
:math:`3 \varepsilon`-private for one edge of the raw graph: the *stability* of
this projection is 3, which stands in the ledger, and each later release of
these edges is charged three times. For a node there is no such number: a raw
node may have any number of edges, and change an edge of each of its neighbours.
So the ledger lists an assumption: that neighbours are compared after their
degrees were cut. (A greedy choice would keep more edges. But there, one edge
more can push out another, which lets in a third, and so on through the whole
graph.)
"""
import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage
from torch_geometric.transforms import BaseTransform

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._sort import distinct
from torch_geometric_dp._validate import (
    check_choice,
    check_integer,
    check_names,
)
from torch_geometric_dp.accountant import (
    PrivacyAccountant,
    Projection,
    Release,
)
from torch_geometric_dp.graph.adjacency import edge_index_of
from torch_geometric_dp.graph.first_edges import (
    Keys,
    compare,
    fill_keys,
    find_last,
    order_of,
)
from torch_geometric_dp.graph.pairs import MOST_NODES, check_edge_index
from torch_geometric_dp.noise import NoiseSource, Words
from torch_geometric_dp.noise.source import BLOCK_WORDS
from torch_geometric_dp.pyg import origin, remember
from torch_geometric_dp.release import (
    Releaser,
    budget_of,
    digest,
    field_name,
    paid_before,
    refuse_n_id,
    written,
)
from torch_geometric_dp.transforms.private_transform import each_graph

ON_EXCESS = ('drop', 'refuse')
STABILITY = 3


@functional_transform('dp_bound_degree')
class BoundDegree(Captured, BaseTransform):
    r"""Leaves at most :obj:`max_degree` edges at each node, a random choice
    (functional name: :obj:`dp_bound_degree`).

    This releases nothing: what is left is the raw graph, with fewer edges, and
    as private as before. But it makes a cap true that others need, such as
    :class:`~torch_geometric_dp.nn.NAP`. What it does to neighbouring graphs is
    stated, and proven, in :mod:`torch_geometric_dp.transforms.bound_degree`;
    the ledger has it as a number for edges, and as an assumption for nodes.

    An edge is a pair of nodes here, whatever its direction, and stays or goes
    with all its columns of :obj:`edge_index` and of the fields of edges: those
    whose name starts with :obj:`edge_`, those that a heterogeneous graph keeps
    with an edge type, and :obj:`edge_fields`; never by their size, which is
    private. Repetitions count once, and a self-loop is one edge. In a
    heterogeneous graph, the cap holds for each edge type.

    Edges that were released already are public, and their entry in the ledger
    goes on: nothing is multiplied.

    Args:
        max_degree (int): The largest number of edges at one node; a public
            number.
        on_excess (str, optional): :obj:`"drop"` removes edges at random,
            :obj:`"refuse"` raises an error. (default: :obj:`"drop"`)
        edge_fields (sequence of str, optional): Further fields of edges, one
            entry for each column of :obj:`edge_index`. (default: :obj:`()`)
        seed (int, optional): Makes the choice repeatable, and known to
            everybody who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data = BoundDegree(max_degree=10)(DigitsGraph()[0])
        h = NAP(epsilon=4.0, max_degree=10)(data.x, data.edge_index)
    """
    def __init__(self, max_degree: int, on_excess: str = 'drop',
                 edge_fields: Sequence[str] = (),
                 seed: int | None = None) -> None:
        self.max_degree = check_integer('max_degree', max_degree, 1)
        self.on_excess = check_choice('on_excess', on_excess, ON_EXCESS)
        self.edge_fields = check_names('edge_fields', edge_fields)
        self._releaser = Releaser(seed)

    @property
    def seed(self) -> int | None:
        """The seed, if the choice is repeatable."""
        return self._releaser.seed

    def forward(self, data: Any) -> Any:
        """Removes edges, if there are too many."""
        if isinstance(data, Batch):
            return each_graph(self.forward, data)
        if not isinstance(data, (Data, HeteroData)):
            raise TypeError(f"Expected 'Data' or 'HeteroData' "
                            f"(got '{type(data).__name__}')")
        refuse_n_id(data, type(self).__name__)
        stores = [s for s in data.edge_stores if 'edge_index' in s]
        if not stores:
            raise ValueError(f"'edge_index' is missing: the graph has no edges "
                             f"(got the fields {sorted(data.keys())})")
        names = tuple(field_name(store, 'edge_index') for store in stores)
        keys = [self._keys(store) for store in stores]
        slot = hashlib.sha256(f'{self!r} {names}'.encode()).hexdigest()
        ledger, budget = PrivacyAccountant.of(data), budget_of(data)
        paid = [paid_before(ledger, {name: partial(digest, edge_index_of(s))})
                for name, s in zip(names, stores)]
        raw = tuple(n for n, release in zip(names, paid) if release is None)
        ticket = self._releaser.bind(slot, (), [
            (name, (torch.from_numpy(distinct(edges.copy())), ))
            for name, (edges, _) in zip(names, keys)], budget if raw else None)
        before = [origin(store['edge_index']).stability for store in stores]
        for store, release, (edges, num_nodes) in zip(stores, paid, keys):
            fields = self._fields(store, release)
            self._bound(store, edges, num_nodes, ticket.source, fields)
        if self.on_excess == 'refuse':
            return data
        for release in dict.fromkeys(paid):
            if release is not None:
                ledger = self._processed(ledger, release, stores)
        for store, release, stability in zip(stores, paid, before):
            # Another tensor, even if it holds the same: what is known of the
            # one that came in stays as it was.
            store['edge_index'] = edge_index_of(store).detach()
            if release is not None:
                remember(store['edge_index'], released=True)
            else:
                remember(store['edge_index'], budget=budget,
                         stability=stability * STABILITY)
        if raw:
            ledger = ledger.project(Projection(
                type(self).__name__, self.arguments(), raw, STABILITY, (
                    f"neighbouring graphs are compared after their degrees "
                    f"were cut to {self.max_degree}", )))
        data.privacy = ledger
        return data

    def _processed(self, ledger: PrivacyAccountant, release: Release,
                   stores: list[BaseStorage]) -> PrivacyAccountant:
        # What is left of a release goes on as its output, but not raw fields
        # that stand beside it.
        known = dict(release.outputs)
        after, = written([release], {
            field_name(store, key): value for store in stores
            for key, value in store.items() if field_name(store, key) in known})
        return ledger.rewrite(release, after.outputs, repr(self))

    def _fields(self, store: BaseStorage,
                release: Release | None) -> list[str]:
        # By name, by place, or by what was released; see `edge_transform`.
        known = {} if release is None else dict(release.outputs)
        return [key for key, value in store.items()
                if isinstance(value, Tensor) and (
                    key in self.edge_fields or store.is_edge_attr(key) and (
                        isinstance(store._key, tuple) or
                        key.startswith('edge_') or
                        field_name(store, key) in known))]

    def _bound(self, store: BaseStorage, columns: Keys, num_nodes: int,
               source: NoiseSource, fields: list[str]) -> None:
        edges = distinct(columns.copy())
        degree = np.zeros(num_nodes, np.int64)
        last = np.full((num_nodes, 2), 2**64 - 1, np.uint64)
        words = _words(edges, source)
        find_last(edges, words, order_of(words), self.max_degree, degree, last)
        if (degree <= self.max_degree).all():
            return
        if self.on_excess == 'refuse':
            raise ValueError(f"'max_degree' must be larger: some nodes have "
                             f"more edges than {self.max_degree}. "
                             f"on_excess='drop' removes some")
        keep = np.empty(len(columns), np.bool_)
        for start in range(0, len(columns), BLOCK_WORDS):
            part = slice(start, start + BLOCK_WORDS)
            compare(columns[part], _words(columns[part], source), last,
                    keep[part])
        stay = torch.from_numpy(np.flatnonzero(keep))
        store['edge_index'] = edge_index_of(store)  # Without notes on order.
        for key in fields:
            dim = store._parent().__cat_dim__(key, store[key], store)
            if store[key].size(dim) != len(columns):
                raise ValueError(f"'{field_name(store, key)}' must have one "
                                 f"entry for each column of 'edge_index'")
            store[key] = store[key].index_select(dim,
                                                 stay.to(store[key].device))
        store.pop('num_edges', None)

    def _keys(self, store: BaseStorage) -> tuple[Keys, int]:
        # The larger and the smaller end of each column in one number, and how
        # many nodes there are; nodes of two types have different numbers.
        edge_index, offset = edge_index_of(store), 0
        sizes = store.size() if store._key is not None else (
            store._parent().num_nodes, ) * 2
        if None in sizes:
            raise ValueError(f"'num_nodes' of {store._key} is missing")
        check_edge_index(edge_index, max(sizes))
        if store._key is not None and store._key[0] != store._key[-1]:
            offset = int(sizes[0])
        u, v = edge_index.detach().cpu().numpy().astype(np.int64, copy=False)
        u, v = np.ascontiguousarray(u), np.ascontiguousarray(v)
        return fill_keys(u, v, offset), max(sizes) + offset


def _words(edges: Keys, source: NoiseSource) -> Words:
    # The source alone decides on the order: never the graph.
    words = np.empty(len(edges), np.uint64)
    for start in range(0, len(edges), BLOCK_WORDS):
        high, low = np.divmod(edges[start:start + BLOCK_WORDS], MOST_NODES)
        words[start:start + BLOCK_WORDS] = source.gather(
            high, low, MOST_NODES, 2)[:, 0]
    return words
