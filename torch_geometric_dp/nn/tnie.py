
import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import MLP
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import Adj
from torch_geometric.utils import degree, scatter

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.graph.adjacency import distinct_edges


class TNIE(Captured, MessagePassing):
    r"""The topology-based node influence estimator of `NIP-GNN` (Eq. 6 to 8).

    .. math::
        h_u^0 &= \textrm{MLP}(\mathbf{x}_u), \quad
        h_u^t = \sum_{v \to u} \frac{h_v^{t-1}}{\sqrt{D_u D_v}} \\
        s_u &= \sigma(\lambda \log D_u + \phi) \cdot h_u^T

    with a sigmoid :math:`\sigma`. A node without edges has the degree one in
    the logarithm.

    Its output is as private as what it reads. To weight the noise of
    :class:`~torch_geometric_dp.nn.NAP` with it, let it read public data, or a
    graph that was released before.

    Args:
        in_channels (int): The number of columns of the input.
        hidden_channels (int): The size of the hidden layer.
        hops (int, optional): The number of hops :math:`T`.
            (default: :obj:`2`)

    Shapes:
        - **input:** features :math:`(|\mathcal{V}|, F)`, edge indices
          :math:`(2, |\mathcal{E}|)` or the transposed sparse matrix.
        - **output:** scores :math:`(|\mathcal{V}|)`.

    .. code-block:: python

        public = data.x, data.edge_index    # say
        influence = TNIE(4, 16).fit(*public, epochs=5).rank(*public)
        h = NAP(epsilon=4.0, max_degree=50)(*public, influence)
    """
    def __init__(self, in_channels: int, hidden_channels: int,
                 hops: int = 2) -> None:
        super().__init__(aggr='sum')
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.hops = check_integer('hops', hops, 0)
        self.mlp = MLP([in_channels, hidden_channels, 1], norm=None)
        self.slope = Parameter(torch.empty(()))  # The paper's lambda,
        self.shift = Parameter(torch.empty(()))  # and its phi.
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forgets what was learned."""
        super().reset_parameters()
        self.mlp.reset_parameters()
        torch.nn.init.ones_(self.slope)
        torch.nn.init.zeros_(self.shift)

    def forward(self, x: Tensor, edge_index: Adj) -> Tensor:
        """The score of each node."""
        edges = distinct_edges(edge_index, x.size(0))
        source, target = edges
        degrees = degree(target, x.size(0), x.dtype).clamp(min=1)
        edge_weight = (degrees[source] * degrees[target]).rsqrt()
        h = self.mlp(x)
        for _ in range(self.hops):
            h = self.propagate(edges, x=h, edge_weight=edge_weight)
        centrality = (self.slope * degrees.log() + self.shift).sigmoid()
        scores: Tensor = centrality * h.view(-1)
        return scores

    def fit(self, x: Tensor, edge_index: Adj, target: Tensor | None = None,
            epochs: int = 200, lr: float = 0.01) -> 'TNIE':
        """Fits the scores to a public target, by the squared error.

        Args:
            x (torch.Tensor): Public features.
            edge_index (torch.Tensor or SparseTensor): Public edges.
            target (torch.Tensor, optional): The influence of each node. By
                default, the logarithm of one plus its PageRank over the mean
                one. (default: :obj:`None`)
            epochs (int, optional): The number of steps.
                (default: :obj:`200`)
            lr (float, optional): The learning rate of Adam.
                (default: :obj:`0.01`)
        """
        if target is None:
            edges = distinct_edges(edge_index, x.size(0))
            target = (pagerank(edges, x.size(0)) * x.size(0)).log1p().to(x)
        if target.shape != (x.size(0), ):
            raise ValueError(f"'target' must have shape [{x.size(0)}], one "
                             f"number for each node (got "
                             f"{list(target.shape)})")
        optimizer = torch.optim.Adam(self.parameters(), lr=lr)
        for _ in range(epochs):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self(x, edge_index), target)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return self

    @torch.no_grad()
    def rank(self, x: Tensor, edge_index: Adj) -> Tensor:
        """How many nodes have no larger a score: the number of nodes for the
        most influential one. Equal scores have equal ranks.
        """
        score = self(x, edge_index)
        order = score.sort().values
        return torch.searchsorted(order, score, right=True).to(score.dtype)

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        """A neighbour's part of the sum."""
        return edge_weight.view(-1, 1) * x_j


def pagerank(edge_index: Tensor, num_nodes: int, damping: float = 0.85,
             steps: int = 100) -> Tensor:
    """The PageRank of each node, by the power method."""
    source, target = edge_index
    degrees = degree(source, num_nodes, torch.double)
    start = torch.full_like(degrees, 1 / max(num_nodes, 1))
    rank = start
    for _ in range(steps):
        lost = rank[degrees == 0].sum()  # Who has no way out goes anywhere.
        share = (rank / degrees.clamp(min=1))[source]
        heard = scatter(share, target, dim_size=num_nodes, reduce='sum')
        rank = damping * (heard + lost * start) + (1 - damping) * start
    return rank
