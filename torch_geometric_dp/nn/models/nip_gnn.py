import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

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
from torch_geometric_dp.accountant import (
    Guarantee,
    PrivacyAccountant,
    Relation,
    Unit,
)
from torch_geometric_dp.graph.adjacency import distinct_edges
from torch_geometric_dp.graph.pairs import from_pairs
from torch_geometric_dp.graph.sparse import to_csr
from torch_geometric_dp.mechanisms import (
    DegreePreservingRR,
    EdgeRand,
    RandomizedResponse,
)
from torch_geometric_dp.mechanisms.edge_mechanism import (
    EdgeMechanism,
    check_unit,
)
from torch_geometric_dp.nn.aca import ACA
from torch_geometric_dp.nn.models.private_model import (
    PrivateModel,
    edge_pairs,
)
from torch_geometric_dp.nn.models.public_base import (
    default_base,
    public_beliefs,
)
from torch_geometric_dp.nn.nap import CALIBRATIONS, NAP
from torch_geometric_dp.nn.tnie import TNIE
from torch_geometric_dp.release import (
    Content,
    Part,
    Ticket,
    budget_of,
)

ALLOCATIONS = ('adaptive', 'uniform')
AGGREGATIONS = ('aca', 'sage')
_THIRDS = (1 / 3, 1 / 3, 1 / 3)
_MOST_EDGES = 20_000_000
_TAU = 0.1  # Of rows that add up to one: most of them have moved.


class _Heard(NamedTuple):
    # What nodes start from and tell, whose label that is, their noisy sums, and
    # for how many neighbours a node itself counts.
    start: Tensor
    told: Tensor
    known: Tensor
    sums: Tensor
    own: Tensor


