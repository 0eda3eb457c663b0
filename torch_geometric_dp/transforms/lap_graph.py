
from collections.abc import Sequence

from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp import mechanisms
from torch_geometric_dp.graph.pairs import Pairs, num_pairs
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.edge_transform import (
    MAX_EDGES,
    EdgeTransform,
)


@functional_transform('dp_lap_graph')
class LapGraph(EdgeTransform):
    r"""Releases as many edges as a noisy count says: those pairs of nodes that
    are largest after Laplace noise (functional name: :obj:`dp_lap_graph`).

    Takes the arguments of :class:`EdgeTransform`; the proof stands in
    :mod:`torch_geometric_dp.mechanisms.lap_graph`. The release is as sparse as
    the graph, whatever epsilon is.

    Args:
        epsilon (float): The privacy loss of one private edge.
        private (str, optional): The name of a boolean edge field that selects
            the private edges. In a graph without that field, all edges are
            private. (default: :obj:`"edge_private"`)
        count_share (float, optional): The share of :obj:`epsilon` that goes
            into the number of edges. (default: :obj:`0.01`)
        max_edges (int, optional): A release that is expected to have more
            columns of :obj:`edge_index` is refused, before it costs anything.
            (default: :obj:`10000000`)
        drop (sequence of str, optional): Further fields of edges, which are
            removed. (default: :obj:`()`)
        keep (sequence of str, optional): Public fields that stay, although
            their name says that they hold edges. (default: :obj:`()`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data = DigitsGraph()[0]
        private = LapGraph(epsilon=8.0)(data)
        private.privacy.epsilon('edges')   # 8.0
    """
    def __init__(self, epsilon: float, private: str = 'edge_private',
                 count_share: float = 0.01, max_edges: int = MAX_EDGES,
                 drop: Sequence[str] = (), keep: Sequence[str] = (),
                 seed: int | None = None) -> None:
        super().__init__(epsilon, private, max_edges, drop, keep, seed)
        self.count_share = count_share
        self.count_share = self.mechanism.count_share  # Checked.

    @property
    def mechanism(self) -> mechanisms.LapGraph:
        """The mechanism, for any graph."""
        return mechanisms.LapGraph(self.epsilon, self.count_share)

    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """The expected number of pairs that :meth:`draw` returns."""
        return self.mechanism.expected_edges(num_nodes, num_edges)

    def draw(self, store: BaseStorage, private: Pairs, public: Pairs,
             num_nodes: int, source: NoiseSource) -> tuple[Pairs, None]:
        """Draws the pairs to release."""
        return self.mechanism.release(private, num_pairs(num_nodes),
                                      source), None
