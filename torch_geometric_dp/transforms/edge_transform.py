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

**What cannot stay.** A private self-loop is no pair, and is left out. Fields
with one entry for each edge (what PyG takes for them, see :obj:`is_edge_attr`)
are removed, for all edges: those of private edges are private, and pairs that
were drawn have none. It makes no difference whether there are such pairs, which
would be a release of its own, too. Another field that holds edges, such as
:obj:`edge_label_index` or :obj:`adj_t`, is refused, and so is a number of nodes
that PyG would have to guess from the edges.
"""
import copy
import math
import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Optional

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.mechanisms.checks import check_epsilon, check_integer
from torch_geometric_dp.mechanisms.pairs import (
    Pairs,
    arrows,
    check_edge_index,
    contains,
    from_pairs,
    is_undirected,
    num_pairs,
    pair_numbers,
    pairs_of,
    to_pairs,
)
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.private_transform import PrivateTransform

MAX_EDGES = 10**7


class EdgeTransform(PrivateTransform):
    r"""The base of all transforms that release the private edges of
    :obj:`edge_index` in the central model. Public edges stay as they are.

    The release is undirected. Its edges stand behind the public ones, and the
    field :obj:`private` of the output marks them. All other fields with one
    entry for each edge, such as :obj:`edge_attr`, are removed.

    Args:
        epsilon (float): The privacy loss of one private edge.
        private (str, optional): The name of a boolean edge field that selects
            the private edges. In a graph without that field, all edges are
            private. (default: :obj:`"edge_private"`)
        max_edges (int, optional): A release that is expected to have more
            columns of :obj:`edge_index` is refused, before it costs anything.
            (default: :obj:`10000000`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)
    """
    def __init__(self, epsilon: float, private: str = 'edge_private',
                 max_edges: int = MAX_EDGES,
                 seed: Optional[int] = None) -> None:
        super().__init__(seed)
        self.epsilon = check_epsilon(epsilon)
        if not isinstance(private, str):
            raise TypeError(f"'private' must be the name of a boolean edge "
                            f"field, such as 'edge_private' "
                            f"(got '{type(private).__name__}')")
        self.private = private
        self.max_edges = check_integer('max_edges', max_edges, 0)

    @abstractmethod
    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """The expected number of pairs that :meth:`draw` returns, for a graph
        in which :obj:`num_edges` pairs are private.
        """

    @abstractmethod
    def draw(self, store: BaseStorage, private: Tensor, public: Tensor,
             num_nodes: int,
             source: NoiseSource) -> tuple[Tensor, Optional[Tensor]]:
        """Draws the pairs to release, and a weight for each of them if they
        have one.

        All pairs, those that are private, those that are public and those that
        are drawn, stand there once, as nodes :math:`u < v` in two rows. None is
        both private and public. The store is given for public fields alone.
        """

    @property
    def public_fields(self) -> tuple[str, ...]:
        """Fields that hold other edges, which are public."""
        return ()

    @property
    def guarantee(self) -> Guarantee:
        """One private edge, in the central model."""
        return Guarantee(self.epsilon, 'edges',
                         "one private edge is added or removed",
                         model='central',
                         assumptions=("the number of nodes is public", ))

    def promise(self, stores: list[tuple[BaseStorage, str]]) -> Guarantee:
        """The same, with what else it takes for these edges."""
        assumptions = self.guarantee.assumptions
        if any(self.private in store for store, _ in stores):
            assumptions += (f"the edges that '{self.private}' does not select "
                            f"are public", )
        if len(stores) > 1:
            assumptions += ("no private edge stands in more than one edge "
                            "type", )
        return replace(self.guarantee, assumptions=assumptions)

    def read(self, data: Any) -> list[tuple[BaseStorage, str]]:
        """The edges of all edge types that have some."""
        stores = self._stores(data)
        expected = 0.0
        for store in stores:
            ways = self._arrows(store)
            self._warn_of_directions(ways)
            private, _ = self._numbers(store, ways)
            expected += 2 * self.expected_edges(self.num_nodes(store),
                                                len(private))
        if expected > self.max_edges:
            raise ValueError(
                f"'max_edges' must be at least {math.ceil(expected)}, the "
                f"expected number of edges of this release "
                f"(got {self.max_edges}); a larger epsilon needs less")
        return [(store, 'edge_index') for store in stores]

    def write(self, store: BaseStorage, field: str,
              source: NoiseSource) -> None:
        """Draws the edges of one edge type."""
        private, public = self._numbers(store, self._arrows(store))
        drawn, weight = self.draw(store, from_pairs(private),
                                  from_pairs(public), self.num_nodes(store),
                                  source)
        if len(public) > 0:
            new = torch.from_numpy(~contains(public, pair_numbers(drawn)))
            drawn = drawn[:, new]
            weight = None if weight is None else weight[new]
        kept = _edge_index(store)[:, ~self._mask(store)].long()
        for key in list(store):
            if key == 'num_edges' or (store.is_edge_attr(key) and key
                                      not in (field, *self.public_fields)):
                del store[key]
        first, count = kept.size(1), drawn.size(1)
        out = kept.new_empty(2, first + 2 * count)
        out[:, :first], out[:, first:first + count] = kept, drawn
        out[:, first + count:] = drawn.flip(0)
        store[field] = out
        store[self.private] = out.new_ones(out.size(1), dtype=torch.bool)
        store[self.private][:first] = False
        if weight is not None:
            weight = weight.to(kept.device)
            store['edge_weight'] = torch.cat(
                [weight.new_ones(first), weight, weight])

    def content(self, store: BaseStorage, field: str) -> tuple[Tensor, ...]:
        """The edges, which of them are private, and the number of nodes."""
        return (_edge_index(store), self._mask(store),
                torch.tensor(self.num_nodes(store)))

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
        if not isinstance(data, (Data, HeteroData)):
            raise TypeError(f"Expected 'Data' or 'HeteroData' "
                            f"(got '{type(data).__name__}')")
        if any('n_id' in store for store in data.stores):
            raise ValueError(
                "'n_id' tells that the graph is a batch of a larger one, whose "
                "edges come in other parts every time: release the edges of "
                "the whole graph, and sample batches from the release")
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
        for key in store:
            if key in ('edge_index', *self.public_fields):
                continue
            if key in ('adj', 'adj_t') or ('edge' in key and 'index' in key):
                raise ValueError(
                    f"'{key}' may hold private edges as they are: remove it "
                    f"from the graph before the edges are released")
        if not _is_bipartite(store):
            num_pairs(self.num_nodes(store))
            check_edge_index(_edge_index(store), self.num_nodes(store))
        columns, mask = _edge_index(store).size(-1), store.get(self.private)
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
        edge_index, mask = _edge_index(store), store.get(self.private)
        if mask is None:
            mask = torch.ones(edge_index.size(1), dtype=torch.bool)
        selected: Tensor = mask.to(edge_index.device)
        return selected

    def _arrows(self, store: BaseStorage) -> Pairs:
        return arrows(_edge_index(store), self._mask(store))

    def _numbers(self, store: BaseStorage,
                 private_arrows: Pairs) -> tuple[Pairs, Pairs]:
        # Those of the private and of the public pairs, in increasing order.
        private = pairs_of(private_arrows)
        public = to_pairs(_edge_index(store), ~self._mask(store))
        if len(public) > 0:
            private = private[~contains(public, private)]
        return private, public

    def _warn_of_directions(self, private_arrows: Pairs) -> None:
        if not is_undirected(private_arrows):
            warnings.warn(f"'edge_index' holds private edges that have a "
                          f"direction, which {self.__class__.__name__} does "
                          f"not release: its edges have both", stacklevel=5)

    def arguments(self) -> list[str]:
        """What :obj:`repr` shows between the brackets."""
        args = [f'epsilon={self.epsilon}']
        if self.private != 'edge_private':
            args.append(f"private='{self.private}'")
        if self.max_edges != MAX_EDGES:
            args.append(f'max_edges={self.max_edges}')
        if self.seed is not None:
            args.append(f'seed={self.seed}')
        return args

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({', '.join(self.arguments())})"


def _is_bipartite(store: BaseStorage) -> bool:
    return store._key is not None and store._key[0] != store._key[-1]


def _edge_index(store: BaseStorage) -> Any:
    # Without what PyG may have noted about its order.
    edge_index = store['edge_index']
    return (edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else
            edge_index)
