import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import Adj, SparseTensor
from torch_geometric.utils import spmm, to_torch_csr_tensor

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._validate import check_integer


class ACA(Captured, MessagePassing):
    r"""The adaptive calibrated aggregation of `NIP-GNN` (Eq. 14 and 15): hops
    of a normalised mean that keep close to where they started.

    .. math::
        \mathbf{M}^{k} &= \hat{\mathbf{D}}^{-1/2} (\mathbf{A} + \mathbf{I})
        \hat{\mathbf{D}}^{-1/2} \mathbf{H}^{k} \\
        \gamma_u &= \max \Big(1 - \frac{\tau}{\|\mathbf{M}_u^{k} -
        \mathbf{H}_u^0\|_2}, \, 0 \Big) \\
        \mathbf{H}_u^{k+1} &= (1 - \gamma_u) \mathbf{H}_u^0 +
        \gamma_u \mathbf{M}_u^{k}

    A node moves towards its neighbours, by :math:`\tau` less than all the way,
    or stays if it is no further away than that. (The paper's text says that
    distant neighbours count less; its formula, and this layer, has them count
    more.) On released embeddings and edges all of it is free of charge.

    Args:
        hops (int, optional): The number of hops. (default: :obj:`8`)
        tau (float, optional): The first value of the learnable :math:`\tau`.
            (default: :obj:`1.0`)
        cached (bool, optional): If set to :obj:`True`, the normalised edges of
            the first call are kept for all others: for one graph only.
            (default: :obj:`False`)

    Shapes:
        - **input:** embeddings :math:`(|\mathcal{V}|, F)`, edge indices
          :math:`(2, |\mathcal{E}|)` or the transposed sparse matrix.
        - **output:** :math:`(|\mathcal{V}|, F)`.

    .. code-block:: python

        layer = ACA(hops=8)
        h = layer(torch.randn(30, 4), data.edge_index)
    """
    def __init__(self, hops: int = 8, tau: float = 1.0,
                 cached: bool = False) -> None:
        super().__init__(aggr='sum')
        self.hops = check_integer('hops', hops, 0)
        self.initial_tau = float(tau)
        self.cached = bool(cached)
        self.tau = Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forgets what was learned, and the edges that were kept."""
        super().reset_parameters()
        torch.nn.init.constant_(self.tau, self.initial_tau)
        self._cached_edges: tuple[Any, Tensor | None] | None = None

    def forward(self, h0: Tensor, edge_index: Adj) -> Tensor:
        """Runs all hops."""
        edge_index, edge_weight = self._normalise(edge_index, h0)
        h = h0
        for _ in range(self.hops):
            h = self.move(h0, self.propagate(edge_index, x=h,
                                             edge_weight=edge_weight))
        return h

    def move(self, h0: Tensor, mean: Tensor) -> Tensor:
        r"""One step (Eq. 15): from where nodes started towards a mean, however
        that was found, by :math:`\tau` less than all the way.
        """
        step = mean - h0
        square = step.square().sum(dim=-1, keepdim=True)
        far = square > 0  # At distance zero, there is nowhere to go.
        distance = torch.where(far, square, 1.0).sqrt()
        gamma = (1 - self.tau / distance).clamp(min=0) * far
        out: Tensor = h0 + gamma * step
        return out

    def _normalise(self, edge_index: Adj,
                   h0: Tensor) -> tuple[Any, Tensor | None]:
        if self._cached_edges is not None:
            return self._cached_edges
        out = gcn_norm(edge_index, None, h0.size(0), dtype=h0.dtype)
        if isinstance(out, SparseTensor):
            out = out, None
        elif out[1] is not None and self._has_products(h0):
            # As a matrix: a hop then takes a tenth of the time, and memory for
            # nodes in place of edges.
            out = _transposed(out[0], out[1], h0.size(0)), None
        if self.cached:
            self._cached_edges = out
        return out[0], out[1]

    def _has_products(self, h0: Tensor) -> bool:
        # Explanations ask for messages, and torch has no sparse products of
        # half precision.
        return not self.explain and h0.dtype in (
            torch.float, torch.double) and not torch.is_autocast_enabled(
                h0.device.type)

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        """A neighbour's part of the mean."""
        return edge_weight.view(-1, 1) * x_j

    def message_and_aggregate(self, edge_index: Adj, x: Tensor) -> Tensor:
        """The mean, if the edges are a sparse matrix."""
        out: Tensor = spmm(edge_index, x, 'sum')
        return out


def _transposed(edge_index: Tensor, edge_weight: Tensor,
                num_nodes: int) -> Tensor:
    with warnings.catch_warnings():  # That such tensors are in beta state.
        warnings.simplefilter('ignore')
        matrix: Tensor = to_torch_csr_tensor(edge_index.flip(0), edge_weight,
                                             (num_nodes, num_nodes))
    return matrix
