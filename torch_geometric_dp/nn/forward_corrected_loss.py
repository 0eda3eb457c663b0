import torch
from torch import Tensor

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp.mechanisms import RandomizedResponse


class ForwardCorrectedLoss(Captured, torch.nn.Module):
    r"""The cross-entropy of labels with known noise: what the model says of
    the true label, sent through the transition matrix :math:`T` of
    :class:`LabelRR`, is compared with the label that was released,

    .. math::
        \ell = - \frac{1}{n} \sum_v \log \sum_j T_{j \tilde{y}_v}
        \mathrm{softmax}(h_v)_j .

    With enough data, the minimiser is the model of the true labels: :math:`T`
    can be inverted, so the noisy labels have the right distribution only if
    the true ones do. It reads released labels alone, and costs nothing.

    Args:
        epsilon (float): The privacy loss of one label, as in :class:`LabelRR`.
        num_classes (int): The number of classes :math:`c`.

    Shapes:
        - **input:** scores :math:`h` of shape :obj:`[num_nodes, num_classes]`,
          and released labels :math:`\tilde{y}` of shape :obj:`[num_nodes]`;
          labels of :obj:`-1` were not released, and are left out
        - **output:** a scalar

    .. code-block:: python

        private = LabelRR(epsilon=1.0, num_classes=7, mask='train_mask')(data)
        loss = ForwardCorrectedLoss(epsilon=1.0, num_classes=7)
        loss(torch.zeros(30, 7), private.y)   # tensor(1.9459)
    """
    def __init__(self, epsilon: float, num_classes: int) -> None:
        super().__init__()
        response = RandomizedResponse(epsilon, num_classes)
        self.epsilon = response.epsilon
        self.num_classes = response.num_classes
        matrix = response.transition_matrix().log().float()
        self.register_buffer('log_transition', matrix, persistent=False)
        self.log_transition: Tensor

    def forward(self, scores: Tensor, y: Tensor) -> Tensor:
        """The mean loss over all nodes with a released label."""
        scores, y = select_released(scores, y, self.num_classes)
        through = scores.log_softmax(dim=-1) + self.log_transition[:, y].t()
        return -through.logsumexp(dim=-1).mean()


def select_released(scores: Tensor, y: Tensor,
                    num_classes: int) -> tuple[Tensor, Tensor]:
    """The rows whose label was released."""
    if scores.dim() != 2 or scores.size(1) != num_classes:
        raise ValueError(f"'scores' must have shape [num_nodes, {num_classes}] "
                         f"(got {list(scores.shape)})")
    if y.shape != scores.shape[:1] or y.is_floating_point():
        raise ValueError(f"'y' must hold one integer for each of the "
                         f"{len(scores)} rows of 'scores' (got {y.dtype} of "
                         f"shape {list(y.shape)})")
    released = y >= 0
    if not released.any():
        raise ValueError("'y' must hold at least one released label (got "
                         "unlabelled nodes only)")
    if int(y.max()) >= num_classes:
        raise ValueError(f"'y' must hold integers below {num_classes}, or -1 "
                         f"for what was not released (got {int(y.max())})")
    return scores[released], y[released]
