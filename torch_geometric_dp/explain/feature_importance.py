import inspect
from typing import Any

import torch
import torch.nn.functional as F
from captum.attr import DeepLiftShap, GradientShap, ShapleyValueSampling
from torch import Tensor

METHODS = ('gradient_shap', 'shapley', 'deep_lift_shap')


def feature_importance(model: torch.nn.Module, data: Any,
                       method: str = 'gradient_shap',
                       baseline: Tensor | None = None,
                       num_samples: int = 25,
                       progress: bool = False) -> Tensor:
    r"""How much each column of :obj:`data.x` matters to a model's decisions
    (HeteroRR, Eq. 6): the mean magnitude of its Shapley values, by Captum,
    normalised to sum to one. Compute it on public data with a public model: on
    private data, it tells about it.

    Args:
        model (torch.nn.Module): A classifier: either a head :obj:`model(x)`
            or a GNN :obj:`model(x, edge_index)`.
        data (Data): Public rows :obj:`x`, the nodes to explain in
            :obj:`train_mask` (all, if there is none), and :obj:`edge_index`
            for a GNN. A node's score is the model's log-probability of its
            label :obj:`y`, or of the predicted class if there is none.
        method (str, optional): :obj:`"gradient_shap"`, for a head or a GNN;
            :obj:`"shapley"`, sampled Shapley values of whole columns, with the
            columns as players: needs no gradients, but
            :obj:`num_samples * num_features` runs over the graph; or
            :obj:`"deep_lift_shap"`, for a head of linear layers and
            activations. (default: :obj:`"gradient_shap"`)
        baseline (Tensor, optional): The row that stands for a column that is
            absent. By default, the mean of the public rows.
            (default: :obj:`None`)
        num_samples (int, optional): How many samples Captum draws.
            (default: :obj:`25`)
        progress (bool, optional): If set to :obj:`True`, shows a progress bar
            where Captum has one. (default: :obj:`False`)

    .. code-block:: python

        data = DigitsGraph()[0]
        head = torch.nn.Linear(64, 10)
        alpha = feature_importance(head, data)
        alpha.shape   # torch.Size([64])
    """
    if method not in METHODS:
        raise ValueError(f"'method' must be one of {METHODS} (got {method!r})")
    x = data.x.detach()
    if baseline is None:
        baseline = x.mean(dim=0)
    training = model.training
    model.eval()
    score = _Score(model, data)
    absent = baseline.detach().expand_as(x)
    if method == 'gradient_shap':
        out = GradientShap(score).attribute(x[None], absent[None],
                                            n_samples=num_samples)
        out = out[0].abs().mean(dim=0)
    elif method == 'shapley':
        columns = torch.arange(x.size(1), device=x.device)
        out = ShapleyValueSampling(score).attribute(
            x[None], absent[None], feature_mask=columns.view(1, 1, -1),
            n_samples=num_samples, show_progress=progress)
        out = out[0, 0].abs()  # A player's value stands at all its cells.
    else:
        if 'edge_index' in data and _takes_edges(model):
            raise ValueError("method='deep_lift_shap' needs a head model(x), "
                             "which reads no edges (got a model that does)")
        out = DeepLiftShap(score.model).attribute(
            x[score.nodes], baseline.detach().expand(2, -1).contiguous(),
            target=score.target[score.nodes])
        out = out.abs().mean(dim=0)
    model.train(training)
    alpha: Tensor = out.detach()
    if not torch.isfinite(alpha).all() or alpha.sum() == 0:
        raise ValueError("'model' gives no finite importances: it ignores all "
                         "columns of 'x', or overflows")
    return alpha / alpha.sum()


class _Score(torch.nn.Module):
    # The mean log-probability of the nodes' classes, for each copy of a graph
    # in a batch of shape [copies, num_nodes, num_features].
    def __init__(self, model: torch.nn.Module, data: Any) -> None:
        super().__init__()
        self.model = model
        self.edges = (data.edge_index, ) if _takes_edges(model) else ()
        mask = data.get('train_mask')
        self.nodes = (torch.arange(data.num_nodes) if mask is None else
                      mask.nonzero().view(-1))
        self.target = data.get('y')
        if self.target is None or self.target.dim() != 1:
            with torch.no_grad():
                self.target = self.model(data.x, *self.edges).argmax(dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        scores = []
        for copy in x:
            out = F.log_softmax(self.model(copy, *self.edges), dim=-1)
            rows = out[self.nodes]
            target = self.target[self.nodes].view(-1, 1)
            scores.append(rows.gather(1, target).mean())
        return torch.stack(scores)


def _takes_edges(model: torch.nn.Module) -> bool:
    return 'edge_index' in inspect.signature(model.forward).parameters