class NIPGNN(PrivateModel):
    r"""The private graph neural network of `NIP-GNN` (section 4), for nodes or
    for edges, with a ledger that adds up.

    **Nodes.** A graph is released in three parts, and all else is computed from
    them:

    1. its edges, by :class:`DegreePreservingRR` at :math:`\varepsilon_B`;
    2. the sums over neighbours, by :class:`~torch_geometric_dp.nn.NAP` at
       :math:`\varepsilon_A`, with noise weighted by the influence that
       :class:`~torch_geometric_dp.nn.TNIE` finds in the released edges;
    3. the labels, by randomised response at :math:`\varepsilon_C`.

    An :class:`~torch_geometric_dp.nn.ACA` over the released edges and two
    dense layers are then trained on the noisy labels. A whole node costs
    :math:`\varepsilon_A + \varepsilon_B + \varepsilon_C`.

    **Edges.** Features and labels are taken as public, and the ledger says so.
    So an encoder is free, which says how likely all classes are, in rows
    :math:`\mathbf{H}_u^0`. NAP releases one thing, at all of
    :math:`\varepsilon`: the sums :math:`\mathbf{S}` over private edges of rows
    that add up to one, labels of training nodes and :math:`\mathbf{H}_v^0` of
    all others. Sums :math:`\mathbf{P}^k` over public edges, with
    :math:`\mathbf{H}_v^k` in its place, are free, too. In each hop, ACA moves a
    node from :math:`\mathbf{H}_u^0` towards the mean of what it heard,

    .. math::
        \mathbf{M}_u^k = \frac{m \mathbf{H}_u^0 + \mathbf{P}_u^k +
        \mathbf{S}_u}{m + |\mathbf{P}_u^0| + \max(|\mathbf{S}_u|, 0)}, \quad
        m = 1 + \sqrt{C \cdot \textrm{variance of the noise}},

    where :math:`|\cdot|` is the sum of a row, which is a number of neighbours,
    and a node itself counts for as many as noise may look like. Two dense
    layers then read :math:`\mathbf{H}^0`, both sums and what ACA has made of
    them, and are trained on labels that are public. All of that is computed
    from what was released or is public: an edge costs :math:`\varepsilon`.

    Influence that weights the noise may come from public edges, but cannot
    help: one edge changes the sums of two nodes, so that their noise has the
    scale :math:`(w_1 + w_2) / (\varepsilon w_u)`, with the two largest weights.
    That is below the :math:`2 / \varepsilon` of equal weights for one node at
    the most.

    Args:
        in_channels (int): The number of columns of :obj:`x`.
        num_classes (int): The number of classes, a public number.
        epsilon (float): The privacy loss of one node, over all three parts, or
            of one edge.
        max_degree (int, optional): The largest number of edges at one node, a
            public number; see
            :class:`~torch_geometric_dp.transforms.BoundDegree`. Needed for
            nodes, and for them only. (default: :obj:`None`)
        split (tuple, optional): The shares of the three parts, sums, edges and
            labels, for nodes. They add up to one.
            (default: :obj:`(1/3, 1/3, 1/3)`)
        hidden_channels (int, optional): The size of the hidden layer.
            (default: :obj:`64`)
        hops (int, optional): The number of hops of the aggregation. For edges,
            what private ones say is that of the first. (default: :obj:`2`)
        projection (int, optional): If given, rows are first mapped to so many
            columns by public random signs, for nodes. (default: :obj:`None`)
        allocation (str, optional): :obj:`"uniform"` gives all nodes the same
            noise ("w/o A-a"), :obj:`"adaptive"` weights it by influence. By
            default, it is adaptive for nodes and uniform for edges.
            (default: :obj:`None`)
        sampling (bool, optional): If set to :obj:`False`, randomised edges are
            not thinned ("w/o D-s"): nearly half of all pairs are among them.
            (default: :obj:`True`)
        aggregation (str, optional): :obj:`"sage"` takes the place of the
            adaptive residual aggregation ("w/o A-r"). For edges, the dense
            layers then read a node's own row and its sums only.
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
        unit (str, optional): What is protected: a :obj:`"node"` with its row,
            label and edges, or an :obj:`"edge"`. (default: :obj:`"node"`)
        encoder (torch.nn.Module, optional): Maps each row, on its own, to what
            is summed. For edges, to scores of classes: it is trained here, and
            by default a small network. For nodes, to a few numbers, and as it
            is: what it has learnt must be public, and the ledger says so, or
            have been paid for, as by a :class:`ClassSumClassifier` that was
            fitted before. Its ledger is then added. (default: :obj:`None`)
        private (str, optional): The boolean edge field that tells which edges
            are private, for edges; without it, all are.
            (default: :obj:`"edge_private"`)

    Shapes:
        - **input:** a graph with features :obj:`x` :math:`(|\mathcal{V}|, F)`,
          undirected edges and classes :obj:`y` :math:`(|\mathcal{V}|)`.
        - **output:** classes :math:`(|\mathcal{V}|)`.

    .. code-block:: python

        model = NIPGNN(4, num_classes=7, epsilon=6.0, max_degree=5, epochs=5)
        classes = model.fit(data).predict(data)
        model.privacy.epsilon('node')    # 6.0
        model = NIPGNN(4, num_classes=7, epsilon=1.0, unit='edge', epochs=5)
        classes = model.fit(data).predict(data)
        model.privacy.epsilon('edges')   # 1.0
    """
    def __init__(self, in_channels: int, num_classes: int, epsilon: float,
                 max_degree: int | None = None,
                 split: Sequence[float] = _THIRDS,
                 hidden_channels: int = 64, hops: int = 2,
                 projection: int | None = None,
                 allocation: str | None = None, sampling: bool = True,
                 aggregation: str = 'aca', calibration: str = 'proven',
                 epochs: int = 60, lr: float = 0.01, mask: str = 'train_mask',
                 seed: int | None = None, unit: str = 'node',
                 encoder: torch.nn.Module | None = None,
                 private: str = 'edge_private') -> None:
        super().__init__(check_integer('num_classes', num_classes, 2), mask,
                         seed)
        self.in_channels = check_integer('in_channels', in_channels, 1)
        self.epsilon = check_epsilon(epsilon)
        self.unit = check_unit(unit)
        nodes = self.unit == Unit.NODE
        if not nodes:
            _refuse_for_edges(max_degree=(max_degree, None),
                              split=(tuple(split), _THIRDS),
                              projection=(projection, None),
                              sampling=(sampling, True),
                              calibration=(calibration, 'proven'))
        self.max_degree = (check_integer('max_degree', max_degree, 1) if nodes
                           else None)
        self.split = tuple(map(float, split))
        self.epsilons = (_parts(self.epsilon, self.split) if nodes else
                         (self.epsilon, ))
        self.projection = (None if projection is None else check_integer(
            'projection', projection, 1))
        self.hops = check_integer('hops', hops, 1)
        self.hidden_channels = check_integer('hidden_channels',
                                             hidden_channels, 1)
        self.allocation = (None if allocation is None else check_choice(
            'allocation', allocation, ALLOCATIONS))
        self.sampling = bool(sampling)
        self.aggregation = check_choice('aggregation', aggregation,
                                        AGGREGATIONS)
        self.calibration = check_choice('calibration', calibration,
                                        CALIBRATIONS)
        self.epochs, self.lr = check_integer('epochs', epochs, 0), float(lr)
        self.private = private
        self.encoder = encoder
        channels = self._check_encoder()

        # The same noise for all is proven, Lemma 1.
        self.nap = NAP(self.epsilons[0], self.max_degree, self.unit,
                       calibration=calibration if self._adaptive else 'proven')
        self.influence = TNIE(channels if calibration == 'paper' else 2, 16)
        if not nodes:  # A row, both kinds of sums, and what ACA makes of them.
            channels *= 4 if aggregation == 'aca' else 3
        if aggregation == 'aca':
            self.aca = ACA(self.hops, 1.0 if nodes else _TAU, cached=True)
        if aggregation == 'sage' and nodes:
            self.sage = GraphSAGE(channels, hidden_channels, self.hops,
                                  num_classes)
        else:
            self.head = MLP([channels, hidden_channels, num_classes],
                            norm=None, dropout=0.0 if nodes else 0.5)
        self._released: tuple[Tensor, Tensor] | None = None
        self._heard: _Heard | None = None

    @property
    def _adaptive(self) -> bool:
        return self.allocation == 'adaptive' or (
            self.allocation is None and self.unit == Unit.NODE)

    def reset_parameters(self) -> None:
        """Forgets what was learned, but not what was released and spent."""
        for name, layer in self.named_children():
            if name != 'encoder':  # That was learned elsewhere.
                layer.reset_parameters()  # type: ignore[operator]

    def fit(self, data: Any) -> 'NIPGNN':
        """Releases a graph, in three parts or (for edges) in one, and trains on
        what was released.
        """
        return (self._fit_nodes if self.unit == Unit.NODE else
                self._fit_edges)(data)

    def _fit_nodes(self, data: Any) -> 'NIPGNN':
        mask, y = self.labels(data)
        x = self.features(data, self.in_channels).to_dense()
        edges = distinct_edges(data.edge_index, data.num_nodes)
        self._check_degrees(edges, data.num_nodes)
        edge_mechanism, edge_guarantee = self._edge_mechanism(edges,
                                                              data.num_nodes)
        response = RandomizedResponse(self.epsilons[2], self.num_classes)
        label_guarantee = Guarantee(response.epsilon, Unit.LABELS,
                                    Relation.REPLACE)
        rows, paid = self._rows(x), _ledger_of(self.encoder)
        free = self.encoder is not None and not paid.releases
        content: Content = [
            ('x', (x, )), ('edge_index', (edges, )),
            ('y', (torch.where(mask, y, -1), )), (self.mask, (mask, ))]
        if self.encoder is not None:
            # Two encoders may look alike: with the same noise, their sums would
            # tell what they differ in.
            content = [*content, ('rows', (rows, ))]
        ticket = self.admit(data, [
            Part(self, PrivateModel, self.nap.guarantee, ('x', 'edge_index'),
                 (('encoder', None), ) if free else ()),
            Part(self, PrivateModel, edge_guarantee, ('edge_index', )),
            Part(self, PrivateModel, label_guarantee, ('y', ),
                 ((self.mask, None), )),
        ], content)
        self.privacy = PrivacyAccountant.merge([self.privacy, paid])

        source, x = ticket.source, rows
        upper = edges[:, edges[0] < edges[1]]
        drawn = edge_mechanism(upper, data.num_nodes, source.derive('edges'))
        released = distinct_edges(torch.cat([drawn, drawn.flip(0)], dim=1),
                                  data.num_nodes)
        weight = None
        if self._adaptive:
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

    def _fit_edges(self, data: Any) -> 'NIPGNN':
        mask, y = self.labels(data)
        x = self.features(data, self.in_channels).to_dense().float()
        if not mask.any():
            raise ValueError(f"'{self.mask}' must select at least one node")
        public, private = public_and_private(data, self.private)
        known = torch.where(mask, y, -1)
        base = (default_base(self.in_channels, self.num_classes)
                if self.encoder is None else self.encoder)
        belief = public_beliefs(base, x, known, public).cpu()
        chance = belief.softmax(dim=1)
        told = torch.where(mask[:, None], F.one_hot(
            known.clamp(min=0), self.num_classes).to(chance), chance)
        content: Content = [('edge_index', (private, )),
                            ('told', (self.nap.mechanism.to_steps(told), ))]
        weight = None
        if self._adaptive and public.size(1) > 0:
            weight = self._influence(x, private, public)
            content = [*content, ('weight', (weight, ))]
        part = Part(self, PrivateModel, self.nap.guarantee, ('edge_index', ),
                    self.taken_as_public(data, self.private))
        source = self.admit(data, [part], content).source

        sums = self.nap.draw(told, private, weight, source)
        noise = self.nap.mechanism.variance(self.num_classes, weight).sqrt()
        noise = noise.to(sums).view(-1, 1)
        edges = to_csr(public, len(told), told.new_ones(public.size(1)))
        # Where there is next to no noise, neighbours are what sums count in.
        self._released = torch.cat([belief, sums / noise.clamp(min=1.0),
                                    edges @ told], dim=1), edges
        self._heard = _Heard(chance, told, mask[:, None], sums,
                             1 + self.num_classes**0.5 * noise)
        self._train(y, mask)
        return self

    @torch.no_grad()
    def _rows(self, x: Tensor) -> Tensor:
        # What nodes sum, each row on its own.
        if self.encoder is not None:
            rows: Tensor = self.encoder.eval()(x)
            if rows.dim() != 2 or len(rows) != len(x) or (
                    not rows.isfinite().all()):
                raise ValueError("'encoder' must map rows to rows of finite "
                                 "numbers, one for each (got others)")
            return rows
        if self.projection is None:
            return x
        signs = public_signs(self.in_channels, self.projection)
        return (x.double() @ signs.double()).to(x.dtype)

    def _check_encoder(self) -> int:
        # Returns how many columns are summed. Tried on rows that are nobody's.
        if self.encoder is None and self.unit == Unit.EDGES:
            return self.num_classes
        if not isinstance(self.encoder, (torch.nn.Module, type(None))):
            raise TypeError(f"'encoder' must be a 'torch.nn.Module' "
                            f"(got '{type(self.encoder).__name__}')")
        if self.encoder is not None and self.projection is not None:
            raise ValueError(f"'projection' must be None with an 'encoder': "
                             f"one of them comes before the sums "
                             f"(got {self.projection})")
        x = torch.rand(5, self.in_channels,
                       generator=torch.Generator().manual_seed(0))
        rows = self._rows(x)
        if self.unit == Unit.EDGES and rows.size(1) != self.num_classes:
            raise ValueError(f"'encoder' must map rows to scores of "
                             f"{self.num_classes} classes "
                             f"(got {rows.size(1)})")
        single = torch.cat([self._rows(row.view(1, -1)) for row in x])
        if not torch.allclose(rows, single, rtol=1e-3, atol=1e-5):
            raise ValueError("'encoder' must map each row on its own: what one "
                             "node can change would have no bound")
        return rows.size(1)

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
        cap = self.max_degree or 1
        pairs = cap * (1 if self.calibration == 'proven' else 2)
        plain = EdgeRand(math.nextafter(self.epsilons[1] / pairs, 0.0))
        # As many as there can be: what is refused must not tell the number.
        count = 2 * plain.expected_edges(num_nodes, num_nodes * cap // 2)
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
        if self.aggregation == 'aca':
            h = (self.aca(h, edges) if self._heard is None else torch.cat(
                [h, self._calibrated(self._heard, edges)], dim=1))
        out: Tensor = (self.sage(h, edges) if hasattr(self, 'sage') else
                       self.head(h))
        return out

    def _calibrated(self, heard: '_Heard', public: Tensor) -> Tensor:
        start, told, known, sums, own = heard
        number = sums.sum(dim=1, keepdim=True).clamp(min=0) + (
            (public @ told).sum(dim=1, keepdim=True))
        h = start
        for _ in range(self.hops):
            free = public @ torch.where(known, told, h)
            h = self.aca.move(start, (own * start + free + sums)
                              / (own + number))
        return h

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
        if (edges[0].bincount() > (self.max_degree or 1)).any():
            raise ValueError(
                f"'max_degree' is too small for this graph: some node has more "
                f"edges (got {self.max_degree}). "
                f"BoundDegree(max_degree={self.max_degree}) removes some")


def public_and_private(data: Any, name: str) -> tuple[Tensor, Tensor]:
    """The public and the private edges of a graph, in both directions, each of
    them once, as a boolean edge field tells; without it, all are private. A
    pair of nodes that has a public edge is public.

    .. code-block:: python

        graph = Data(num_nodes=3, edge_index=torch.tensor([[0, 0], [1, 2]]))
        graph.edge_private = torch.tensor([False, True])
        public_and_private(graph, 'edge_private')[1]   # [[2, 0], [0, 2]]
    """
    private, public = map(from_pairs, edge_pairs(data, name))
    both = [distinct_edges(torch.cat([edges, edges.flip(0)], dim=1),
                           data.num_nodes) for edges in (public, private)]
    return both[0], both[1]


def _refuse_for_edges(**given: tuple[Any, Any]) -> None:
    for name, (value, default) in given.items():
        if value != default:
            raise ValueError(f"'{name}' must be {default!r} for unit='edge': "
                             f"only what a node is made of needs it "
                             f"(got {value!r})")


def _ledger_of(encoder: torch.nn.Module | None) -> PrivacyAccountant:
    ledgers = [getattr(module, 'privacy', None) for module in (
        () if encoder is None else encoder.modules())]
    return PrivacyAccountant.merge(
        [ledger for ledger in ledgers if isinstance(ledger, PrivacyAccountant)])


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
