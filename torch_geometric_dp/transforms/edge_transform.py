r"""What all releases of edges share: which edges are private, what one of them
is, and what may be left of the graph.

**The unit is a pair of nodes.** A private edge belongs to the pair of nodes
that it joins, whatever its direction, and a release is a set of pairs, each of
them in both directions. So one private edge more or less changes one pair at
the most, and a pair that has an edge in both directions costs no more than one
with a single edge. Were directions released for graphs that have some, the
release would tell whether there are any, and one edge can make that difference.
So they never are; a warning says so to whoever holds such a graph.

**Public edges** stay as they are, and a pair that has one is public: it counts
as no private pair, and if it is drawn, it is left out. Both are functions of
public edges and of a release, and cost nothing.

**What cannot stay.** A private self-loop is no pair, and is left out. Fields of
edges are removed, for all edges: those of private edges are private, and pairs
that were drawn have none. Which fields these are is told by their name (all
that starts with :obj:`edge_`), by their place (all that a heterogeneous graph
keeps with an edge type) or by whoever calls it (:obj:`drop`), and never by
their size: whether a field has as many entries as there are edges is private.
A field whose name says that it holds edges, or was computed from them, is
refused, in every store of the graph; what else is left as it is stands in the
ledger by name. What nobody can see is a feature that was computed from edges
and has an innocent name: :class:`Publish` asks for every field to be named.
"""
import copy
import math
import re
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp._validate import (
    check_epsilon,
    check_integer,
    check_names,
)
from torch_geometric_dp.accountant import Guarantee, Relation, Trust, Unit
from torch_geometric_dp.graph.adjacency import edge_index_of
from torch_geometric_dp.graph.pairs import (
    Pairs,
    arrows,
    check_edge_index,
    contains,
    from_pairs,
    is_undirected,
    num_pairs,
    pairs_of,
    to_pairs,
)
from torch_geometric_dp.mechanisms.mechanism import Canary, EdgePair
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.release import ASIDE, field_name
from torch_geometric_dp.transforms.private_transform import (
    Field,
    PrivateTransform,
)

MAX_EDGES = 10**7

# Names of fields that hold edges, or are computed from them.
_STRUCTURE = re.compile(
    r'a|.*adj.*|.*edge.*index.*|edges?|edges_.*|.+_edges?(_.*)?|edge_?list|'
    r'faces?|row|col|rowptr|colptr|crow|ccol|(.*_)?(e_id|laplacian.*|'
    r'deg(ree)?s?|pe|rw[ps]e|neighbou?rs?|centrality|pagerank)|pestat_.*|'
    r'metapath.*|x_raw|x\d+')
# Names that PyG has for what nodes have.
_OF_NODES = re.compile(r'x|y|pos|num_nodes|batch|ptr|.*mask|.*_batch|.*_ptr')


