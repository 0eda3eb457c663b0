"""What is public says about the classes of all nodes, also of those whose
labels it was not shown.
"""
import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import add_self_loops, to_undirected

_NEIGHBOURS = 15
_MOST_NODES = 30_000  # For which neighbours by features are looked for.
_WORK = 5e11  # Multiplications that this may take.
_FOLDS, _EPOCHS = 5, 150
_ENOUGH = 2000  # Judged nodes, to tell which rows are best.


def default_base(in_channels: int, num_classes: int) -> torch.nn.Module:
    """A small network on rows.

    .. code-block:: python

        default_base(4, 2)(torch.rand(3, 4)).shape   # torch.Size([3, 2])
    """
    return torch.nn.Sequential(
        torch.nn.Linear(in_channels, 64), torch.nn.ReLU(),
        torch.nn.Dropout(0.5), torch.nn.Linear(64, num_classes))


def public_beliefs(base: torch.nn.Module, x: Tensor, known: Tensor,
                   edge_index: Tensor) -> Tensor:
    """The logarithms of the chances of all classes, from rows, known classes
    (-1 for all others) and public edges. Known nodes are not shown their own
    class: what is said of them is as good, or bad, as of all others.

    Rows are taken as they are, or averaged over neighbours by public edges, or
    by their features: whatever is best for the known nodes.
    """
    with torch.random.fork_rng(devices=()):  # The same every time.
        torch.manual_seed(0)
        fits = [_CrossFit(base, rows, known) for rows in _views(x, edge_index)]
        for fit in fits:
            fit.train(enough=_ENOUGH)
        right = [fit.accuracy() for fit in fits]
        best = fits[right.index(max(right))]
        best.train()
    return best.beliefs()


def _views(x: Tensor, edge_index: Tensor) -> list[Tensor]:
    views = [x]
    edges, weights = [edge_index], [torch.ones(edge_index.size(1))]
    if edge_index.size(1) > 0:
        views.append(_mean(x, edge_index, weights[0], hops=2))
    if _NEIGHBOURS < x.size(0) <= _MOST_NODES:
        near, similarity = neighbours_by_features(x)
        edges, weights = [*edges, near], [*weights, similarity]
        near, weight = torch.cat(edges, dim=1), torch.cat(weights)
        views += [_mean(x, near, weight, hops) for hops in (1, 2)]
    return views


def _mean(x: Tensor, edge_index: Tensor, weight: Tensor, hops: int) -> Tensor:
    # Over a node and its neighbours, as a GCN does.
    n = x.size(0)
    edge_index, weight = to_undirected(edge_index, weight, n, reduce='max')
    edge_index, weight = add_self_loops(edge_index, weight, 1.0, n)
    source, target = edge_index
    root = weight.new_zeros(n).index_add(0, target, weight).rsqrt()
    adjacency = torch.sparse_coo_tensor(
        torch.stack([target, source]), root[source] * weight * root[target],
        (n, n), check_invariants=False).coalesce()
    for _ in range(hops):
        x = adjacency @ x
    return x


def neighbours_by_features(x: Tensor) -> tuple[Tensor, Tensor]:
    """For each node, the others whose rows are most similar, as edges, and how
    similar they are: the cosine, of columns that count the more, the rarer they
    are.

    .. code-block:: python

        edges, similarity = neighbours_by_features(torch.rand(20, 4))
        edges.shape   # torch.Size([2, 300])
    """
    n = x.size(0)
    rows = x * torch.log((n + 1) / (1 + (x != 0).sum(dim=0)))
    columns = int(_WORK / n**2)
    if rows.size(1) > columns:  # Fewer, which keep angles nearly.
        generator = torch.Generator().manual_seed(0)
        rows = rows @ torch.randn(rows.size(1), columns, generator=generator)
    rows = F.normalize(rows, dim=1)
    found = []
    for start in range(0, n, 2048):
        similar = rows[start:start + 2048] @ rows.t()
        here = torch.arange(len(similar))
        similar[here, start + here] = -2.0
        found.append(similar.topk(_NEIGHBOURS, dim=1))
    near = torch.cat([part.indices for part in found])
    similarity = torch.cat([part.values for part in found])
    edges = torch.stack([near.view(-1),
                         torch.arange(n).repeat_interleave(_NEIGHBOURS)])
    return edges, similarity.view(-1).clamp(min=0.0)


class _CrossFit:
    # Each part of the known nodes is judged by a model that has not seen it.
    def __init__(self, base: torch.nn.Module, x: Tensor,
                 known: Tensor) -> None:
        self.base, self.x, self.known = base, x, known
        self.folds: list[Tensor] = []
        self.total: Any = 0.0
        self.aside: list[Tensor] = []  # Of a fold, by who has not seen it.

    def train(self, enough: float = math.inf) -> None:
        if not self.folds:
            nodes = (self.known >= 0).nonzero().view(-1)
            order = nodes[torch.randperm(len(nodes))]
            self.folds = [order[i::_FOLDS]
                          for i in range(min(_FOLDS, len(order)))]
        for i in range(len(self.aside), len(self.folds)):
            if sum(map(len, self.aside)) >= enough:
                break
            rest = [fold for j, fold in enumerate(self.folds) if j != i]
            chance = _train(self.base, self.x, self.known,
                            torch.cat(rest or [self.folds[i]]))
            self.total = self.total + chance / len(self.folds)
            self.aside.append(chance[self.folds[i]])

    def accuracy(self) -> float:
        nodes = torch.cat(self.folds[:len(self.aside)])
        right = torch.cat(self.aside).argmax(dim=1) == self.known[nodes]
        return float(right.float().mean())

    def beliefs(self) -> Tensor:
        chance = self.total.clone()
        for fold, judged in zip(self.folds, self.aside, strict=True):
            chance[fold] = judged
        beliefs: Tensor = chance.clamp(min=1e-6).log()
        return beliefs


def _train(base: torch.nn.Module, x: Tensor, known: Tensor,
           nodes: Tensor) -> Tensor:
    model = copy.deepcopy(base)
    for module in model.modules():
        if hasattr(module, 'reset_parameters'):
            module.reset_parameters()  # type: ignore[operator]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01,
                                 weight_decay=5e-4)
    rows, classes = x[nodes], known[nodes]
    model.train()
    for _ in range(_EPOCHS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(rows), classes)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    with torch.no_grad():
        chance: Tensor = model(x).softmax(dim=1)
    return chance
