import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import MLP, GraphSAGE
from torch_geometric.utils import degree

from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.mechanisms import (
    DegreePreservingRR,
    EdgeRand,
    RandomizedResponse,
)
from torch_geometric_dp.mechanisms.checks import check_epsilon, check_integer
from torch_geometric_dp.mechanisms.edge_mechanism import EdgeMechanism
from torch_geometric_dp.mechanisms.sparse import to_csr
from torch_geometric_dp.nn.aca import ACA
from torch_geometric_dp.nn.adjacency import distinct_edges
from torch_geometric_dp.nn.models.private_model import PrivateModel
from torch_geometric_dp.nn.nap import CALIBRATIONS, NAP
from torch_geometric_dp.nn.tnie import TNIE

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
                 projection: Optional[int] = None,
                 allocation: str = 'adaptive', sampling: bool = True,
                 aggregation: str = 'aca', calibration: str = 'proven',
                 epochs: int = 60, lr: float = 0.01, mask: str = 'train_mask',
                 seed: Optional[int] = None) -> None:
        super().__init__(check_integer('num_classes', num_classes, 2), mask,
                         seed)
        for name, value, domain in (
                ('allocation', allocation, ALLOCATIONS),
                ('aggregation', aggregation, AGGREGATIONS),
                ('calibration', calibration, CALIBRATIONS)):
            if value not in domain:
                raise ValueError(f"'{name}' must be one of {domain} "
                                 f"(got {value!r})")
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
        self.allocation = allocation
        self.sampling = bool(sampling)
        self.aggregation = aggregation
        self.calibration = calibration
        self.epochs, self.lr = check_integer('epochs', epochs, 0), float(lr)

        channels = self.projection or self.in_channels
        # The same noise for all is proven, Lemma 1.
        self.nap = NAP(self.epsilons[0], self.max_degree,
                       calibration=calibration if allocation == 'adaptive' else
                       'proven', seed=self.seed)
        self.influence = TNIE(channels if calibration == 'paper' else 2, 16)
        if aggregation == 'aca':
            self.aca = ACA(self.hops, cached=True)
            self.head = MLP([channels, hidden_channels, num_classes],
                            norm=None)
        else:
            self.sage = GraphSAGE(channels, hidden_channels, self.hops,
                                  num_classes)
        self._released: Optional[tuple[Tensor, Tensor]] = None

    def reset_parameters(self) -> None:
        """Forgets what was learned, but not what was released and spent."""
        for layer in self.children():
            layer.reset_parameters()  # type: ignore[operator]

    def fit(self, data: Any) -> 'NIPGNN':
        """Releases a graph in three parts, and trains on them."""
        mask, y = self.labels(data)
        x = self.features(data, self.in_channels)
        edges = distinct_edges(data.edge_index, data.num_nodes)
        self._check_degrees(edges, data.num_nodes)
        edge_mechanism, edge_guarantee = self._edge_mechanism(edges,
                                                              data.num_nodes)
        response = RandomizedResponse(self.epsilons[2], self.num_classes)
        source = self.start()
        self.charge(data, source, [
            (self.nap.guarantee, repr(self.nap), ('x', 'edge_index')),
            (edge_guarantee, repr(edge_mechanism), ('edge_index', )),
            (Guarantee(response.epsilon, 'labels',
                       "the labels of one node are replaced",
                       assumptions=(f"'{self.mask}' is public", )),
             repr(response), ('y', )),
        ])

        upper = edges[:, edges[0] < edges[1]]
        drawn = edge_mechanism(upper, data.num_nodes, source.derive('edges'))
        released = distinct_edges(torch.cat([drawn, drawn.flip(0)], dim=1),
                                  data.num_nodes)
        if self.projection is not None:
            x = x @ public_signs(self.in_channels, self.projection).to(x.dtype)
        x, weight = x.to_dense(), None
        if self.allocation == 'adaptive':
            weight = self._influence(x, edges, released)
        self.nap.renew()  # Charged above: each fit is a release of its own.
        h = self.nap(x, edges, weight)
        labels = response(y, source.derive('labels'), mask)
        # Columns are standardised: they are released, so that is free.
        h = (h - h.mean(dim=0)) / h.std(dim=0).clamp(min=1e-6)
        self._released = h, to_csr(
            released, data.num_nodes, h.new_ones(released.size(1)))
        self._train(labels, mask)
        return self

    def _edge_mechanism(self, edges: Tensor, num_nodes: int,
                        ) -> tuple[EdgeMechanism, Guarantee]:
        # The paper's scale is that of a node whose edges are replaced.
        neighbours = ('add-remove' if self.calibration == 'proven' else
                      'replace')
        mechanism = DegreePreservingRR(self.epsilons[1], 'node',
                                       self.max_degree, neighbours)
        if self.sampling:
            return mechanism, mechanism.guarantee
        pairs = self.max_degree * (1 if self.calibration == 'proven' else 2)
        plain = EdgeRand(math.nextafter(self.epsilons[1] / pairs, 0.0))
        count = 2 * plain.expected_edges(num_nodes, edges.size(1) // 2)
        if count > _MOST_EDGES:
            raise ValueError(f"'sampling' must be True for a graph of this "
                             f"size: without it, about {count:.3g} edges would "
                             f"be released (got False)")
        return plain, mechanism.guarantee

    def _influence(self, x: Tensor, edges: Tensor,
                   released: Tensor) -> Tensor:
        if self.calibration == 'paper':  # As published, from private data.
            public = x, edges
        else:
            log = degree(released[1], x.size(0)).log1p()
            public = torch.stack([torch.ones_like(log), log], dim=1), released
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
        degrees = edges.flatten().bincount(minlength=max(num_nodes, 1)) // 2
        if not torch.equal(edges, distinct_edges(edges.flip(0), num_nodes)):
            raise ValueError("'edge_index' must be undirected, with both "
                             "directions of every edge")
        if (edges[0] == edges[1]).any():
            raise ValueError("'edge_index' must not have self-loops")
        if int(degrees.max()) > self.max_degree:
            raise ValueError(
                f"'max_degree' must be at least {int(degrees.max())}: so many "
                f"edges has node {int(degrees.argmax())} (got "
                f"{self.max_degree}). BoundDegree(max_degree="
                f"{self.max_degree}) removes some")

    def __repr__(self) -> str:
        args = [str(self.in_channels), str(self.num_classes),
                f'epsilon={self.epsilon}', f'max_degree={self.max_degree}']
        shown = (('split', self.split, (1 / 3, 1 / 3, 1 / 3)),
                 ('hidden_channels', self.hidden_channels, 64),
                 ('hops', self.hops, 2),
                 ('projection', self.projection, None),
                 ('allocation', self.allocation, 'adaptive'),
                 ('sampling', self.sampling, True),
                 ('aggregation', self.aggregation, 'aca'),
                 ('calibration', self.calibration, 'proven'),
                 ('epochs', self.epochs, 60), ('lr', self.lr, 0.01),
                 ('mask', self.mask, 'train_mask'), ('seed', self.seed, None))
        args += [f'{name}={value!r}' for name, value, default in shown
                 if value != default]
        return f"{self.__class__.__name__}({', '.join(args)})"


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
