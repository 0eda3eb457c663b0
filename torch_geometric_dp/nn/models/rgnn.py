from typing import Any

import torch
from torch import Tensor

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.nn.forward_corrected_loss import ForwardCorrectedLoss
from torch_geometric_dp.nn.models.released import released_labels, with_labels
from torch_geometric_dp.nn.models.training import check_fitted, fit_early
from torch_geometric_dp.nn.proportion_loss import ProportionLoss, metis_bags
from torch_geometric_dp.transforms import (
    ReconstructFeatures,
    ReconstructLabels,
)


class RGNN(Captured, torch.nn.Module):
    r"""The reconstruction-based GNN of Bhaila et al. ("Local Differential
    Privacy in Graph Neural Networks: a Reconstruction Approach"), around any
    GNN.

    It takes a graph whose features were released by :class:`GRRFS` and whose
    labels were released by :class:`LabelRR`; the edges are public. Features and
    labels are estimated from neighbourhoods (:class:`ReconstructFeatures`,
    :class:`ReconstructLabels`), and the GNN minimises

    .. math::
        \mathcal{L} = \mathcal{L}_{\mathrm{gnn}} +
        \alpha \, \mathcal{L}_{\mathrm{llp}},

    the cross-entropy of the estimated labels and the :class:`ProportionLoss`
    over bags of nodes. It stops early by the :class:`ForwardCorrectedLoss` of
    the released labels of :obj:`data.val_mask`, which have no other part in
    the training. No true label is read, and nothing is spent.

    Args:
        gnn (torch.nn.Module): Any GNN that is called with :obj:`x` and
            :obj:`edge_index` and has :obj:`reset_parameters`, such as those in
            :mod:`torch_geometric.nn.models`.
        hops_x (int, optional): The number of hops for the features;
            :obj:`None` takes them as they are. (default: :obj:`16`)
        hops_y (int, optional): The number of hops for the labels;
            :obj:`None` takes them as they are. (default: :obj:`16`)
        alpha (float, optional): The weight of the label proportions.
            (default: :obj:`1.0`)
        num_bags (int, optional): The number of bags. (default: :obj:`32`)
        **kwargs (optional): How to train: :obj:`epochs`, :obj:`lr`,
            :obj:`weight_decay`, :obj:`patience`.

    .. code-block:: python

        from torch_geometric.nn import GraphSAGE
        data.x = (data.x > 0.5).float()
        data.val_mask = torch.arange(30) >= 20
        private = GRRFS(epsilon=4.0, num_sampled=2, domain_sizes=2)(data)
        private = LabelRR(epsilon=2.0, num_classes=7)(private)
        model = RGNN(GraphSAGE(4, 16, num_layers=2, out_channels=7), epochs=5)
        model.fit(private).predict(private).shape   # torch.Size([30])
    """
    fitted: Tensor

    def __init__(self, gnn: torch.nn.Module, hops_x: int | None = 16,
                 hops_y: int | None = 16, alpha: float = 1.0,
                 num_bags: int = 32, **kwargs: Any) -> None:
        super().__init__()
        if not alpha >= 0:
            raise ValueError(f"'alpha' must be zero or more (got {alpha})")
        self.gnn = gnn
        self.hops_x, self.hops_y = hops_x, hops_y
        self.alpha = float(alpha)
        self.num_bags = check_integer('num_bags', num_bags, 1)
        self.training_arguments = kwargs
        self.register_buffer('fitted', torch.tensor(False))

    def reset_parameters(self) -> None:
        """Forgets what was learnt."""
        self.gnn.reset_parameters()  # type: ignore[operator]
        self.fitted.fill_(False)

    def features(self, data: Any) -> Tensor:
        """The features as the GNN sees them: estimated, and all on one scale,
        since many hops leave little of it.
        """
        if self.hops_x is not None:
            data = ReconstructFeatures(self.hops_x)(data)
        x: Tensor = data.x.float()
        x = x - x.mean(dim=0)
        return x / x.std(dim=0, correction=0).clamp(min=1e-6)

    def targets(self, data: Any, y: Tensor) -> Tensor:
        """The labels to learn from, given those that were released."""
        if self.hops_y is None:
            return y
        estimate: Tensor = ReconstructLabels(self.hops_y)(
            with_labels(data, y)).y
        return estimate

    def fit(self, data: Any) -> 'RGNN':
        """Trains the GNN on a released graph."""
        released, response = released_labels(data)
        if data.get('val_mask') is None:
            raise ValueError("'val_mask' is missing: the released labels that "
                             "it selects decide when to stop")
        y = released.masked_fill(data.val_mask, -1)
        held_out = released.masked_fill(~data.val_mask, -1)
        for name, part in (('outside', y), ('inside', held_out)):
            if not (part >= 0).any():
                raise ValueError(f"'y' must hold at least one released label "
                                 f"{name} 'val_mask' (got none)")
        targets = self.targets(data, y)
        noise = response.epsilon, response.num_classes
        corrected = ForwardCorrectedLoss(*noise).to(y.device)
        bags = metis_bags(data.edge_index, data.num_nodes, self.num_bags)
        proportions = ProportionLoss(bags.to(y.device), *noise)

        def loss(out: Tensor) -> Tensor:
            value = torch.nn.functional.cross_entropy(out, targets,
                                                      ignore_index=-1)
            if self.alpha > 0:
                value = value + self.alpha * proportions(out, y)
            return value

        fit_early(self.gnn, (self.features(data), data.edge_index), loss,
                  lambda out: corrected(out, held_out),
                  **self.training_arguments)
        self.fitted.fill_(True)
        return self

    @torch.no_grad()
    def forward(self, data: Any) -> Tensor:
        """The scores of all classes at all nodes of a released graph."""
        check_fitted(self)
        self.gnn.eval()
        scores: Tensor = self.gnn(self.features(data), data.edge_index)
        return scores

    def predict(self, data: Any) -> Tensor:
        """The class of each node of a released graph."""
        scores: Tensor = self(data)
        return scores.argmax(dim=-1)
