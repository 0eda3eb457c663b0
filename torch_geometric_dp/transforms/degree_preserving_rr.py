from collections.abc import Sequence
from typing import Any

from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp import mechanisms
from torch_geometric_dp.accountant import Guarantee, Unit
from torch_geometric_dp.accountant.entry import Pairs as EntryPairs
from torch_geometric_dp.graph.pairs import Pairs, num_pairs
from torch_geometric_dp.mechanisms.mechanism import Canary
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.edge_transform import (
    MAX_EDGES,
    EdgeTransform,
)
from torch_geometric_dp.transforms.private_transform import Field


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
        relation (str, optional): Whether a unit comes or goes
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
        drop (sequence of str, optional): Further fields of edges, which are
            removed. (default: :obj:`()`)
        keep (sequence of str, optional): Public fields that stay, although
            their name says that they hold edges. (default: :obj:`()`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data = DigitsGraph()[0]
        private = DegreePreservingRR(epsilon=8.0)(data)
        private.privacy.epsilon('edges')   # 8.0
    """
    def __init__(self, epsilon: float, unit: str = Unit.EDGES,
                 max_degree: int | None = None,
                 relation: str = 'add-remove', share: float = 0.1,
                 private: str = 'edge_private', max_edges: int = MAX_EDGES,
                 drop: Sequence[str] = (), keep: Sequence[str] = (),
                 seed: int | None = None) -> None:
        super().__init__(epsilon, private, max_edges, drop, keep, seed)
        self.mechanism = mechanisms.DegreePreservingRR(
            epsilon, unit, max_degree, relation, share)
        self.unit = self.mechanism.unit
        self.max_degree = self.mechanism.max_degree
        self.relation = self.mechanism.relation
        self.share = self.mechanism.share

    def canaries(self, data: Any | None = None) -> Sequence[Canary]:
        """An edge, or a node with as many as it may have."""
        return (super().canaries(data) if self.unit == Unit.EDGES else
                self.mechanism.canaries())

    @property
    def guarantee(self) -> Guarantee:
        """One private edge, or one node, in the central model."""
        return self.mechanism.guarantee

    def describe(self, fields: list[Field]) -> EntryPairs:
        """How likely a pair is flipped, before thinning."""
        return ('flip', self.mechanism.flip),

    def read(self, data: Any) -> list[Field]:
        """The edges of all edge types that have some."""
        fields = super().read(data)
        if self.unit == Unit.NODE:
            if len(fields) > 1:
                raise ValueError(
                    f"unit='node' needs a graph with one type of private "
                    f"edges: a node has edges in all of them "
                    f"(got {len(fields)})")
            self.mechanism.check_degrees(fields[0].ready[0],
                                         self.num_nodes(fields[0].store))
        return fields

    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """The expected number of pairs that :meth:`draw` returns."""
        return self.mechanism.expected_edges(num_nodes, num_edges)

    def draw(self, store: BaseStorage, private: Pairs, public: Pairs,
             num_nodes: int, source: NoiseSource) -> tuple[Pairs, None]:
        """Draws the pairs to release."""
        return self.mechanism.release(private, num_pairs(num_nodes),
                                      source), None
