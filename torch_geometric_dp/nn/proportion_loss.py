import numpy as np
import pymetis
import torch
from torch import Tensor
from torch_geometric.utils import scatter

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.graph.pairs import check_edge_index
from torch_geometric_dp.mechanisms import (
    RandomizedResponse,
    frequency_estimate,
    simplex_projection,
)
from torch_geometric_dp.nn.forward_corrected_loss import select_released


class ProportionLoss(Captured, torch.nn.Module):
    r"""Learning from label proportions, as in `RGNN`: in each bag of nodes, the
    mean prediction :math:`\hat{b}_r` is held against the reconstructed shares
    of the classes :math:`\tilde{b}_r`,

    .. math::
        \ell = \frac{1}{C} \sum_{r=1}^C \mathrm{KL} \left( \hat{b}_r \,\|\,
        \tilde{b}_r \right) .

    Both are taken over the nodes whose label was released; bags without one do
    not count. :math:`\tilde{b}_r` is the unbiased estimate from the released
    labels of the bag, projected onto the simplex. A class that it leaves out
    would make the divergence infinite, so it is mixed with the uniform
    distribution.

    Args:
        bags (torch.Tensor): The bag of each node, from public data: see
            :func:`metis_bags`.
        epsilon (float): The privacy loss of one label, as in :class:`LabelRR`.
        num_classes (int): The number of classes :math:`c`.
        floor (float, optional): The share of the uniform distribution that is
            mixed into :math:`\tilde{b}_r`. (default: :obj:`0.05`)

    Shapes:
        - **input:** scores of shape :obj:`[num_nodes, num_classes]` (before
          the softmax), and released labels of shape :obj:`[num_nodes]`, with
          :obj:`-1` for what was not released
        - **output:** a scalar

    .. code-block:: python

        private = LabelRR(epsilon=1.0, num_classes=7, mask='train_mask')(data)
        bags = metis_bags(data.edge_index, num_nodes=30, num_bags=4)
        loss = ProportionLoss(bags, epsilon=1.0, num_classes=7)
        loss(torch.zeros(30, 7), private.y)
    """
    def __init__(self, bags: Tensor, epsilon: float, num_classes: int,
                 floor: float = 0.05) -> None:
        super().__init__()
        if bags.dim() != 1 or bags.is_floating_point() or (bags < 0).any():
            raise ValueError(f"'bags' must hold the number of the bag of each "
                             f"node, from 0 on (got {bags.dtype} of shape "
                             f"{list(bags.shape)})")
        if not 0 < floor < 1:
            raise ValueError(f"'floor' must lie between 0 and 1 (got {floor})")
        self.response = RandomizedResponse(epsilon, num_classes)
        self.epsilon = self.response.epsilon
        self.num_classes = self.response.num_classes
        self.floor = float(floor)
        self.register_buffer('bags', bags, persistent=False)
        self.bags: Tensor

    def proportions(self, y: Tensor, bags: Tensor) -> Tensor:
        """The shares of the classes in each bag, from released labels."""
        one_hot = torch.nn.functional.one_hot(y, self.response.num_classes)
        counts = scatter(one_hot.float(), bags, reduce='sum')
        estimate = frequency_estimate(counts, float(self.response.keep),
                                      float(self.response.other))
        return simplex_projection(estimate).lerp(
            torch.full_like(estimate, 1 / estimate.size(1)), self.floor)

    def forward(self, scores: Tensor, y: Tensor) -> Tensor:
        """The mean loss over all bags with a released label."""
        rows, labels = select_released(scores, y, self.response.num_classes)
        if len(self.bags) != len(y):
            raise ValueError(f"'y' must have one row for each of the "
                             f"{len(self.bags)} nodes in 'bags' (got {len(y)})")
        _, bags = torch.unique(self.bags[y >= 0], return_inverse=True)
        target = self.proportions(labels, bags)
        guess = scatter(rows.softmax(dim=-1), bags, reduce='mean')
        return torch.nn.functional.kl_div(
            target.log(), guess.clamp(min=1e-12).log(), log_target=True,
            reduction='batchmean')


def metis_bags(edge_index: Tensor, num_nodes: int, num_bags: int,
               seed: int = 0) -> Tensor:
    """Bags of about equally many nodes with few edges between them, by METIS
    from the public graph.

    Args:
        edge_index (torch.Tensor): The edges, in any direction.
        num_nodes (int): The number of nodes.
        num_bags (int): The number of bags, of which METIS may leave some
            empty.
        seed (int, optional): METIS makes random choices; another seed gives
            others. (default: :obj:`0`)

    .. code-block:: python

        metis_bags(data.edge_index, num_nodes=30, num_bags=4).shape
        # torch.Size([30])
    """
    check_integer('num_bags', num_bags, 1)
    check_edge_index(edge_index, num_nodes)
    if num_bags == 1 or num_nodes <= 1:
        return torch.zeros(num_nodes, dtype=torch.long)
    ends = torch.cat([edge_index, edge_index.flip(0)], dim=1).cpu()
    ends = torch.unique(ends[:, ends[0] != ends[1]], dim=1)
    first = torch.zeros(num_nodes + 1, dtype=torch.long)
    first[1:] = ends[0].bincount(minlength=num_nodes).cumsum(0)
    graph = pymetis.CSRAdjacency(first.numpy(), ends[1].numpy())
    _, part = pymetis.part_graph(num_bags, graph,
                                 options=pymetis.Options(seed=seed))
    return torch.from_numpy(np.asarray(part, dtype=np.int64))
