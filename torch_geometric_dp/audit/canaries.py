r"""Two neighbouring inputs, many times over in one graph.

A canary is a unit of the raw data that a coin sets to one of two neighbouring
values, chosen so that it is as hard as possible to hide which:

* **features**: a row at the lower bounds, or one at the upper bounds. (Where
  zero lies between them, zero and the upper bound, too: numbers next to zero
  have the finest bits, and show best what was done to them.)
  Rows in which every other column is at its bound show what is done to
  columns that differ; rows in the middle, what is done next to no bound.
* **labels**: class 0 or class 1, and each class or the next one; with several
  labels, none or all of them. Labels that a mask hides are on trial, too.
* **edges**: a pair of nodes in a group of its own that has no other private
  edge, and every pair of a small graph.
* **one unit alone**, in a small graph in which nothing else can change: a row
  or a label among others that are all the same, an edge or a self-loop where
  there is no other, a star. There, all of the release is looked at, every field
  and the order of the edges: it shows scales, domains and degrees that are read
  off the data, exact counts, seeds that the data tell, and what was left behind
  in other fields. Each takes a release of its own, so there are fewer.
* **nodes**, of which edges are released: one with as many edges as a node may
  have, in a graph where all others have as many, too.
* **edges** and **nodes** of a layer that sums over neighbours: a pair of nodes
  that hear each other or do not, and a star whose centre is there or not, with
  as many leaves as a node may have, and with one leaf.

Where rows are clipped, those of canaries are far beyond: clipping is on trial,
too. If a unit is replaced by another, rather than added or removed, its edges
go to other nodes.

Canaries of one graph have independent coins, and a change of one coin changes
one unit. That is all that :mod:`torch_geometric_dp.audit.one_run` asks for.
"""
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_dp._typing import Array
from torch_geometric_dp.accountant import Guarantee, Relation
from torch_geometric_dp.audit.distinguisher import Coins
from torch_geometric_dp.graph.pairs import contains, from_pairs, to_pairs
from torch_geometric_dp.mechanisms import mechanism

_GROUP = 8  # Nodes around a canary edge.
_MOST_CLASSES = 16  # That are tried, each with the next one.
_FIELDS, _NUMBERS = 8, 32  # Of a release, and of each of its fields.
#: Of a release that is looked at as a whole.
MOST_NUMBERS = 512


class Canary(ABC):
    """Two neighbouring values of one unit, and what to look at in a release."""
    #: The two values, in words: for heads, and for tails.
    sides: tuple[str, str]
    #: How many canaries one graph may hold.
    copies: int
    #: Whether it takes a release of its own, where others share theirs.
    alone: bool = False

    @abstractmethod
    def graph(self, coins: Coins) -> Data:
        """A raw graph with a canary for each of the coins."""

    @abstractmethod
    def outcomes(self, released: Any, count: int) -> Array:
        """A row of numbers for each of :obj:`count` canaries of a release."""


class Rows(Canary):
    """A row of features, or a label."""
    copies = 4096

    def __init__(self, field: str, one: Tensor, other: Tensor,
                 mask: str | None = None, selected: bool = True) -> None:
        self.field = field
        self.one = one
        self.other = other
        self.mask = mask
        self.selected = selected
        where = '' if selected else f", which '{mask}' hides"
        self.sides = (f'{field} = {_short(one.tolist())}',
                      f'{field} = {_short(other.tolist())}{where}')

    def graph(self, coins: Coins) -> Data:
        """A row for each of the coins."""
        heads = torch.from_numpy(coins).view(-1, *[1] * self.one.dim())
        data = Data(num_nodes=len(coins))
        data[self.field] = torch.where(heads, self.one, self.other)
        if self.mask is not None:
            data[self.mask] = torch.full((len(coins), ), self.selected)
        return data

    def outcomes(self, released: Any, count: int) -> Array:
        """The released rows, of whatever field has some."""
        rows = [as_array(value).reshape(count, -1)
                for key, value in sorted(released.to_dict().items())
                if isinstance(value, Tensor) and value.numel() > 0
                and key != self.mask and value.dim() > 0
                and value.size(0) == count]
        return np.concatenate(rows, axis=1)


