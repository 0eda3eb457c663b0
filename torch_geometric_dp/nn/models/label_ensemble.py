r"""Released labels and public features: what diffusion, networks on rows and
networks on the graph say, weighed by labels that were held out.

Labels were released by randomized response with the known matrix :math:`T`.
Four parts are fitted to them, each once for each fold of the labels, without
that fold:

1. :class:`LabelDiffusion`, which reads no features,
2. a GNN, and
3. a network on rows alone, both with the forward-corrected loss, and
4. a GNN that is taught what the diffusion believes of *all* nodes: a target
   with much less noise than the released labels, if one that is blurred.

So each released label has a prediction :math:`P_k(\cdot \mid v)` of each part
that has not seen it, and with :math:`\pi`, the shares of the classes,

.. math::
    \log P(y_v = j) = \log \pi_j + \sum_k w_k \log
    \frac{P_k(j \mid v)}{\pi_j} + \mathrm{const}, \qquad
    \max_{w \geq 0} \sum_v \log \sum_j T_{j \tilde y_v} P(y_v = j)
    - \lambda \Vert w - \tfrac14 \Vert^2 .

**Caution.** If neither features nor edges tell anything of the labels, then the
likelihood ratio of a part and of the shares, over the labels of one fold, has
mean 1, whatever the part is: it is a ratio of two distributions of these
labels, of which the second is the true one. By Markov's inequality, a mean of
such ratios is above 20 in at most one case out of 20. So the shares, and with
them the class that most released labels show, are what is predicted until the
mean ratio of the four parts is larger. (Over all folds at once this is a rule,
and not a theorem, since the parts of one fold have seen the labels of the
others, and the number of epochs and the shares are fitted to all of them.)

Nothing but released labels and public fields is read, so that all of this is
post-processing: nothing is spent.
"""
import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import to_undirected

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.accountant import PrivacyAccountant, Unit
from torch_geometric_dp.graph.sparse import by_target, to_csr
from torch_geometric_dp.nn.forward_corrected_loss import ForwardCorrectedLoss
from torch_geometric_dp.nn.models.label_diffusion import (
    LabelDiffusion,
    ReleasedLabels,
    fit_weights,
)
from torch_geometric_dp.nn.models.training import check_fitted
from torch_geometric_dp.release import verify

_RIDGE = 0.3
_SPARSE = 0.2  # A smaller share of entries that are not zero is sparse.
_READ = {'x': Unit.FEATURES, 'edge_index': Unit.EDGES}
Loss = Callable[[Tensor, int], Tensor]


