r"""Noisy labels, diffused over a public graph to many depths at once.

A released label, less its bias, is an unbiased and very noisy estimate
:math:`z_u` of how the node's label differs from the average one. Over
:math:`k` hops,

.. math::
    e^k_v = \sum_u w^k_{vu} z_u, \quad w^k_{vu} = \frac{S^k_{vu}}
    {\sum_{u'} S^k_{vu'}}, \qquad \text{has variance} \qquad
    \sigma^2 \sum_u (w^k_{vu})^2,

where the sums are over released labels and :math:`\sigma^2` is known. Few hops
leave the noise, many hops blur the classes. So each depth only adds what the
next deeper one has blurred, :math:`d^k_v = e^k_v - e^{k'}_v`, whose noise
:math:`\nu^k_v` is known as well, and how much of that to believe follows from
epsilon and from the graph: with a signal of variance :math:`\tau^2`, the best
linear estimate is :math:`d^k_v \, \tau^2 / (\tau^2 + \nu^k_v)`. All depths are
given equal shares of the variance of a label as their :math:`\tau^2`. What is
left, one weight for each depth, is fitted to the released labels themselves:
each is predicted from the labels of the other folds, and compared by the
forward-corrected likelihood. The shares of the classes, too, are taken to be
as unequal as can be told from noise, and no more.

The prediction, together with a node's own label, is a much better label than
the released one; so it is diffused once more, over fewer hops, and all weights
are fitted again.
"""
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import to_undirected

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.graph.propagation import (
    mean_adjacency,
    propagate,
)
from torch_geometric_dp.mechanisms import frequency_estimate
from torch_geometric_dp.nn.forward_corrected_loss import ForwardCorrectedLoss
from torch_geometric_dp.nn.models.released import released_labels
from torch_geometric_dp.nn.models.training import check_fitted

_PROBES = 8  # Random signs that measure the sum of squared weights.


