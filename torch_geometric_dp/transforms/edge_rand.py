from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp import mechanisms
from torch_geometric_dp.accountant.entry import Pairs as EntryPairs
from torch_geometric_dp.graph.pairs import Pairs, num_pairs
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.edge_transform import EdgeTransform
from torch_geometric_dp.transforms.private_transform import Field


@functional_transform('dp_edge_rand')
class EdgeRand(EdgeTransform):
    r"""Releases private edges by randomised response on every pair of nodes:
    an edge appears, or disappears, with probability :math:`1 / (1 +
    e^{\varepsilon})` (functional name: :obj:`dp_edge_rand`).

    Takes the arguments of :class:`EdgeTransform`; the proof stands in
    :mod:`torch_geometric_dp.mechanisms.edge_rand`. Almost all pairs of a sparse
    graph have no edge, so that a small epsilon drowns the graph in false ones.

    .. code-block:: python

        data = DigitsGraph()[0]
        private = EdgeRand(epsilon=8.0)(data)
        private.privacy.epsilon('edges')   # 8.0
    """
    @property
    def mechanism(self) -> mechanisms.EdgeRand:
        """The mechanism, for any graph."""
        return mechanisms.EdgeRand(self.epsilon)

    def describe(self, fields: list[Field]) -> EntryPairs:
        """What it takes to undo the bias."""
        return ('flip', self.mechanism.flip),

    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """The expected number of pairs that :meth:`draw` returns."""
        return self.mechanism.expected_edges(num_nodes, num_edges)

    def draw(self, store: BaseStorage, private: Pairs, public: Pairs,
             num_nodes: int, source: NoiseSource) -> tuple[Pairs, None]:
        """Draws the pairs to release."""
        return self.mechanism.release(private, num_pairs(num_nodes),
                                      source), None
