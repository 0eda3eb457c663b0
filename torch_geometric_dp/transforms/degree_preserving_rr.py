from typing import Any, Optional

from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp import mechanisms
from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.accountant.guarantee import Parameter
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.edge_transform import (
    MAX_EDGES,
    EdgeTransform,
)


@functional_transform('dp_degree_preserving_rr')
class DegreePreservingRR(EdgeTransform):
    r"""Releases private edges by randomised response on every pair of nodes,
    thinned such that nodes keep their degrees, of `NIP-GNN` (functional name:
    :obj:`dp_degree_preserving_rr`).

    The release is as sparse as the graph, whatever epsilon is, and each node
    has about as many neighbours as before; which ones, it tells only as far as
    epsilon allows. The proof stands in
    :mod:`torch_geometric_dp.mechanisms.degree_preserving_rr`.

    Args:
        epsilon (float): The privacy loss of one unit.
        unit (str, optional): What is protected, an :obj:`"edge"` or a
            :obj:`"node"` with all its private edges.
            (default: :obj:`"edge"`)
        max_degree (int, optional): The largest number of private edges at one
            node, a public number; for :obj:`unit="node"`. A graph that has
            more is refused: see :class:`BoundDegree`. (default: :obj:`None`)
        neighbours (str, optional): Whether a unit comes or goes
            (:obj:`"add-remove"`), or is exchanged for another
            (:obj:`"replace"`). (default: :obj:`"add-remove"`)
        share (float, optional): The share of :obj:`epsilon` that goes into the
            degrees. (default: :obj:`0.1`)
        private (str, optional): The name of a boolean edge field that selects
            the private edges. In a graph without that field, all edges are
            private. (default: :obj:`"edge_private"`)
        max_edges (int, optional): A release that is expected to have more
            columns of :obj:`edge_index` is refused, before it costs anything.
            (default: :obj:`10000000`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data = DigitsGraph()[0]
        private = DegreePreservingRR(epsilon=8.0)(data)
        private.privacy.epsilon('edges')   # 8.0
    """
    def __init__(self, epsilon: float, unit: str = 'edge',
                 max_degree: Optional[int] = None,
                 neighbours: str = 'add-remove', share: float = 0.1,
                 private: str = 'edge_private', max_edges: int = MAX_EDGES,
                 seed: Optional[int] = None) -> None:
        super().__init__(epsilon, private, max_edges, seed)
        self.mechanism = mechanisms.DegreePreservingRR(
            epsilon, unit, max_degree, neighbours, share)

    @property
    def guarantee(self) -> Guarantee:
        """One private edge, or one node, in the central model."""
        return self.mechanism.guarantee

    @property
    def parameters(self) -> tuple[tuple[str, Parameter], ...]:
        """How likely a pair is flipped, before thinning."""
        return ('flip', self.mechanism.flip),

    def read(self, data: Any) -> list[tuple[BaseStorage, str]]:
        """The edges of all edge types that have some."""
        stores = super().read(data)
        if self.mechanism.unit == 'node' and len(stores) > 1:
            raise ValueError(f"unit='node' needs a graph with one type of "
                             f"private edges: a node has edges in all of them "
                             f"(got {len(stores)})")
        for store, _ in stores if self.mechanism.unit == 'node' else ():
            private, _ = self._numbers(store, self._arrows(store))
            self.mechanism.check_degrees(private, self.num_nodes(store))
        return stores

    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """The expected number of pairs that :meth:`draw` returns."""
        return self.mechanism.expected_edges(num_nodes, num_edges)

    def draw(self, store: BaseStorage, private: Tensor, public: Tensor,
             num_nodes: int, source: NoiseSource) -> tuple[Tensor, None]:
        """Draws the pairs to release."""
        return self.mechanism(private, num_nodes, source), None

    def arguments(self) -> list[str]:
        """What :obj:`repr` shows between the brackets."""
        args = super().arguments()
        return args[:1] + self.mechanism.arguments() + args[1:]