class LabelDiffusion(Captured, torch.nn.Module):
    r"""Predicts labels from released labels and the public graph alone: these
    are diffused over several numbers of hops, split into what each depth adds
    to the next deeper one, shrunk by what epsilon and the graph say about their
    noise, and added up as

    .. math::
        \log P(y_v = j) = \log \pi_j + c \sum_k w_k
        \frac{\tau^2}{\tau^2 + \nu^k_v} \, d^k_{vj} + \mathrm{const},

    where :math:`\pi` are the shares of the classes. The result is diffused
    once more, and added. The weights :math:`w_k \geq 0` are fitted to the
    released labels, by folds and with their noise accounted for.

    It reads no features, so that none need to be released. No true label is
    read, and nothing is spent.

    Args:
        hops (sequence of ints, optional): The numbers of hops.
            (default: :obj:`(1, 2, 4, 8, 16, 32, 64)`)
        smooth_hops (sequence of ints, optional): The numbers of hops of the
            second time. (default: :obj:`(1, 2, 4, 8)`)
        folds (int, optional): The number of folds. (default: :obj:`5`)
        ridge (float, optional): How strongly the weights are held near where
            they start, 1 and 0.3. (default: :obj:`0.3`)

    .. code-block:: python

        private = LabelRR(epsilon=2.0, num_classes=7, mask='train_mask')(data)
        model = LabelDiffusion().fit(private)
        model.predict(private).shape        # torch.Size([30])
        model(private).exp().sum(dim=-1)    # log-probabilities
    """
    first: Tensor
    second: Tensor
    fitted: Tensor

    def __init__(self, hops: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
                 smooth_hops: Sequence[int] = (1, 2, 4, 8), folds: int = 5,
                 ridge: float = 0.3) -> None:
        super().__init__()
        self.hops = _check_hops('hops', hops)
        self.smooth_hops = _check_hops('smooth_hops', smooth_hops)
        self.folds = check_integer('folds', folds, 2)
        if not ridge > 0:
            raise ValueError(f"'ridge' must be positive (got {ridge})")
        self.ridge = float(ridge)
        depths, again = len(self.hops), len(self.smooth_hops)
        start = torch.cat([torch.ones(depths), torch.full((again, ), 0.3)])
        self.register_buffer('first', start[:depths].clone())
        self.register_buffer('second', start)
        self.register_buffer('fitted', torch.tensor(False))

    def reset_parameters(self) -> None:
        """Forgets what was learnt."""
        self.first.fill_(1.0)
        self.second[:len(self.hops)] = 1.0
        self.second[len(self.hops):] = 0.3
        self.fitted.fill_(False)

    def fit(self, data: Any) -> 'LabelDiffusion':
        """Fits the weights to the released labels of a graph."""
        labels = ReleasedLabels(data)
        self.reset_parameters()
        # Each label is predicted as if its fold had not been released.
        fold = torch.randperm(len(labels.y), generator=_generator())
        fold = (fold % self.folds).to(labels.y.device)
        visible = _visible(labels, fold, self.folds)
        asked = labels.released.nonzero().view(-1)
        evidence = self._evidence(labels, visible)
        fit_weights(self.first, evidence[asked, fold[asked]], labels,
                    self.ridge)
        evidence = self._smoothed(evidence, labels, visible)
        fit_weights(self.second, evidence[asked, fold[asked]], labels,
                    self.ridge)
        self.fitted.fill_(True)
        return self

    @torch.no_grad()
    def held_out(self, data: Any, fold: Tensor) -> Tensor:
        """The log-probabilities at all nodes as if a fold of the labels had
        not been released, for each of the folds: of shape
        :obj:`[num_nodes, folds, num_classes]`.
        """
        check_fitted(self)
        labels = ReleasedLabels(data)
        visible = _visible(labels, fold, int(fold.max()) + 1)
        evidence = self._smoothed(self._evidence(labels, visible), labels,
                                  visible)
        scores = labels.prior.log() + evidence @ self.second
        return scores.log_softmax(dim=-1)

    @torch.no_grad()
    def forward(self, data: Any) -> Tensor:
        """The log-probabilities of all classes at all nodes."""
        check_fitted(self)
        labels = ReleasedLabels(data)
        visible = labels.released[:, None]
        evidence = self._smoothed(self._evidence(labels, visible), labels,
                                  visible)
        scores = labels.prior.log() + evidence[:, 0] @ self.second
        return scores.log_softmax(dim=-1)

    def predict(self, data: Any) -> Tensor:
        """The class of each node of a released graph."""
        scores: Tensor = self(data)
        return scores.argmax(dim=-1)

    def _evidence(self, labels: 'ReleasedLabels', visible: Tensor) -> Tensor:
        # What each depth says about each class at each node, in each of the
        # worlds in which only the visible labels were released: of shape
        # [num_nodes, worlds, classes, depths].
        (n, w), c = visible.shape, labels.response.num_classes
        tau2 = (labels.prior * (1 - labels.prior)).mean() / len(self.hops)
        mask, released = (part * labels.weight for part in (
            visible, labels.released[:, None]))
        signs = torch.randint(0, 2, (n, _PROBES), generator=_generator())
        columns = torch.cat([
            (labels.z[:, None] * mask[:, :, None]).flatten(1), mask,
            (2 * signs - 1).to(mask) * released, released], dim=1)
        levels = []
        for level in labels.diffuse(columns, self.hops):
            estimate, total, probe, whole = torch.split(
                level, [w * c, w, _PROBES, 1], dim=1)
            levels.append((_ratio(estimate.view(n, w, c), total[:, :, None]),
                           _ratio(probe, whole)))
        out = []
        deeper = [*levels[1:], (torch.zeros(()), torch.zeros(()))]
        for (signal, probe), (blur, blurred) in zip(levels, deeper):
            nu = labels.sigma2 * (probe - blurred).square().mean(dim=1)
            shrinkage = c * tau2 / (tau2 + nu)
            out.append((signal - blur) * shrinkage[:, None, None])
        return torch.stack(out, dim=-1)

    def _smoothed(self, evidence: Tensor, labels: 'ReleasedLabels',
                  visible: Tensor) -> Tensor:
        # The same, and what the prediction says when it is diffused.
        prior = labels.prior
        scores = prior.log() + evidence @ self.first
        scores = scores + labels.likelihood[:, None] * visible[:, :, None]
        gain = (scores.softmax(dim=-1) - prior) * labels.weight[:, :, None]
        columns = torch.cat([gain.flatten(1), labels.weight], dim=1)
        out = [evidence]
        for level in labels.diffuse(columns, self.smooth_hops):
            ratio = (level[:, :-1] / level[:, -1:]).view_as(gain)
            out.append((1 + ratio / prior).clamp(min=0.05).log()[..., None])
        return torch.cat(out, dim=-1)


