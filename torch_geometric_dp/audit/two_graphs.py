"""Two graphs that somebody brings along, and whether they are neighbours."""
import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_dp._typing import Array
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.audit.canaries import (
    MOST_NUMBERS,
    Canary,
    as_array,
    check_graph,
    numbers,
)
from torch_geometric_dp.audit.distinguisher import Coins
from torch_geometric_dp.graph.pairs import (
    contains,
    from_pairs,
    pair_numbers,
    to_pairs,
)
from torch_geometric_dp.release import ASIDE
from torch_geometric_dp.transforms import LabelRR
from torch_geometric_dp.transforms.edge_transform import EdgeTransform


class TwoGraphs(Canary):
    """A graph and its neighbour, one release of which is one trial. What is no
    neighbour is refused: it would accuse the innocent.
    """
    sides = "'data'", "'neighbour'"
    copies = 1

    def __init__(self, data: Data, neighbour: Data, promise: Guarantee,
                 target: Any = None) -> None:
        check_graph('data', data)
        check_graph('neighbour', neighbour)
        if data.num_nodes != neighbour.num_nodes:
            raise ValueError(
                f"'neighbour' must have {data.num_nodes} nodes, like 'data': "
                f"the number of nodes is public, and a node that goes leaves "
                f"an empty place (got {neighbour.num_nodes})")
        self.data = _anonymous(data)
        self.neighbour = _anonymous(neighbour)
        # Which entries of a release have to do with what differs.
        self._pairs = np.setxor1d(_pairs(data), _pairs(neighbour))
        self._rows = {key: _different(data, neighbour, key)
                      for key in ('x', 'y')}
        self._check_public(target)
        self._check(promise.unit, promise.relation == Relation.REPLACE)
        self._nodes = _distinct(from_pairs(self._pairs).view(-1),
                                *self._rows.values())
        around = [g.edge_index[1][torch.isin(g.edge_index[0], self._nodes)]
                  for g in (data, neighbour) if g.edge_index is not None]
        self._heard = _distinct(self._nodes, *around)

    def _check_public(self, target: Any) -> None:
        one, other = self.data, self.neighbour
        for key in sorted({*one.keys(), *other.keys()}):
            values = one.get(key), other.get(key)
            if key in ('x', 'y', 'edge_index') or any(
                    graph.is_edge_attr(key) for graph in (one, other)
                    if key in graph):
                continue
            tensors = [isinstance(value, Tensor) for value in values]
            if any(tensors) and not (all(tensors) and torch.equal(*values)):
                raise ValueError(f"'{key}' must be the same in 'neighbour' as "
                                 f"in 'data': it is not what is released (got "
                                 f"another one)")
        # A self-loop is an edge, too, but no pair; nor is a direction.
        if not np.array_equal(_others(one, self._pairs),
                              _others(other, self._pairs)):
            raise ValueError("'edge_index' must have the same self-loops in "
                             "'neighbour' as in 'data', and edges that both "
                             "have the same directions (got other ones)")
        private = target.private if isinstance(target, EdgeTransform) else None
        mask = target.mask if isinstance(target, LabelRR) else None
        if not np.array_equal(_public_pairs(one, private),
                              _public_pairs(other, private)):
            raise ValueError(f"'neighbour' must have the public edges of "
                             f"'data', which '{private}' does not select (got "
                             f"other ones)")
        hidden = one.get(mask) if mask is not None else None
        if hidden is not None and not hidden[self._rows['y']].all():
            raise ValueError(f"'neighbour' must differ from 'data' in a label "
                             f"that '{mask}' selects: others are removed, or "
                             f"public (got rows {self._rows['y'].tolist()})")

    def _check(self, unit: Unit, replaced: bool) -> None:
        x, y = self._rows.values()
        counts = {'features': len(x), 'labels': len(y),
                  'edges': len(self._pairs)}
        sides = [_pairs(graph) for graph in (self.data, self.neighbour)]
        words = ''
        if unit == Unit.NODE:  # All that differs must belong to one node.
            changed = from_pairs(self._pairs)
            units = [*changed.t(), *x.view(-1, 1), *y.view(-1, 1)]
            shared = set.intersection(*(set(part.tolist()) for part in units)
                                      ) if units else set()
            if not replaced and len(self._pairs):  # It comes, or goes.
                words = ", with all of its edges"
                shared = {node for node in shared if any(
                    not (from_pairs(pairs) == node).any() for pairs in sides)}
            good = len(shared) > 0
        elif unit == Unit.EDGES and replaced:
            words = ", which is replaced by another"
            good = not counts['features'] and not counts['labels'] and (
                counts['edges'] == 2 and len(sides[0]) == len(sides[1]))
        else:
            good = counts.pop(unit) == 1 and not any(counts.values())
        if not good:
            raise ValueError(
                f"'neighbour' must differ from 'data' in one unit of "
                f"'{unit}'{words}, and in nothing else (got {len(x)} rows of "
                f"'x', {len(y)} of 'y' and {len(self._pairs)} pairs of "
                f"'edge_index')")

    def graph(self, coins: Coins) -> Data:
        """The graph, or its neighbour."""
        return self.data if coins[0] else self.neighbour

    def outcomes(self, released: Any, count: int) -> Array:
        """What is released where the two graphs differ, and around."""
        if isinstance(released, Tensor):
            rows = as_array(released[self._heard]).reshape(1, -1)
            return rows[:, :MOST_NUMBERS]
        parts = [as_array(released[key][rows]).ravel()
                 for key, rows in self._rows.items() if len(rows)]
        if len(self._pairs):
            pairs = to_pairs(released.edge_index)
            degree = torch.bincount(released.edge_index.view(-1).cpu(),
                                    minlength=released.num_nodes)
            parts += [contains(pairs, self._pairs).astype(float),
                      as_array(degree[self._nodes]), np.array([len(pairs)])]
        changed = np.concatenate(parts)[:MOST_NUMBERS].astype(float)
        # Of all else, what may have been left behind.
        rest = numbers(released, without=('x', 'y', 'edge_index'))
        return np.append(changed, rest)[None]


