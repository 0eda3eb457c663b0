r"""What every mechanism tells about itself: its promise, its exact worst case,
and the neighbours that it has to hide best.

**The exact epsilon** of a mechanism with laws :math:`P(u | v)` is

.. math::
    \max_{v, v', u} \ln \frac{P(u | v)}{P(u | v')}

over all outputs :math:`u` and all neighbouring inputs :math:`v, v'`. The laws
are those of the integers that decide, not those of the formulas that they were
rounded from. Each mechanism's :obj:`worst_case` says what it lists, and why
that is enough.

**Canaries** are pairs of neighbouring values, chosen so that it is as hard as
possible to hide which of the two it was. Mechanisms know no graphs: they
describe the values, and :mod:`torch_geometric_dp.audit` puts them into graphs.
"""
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_dp._typing import Array
from torch_geometric_dp.accountant import Guarantee, Relation, Unit

Law = tuple[NDArray[Any], Array]  # Outputs, and their probabilities.


@dataclass(frozen=True)
class WorstCase:
    r"""The exact epsilon of a mechanism, and where it is reached.

    Args:
        epsilon (float): The exact epsilon.
        unit (Unit): What it is for.
        pair (tuple): The two inputs that are told apart best.
        output (any): The output that tells them apart.
        columns (tuple of floats, optional): The exact epsilon of each column
            of a row, if columns are released one by one.
            (default: :obj:`()`)
        delta (float, optional): The delta that epsilon is for.
            (default: :obj:`0.0`)

    .. code-block:: python

        RandomizedResponse(1.0, num_classes=3).worst_case().pair   # (0, 1)
    """
    epsilon: float
    unit: Unit
    pair: tuple[Any, Any]
    output: Any
    columns: tuple[float, ...] = ()
    delta: float = 0.0


@dataclass(frozen=True)
class RowPair:
    """Two rows of features.

    .. code-block:: python

        RowPair((0.0, 0.0), (1.0, 1.0)).unit   # features
    """
    one: tuple[float, ...]
    other: tuple[float, ...]
    unit = Unit.FEATURES


@dataclass(frozen=True)
class LabelPair:
    """Two labels of a node, or two rows of labels. If :obj:`mask` names a field
    that selects labels, they are :obj:`selected`, or are not.

    .. code-block:: python

        LabelPair(0, 1).unit   # labels
    """
    one: int | tuple[int, ...]
    other: int | tuple[int, ...]
    mask: str | None = None
    selected: bool = True
    unit = Unit.LABELS


@dataclass(frozen=True)
class EveryLabel:
    """Each label, or the next one.

    .. code-block:: python

        EveryLabel(num_classes=7).unit   # labels
    """
    num_classes: int
    mask: str | None = None
    unit = Unit.LABELS


@dataclass(frozen=True)
class EdgePair:
    """An edge or none, or one of two edges, in dense and in sparse graphs. If
    :obj:`private` names a field that selects private edges, there are public
    ones, too.

    .. code-block:: python

        EdgePair(Relation.REPLACE).unit   # edges
    """
    relation: Relation
    private: str | None = None
    unit = Unit.EDGES


@dataclass(frozen=True)
class NodeEdges:
    """A node with as many edges as it may have, or with none, or with others,
    where all other nodes have as many, too.

    .. code-block:: python

        NodeEdges(max_degree=3, relation=Relation.ADD_REMOVE).unit   # node
    """
    max_degree: int
    relation: Relation
    unit = Unit.NODE