class EdgeTransform(PrivateTransform):
    r"""The base of all transforms that release the private edges of
    :obj:`edge_index` in the central model. Public edges stay as they are.

    The release is undirected. Its edges stand behind the public ones, and the
    field :obj:`private` of the output marks them. All other fields of edges,
    such as :obj:`edge_attr`, are removed.

    Args:
        epsilon (float): The privacy loss of one private edge.
        private (str, optional): The name of a boolean edge field that selects
            the private edges. In a graph without that field, all edges are
            private. (default: :obj:`"edge_private"`)
        max_edges (int, optional): A release that is expected to have more
            columns of :obj:`edge_index`, from noise alone, is refused, before
            it costs anything. (default: :obj:`10000000`)
        drop (sequence of str, optional): Further fields of edges, which are
            removed. (default: :obj:`()`)
        keep (sequence of str, optional): Fields that are public, and stay,
            although their name says that they hold edges.
            (default: :obj:`()`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)
    """
    def __init__(self, epsilon: float, private: str = 'edge_private',
                 max_edges: int = MAX_EDGES, drop: Sequence[str] = (),
                 keep: Sequence[str] = (), seed: int | None = None) -> None:
        super().__init__(seed)
        self.epsilon = check_epsilon(epsilon)
        if not isinstance(private, str):
            raise TypeError(f"'private' must be the name of a boolean edge "
                            f"field, such as 'edge_private' "
                            f"(got '{type(private).__name__}')")
        self.private = private
        self.max_edges = check_integer('max_edges', max_edges, 0)
        self.drop = check_names('drop', drop)
        self.keep = check_names('keep', keep)

    @abstractmethod
    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """The expected number of pairs that :meth:`draw` returns, for a graph
        in which :obj:`num_edges` pairs are private.
        """

    @abstractmethod
    def draw(self, store: BaseStorage, private: Pairs, public: Pairs,
             num_nodes: int,
             source: NoiseSource) -> tuple[Pairs, Tensor | None]:
        """Draws the pairs to release, and a weight for each of them if they
        have one.

        All pairs, those that are private, those that are public and those that
        are drawn, stand there once, as their numbers. None is both private and
        public. The store is given for public fields alone.
        """

    def canaries(self, data: Any | None = None) -> Sequence[Canary]:
        """An edge, or none, or another."""
        return [EdgePair(self.guarantee.relation, self.private)]

    @property
    def public_fields(self) -> tuple[str, ...]:
        """Fields that hold other edges, which are public."""
        return self.keep

    @property
    def guarantee(self) -> Guarantee:
        """One private edge, in the central model."""
        return Guarantee(self.epsilon, Unit.EDGES, Relation.ADD_REMOVE,
                         model=Trust.CENTRAL)

    def promise(self, fields: list[Field]) -> Guarantee:
        """The same, with what else it takes for these edges."""
        if len(fields) == 1:
            return self.guarantee
        return replace(self.guarantee, assumptions=self.guarantee.assumptions +
                       ("no private edge stands in more than one edge type", ))

    def public(self, fields: list[Field],
               ) -> tuple[tuple[str, Unit | None], ...]:
        """The number of nodes, public edges, and what is left as it is."""
        out = ['num_nodes', *self.public_fields]
        if any(self.private in field.store for field in fields):
            out.append(f"the edges that '{self.private}' does not select")
        for store in fields[0].store._parent().stores:
            out += [f"'{field_name(store, key)}', left as it is"
                    for key in store if self._stays(store, key) and (
                        _is_whole(store) or not _OF_NODES.fullmatch(key) and
                        key not in (*ASIDE, *self.public_fields))]
        return tuple((what, None) for what in out)

    def read(self, data: Any) -> list[Field]:
        """The edges of all edge types that have some."""
        fields, expected = [], 0.0
        for store in self._stores(data):
            num_nodes, mask = self.num_nodes(store), self._mask(store)
            ways = arrows(edge_index_of(store), mask)
            self._warn_of_directions(ways)
            private = pairs_of(ways)
            public = to_pairs(edge_index_of(store), ~mask)
            if len(public) > 0:
                private = private[~contains(public, private)]
            # By public numbers alone: a refusal may not tell how many there
            # are.
            expected += 2 * self.expected_edges(num_nodes, 0)
            content = (*map(torch.from_numpy, (private, public)),
                       torch.tensor(num_nodes), *self.guides(store))
            fields.append(Field(store, 'edge_index', content,
                                (private, public, mask)))
        if expected > self.max_edges:
            raise ValueError(
                f"'max_edges' must be at least {math.ceil(expected)}, the "
                f"number of edges that this epsilon makes of nothing "
                f"(got {self.max_edges}); a larger epsilon needs less")
        return fields

    def guides(self, store: BaseStorage) -> tuple[Tensor, ...]:
        """What else a release depends on, all of it public."""
        return ()

    def write(self, field: Field, source: NoiseSource) -> list[str]:
        """Draws the edges of one edge type."""
        store, (private, public, mask) = field.store, field.ready
        numbers, weight = self.draw(store, private, public,
                                    self.num_nodes(store), source)
        if len(public) > 0:
            new = ~contains(public, numbers)
            numbers = numbers[new]
            weight = None if weight is None else weight[torch.from_numpy(new)]
        drawn = from_pairs(numbers)
        kept = edge_index_of(store)[:, ~mask].long()
        for other in store._parent().stores:
            # Other edge types are released for themselves, or public.
            if other is store or _is_whole(other) or not isinstance(
                    other._key, tuple):
                for key in [k for k in other if not self._stays(other, k)]:
                    del other[key]
        first, count = kept.size(1), drawn.size(1)
        out = kept.new_empty(2, first + 2 * count)
        out[:, :first], out[:, first:first + count] = kept, drawn
        out[:, first + count:] = drawn.flip(0)
        store['edge_index'] = out
        store[self.private] = out.new_ones(out.size(1), dtype=torch.bool)
        store[self.private][:first] = False
        if weight is None:
            return ['edge_index', self.private]
        weight = weight.to(kept.device)
        store['edge_weight'] = torch.cat([weight.new_ones(first), weight,
                                          weight])
        return ['edge_index', self.private, 'edge_weight']

    def _stays(self, store: BaseStorage, key: str) -> bool:
        # By name, or by place; never by size.
        if key in self.drop or key in self.public_fields or _is_whole(store):
            return key not in self.drop
        return not (isinstance(store._key, tuple) or key.startswith('edge_') or
                    key in ('num_edges', self.private))

    def num_nodes(self, store: BaseStorage) -> int:
        """The number of nodes that the edges join."""
        if store._key is not None:
            name = f"'num_nodes' of '{store._key[0]}'"
            nodes = store._parent()[store._key[0]]
        else:
            # PyG would guess from the largest node of an edge or a face, which
            # is private.
            name, nodes = "'num_nodes'", copy.copy(store)
            for key in ('edge_index', 'face'):
                nodes.pop(key, None)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            num_nodes = nodes.num_nodes
        if num_nodes is None:
            raise ValueError(f"{name} is missing: the number of nodes is "
                             f"public, and may not be guessed from private "
                             f"edges")
        return int(num_nodes)

    def _stores(self, data: Any) -> list[BaseStorage]:
        # The edge types to release, all of them checked.
        known = ('edge_index', 'num_edges', self.private, *ASIDE,
                 *self.public_fields, *self.drop)
        for store in data.stores:
            for key in store:
                if key not in known and _STRUCTURE.fullmatch(key.lower()):
                    raise ValueError(
                        f"'{field_name(store, key)}' may hold private edges "
                        f"as they are, or was computed from them: remove it "
                        f"before the edges are released, or name it in 'keep' "
                        f"if it is public")
        stores = [s for s in data.edge_stores if 'edge_index' in s]
        for store in stores:
            self._check(store)
        stores = [s for s in stores if not _is_bipartite(s)]
        if not stores:
            raise ValueError(f"'edge_index' is missing: the graph has no edges "
                             f"to release (got the fields "
                             f"{sorted(data.keys())})")
        return stores

    def _check(self, store: BaseStorage) -> None:
        if not _is_bipartite(store):
            num_pairs(self.num_nodes(store))
            check_edge_index(edge_index_of(store), self.num_nodes(store))
        columns, mask = edge_index_of(store).size(-1), store.get(self.private)
        if mask is not None and (not isinstance(mask, Tensor)
                                 or mask.dtype != torch.bool):
            kind = mask.dtype if isinstance(mask, Tensor) else type(mask)
            raise TypeError(f"'{self.private}' must be a boolean tensor "
                            f"(got {kind})")
        if mask is not None and mask.shape != (columns, ):
            raise ValueError(
                f"'{self.private}' must have shape [{columns}], one entry for "
                f"each column of 'edge_index' (got {list(mask.shape)})")
        if _is_bipartite(store) and (mask is None or mask.any()):
            raise ValueError(
                f"'edge_index' of {store._key} must join nodes of one type, or "
                f"have public edges only, none of which '{self.private}' "
                f"selects (got two types of nodes)")

    def _mask(self, store: BaseStorage) -> Tensor:
        edge_index, mask = edge_index_of(store), store.get(self.private)
        if mask is None:
            mask = torch.ones(edge_index.size(1), dtype=torch.bool)
        selected: Tensor = mask.to(edge_index.device)
        return selected

    def _warn_of_directions(self, private_arrows: Pairs) -> None:
        if not is_undirected(private_arrows):
            warnings.warn(f"'edge_index' holds private edges that have a "
                          f"direction, which {self.__class__.__name__} does "
                          f"not release: its edges have both", stacklevel=5)


def _is_bipartite(store: BaseStorage) -> bool:
    return store._key is not None and store._key[0] != store._key[-1]


def _is_whole(store: BaseStorage) -> bool:
    # An edge type of which nothing is released, and which stays with all it
    # has.
    return isinstance(store._key, tuple) and (_is_bipartite(store) or
                                              'edge_index' not in store)