def _anonymous(data: Data) -> Data:
    # Without identity, budget and ledger: all noise is new, and costs nothing.
    # Tensors are known by themselves, too.
    data = copy.copy(data)
    for key in ASIDE:
        if key in data:
            del data[key]
    for key, value in data.to_dict().items():
        if isinstance(value, Tensor):
            data[key] = value.clone()
    return data


def _pairs(data: Data) -> NDArray[np.int64]:
    if data.edge_index is None:
        return np.empty(0, np.int64)
    return to_pairs(data.edge_index)


def _others(data: Data, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    # Both ends of the edges that do not join some pairs, each of them once.
    if data.edge_index is None:
        return np.empty((0, 2), np.int64)
    ends = data.edge_index.cpu().numpy().T
    loop = ends[:, 0] == ends[:, 1]
    kept = loop | ~contains(pairs, pair_numbers(data.edge_index))
    return np.unique(ends[kept], axis=0)


def _public_pairs(data: Data, private: str | None) -> NDArray[np.int64]:
    if private is None or private not in data:
        return np.empty(0, np.int64)
    return to_pairs(data.edge_index, ~data[private])


def _different(data: Data, neighbour: Data, key: str) -> Tensor:
    # The rows of a field in which two graphs differ.
    one, other = data.get(key), neighbour.get(key)
    if one is None and other is None:
        return torch.empty(0, dtype=torch.long)
    shapes = [None if value is None else list(value.shape)
              for value in (one, other)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"'{key}' must have the shape {shapes[0]} in "
                         f"'neighbour', like in 'data' (got {shapes[1]})")
    rows: Tensor = (one != other).view(one.size(0), -1).any(dim=1)
    return rows.nonzero().view(-1)


def _distinct(*parts: Tensor) -> Tensor:
    return torch.from_numpy(np.unique(torch.cat(parts).numpy()))
