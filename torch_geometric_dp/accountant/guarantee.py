import math
from dataclasses import dataclass
from typing import Any

from torch_geometric_dp.accountant.conversion import changes, node_edges
from torch_geometric_dp.accountant.events import EVENTS, Event
from torch_geometric_dp.accountant.text import (
    check_texts,
    constructed,
    number,
    whole,
)
from torch_geometric_dp.accountant.unit import Relation, Trust, Unit


def _size(value: Any) -> int:
    size = whole(value)
    if size is None or size < 0:
        raise ValueError(f"'also' must count units, zero or more "
                         f"(got {value!r:.80})")
    return size


@constructed
@dataclass(frozen=True)
class Guarantee:
    r"""What one release promises, and to whom. Plain frozen data.

    Args:
        epsilon (float): The proven privacy loss; infinity where nothing can be
            proven.
        unit (Unit): What is protected.
        relation (Relation): How neighbouring graphs differ in one unit. Rows
            and labels are always replaced.
        delta (float, optional): The probability with which the loss may be
            larger. (default: :obj:`0.0`)
        model (Trust, optional): Who draws the noise.
            (default: :obj:`Trust.LOCAL`)
        assumptions (tuple of str, optional): What must hold for the promise to
            be true and was not checked. (default: :obj:`()`)
        claimed_epsilon (float, optional): What a publication claims for it,
            where that differs. (default: :obj:`None`)
        event (GaussianNoise or LaplaceNoise, optional): The dominating noise:
            what tight accounting needs. (default: :obj:`None`)
        also (tuple, optional): What is proven beside the table of
            :mod:`~torch_geometric_dp.accountant.conversion`, as pairs of a unit
            and the number of this promise's units that change with it: zero
            for what is never read. (default: :obj:`()`)
        edges (int, optional): For whole nodes: how many pairs of the node and
            others may differ in whether they have an edge, while its row and
            its label are any others; :obj:`None` for all.
            (default: :obj:`None`)

    .. code-block:: python

        promise = Guarantee(1.0, Unit.LABELS, Relation.REPLACE)
        promise.sentence   # 'the label of one node is replaced'
    """
    epsilon: float
    unit: Unit
    relation: Relation
    delta: float = 0.0
    model: Trust = Trust.LOCAL
    assumptions: tuple[str, ...] = ()
    claimed_epsilon: float | None = None
    event: Event | None = None
    also: tuple[tuple[Unit, int], ...] = ()
    edges: int | None = None

    def __post_init__(self) -> None:
        # Whoever builds a guarantee from tensors, numpy scalars or strings gets
        # plain data: it is hashed, compared, stored and loaded safely.
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put('epsilon', number('epsilon', self.epsilon))
        put('delta', number('delta', self.delta))
        put('unit', Unit.of(self.unit, 'unit'))
        put('relation', Relation.of(self.relation, 'relation'))
        put('model', Trust.of(self.model, 'model'))
        put('assumptions', check_texts('assumptions', self.assumptions))
        put('also', tuple((Unit.of(unit, 'also'), _size(size))
                          for unit, size in self.also))
        if self.edges is not None:
            put('edges', node_edges(self.edges))
            if (self.unit, self.relation) != (Unit.NODE, Relation.REPLACE):
                raise ValueError(f"'edges' belongs to a node that is replaced "
                                 f"(got '{self.unit}', '{self.relation}')")
        if self.claimed_epsilon is not None:
            put('claimed_epsilon', number('claimed_epsilon',
                                          self.claimed_epsilon))
        if not self.epsilon >= 0:
            raise ValueError(f"'epsilon' must be zero or more "
                             f"(got {self.epsilon})")
        if not 0 <= self.delta < 1:
            raise ValueError(f"'delta' must lie in [0, 1) (got {self.delta})")
        if self.unit in (Unit.FEATURES, Unit.LABELS) and (
                self.relation != Relation.REPLACE):
            raise ValueError(f"'relation' must be 'replace' for "
                             f"'{self.unit}': a node has them in any case "
                             f"(got '{self.relation}')")
        if self.event is not None and not isinstance(
                self.event, tuple(EVENTS.values())):
            raise ValueError(f"'event' must be one of {list(EVENTS)} "
                             f"(got {self.event!r})")

    @property
    def sentence(self) -> str:
        """The pairs of graphs that cannot be told apart, in words."""
        return f'{self.unit.words(self.edges)} {self.relation.words}'

    def changes(self, unit: Unit, relation: Relation = Relation.ADD_REMOVE,
                max_degree: int | None = None,
                edges: int | None = None) -> int:
        """How many of the units that this promise protects change when one
        other unit does.
        """
        for known, size in self.also:
            if known == unit != self.unit:
                return size
        return changes(self.unit, self.relation, unit, relation, max_degree,
                       self.edges, edges)

    def group(self, size: int) -> tuple[float, float]:
        r"""Epsilon and delta for :obj:`size` units that change at once:
        :math:`k \varepsilon` and :math:`\delta \sum_{i<k} e^{i \varepsilon}`,
        by the triangle inequality along the chain of single changes.
        """
        if size == 0:
            return 0.0, 0.0
        try:
            epsilon = size * self.epsilon
        except OverflowError:  # So many units are not a graph's, but a file's.
            return math.inf, 1.0
        if size == 1 or self.delta == 0:
            return epsilon, self.delta
        if epsilon > 700:  # The sum is beyond one, and beyond floats.
            return epsilon, 1.0
        growth = (math.expm1(epsilon) / math.expm1(self.epsilon)
                  if self.epsilon > 0 else size)
        return epsilon, min(1.0, self.delta * growth)
