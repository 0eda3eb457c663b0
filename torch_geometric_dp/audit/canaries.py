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
import copy
from abc import ABC, abstractmethod
from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import Compose

from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.audit.distinguisher import Coins
from torch_geometric_dp.mechanisms.column_mechanism import Array
from torch_geometric_dp.mechanisms.pairs import contains, from_pairs, to_pairs

_GROUP = 8  # Nodes around a canary edge.
_BEYOND = 100  # Times the norm that rows are to be clipped to.
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
                 mask: Optional[str] = None, selected: bool = True) -> None:
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

    def __init__(self, num_classes: int, mask: Optional[str]) -> None:
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

    def __init__(self, private: Optional[str] = None) -> None:
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
    """A node that sends its row to others, and hears theirs, or an empty place.
    With two nodes whose rows are there in any case, it is an edge.

    If units are replaced, it hears other nodes in the second case, whose rows
    are the opposite. A node then sends its row, or the opposite of it, to those
    that it does not hear: all that can change does so at once.
    """
    def __init__(self, leaves: int, row: Tensor, unit: str,
                 replaced: bool) -> None:
        self.leaves = leaves
        self.row = row
        self.unit = unit
        self.replaced = replaced
        groups = 1 if not replaced else 2 if unit == 'edges' else 3
        self.nodes = 1 + groups * leaves
        self.copies = max(1, 2**14 // self.nodes)
        self.sides = ('an edge' if unit == 'edges' else
                      f'a node with {leaves} neighbour(s)',
                      ('another' if unit == 'edges' else 'its opposite')
                      if replaced else 'none')

    def graph(self, coins: Coins) -> Data:
        """A star for each of the coins."""
        heads = torch.from_numpy(coins)
        sign = torch.ones(self.nodes, 1)
        if self.replaced:
            sign[1 + self.leaves:] = -1.0
        x = (sign * self.row).repeat(len(coins), 1, 1)
        if self.unit == 'node':
            x[~heads, 0] *= -1.0 if self.replaced else 0.0
        centre = self.nodes * torch.arange(len(coins))
        leaf = 1 + torch.arange(self.leaves)
        if self.replaced:
            heard = _arrows(centre, leaf + self.leaves * (~heads).long()[
                :, None]).flip(0)
            told = heard.flip(0) if self.unit == 'edges' else _arrows(
                centre, leaf + 2 * self.leaves)
        else:
            told = _arrows(centre[heads], leaf)
            heard = told.flip(0)
        return Data(x=x.view(-1, self.row.numel()),
                    edge_index=torch.cat([told, heard], dim=1))

    def outcomes(self, released: Any, count: int) -> Array:
        """What the nodes of the star have got, the centre first."""
        return as_array(released).reshape(count, -1)[:, :MOST_NUMBERS]


def canaries(target: Any, guarantee: Guarantee,
             data: Optional[Data] = None) -> list[Canary]:
    r"""The worst pairs of neighbours that are known for what a transform or a
    layer protects. They are public: nothing of :obj:`data` is used but the
    number of its columns.

    Args:
        target (callable): The transform or layer.
        guarantee (Guarantee): What it promises.
        data (Data, optional): A graph of the kind that will be released.
            (default: :obj:`None`)

    .. code-block:: python

        transform = LabelRR(epsilon=1.0, num_classes=3)
        canaries(transform, transform.guarantee)[0].sides   # ('y = 0', 'y = 1')
    """
    if isinstance(target, Compose):
        pass  # What is the worst for all of its parts?
    elif isinstance(target, torch.nn.Module):
        if guarantee.protects in ('node', 'edges'):
            return _stars(target, guarantee.protects, data)
    elif guarantee.protects == 'features':
        return _rows(target, data)
    elif guarantee.protects == 'labels' and hasattr(target, 'num_classes'):
        return _labels(target, data)
    elif guarantee.protects == 'edges':
        return _edges(target)
    elif guarantee.protects == 'node' and _find(target, 'max_degree', 0):
        return [Clique(int(_find(target, 'max_degree', 0)),
                       is_replaced(target))]
    raise ValueError(
        f"'data' and 'neighbour' must be given: no worst pair is known for "
        f"{type(target).__name__}, which protects '{guarantee.protects}'")


def check_graph(name: str, graph: Any) -> None:
    """Raises an error for what is no graph with one type of nodes."""
    if not isinstance(graph, Data):
        raise TypeError(f"'{name}' must be a 'Data', a graph with one type of "
                        f"nodes (got '{type(graph).__name__}')")


def num_features(target: Any, data: Optional[Data] = None) -> int:
    """The number of columns that a transform of features is tried with."""
    if data is not None and data.x is not None:
        return int(data.x.size(1))
    if getattr(target, 'scores', None) is not None:
        return int(target.scores.theta().numel())
    for name in ('bounds', 'domain_sizes'):
        value = getattr(target, name, None)
        for part in value if name == 'bounds' and value else (value, ):
            if isinstance(part, (list, tuple)):
                return len(part)
    sampled = getattr(target, 'num_sampled', None)
    # As many that are sampled as not: sampling is part of the trial.
    return 2 if sampled is None else 2 * sampled


def _rows(target: Any, data: Optional[Data]) -> list[Canary]:
    d = num_features(target, data)
    if getattr(target, 'domain_sizes', None) is not None:
        low = torch.zeros(d)
        high = torch.as_tensor(target.domain_sizes).expand(d) - 1.0
    elif getattr(target, 'bounds', None) is not None:
        low, high = (torch.as_tensor(bound, dtype=torch.double).expand(d)
                     for bound in target.bounds)
        if getattr(target, 'clip', False):
            low, high = 2 * low - high, 2 * high - low
        if ((low.float() >= low) & (high.float() <= high)).all():
            low, high = low.float(), high.float()
    else:
        raise ValueError(f"'data' and 'neighbour' must be given: "
                         f"{type(target).__name__} has neither 'bounds' nor "
                         f"'domain_sizes'")
    out: list[Canary] = [Rows('x', low, high), LoneRow('x', low, high)]
    if d > 1:
        even = torch.arange(d) % 2 == 0
        out.append(Rows('x', torch.where(even, low, high),
                        torch.where(even, high, low)))
    zero = torch.minimum(torch.maximum(torch.zeros_like(low), low), high)
    middle = (low + high) / 2
    if getattr(target, 'domain_sizes', None) is not None:
        middle = middle.floor()
    tried = [low, high]
    for between in (middle, zero):
        if not any(torch.equal(between, row) for row in tried):
            tried.append(between)
            out.append(Rows('x', between, high))
    return out


def _labels(target: Any, data: Optional[Data]) -> list[Canary]:
    mask = getattr(target, 'mask', None)
    one, other = torch.tensor(0), torch.tensor(1)
    several = data is not None and data.y is not None and (
        data.y.dim() == 2 and data.y.size(1) > 1)
    if several and data is not None:
        one, other = (value.expand(data.y.size(1)) for value in (one, other))
    out: list[Canary] = [Rows('y', one, other, mask),
                         LoneRow('y', one, other, mask)]
    if not several and target.num_classes > 2:
        out.append(EveryClass(target.num_classes, mask))
    if mask is not None and not getattr(target, 'keep_unmasked', False):
        out.append(Rows('y', one, other, mask, selected=False))
    return out


def _edges(target: Any) -> list[Canary]:
    replaced = is_replaced(target)
    alone: list[Canary] = [LoneEdge(loop, replaced) for loop in (False, True)]
    if replaced:  # One edge more, or less, is no neighbour.
        return [EveryPair(replaced=True), *alone]
    return [EveryPair(), LonePairs(getattr(target, 'private', None)), *alone]


def _stars(target: Any, unit: str, data: Optional[Data]) -> list[Canary]:
    columns = max(int(_find(target, 'in_channels', 2)), 1)
    if data is not None and data.x is not None:
        columns = int(data.x.size(1))
    row = torch.zeros(columns)
    row[0] = 1.0
    if _find(target, 'clip', None) is not None:
        row[0] = _BEYOND * _find(target, 'clip', 1.0)
    most = int(_find(target, 'max_degree', 1)) if unit == 'node' else 1
    out = [Stars(leaves, row, unit, is_replaced(target))
           for leaves in sorted({most, 1}, reverse=True)]
    single = copy.copy(out[0])
    single.copies, single.alone = 1, True
    return [*out, single]


def is_replaced(target: Any) -> bool:
    """Whether neighbours of a target have a unit replaced, rather than added or
    removed.
    """
    return bool(_find(target, 'neighbours', 'add-remove') == 'replace')


def _find(target: Any, name: str, default: Any) -> Any:
    # Of a transform or a layer, of its mechanism, or of a layer within.
    layers = isinstance(target, torch.nn.Module)
    for part in target.modules() if layers else [target]:
        for holder in (part, getattr(part, 'mechanism', None)):
            if getattr(holder, name, None) is not None:
                return getattr(holder, name)
    return default


def _arrows(centre: Tensor, leaf: Tensor) -> Tensor:
    # From each centre to its leaves.
    ends = centre[:, None] + leaf
    return torch.stack([centre[:, None].expand_as(ends), ends]).view(2, -1)


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