class LoneRow(Rows):
    """A row or a label among others that are all the same. Its node has no
    edges, and theirs do.
    """
    copies = 1
    alone = True

    def graph(self, coins: Coins) -> Data:
        """The node is the first one."""
        data = super().graph(np.append(coins, np.ones(_GROUP - 1, np.bool_)))
        ring = torch.arange(1, _GROUP)
        data.edge_index = _both_ways(torch.stack([ring, ring.roll(1)]))
        return data

    def outcomes(self, released: Any, count: int) -> Array:
        """All that is released."""
        return numbers(released)[None]


class EveryClass(Canary):
    """A label of each class, or of the next one."""
    copies = 4096

    def __init__(self, num_classes: int, mask: str | None) -> None:
        count = min(num_classes, _MOST_CLASSES)
        self.classes = torch.linspace(0, num_classes - 1, count).long()
        self.mask = mask
        self.sides = 'a class', 'the next one'

    def graph(self, coins: Coins) -> Data:
        """A label for each of the coins; all classes take turns."""
        turn = torch.arange(len(coins)) % len(self.classes)
        after = (turn + 1) % len(self.classes)
        data = Data(num_nodes=len(coins), y=self.classes[torch.where(
            torch.from_numpy(coins), turn, after)])
        if self.mask is not None:
            data[self.mask] = torch.ones(len(coins), dtype=torch.bool)
        return data

    def outcomes(self, released: Any, count: int) -> Array:
        """The released label and whose turn it was, as one number."""
        turn = np.arange(count) % len(self.classes)
        return (as_array(released.y) + 2.0**20 * turn).reshape(count, 1)


class EveryPair(Canary):
    """Every pair of a graph has an edge, or has none. If edges are replaced, it
    is one of every two pairs.
    """
    def __init__(self, replaced: bool = False) -> None:
        self._pairs = 2 if replaced else 1
        self.copies = 4950 // self._pairs  # Of 100 nodes.
        self.sides = ('an edge', 'another, in a dense graph' if replaced else
                      'none, in a dense graph')

    def graph(self, coins: Coins) -> Data:
        """An edge for each of the coins that shows heads."""
        pairs = np.stack([coins, ~coins][:self._pairs], axis=1).ravel()
        nodes = 1 + int(from_pairs(np.array([len(pairs) - 1]))[1])
        return _graph(from_pairs(np.flatnonzero(pairs)), nodes)

    def outcomes(self, released: Any, count: int) -> Array:
        """Whether there is an edge, or which of the two."""
        pairs = np.arange(count * self._pairs)
        found = contains(to_pairs(released.edge_index), pairs)
        return found.reshape(count, -1).astype(float)


