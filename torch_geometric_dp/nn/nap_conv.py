from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.typing import Adj

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp.accountant import Guarantee, PrivacyAccountant
from torch_geometric_dp.mechanisms.mechanism import Canary
from torch_geometric_dp.nn.nap import NAP


class NAPConv(Captured, torch.nn.Module):
    r"""A private sum over neighbours and a linear map, to take the place of
    :obj:`SAGEConv` or :obj:`GCNConv` as the first layer of a model.

    .. math::
        \mathbf{h}_u = \mathbf{W} \, \textrm{NAP}(\mathbf{X}, E)_u + \mathbf{b}

    The sum is released once, and the map is trained on the release: any number
    of epochs costs what one costs. A node's own row is private, too, and has no
    part in its output, other than through a self-loop. Layers behind this one
    must not see raw edges: give them released ones, or none, and let
    :func:`~torch_geometric_dp.nn.check_private` find out whether they do.

    Args:
        in_channels (int): The number of columns of the input, or :obj:`-1` to
            learn it from the first input.
        out_channels (int): The number of columns of the output.
        epsilon (float): The privacy loss of one unit, over all hops.
        max_degree (int, optional): The largest number of edges that come into,
            and that go out of, a node; a public number.
            (default: :obj:`None`)
        bias (bool, optional): If set to :obj:`False`, nothing is added to the
            output. (default: :obj:`True`)
        **kwargs (optional): Further arguments of
            :class:`~torch_geometric_dp.nn.NAP`.

    Shapes:
        - **input:** features :math:`(|\mathcal{V}|, F_{in})`, edge indices
          :math:`(2, |\mathcal{E}|)` or the transposed sparse matrix.
        - **output:** :math:`(|\mathcal{V}|, F_{out})`.

    .. code-block:: python

        conv = NAPConv(4, 16, epsilon=4.0, max_degree=50)
        h = conv(data.x, data.edge_index).relu()
        conv.privacy.epsilon('node')   # 4.0
    """
    def __init__(self, in_channels: int, out_channels: int, epsilon: float,
                 max_degree: int | None = None, bias: bool = True,
                 **kwargs: Any) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.nap = NAP(epsilon, max_degree, **kwargs)
        self.epsilon, self.max_degree = self.nap.epsilon, self.nap.max_degree
        columns = in_channels * self.nap.hops if in_channels > 0 else -1
        self.lin = Linear(columns, out_channels, bias=bias,
                          weight_initializer='glorot')
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forgets what the map has learned, but not what was released."""
        self.lin.reset_parameters()

    @property
    def guarantee(self) -> Guarantee:
        """What all forward passes on one graph promise."""
        return self.nap.guarantee

    def canaries(self, data: Any | None = None) -> Sequence[Canary]:
        """The stars that are told apart best, with as many columns."""
        return self.nap.mechanism.canaries(
            max(self.in_channels, 1) if data is None or data.x is None else
            data.x.size(1))

    @property
    def privacy(self) -> PrivacyAccountant:
        """The ledger of all that this layer has released."""
        return self.nap.privacy

    def renew(self) -> 'NAPConv':
        """Makes the next forward pass a new release, which costs again.
        Returns the layer itself.
        """
        self.nap.renew()
        return self

    def forward(self, x: Tensor, edge_index: Adj,
                edge_weight: Tensor | None = None) -> Tensor:
        """Maps what :class:`NAP` releases."""
        if edge_weight is not None:
            raise ValueError("'edge_weight' must be None: a weighted sum has "
                             "another sensitivity")
        out: Tensor = self.lin(self.nap(x, edge_index))
        return out
