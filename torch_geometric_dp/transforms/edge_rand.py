from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp import mechanisms
from torch_geometric_dp.accountant.guarantee import Parameter
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.edge_transform import EdgeTransform


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

    @property
    def parameters(self) -> tuple[tuple[str, Parameter], ...]:
        """What it takes to undo the bias."""
        return ('flip', self.mechanism.flip),

    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """The expected number of pairs that :meth:`draw` returns."""
        return self.mechanism.expected_edges(num_nodes, num_edges)

    def draw(self, store: BaseStorage, private: Tensor, public: Tensor,
             num_nodes: int, source: NoiseSource) -> tuple[Tensor, None]:
        """Draws the pairs to release."""
        return self.mechanism(private, num_nodes, source), None
