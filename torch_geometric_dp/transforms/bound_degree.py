r"""A cap on the degrees of a graph, and what it does to its neighbours.

All pairs of nodes stand in one random order, which a secret key fixes once and
for all, whatever the graph. An edge stays if it is among the first :math:`D`
edges at both of its ends.

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
:math:`3 \varepsilon`-private for one edge of the raw graph. For a node there is
no such number: a raw node may have any number of edges, and change an edge of
each of its neighbours. So the ledger lists an assumption: that neighbours are
compared after their degrees were cut. (A greedy choice would keep more edges.
But there, one edge more can push out another, which lets in a third, and so on
through the whole graph.)
"""
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage
from torch_geometric.transforms import BaseTransform

from torch_geometric_dp._sort import distinct
from torch_geometric_dp.accountant import Guarantee, PrivacyAccountant, Release
from torch_geometric_dp.mechanisms.checks import check_integer
from torch_geometric_dp.mechanisms.first_edges import (
    Keys,
    compare,
    fill_keys,
    find_last,
    order_of,
)
from torch_geometric_dp.mechanisms.pairs import MOST_NODES, check_edge_index
from torch_geometric_dp.noise import BLOCK_WORDS, NoiseSource, Words

ON_EXCESS = ('drop', 'refuse')


@functional_transform('dp_bound_degree')
class BoundDegree(BaseTransform):
    r"""Leaves at most :obj:`max_degree` edges at each node, a random choice
    (functional name: :obj:`dp_bound_degree`).

    This releases nothing: what is left is the raw graph, with fewer edges, and
    as private as before. But it makes a cap true that others need, such as
    :class:`~torch_geometric_dp.nn.NAP`. What it does to neighbouring graphs is
    stated, and proven, in :mod:`torch_geometric_dp.transforms.bound_degree`;
    the ledger lists it as an assumption.

    An edge is a pair of nodes here, whatever its direction, and stays or goes
    with all its columns of :obj:`edge_index` and their fields. Repetitions
    count once, and a self-loop is one edge. In a heterogeneous graph, the cap
    holds for each edge type.

    Args:
        max_degree (int): The largest number of edges at one node; a public
            number.
        on_excess (str, optional): :obj:`"drop"` removes edges at random,
            :obj:`"refuse"` raises an error. (default: :obj:`"drop"`)
        seed (int, optional): Makes the choice repeatable, and known to
            everybody who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data = BoundDegree(max_degree=10)(DigitsGraph()[0])
        h = NAP(epsilon=4.0, max_degree=10)(data.x, data.edge_index)
    """
    def __init__(self, max_degree: int, on_excess: str = 'drop',
                 seed: Optional[int] = None) -> None:
        self.max_degree = check_integer('max_degree', max_degree, 1)
        if on_excess not in ON_EXCESS:
            raise ValueError(f"'on_excess' must be one of {ON_EXCESS} "
                             f"(got {on_excess!r})")
        self.on_excess = on_excess
        self.seed = None if seed is None else int(seed)
        self._source = (NoiseSource.from_os() if seed is None else
                        NoiseSource.from_seed(seed))

    def forward(self, data: Any) -> Any:
        """Removes edges, if there are too many."""
        if isinstance(data, Batch):
            return Batch.from_data_list(
                [self.forward(graph) for graph in data.to_data_list()])
        if not isinstance(data, (Data, HeteroData)):
            raise TypeError(f"Expected 'Data' or 'HeteroData' "
                            f"(got '{type(data).__name__}')")
        stores = [s for s in data.edge_stores if 'edge_index' in s]
        if not stores:
            raise ValueError(f"'edge_index' is missing: the graph has no edges "
                             f"(got the fields {sorted(data.keys())})")
        for store in stores:
            self._bound(store)
        if self.on_excess == 'drop':
            data.privacy = PrivacyAccountant.of(data).spend(self._entry())
        return data

    def _bound(self, store: BaseStorage) -> None:
        columns, num_nodes = self._keys(store)
        edges = distinct(columns.copy())
        degree = np.zeros(num_nodes, np.int64)
        last = np.full((num_nodes, 2), 2**64 - 1, np.uint64)
        words = self._words(edges)
        find_last(edges, words, order_of(words), self.max_degree, degree, last)
        if (degree <= self.max_degree).all():
            return
        if self.on_excess == 'refuse':
            raise ValueError(
                f"'max_degree' must be at least {degree.max()}: so many edges "
                f"has node {degree.argmax()} (got {self.max_degree})")
        keep = np.empty(len(columns), np.bool_)
        for start in range(0, len(columns), BLOCK_WORDS):
            part = slice(start, start + BLOCK_WORDS)
            compare(columns[part], self._words(columns[part]), last,
                     keep[part])
        _select(store, torch.from_numpy(np.flatnonzero(keep)))

    def _words(self, edges: Keys) -> Words:
        # The key alone decides on the order: never the graph.
        words = np.empty(len(edges), np.uint64)
        for start in range(0, len(edges), BLOCK_WORDS):
            high, low = np.divmod(edges[start:start + BLOCK_WORDS], MOST_NODES)
            words[start:start + BLOCK_WORDS] = self._source.gather(
                high, low, MOST_NODES, 2)[:, 0]
        return words

    def _keys(self, store: BaseStorage) -> tuple[Keys, int]:
        # The larger and the smaller end of each column in one number, and how
        # many nodes there are; nodes of two types have different numbers.
        edge_index, offset = _edge_index(store), 0
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

    def _entry(self) -> Release:
        cap = self.max_degree
        promise = Guarantee(
            0.0, 'node', "none: the edges that are left are raw",
            model='central', assumptions=(
                f"neighbouring graphs are compared after their degrees were "
                f"cut to {cap}: one raw edge may change three of the edges "
                f"that are left, and a raw node one at each of its "
                f"neighbours", ))
        return Release(promise, repr(self), (),
                       self._source.digest('entry', cap).hex()[:32])

    def __repr__(self) -> str:
        args = [f'max_degree={self.max_degree}']
        if self.on_excess != 'drop':
            args.append(f"on_excess='{self.on_excess}'")
        if self.seed is not None:
            args.append(f'seed={self.seed}')
        return f"{self.__class__.__name__}({', '.join(args)})"


def _select(store: BaseStorage, columns: Tensor) -> None:
    fields = [key for key, value in store.items()
              if isinstance(value, Tensor) and store.is_edge_attr(key)]
    store['edge_index'] = _edge_index(store)  # Without notes on its order.
    for key in fields:
        dim = store._parent().__cat_dim__(key, store[key], store)
        store[key] = store[key].index_select(dim, columns.to(store[key].device))
    store.pop('num_edges', None)


def _edge_index(store: BaseStorage) -> Any:
    edge_index = store['edge_index']
    return (edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else
            edge_index)