class LabelEnsemble(Captured, torch.nn.Module):
    r"""Predicts labels from released labels, public features and the public
    graph. It weighs what :class:`LabelDiffusion`, a GNN and a network on rows,
    both with :class:`ForwardCorrectedLoss`, and a GNN that is taught by the
    diffusion have to say, by how well they predict released labels that they
    were not shown. Until these tell that any of them knows more than the shares
    of the classes, it predicts the class that most released labels show.

    It takes a graph whose labels were released by :class:`LabelRR`. No true
    label is read, and nothing is spent. :obj:`privacy` is the ledger of the
    graph, which says what was read raw and taken as public: features and edges
    that no release covers.

    Args:
        in_channels (int): The number of features.
        num_classes (int): The number of classes.
        hidden_channels (int, optional): The width of the networks.
            (default: :obj:`32`)
        gnn (torch.nn.Module, optional): Any GNN that is called with :obj:`x`
            and :obj:`edge_index`, returns scores of all classes, and has
            :obj:`reset_parameters`, in place of a GCN with two layers.
            (default: :obj:`None`)
        folds (int, optional): The number of folds. (default: :obj:`5`)
        epochs (int, optional): The largest number of epochs; of these, the best
            one for the labels that were held out counts.
            (default: :obj:`80`)
        lr (float, optional): The learning rate. (default: :obj:`0.02`)
        weight_decay (float, optional): The weight decay.
            (default: :obj:`5e-4`)
        patience (int, optional): For how many epochs to go on without
            progress. (default: :obj:`15`)
        caution (float, optional): How many times more likely the parts must
            make the released labels than the shares of the classes do, in the
            mean. (default: :obj:`20.0`)

    .. code-block:: python

        private = LabelRR(epsilon=2.0, num_classes=7, mask='train_mask')(data)
        model = LabelEnsemble(in_channels=4, num_classes=7, epochs=5)
        model.fit(private).predict(private).shape   # torch.Size([30])
        model.weight.shape                          # torch.Size([4])
        model.privacy.epsilon('labels')             # 2.0
        len(model.privacy.public('features'))       # 1
    """
    weight: Tensor
    safe: Tensor
    fitted: Tensor

    def __init__(self, in_channels: int, num_classes: int,
                 hidden_channels: int = 32, gnn: torch.nn.Module | None = None,
                 folds: int = 5, epochs: int = 80, lr: float = 0.02,
                 weight_decay: float = 5e-4, patience: int = 15,
                 caution: float = 20.0) -> None:
        super().__init__()
        self.in_channels = check_integer('in_channels', in_channels, 1)
        self.num_classes = check_integer('num_classes', num_classes, 2)
        self.hidden_channels = check_integer('hidden_channels',
                                             hidden_channels, 1)
        self.folds = check_integer('folds', folds, 2)
        self.epochs = check_integer('epochs', epochs, 1)
        self.lr, self.weight_decay = float(lr), float(weight_decay)
        self.patience = check_integer('patience', patience, 1)
        if not caution >= 1:
            raise ValueError(f"'caution' must be one or more (got {caution})")
        self.caution = float(caution)
        self.plain = gnn is None
        rows = SparseNetwork(in_channels, hidden_channels, num_classes)
        if gnn is None:
            gnn = rows
        self.diffusion = LabelDiffusion()
        self.gnns, self.rows, self.students = (
            torch.nn.ModuleList(copy.deepcopy(part) for _ in range(folds))
            for part in (gnn, rows, gnn))
        self.register_buffer('weight', torch.full((4, ), 0.25))
        self.register_buffer('safe', torch.tensor(True))
        self.register_buffer('fitted', torch.tensor(False))
        #: The ledger of the graph, and what was taken as public.
        self.privacy = PrivacyAccountant()

    def reset_parameters(self) -> None:
        """Forgets what was learnt."""
        self.diffusion.reset_parameters()
        for part in (*self.gnns, *self.rows, *self.students):
            part.reset_parameters()
        self.weight.fill_(0.25)
        self.safe.fill_(True)
        self.fitted.fill_(False)
        self.privacy = PrivacyAccountant()

    def fit(self, data: Any) -> 'LabelEnsemble':
        """Fits all parts and their weights to the released labels."""
        labels = self._labels(data)
        with torch.random.fork_rng(devices=()):  # The same every time.
            torch.manual_seed(0)
            self.reset_parameters()
            fold = _folds(labels, self.folds)
            self._fit(data, labels, fold)
        ledger = PrivacyAccountant.of(data)
        states = verify(ledger, data)
        raw = tuple((name, unit) for name, unit in _READ.items()
                    if states.get(name) in ('raw', 'changed'))
        self.privacy = ledger.rewrite(ledger.find('y', 'LabelRR'), (),
                                      repr(self), raw)
        self.fitted.fill_(True)
        return self

    def _fit(self, data: Any, labels: ReleasedLabels, fold: Tensor) -> None:
        n = torch.arange(len(fold), device=fold.device)
        graph, rows = self._inputs(data)
        corrected = _Likelihood(labels, fold)
        believed = self.diffusion.fit(data).held_out(data, fold)
        taught = believed.exp()

        def teach(out: Tensor, world: int) -> Tensor:
            return torch.nn.functional.cross_entropy(out, taught[:, world])

        parts = [believed[n, fold]]
        for models, inputs, loss in (
                (self.gnns, graph, corrected.loss),
                (self.rows, rows, corrected.loss),
                (self.students, graph, teach)):
            parts.append(self._cross_fit(models, inputs, loss, corrected))
        evidence = torch.stack(parts, dim=-1) - labels.prior[:, None].log()
        fit_weights(self.weight, evidence[labels.released], labels, _RIDGE)
        gains = torch.stack([corrected.gain(part) for part in parts])
        ratio = gains.logsumexp(dim=0) - math.log(len(parts))
        self.safe.fill_(bool(ratio <= math.log(self.caution)))

    def _cross_fit(self, models: torch.nn.ModuleList, inputs: tuple[Any, ...],
                   loss: Loss, corrected: '_Likelihood') -> Tensor:
        # Trains a model for each fold, without it, and returns what each says
        # of its own. The number of epochs is one for all of them: the choice
        # of it is worth little to any label.
        optimizers = [torch.optim.Adam(model.parameters(), lr=self.lr,
                                       weight_decay=self.weight_decay)
                      for model in models]
        best, waited = -math.inf, 0
        state, held_out = copy.deepcopy(models.state_dict()), torch.empty(0)
        for _ in range(self.epochs):
            out = []
            for world, (model, optimizer) in enumerate(zip(models,
                                                           optimizers)):
                model.train()
                optimizer.zero_grad()
                loss(model(*inputs), world).backward()  # type: ignore
                optimizer.step()
                model.eval()
                with torch.no_grad():
                    out.append(model(*inputs).log_softmax(dim=-1))
            own = corrected.own(torch.stack(out, dim=1))
            value, waited = float(corrected.gain(own)), waited + 1
            if value > best:
                best, waited, held_out = value, 0, own
                state = copy.deepcopy(models.state_dict())
            if waited > self.patience:
                break
        models.load_state_dict(state)
        return held_out

    @torch.no_grad()
    def forward(self, data: Any) -> Tensor:
        """The log-probabilities of all classes at all nodes."""
        check_fitted(self)
        labels = self._labels(data)
        prior = labels.prior.log()
        if self.safe:
            return prior.expand(len(labels.y), -1)
        graph, rows = self._inputs(data)
        parts = [self.diffusion(data)]
        for models, inputs in ((self.gnns, graph), (self.rows, rows),
                               (self.students, graph)):
            chance = torch.zeros(())
            for model in models:
                model.eval()
                chance = chance + model(*inputs).softmax(dim=-1)
            parts.append((chance / len(models)).clamp(min=1e-9).log())
        evidence = torch.stack(parts, dim=-1) - prior[:, None]
        return (prior + evidence @ self.weight).log_softmax(dim=-1)

    def predict(self, data: Any) -> Tensor:
        """The class of each node of a released graph."""
        scores: Tensor = self(data)
        return scores.argmax(dim=-1)

    def _labels(self, data: Any) -> ReleasedLabels:
        labels = ReleasedLabels(data)
        if labels.response.num_classes != self.num_classes:
            raise ValueError(f"'y' must hold labels of {self.num_classes} "
                             f"classes, as 'num_classes' says (got a release "
                             f"of {labels.response.num_classes})")
        x = data.get('x')
        if x is None or x.dim() != 2 or x.size(1) != self.in_channels:
            shape = None if x is None else list(x.shape)
            raise ValueError(f"'x' must have {self.in_channels} columns, as "
                             f"'in_channels' says (got {shape})")
        # If the shares cannot be told from equal ones, the class that most of
        # the released labels show is still the one to name.
        labels.prior = (labels.prior + 1e-3 * labels.share) / (1 + 1e-3)
        return labels

    def _inputs(self, data: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        # What the GNNs are called with, and what the networks on rows are.
        graph = sparse_inputs(data)
        if self.plain:
            return graph, graph[:2]
        x = torch.nn.functional.normalize(data.x.float(), dim=1)
        return (x, data.edge_index), graph[:2]


class SparseNetwork(torch.nn.Module):
    """A network of two layers on rows, or, with an adjacency, a GCN. Products
    with sparse matrices are as fast backwards as they are forwards, since
    nothing is transposed on the way.
    """
    def __init__(self, in_channels: int, hidden_channels: int,
                 num_classes: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.dropout = dropout
        widths = in_channels, hidden_channels, num_classes
        self.weights, self.biases = (torch.nn.ParameterList(
            torch.nn.Parameter(torch.empty(shape)) for shape in shapes)
            for shapes in (list(zip(widths, widths[1:])), widths[1:]))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new weights."""
        for weight, bias in zip(self.weights, self.biases):
            torch.nn.init.xavier_uniform_(weight)
            torch.nn.init.zeros_(bias)

    def forward(self, x: Tensor, transposed: Tensor,
                adjacency: Tensor | None = None) -> Tensor:
        """The scores of all classes, given what :func:`sparse_inputs`
        returned.
        """
        (first, second), (one, two) = self.weights, self.biases

        def hop(rows: Tensor) -> Tensor:
            return rows if adjacency is None else _product(
                adjacency, adjacency, rows)

        rows = (hop(_product(x, transposed, first)) + one).relu()
        rows = torch.nn.functional.dropout(rows, self.dropout, self.training)
        out: Tensor = hop(rows @ second) + two
        return out


def sparse_inputs(data: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of norm 1, the same transposed, both sparse if most entries are
    zero, and the symmetric, normalised adjacency.
    """
    x = torch.nn.functional.normalize(data.x.float(), dim=1)
    transposed = x.t().contiguous()
    if (x != 0).float().mean() < _SPARSE:
        x, transposed = x.to_sparse_csr(), transposed.to_sparse_csr()
    n = data.num_nodes
    loops = torch.arange(n, device=x.device).expand(2, -1)
    edges = by_target(torch.cat(
        [to_undirected(data.edge_index, num_nodes=n), loops], dim=1), n)
    root = edges[1].bincount(minlength=n).rsqrt()
    return x, transposed, to_csr(edges, n, root[edges[0]] * root[edges[1]])


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor,
                rows: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ rows

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transposed @ grads[0]


def _product(matrix: Tensor, transposed: Tensor, rows: Tensor) -> Tensor:
    out: Tensor = _Product.apply(  # type: ignore[no-untyped-call]
        matrix, transposed, rows)
    return out


class _Likelihood:
    # How likely predictions make the labels that were released.
    def __init__(self, labels: ReleasedLabels, fold: Tensor) -> None:
        self.labels, self.fold = labels, fold
        response = labels.response
        matrix = ForwardCorrectedLoss(response.epsilon,
                                      response.num_classes).log_transition
        self.through = matrix.to(fold.device)[:, labels.y.clamp(min=0)].t()
        self.base = self._log(labels.prior.log())

    def _log(self, scores: Tensor) -> Tensor:
        value = (scores + self.through).logsumexp(dim=-1)
        return value * self.labels.released

    def loss(self, out: Tensor, world: int) -> Tensor:
        # Of the labels of all other folds.
        there = (self.fold != world) & self.labels.released
        value = self._log(out.log_softmax(dim=-1)) * there
        return -value.sum() / there.sum().clamp(min=1)

    def own(self, scores: Tensor) -> Tensor:
        # Of shape [num_nodes, folds, num_classes]: what is said of each node
        # where its fold was left out.
        nodes = torch.arange(len(self.fold), device=self.fold.device)
        return scores[nodes, self.fold]

    def gain(self, scores: Tensor) -> Tensor:
        # The logarithm of the likelihood ratio against the shares.
        return (self._log(scores) - self.base).sum()


def _folds(labels: ReleasedLabels, folds: int) -> Tensor:
    # Released labels in equal parts, others anywhere.
    order = torch.randperm(len(labels.y)).to(labels.y.device)
    order = order[labels.released[order].argsort(stable=True)]
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(order), device=order.device) % folds
    return fold
