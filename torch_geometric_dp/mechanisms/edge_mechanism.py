from abc import ABC, abstractmethod

from torch import Tensor

from torch_geometric_dp.mechanisms.checks import check_epsilon
from torch_geometric_dp.mechanisms.pairs import (
    Pairs,
    check_edge_index,
    from_pairs,
    num_pairs,
    to_pairs,
)
from torch_geometric_dp.noise import NoiseSource


class EdgeMechanism(ABC):
    r"""The base of all central mechanisms for the edges of a graph.

    The unit is a pair of different nodes, which has an edge or has none.
    Directions, repetitions and self-loops of the input tell nothing: an edge
    more or less, in one direction or in both, changes one pair at the most.

    Args:
        epsilon (float): The privacy loss of one edge.
    """
    def __init__(self, epsilon: float) -> None:
        self.epsilon = check_epsilon(epsilon)

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

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}(epsilon={self.epsilon})'
