from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._validate import check_choice, check_epsilon
from torch_geometric_dp.accountant import Guarantee, Relation, Trust, Unit
from torch_geometric_dp.graph.pairs import (
    Pairs,
    check_edge_index,
    from_pairs,
    num_pairs,
    to_pairs,
)
from torch_geometric_dp.mechanisms.mechanism import (
    EdgePair,
    NodeEdges,
    WorstCase,
)
from torch_geometric_dp.noise import NoiseSource


class EdgeMechanism(Captured, ABC):
    r"""The base of all central mechanisms for the edges of a graph.

    The unit is a pair of different nodes, which has an edge or has none.
    Directions, repetitions and self-loops of the input tell nothing: an edge
    more or less, in one direction or in both, changes one pair at the most.

    Args:
        epsilon (float): The privacy loss of one edge.
    """
    def __init__(self, epsilon: float) -> None:
        self.epsilon = check_epsilon(epsilon)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to one edge."""
        return Guarantee(self.epsilon, Unit.EDGES, Relation.ADD_REMOVE,
                         model=Trust.CENTRAL,
                         assumptions=("the number of nodes is public", ))

    def worst_case(self) -> WorstCase:
        """The exact epsilon of one edge, if outputs can be listed."""
        raise TypeError(f"'{type(self).__name__}' cannot be verified exactly: "
                        f"its outputs are too many to list; audit() tries it "
                        f"instead")

    def canaries(self) -> Sequence[EdgePair | NodeEdges]:
        """An edge, or none."""
        return [EdgePair(self.guarantee.relation)]

    @abstractmethod
    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """The expected number of pairs in the output, for a graph in which
        :obj:`num_edges` pairs have an edge.
        """

    @abstractmethod
    def release(self, edges: Pairs, count: int, source: NoiseSource) -> Pairs:
        """Draws a graph over :obj:`count` pairs, :obj:`edges` of which have
        an edge.
        """

    def __call__(self, edge_index: Tensor, num_nodes: int,
                 source: NoiseSource) -> Tensor:
        """Releases the edges of a graph: the nodes :math:`u < v` of each pair
        with an edge, in two rows.
        """
        count = num_pairs(num_nodes)
        check_edge_index(edge_index, num_nodes)
        released = self.release(to_pairs(edge_index), count, source)
        return from_pairs(released).to(edge_index.device)


def check_unit(unit: str) -> Unit:
    """An edge, or a whole node.

    .. code-block:: python

        check_unit('edge')   # edges
    """
    return Unit(check_choice('unit', 'edge' if unit == Unit.EDGES else unit,
                             ('edge', 'node')))