class ReleasedLabels:
    """Released labels, what is known of their noise, and how they diffuse."""
    def __init__(self, data: Any) -> None:
        self.y, self.response = released_labels(data)
        c, n = self.response.num_classes, len(self.y)
        p, q = float(self.response.keep), float(self.response.other)
        self.released = self.y >= 0
        y = self.y.clamp(min=0)
        one_hot = torch.nn.functional.one_hot(y, c).float()
        self.share = share = one_hot[self.released].mean(dim=0)
        mean = frequency_estimate(share, p, q)
        self.z = (one_hot - q) / (p - q) - mean
        self.sigma2 = (share * (1 - share)).mean() / (p - q)**2
        # As unequal as can be told from noise (James and Stein).
        noise = self.sigma2 / self.released.sum()
        spread = (mean - 1 / c).square().mean().clamp(min=1e-12)
        mean = (mean - 1 / c) * (1 - noise / spread).clamp(min=0) + 1 / c
        self.prior = mean.clamp(min=0.1 / c) / mean.clamp(min=0.1 / c).sum()
        self.likelihood = torch.where(one_hot > 0, p, q).log()
        edge_index = to_undirected(data.edge_index, num_nodes=n)
        self.adjacency = mean_adjacency(edge_index, n)
        # The symmetric normalisation, by weights for the labels.
        self.weight = self.adjacency.crow_indices().diff()[:, None].rsqrt()

    def diffuse(self, columns: Tensor,
                hops: Sequence[int]) -> Iterator[Tensor]:
        """Columns after each of these numbers of hops."""
        done = 0
        for k in hops:
            columns = propagate(self.adjacency, columns, k - done)
            done = k
            yield columns


def fit_weights(weight: Tensor, evidence: Tensor, labels: ReleasedLabels,
                ridge: float) -> None:
    """Fits weights of zero or more to the released labels, in place, given what
    each piece of evidence says about each class at the nodes of these labels.
    A ridge holds them near where they start, which must not be zero.
    """
    loss = ForwardCorrectedLoss(labels.response.epsilon,
                                labels.response.num_classes).to(weight)
    y, start = labels.y[labels.released], weight.clone()
    # A square is never negative.
    root = start.sqrt().requires_grad_()
    optimizer = torch.optim.LBFGS([root], max_iter=50,
                                  line_search_fn='strong_wolfe')

    def objective() -> Tensor:
        optimizer.zero_grad()
        scores = labels.prior.log() + evidence @ root.square()
        value: Tensor = len(y) * loss(scores, y)
        value = value + ridge * (root.square() - start).square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(objective)  # type: ignore[no-untyped-call]
    weight.copy_(root.detach().square())


def _visible(labels: ReleasedLabels, fold: Tensor, folds: int) -> Tensor:
    # Which labels are there in each of the worlds that lack one fold.
    worlds = torch.arange(folds, device=fold.device)
    return (fold[:, None] != worlds) & labels.released[:, None]


def _check_hops(name: str, hops: Sequence[int]) -> tuple[int, ...]:
    if len(hops) == 0 or list(hops) != sorted(set(hops)):
        raise ValueError(f"'{name}' must hold rising numbers of hops "
                         f"(got {hops!r})")
    return tuple(check_integer(name, k, 1) for k in hops)


def _ratio(value: Tensor, total: Tensor) -> Tensor:
    # Zero where no label arrives.
    return torch.where(total > 1e-9, value / total.clamp(min=1e-9), 0.0)


def _generator() -> torch.Generator:
    # Folds and probes are no secret, and the same in every run.
    return torch.Generator().manual_seed(0)