class Clique(Canary):
    """A node that is joined to all others, which are joined to each other, or
    to none. If nodes are replaced, there are two such groups for it.
    """
    copies = 1  # With more of them, graphs would be sparse.

    def __init__(self, max_degree: int, replaced: bool) -> None:
        self.others = max_degree
        self.replaced = replaced
        self.sides = (f'a node with {max_degree} edge(s)',
                      'to other nodes' if replaced else 'none')

    def graph(self, coins: Coins) -> Data:
        """The node is the first one."""
        nodes = 1 + self.others * (2 if self.replaced else 1)
        group = (torch.arange(nodes) - 1) // self.others
        u, v = torch.combinations(torch.arange(nodes)).t()
        joined = (u > 0) & (group[u] == group[v])
        if coins[0] or self.replaced:
            joined |= (u == 0) & (group[v] == (0 if coins[0] else 1))
        return _graph(torch.stack([u[joined], v[joined]]), nodes)

    def outcomes(self, released: Any, count: int) -> Array:
        """To how many nodes it is joined, of each group, and all edges."""
        u, v = as_array(released.edge_index).astype(np.int64)
        joined = np.bincount((v[u == 0] - 1) // self.others, minlength=2)
        return np.append(joined, len(u))[None].astype(float)


class LonePairs(Canary):
    """A pair in a group of nodes with no other private edge. Where edges can be
    public, those of the group are: they form a ring.
    """
    sides = 'an edge', 'none, and no other private edge around'
    copies = 64

    def __init__(self, private: str | None = None) -> None:
        self.private = private

    def graph(self, coins: Coins) -> Data:
        """A group for each of the coins."""
        first = _GROUP * torch.arange(len(coins))
        pair = torch.stack([first, first + _GROUP // 2])
        edges = pair[:, torch.from_numpy(coins)]
        if self.private is None:
            return _graph(edges, _GROUP * len(coins))
        node = torch.arange(_GROUP * len(coins))
        ring = torch.stack([node, node - node % _GROUP + (node + 1) % _GROUP])
        data = _graph(torch.cat([edges, ring], dim=1), len(node))
        secret = torch.arange(data.num_edges // 2) < edges.size(1)
        data[self.private] = torch.cat([secret, secret])
        return data

    def outcomes(self, released: Any, count: int) -> Array:
        """Whether there is an edge, and how many there are in the group."""
        u, v = as_array(released.edge_index).astype(np.int64)
        inside = u // _GROUP == v // _GROUP
        group = np.bincount(u[inside] // _GROUP, minlength=count)
        pair = inside & (u % _GROUP == 0) & (v % _GROUP == _GROUP // 2)
        found = np.bincount(u[pair] // _GROUP, minlength=count)
        return np.stack([np.minimum(found, 1), group], axis=1).astype(float)


class LoneEdge(Canary):
    """A pair of nodes, or a self-loop, in a graph that has no other edge. If
    edges are replaced, it is one of two.
    """
    copies = 1
    alone = True

    def __init__(self, loop: bool, replaced: bool) -> None:
        far = 0 if loop else _GROUP // 2
        self.pairs = torch.tensor([[0, far], [1, 1 + far]])
        self.replaced = replaced
        self.sides = ('a self-loop' if loop else 'an edge',
                      'another' if replaced else 'none, in an empty graph')

    def graph(self, coins: Coins) -> Data:
        """Edges have an attribute, which is as private as they are."""
        there = torch.tensor([coins[0], self.replaced and not coins[0]])
        data = _graph(self.pairs[there].t(), _GROUP)
        data.edge_attr = torch.ones(data.num_edges, 1)
        return data

    def outcomes(self, released: Any, count: int) -> Array:
        """Where in the list of edges both pairs stand, and all else."""
        edges = released.edge_index.cpu().t()
        places = [(edges == pair).all(dim=1).nonzero().view(-1)
                  for pair in (*self.pairs, *self.pairs.flip(1))]
        first = [int(place[0]) if len(place) else -1 for place in places]
        return np.append(first, numbers(released))[None].astype(float)


class Stars(Canary):
    """Nodes that send and hear rows, or edges, as a layer's mechanism describes
    them.
    """
    def __init__(self, star: mechanism.Star, alone: bool = False) -> None:
        self.star = star
        self.alone = alone
        self.copies = 1 if alone else max(1, 2**14 // star.num_nodes)
        self.sides = star.sides

    def graph(self, coins: Coins) -> Data:
        """A star for each of the coins."""
        x, edge_index = self.star.tensors(torch.from_numpy(coins))
        return Data(x=x, edge_index=edge_index)

    def outcomes(self, released: Any, count: int) -> Array:
        """What the nodes of the star have got, the centre first."""
        return as_array(released).reshape(count, -1)[:, :MOST_NUMBERS]


def canaries(target: Any, guarantee: Guarantee | None = None,
             data: Data | None = None,
             num_features: int | None = None) -> list[Canary]:
    r"""The worst pairs of neighbours that are known for what a transform or a
    layer protects, as it tells in its own :obj:`canaries`. They are public:
    nothing of :obj:`data` is used but its form.

    Args:
        target (callable): The transform or layer.
        guarantee (Guarantee, optional): What it promises; by default, what it
            says itself. (default: :obj:`None`)
        data (Data, optional): A graph of the kind that will be released.
            (default: :obj:`None`)
        num_features (int, optional): The number of its columns, if there is
            none. (default: :obj:`None`)

    .. code-block:: python

        transform = LabelRR(epsilon=1.0, num_classes=3)
        canaries(transform)[0].sides   # ('y = 0', 'y = 1')
    """
    if num_features is not None:
        data = Data(x=torch.zeros(1, num_features))
    unit = (guarantee or target.guarantee).unit
    # A layer may stand within another one.
    parts: Iterable[Any] = (target.modules() if isinstance(
        target, torch.nn.Module) else [target])
    tell = next((part.canaries for part in parts
                 if hasattr(part, 'canaries')), None)
    pairs = [] if tell is None else [pair for pair in tell(data)
                                     if pair.unit == unit]
    if not pairs:
        raise ValueError(
            f"'data' and 'neighbour' must be given: no worst pair is known for "
            f"{type(target).__name__}, which protects '{unit}'")
    out = [canary for pair in pairs for canary in _shared(pair)]
    return out + _alone(pairs[0])


def _shared(pair: mechanism.Canary) -> list[Canary]:
    match pair:
        case mechanism.RowPair():
            return [Rows('x', *_rows(pair))]
        case mechanism.LabelPair():
            return [Rows('y', torch.tensor(pair.one), torch.tensor(pair.other),
                         pair.mask, pair.selected)]
        case mechanism.EveryLabel():
            return [EveryClass(pair.num_classes, pair.mask)]
        case mechanism.NodeEdges():
            return [Clique(pair.max_degree, pair.relation == Relation.REPLACE)]
        case mechanism.Star():
            return [Stars(pair)]
        case mechanism.EdgePair(relation=Relation.REPLACE):
            return [EveryPair(replaced=True)]
    return [EveryPair(), LonePairs(pair.private)]


def _alone(pair: mechanism.Canary) -> list[Canary]:
    match pair:
        case mechanism.RowPair():
            return [LoneRow('x', *_rows(pair))]
        case mechanism.LabelPair():
            return [LoneRow('y', torch.tensor(pair.one),
                            torch.tensor(pair.other), pair.mask)]
        case mechanism.EdgePair():
            return [LoneEdge(loop, pair.relation == Relation.REPLACE)
                    for loop in (False, True)]
        case mechanism.Star():
            return [Stars(pair, alone=True)]
    return []


def _rows(pair: mechanism.RowPair) -> tuple[Tensor, Tensor]:
    # In single precision where that changes nothing: no value may leave its
    # bounds.
    rows = torch.tensor([pair.one, pair.other], dtype=torch.double)
    if torch.equal(rows, rows.float().double()):
        rows = rows.float()
    return rows[0], rows[1]


def check_graph(name: str, graph: Any) -> None:
    """Raises an error for what is no graph with one type of nodes."""
    if not isinstance(graph, Data):
        raise TypeError(f"'{name}' must be a 'Data', a graph with one type of "
                        f"nodes (got '{type(graph).__name__}')")


def _graph(edges: Tensor, num_nodes: int) -> Data:
    return Data(edge_index=_both_ways(edges), num_nodes=num_nodes)


def _both_ways(edges: Tensor) -> Tensor:
    return torch.cat([edges, edges.flip(0)], dim=1)


def numbers(released: Any, without: tuple[str, ...] = ()) -> Array:
    """What a release holds, field by field: how many numbers, the sum of their
    magnitudes, and the first of them. Of fields in :obj:`without`, there are no
    single ones.
    """
    fields = [] if not isinstance(released, Data) else [
        (key, torch.as_tensor(value))
        for key, value in sorted(released.to_dict().items())
        if isinstance(value, (Tensor, np.ndarray, int, float))]
    out = np.zeros((_FIELDS, 2 + _NUMBERS))
    for row, (key, value) in zip(out, fields):
        flat = as_array(value).ravel()
        row[:2] = flat.size, np.abs(flat).sum()
        if key not in without:
            row[2:][:flat.size] = flat[:_NUMBERS]
    return out.ravel()


def as_array(values: Tensor) -> Array:
    """Numbers for an array; infinity and NaN are values, too, but cannot be
    added up.
    """
    array: Array = values.detach().cpu().double().nan_to_num(
        nan=-1e300, posinf=2e300, neginf=-2e300).numpy()
    return array


def _short(values: Any) -> str:
    if not isinstance(values, list) or len(values) < 4:
        return str(values)
    return f'[{values[0]}, {values[1]}, ...]'