@dataclass(frozen=True)
class Star:
    r"""A node that sends its row to others, and hears theirs, or an empty
    place. With two nodes whose rows are there in any case, it is an edge.

    If units are replaced, it hears other nodes in the second case, whose rows
    are the opposite. A node then sends its row, or the opposite of it, to those
    that it does not hear: all that can change does so at once.

    Args:
        leaves (int): The number of the others.
        row (tuple of floats): The row of all nodes.
        unit (Unit): A node, or an edge.
        relation (Relation): Whether it comes or goes, or is replaced.

    .. code-block:: python

        star = Star(3, (1.0, 0.0), Unit.NODE, Relation.ADD_REMOVE)
        x, edge_index = star.tensors(torch.tensor([True, False]))
        x.shape   # torch.Size([8, 2])
    """
    leaves: int
    row: tuple[float, ...]
    unit: Unit
    relation: Relation

    @property
    def sides(self) -> tuple[str, str]:
        """The two cases, in words."""
        edge = self.unit == Unit.EDGES
        if self.relation == Relation.ADD_REMOVE:
            other = 'none'
        else:
            other = 'another' if edge else 'its opposite'
        return ('an edge' if edge else f'a node with {self.leaves} '
                f'neighbour(s)'), other

    @property
    def num_nodes(self) -> int:
        """The number of nodes of one star."""
        groups = 1
        if self.relation == Relation.REPLACE:
            groups = 2 if self.unit == Unit.EDGES else 3
        return 1 + groups * self.leaves

    def tensors(self, heads: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and edges of a star for each of some coins; the centre comes
        first.
        """
        replaced = self.relation == Relation.REPLACE
        sign = torch.ones(self.num_nodes, 1)
        if replaced:
            sign[1 + self.leaves:] = -1.0
        x = (sign * torch.tensor(self.row)).repeat(len(heads), 1, 1)
        if self.unit == Unit.NODE:
            x[~heads, 0] *= -1.0 if replaced else 0.0
        centre = self.num_nodes * torch.arange(len(heads))
        leaf = 1 + torch.arange(self.leaves)
        if replaced:
            heard = _arrows(centre, leaf + self.leaves * (~heads).long()[
                :, None]).flip(0)
            told = heard.flip(0) if self.unit == Unit.EDGES else _arrows(
                centre, leaf + 2 * self.leaves)
        else:
            told = _arrows(centre[heads], leaf)
            heard = told.flip(0)
        return x.view(-1, len(self.row)), torch.cat([told, heard], dim=1)


#: All that a mechanism can describe.
Canary = RowPair | LabelPair | EveryLabel | EdgePair | NodeEdges | Star


@runtime_checkable
class Mechanism(Protocol):
    """What a mechanism has, so that it can be verified and audited. Nothing has
    to be registered.

    .. code-block:: python

        import numpy as np

        class Coin:
            guarantee = Guarantee(1.0, Unit.LABELS, Relation.REPLACE)

            def worst_case(self):
                outputs = np.array([0, 1])
                loss, pair, output = largest_loss(
                    (value, (outputs, np.roll([0.75, 0.25], value)))
                    for value in (0, 1))
                return WorstCase(loss, Unit.LABELS, pair, output)

            def canaries(self):
                return [LabelPair(0, 1)]

        isinstance(Coin(), Mechanism)   # True
        Coin().worst_case().epsilon     # 1.0986...
    """
    @property
    def guarantee(self) -> Guarantee:
        """What it promises."""

    def worst_case(self) -> WorstCase:
        """The exact epsilon of what the machine draws. Raises
        :class:`TypeError` if its outputs cannot be listed.
        """

    def canaries(self) -> Sequence[Canary]:
        """The pairs of neighbours that are told apart best, the worst first.
        """


def largest_loss(laws: Iterable[tuple[Hashable, Law]],
                 ) -> tuple[float, tuple[Any, Any], Any]:
    r"""The largest logarithm of a ratio between two probabilities of one
    output; infinity for an output that one of two inputs never has. Returns it
    with the two inputs and the output.

    Args:
        laws (iterable): Pairs of an input and its law: outputs in increasing
            order, and their probabilities.

    .. code-block:: python

        import numpy as np
        outputs = np.array([0, 1])
        largest_loss([('a', (outputs, np.array([0.75, 0.25]))),
                      ('b', (outputs, np.array([0.25, 0.75])))])   # (1.0986...
    """
    names, parts = zip(*laws)
    support = parts[0][0]
    if any(not np.array_equal(outputs, support) for outputs, _ in parts) or (
            len(support) > 1 and not (np.diff(support) > 0).all()):
        support = np.unique(np.concatenate([outputs for outputs, _ in parts]))
    low, high = np.full(len(support), np.inf), np.zeros(len(support))
    least, most = np.zeros((2, len(support)), np.int64)
    for i, (outputs, law) in enumerate(parts):
        if outputs is not support and not np.array_equal(outputs, support):
            law = np.bincount(np.searchsorted(support, outputs), law,
                              len(support))
        least[law < low], most[law > high] = i, i
        low, high = np.minimum(low, law), np.maximum(high, law)
    with np.errstate(divide='ignore', invalid='ignore'):
        losses = np.where(high > 0, np.log(high) - np.log(low), 0.0)
    at = int(losses.argmax())
    return (float(losses[at]), (names[most[at]], names[least[at]]),
            support[at].item())


def row_pairs(low: Any, high: Any, middle: Any = None) -> list[RowPair]:
    r"""Rows at the lower bounds, or at the upper ones. Rows in which every
    other column is at its other bound show what is done to columns that differ;
    rows in the middle, what is done next to no bound; and zeros, the finest
    bits.

    .. code-block:: python

        row_pairs([0.0], [1.0])[1].one   # (0.5,)
    """
    low, high = (np.asarray(bound, np.float64) for bound in (low, high))
    even = np.arange(len(low)) % 2 == 0
    middle = (low + high) / 2 if middle is None else middle
    out = [(low, high)]
    if len(low) > 1:
        out.append((np.where(even, low, high), np.where(even, high, low)))
    tried = [low, high]
    for between in (middle, np.clip(0.0, low, high)):
        if not any(np.array_equal(between, row) for row in tried):
            tried.append(between)
            out.append((between, high))
    return [RowPair(tuple(one.tolist()), tuple(other.tolist()))
            for one, other in out]


def _arrows(centre: Tensor, leaf: Tensor) -> Tensor:
    # From each centre to its leaves.
    ends = centre[:, None] + leaf
    return torch.stack([centre[:, None].expand_as(ends), ends]).view(2, -1)
