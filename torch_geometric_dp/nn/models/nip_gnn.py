import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import MLP, GraphSAGE
from torch_geometric.utils import degree

from torch_geometric_dp._validate import (
    check_choice,
    check_epsilon,
    check_integer,
)
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.graph.adjacency import distinct_edges
from torch_geometric_dp.graph.sparse import to_csr
from torch_geometric_dp.mechanisms import (
    DegreePreservingRR,
    EdgeRand,
    RandomizedResponse,
)
from torch_geometric_dp.mechanisms.edge_mechanism import EdgeMechanism
from torch_geometric_dp.nn.aca import ACA
from torch_geometric_dp.nn.models.private_model import PrivateModel
from torch_geometric_dp.nn.nap import CALIBRATIONS, NAP
from torch_geometric_dp.nn.tnie import TNIE
from torch_geometric_dp.release import Part, Ticket, budget_of

ALLOCATIONS = ('adaptive', 'uniform')
AGGREGATIONS = ('aca', 'sage')
_MOST_EDGES = 20_000_000


class NIPGNN(PrivateModel):
    r"""The node-level private graph neural network of `NIP-GNN` (section 4),
    with a ledger that adds up.

    A graph is released in three parts, and all else is computed from them:

    1. its edges, by :class:`DegreePreservingRR` at :math:`\varepsilon_B`;
    2. the sums over neighbours, by :class:`~torch_geometric_dp.nn.NAP` at
       :math:`\varepsilon_A`, with noise weighted by the influence that
       :class:`~torch_geometric_dp.nn.TNIE` finds in the released edges;
    3. the labels, by randomised response at :math:`\varepsilon_C`.

    An :class:`~torch_geometric_dp.nn.ACA` over the released edges and two
    dense layers are then trained on the noisy labels. A whole node costs
    :math:`\varepsilon_A + \varepsilon_B + \varepsilon_C`.

    Args:
        in_channels (int): The number of columns of :obj:`x`.
        num_classes (int): The number of classes, a public number.
        epsilon (float): The privacy loss of one node, over all three parts.
        max_degree (int): The largest number of edges at one node, a public
            number; see :class:`~torch_geometric_dp.transforms.BoundDegree`.
        split (tuple, optional): The shares of the three parts, sums, edges and
            labels. They add up to one.
            (default: :obj:`(1/3, 1/3, 1/3)`)
        hidden_channels (int, optional): The size of the hidden layer.
            (default: :obj:`64`)
        hops (int, optional): The number of hops of the aggregation.
            (default: :obj:`2`)
        projection (int, optional): If given, rows are first mapped to so many
            columns by public random signs. (default: :obj:`None`)
        allocation (str, optional): :obj:`"uniform"` gives all nodes the same
            noise ("w/o A-a"). (default: :obj:`"adaptive"`)
        sampling (bool, optional): If set to :obj:`False`, randomised edges are
            not thinned ("w/o D-s"): nearly half of all pairs are among them.
            (default: :obj:`True`)
        aggregation (str, optional): :obj:`"sage"` takes the place of the
            adaptive residual aggregation ("w/o A-r").
            (default: :obj:`"aca"`)
        calibration (str, optional): :obj:`"paper"` scales the noise of the sums
            by Eq. 11 and private influence: the ledger has infinity for it,
            beside what was claimed. Edges are randomised as Theorem 4 says, but
            keep noisy degrees. (default: :obj:`"proven"`)
        epochs (int, optional): The number of training steps.
            (default: :obj:`60`)
        lr (float, optional): The learning rate of Adam.
            (default: :obj:`0.01`)
        mask (str, optional): The boolean node field that selects the labels to
            release and to learn from. (default: :obj:`"train_mask"`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    Shapes:
        - **input:** a graph with features :obj:`x` :math:`(|\mathcal{V}|, F)`,
          undirected edges and classes :obj:`y` :math:`(|\mathcal{V}|)`.
        - **output:** classes :math:`(|\mathcal{V}|)`.

    .. code-block:: python

        model = NIPGNN(4, num_classes=7, epsilon=6.0, max_degree=5, epochs=5)
        classes = model.fit(data).predict(data)
        model.privacy.epsilon('node')   # 6.0
    """
    def __init__(self, in_channels: int, num_classes: int, epsilon: float,
                 max_degree: int,
                 split: Sequence[float] = (1 / 3, 1 / 3, 1 / 3),
                 hidden_channels: int = 64, hops: int = 2,
                 projection: int | None = None,
                 allocation: str = 'adaptive', sampling: bool = True,
                 aggregation: str = 'aca', calibration: str = 'proven',
                 epochs: int = 60, lr: float = 0.01, mask: str = 'train_mask',
                 seed: int | None = None) -> None:
        super().__init__(check_integer('num_classes', num_classes, 2), mask,
                         seed)
        self.in_channels = check_integer('in_channels', in_channels, 1)
        self.epsilon = check_epsilon(epsilon)
        self.max_degree = check_integer('max_degree', max_degree, 1)
        self.split = tuple(map(float, split))
        self.epsilons = _parts(self.epsilon, self.split)
        self.projection = (None if projection is None else check_integer(
            'projection', projection, 1))
        self.hops = check_integer('hops', hops, 1)
        self.hidden_channels = check_integer('hidden_channels',
                                             hidden_channels, 1)
        self.allocation = check_choice('allocation', allocation, ALLOCATIONS)
        self.sampling = bool(sampling)
        self.aggregation = check_choice('aggregation', aggregation,
                                        AGGREGATIONS)
        self.calibration = check_choice('calibration', calibration,
                                        CALIBRATIONS)
        self.epochs, self.lr = check_integer('epochs', epochs, 0), float(lr)

        channels = self.projection or self.in_channels
        # The same noise for all is proven, Lemma 1.
        self.nap = NAP(self.epsilons[0], self.max_degree,
                       calibration=calibration if allocation == 'adaptive' else
                       'proven')
        self.influence = TNIE(channels if calibration == 'paper' else 2, 16)
        if aggregation == 'aca':
            self.aca = ACA(self.hops, cached=True)
            self.head = MLP([channels, hidden_channels, num_classes],
                            norm=None)
        else:
            self.sage = GraphSAGE(channels, hidden_channels, self.hops,
                                  num_classes)
        self._released: tuple[Tensor, Tensor] | None = None

    def reset_parameters(self) -> None:
        """Forgets what was learned, but not what was released and spent."""
        for layer in self.children():
            layer.reset_parameters()  # type: ignore[operator]

    def fit(self, data: Any) -> 'NIPGNN':
        """Releases a graph in three parts, and trains on them."""
        mask, y = self.labels(data)
        x = self.features(data, self.in_channels).to_dense()
        edges = distinct_edges(data.edge_index, data.num_nodes)
        self._check_degrees(edges, data.num_nodes)
        edge_mechanism, edge_guarantee = self._edge_mechanism(edges,
                                                              data.num_nodes)
        response = RandomizedResponse(self.epsilons[2], self.num_classes)
        label_guarantee = Guarantee(response.epsilon, Unit.LABELS,
                                    Relation.REPLACE)
        ticket = self.admit(data, [
            Part(self, PrivateModel, self.nap.guarantee, ('x', 'edge_index')),
            Part(self, PrivateModel, edge_guarantee, ('edge_index', )),
            Part(self, PrivateModel, label_guarantee, ('y', ),
                 ((self.mask, None), )),
        ], [('x', (x, )), ('edge_index', (edges, )),
            ('y', (torch.where(mask, y, -1), )), (self.mask, (mask, ))])

        source = ticket.source
        upper = edges[:, edges[0] < edges[1]]
        drawn = edge_mechanism(upper, data.num_nodes, source.derive('edges'))
        released = distinct_edges(torch.cat([drawn, drawn.flip(0)], dim=1),
                                  data.num_nodes)
        if self.projection is not None:
            signs = public_signs(self.in_channels, self.projection)
            x = (x.double() @ signs.double()).to(x.dtype)
        weight = None
        if self.allocation == 'adaptive':
            weight = self._influence(x, edges, released)
            self._bind(data, ticket, weight)
        h = self.nap.draw(x, edges, weight, source.derive('sums'))
        labels = response(y, source.derive('labels'), mask)
        # Columns are standardised: they are released, so that is free.
        h = (h - h.mean(dim=0)) / h.std(dim=0).clamp(min=1e-6)
        self._released = h, to_csr(
            released, data.num_nodes, h.new_ones(released.size(1)))
        self._train(labels, mask)
        return self

    def _bind(self, data: Any, ticket: Ticket, weight: Tensor) -> None:
        # Noise of another scale would be another release, which is not paid
        # for: should arithmetic ever differ, this is refused.
        budget = budget_of(data)
        if budget is not None:
            self._releaser.bind(f'weight {ticket.releases[0].release_id}', (),
                                [('weight', (weight, ))], budget)

    def _edge_mechanism(self, edges: Tensor, num_nodes: int,
                        ) -> tuple[EdgeMechanism, Guarantee]:
        # The paper's scale is that of a node whose edges are replaced.
        relation = (Relation.ADD_REMOVE if self.calibration == 'proven' else
                    Relation.REPLACE)
        mechanism = DegreePreservingRR(self.epsilons[1], 'node',
                                       self.max_degree, relation)
        if self.sampling:
            return mechanism, mechanism.guarantee
        pairs = self.max_degree * (1 if self.calibration == 'proven' else 2)
        plain = EdgeRand(math.nextafter(self.epsilons[1] / pairs, 0.0))
        # As many as there can be: what is refused must not tell the number.
        count = 2 * plain.expected_edges(num_nodes,
                                         num_nodes * self.max_degree // 2)
        if count > _MOST_EDGES:
            raise ValueError(f"'sampling' must be True for a graph of this "
                             f"size: without it, up to {count:.3g} edges would "
                             f"be released (got False)")
        return plain, mechanism.guarantee

    def _influence(self, x: Tensor, edges: Tensor,
                   released: Tensor) -> Tensor:
        if self.calibration == 'paper':  # As published, from private data.
            public = x, edges
        else:
            log = degree(released[1], x.size(0)).log1p()
            public = torch.stack([torch.ones_like(log), log], dim=1), released
        # From the same start each time: with the same release comes the same
        # influence, and the same noise.
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            self.influence.reset_parameters()
            return self.influence.fit(*public, epochs=50).rank(*public)

    def _train(self, labels: Tensor, mask: Tensor) -> None:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        self.train()
        if self.aggregation == 'aca':
            self.aca.reset_parameters()  # The edges that it keeps are old.
        for _ in range(self.epochs):
            optimizer.zero_grad()
            loss = F.cross_entropy(self()[mask], labels[mask])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        self.eval()

    def forward(self) -> Tensor:
        """The scores of all classes, for every node that was released."""
        if self._released is None:
            raise RuntimeError("Call fit(data) first: nothing was released yet")
        h, edges = self._released
        out: Tensor = (self.head(self.aca(h, edges)) if self.aggregation ==
                       'aca' else self.sage(h, edges))
        return out

    @torch.no_grad()
    def predict(self, data: Any) -> Tensor:
        """The most likely class of each node of the graph that was fitted,
        from what was released. Reads nothing of :obj:`data` but its size.
        """
        out: Tensor = self().argmax(dim=1)
        if data.num_nodes != len(out):
            raise ValueError(f"'data' must be the graph that was fitted, with "
                             f"{len(out)} nodes (got {data.num_nodes})")
        return out

    def _check_degrees(self, edges: Tensor, num_nodes: int) -> None:
        if not torch.equal(edges, distinct_edges(edges.flip(0), num_nodes)):
            raise ValueError("'edge_index' must be undirected, with both "
                             "directions of every edge")
        if (edges[0] == edges[1]).any():
            raise ValueError("'edge_index' must not have self-loops")
        if (edges[0].bincount() > self.max_degree).any():
            raise ValueError(
                f"'max_degree' is too small for this graph: some node has more "
                f"edges (got {self.max_degree}). "
                f"BoundDegree(max_degree={self.max_degree}) removes some")


def _parts(epsilon: float, split: Sequence[float]) -> tuple[float, ...]:
    if len(split) != 3 or not all(share > 0 for share in split) or abs(
            math.fsum(split) - 1) > 1e-9:
        raise ValueError(f"'split' must be three positive shares, of sums, "
                         f"edges and labels, that add up to 1 "
                         f"(got {tuple(split)})")
    # As decimal numbers, so that they add up to epsilon exactly.
    total, digits = Decimal(repr(epsilon)), Decimal('1e-9')
    parts = [(total * Decimal(share)).quantize(digits) for share in split[:2]]
    return tuple(map(float, (*parts, total - sum(parts))))


def public_signs(rows: int, columns: int) -> Tensor:
    """A random projection that everybody may know: the same every time."""
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (rows, columns), generator=generator)
    return (2.0 * signs - 1) / math.sqrt(columns)
