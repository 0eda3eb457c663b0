r"""Who was in the training graph: train on a subgraph, test on the full graph.

Nodes that a model was trained on get other answers than nodes that are new to
it, mostly surer ones. How the two differ can be learned from a model of one's
own, the shadow, whose training nodes one knows (Shokri et al. 2017; for graphs,
"TSTF" of Olatunji et al. 2021).

**What a proof promises.** Let a coin decide on each node whether it is in the
training graph, and let training be :math:`(\varepsilon, \delta)`-private for a
node that comes or goes. An attacker who knows the whole graph and all other
coins, and guesses from the model whether one node is a member, is right with

.. math::
    \mathrm{TPR} \leq e^{\varepsilon} \mathrm{FPR} + \delta, \qquad
    1 - \mathrm{FPR} \leq e^{\varepsilon} (1 - \mathrm{TPR}) + \delta.

*Proof.* "The guess is yes" is an event of what training released, whose
probability is TPR with the node and FPR without. The second line is the same
for "no". ∎ What the attacker asks the model later has no part in it: they
know that, and no coin decides on it.

Added up, the two lines leave a balanced accuracy of at most :math:`(e^{
\varepsilon} + \delta) / (1 + e^{\varepsilon})`, that is 98% at :math:`
\varepsilon = 4`. An attack that is right half of the time there has found
nothing, and has shown nothing about what another one would find.
"""
import math
import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import MLP

from torch_geometric_dp._validate import check_epsilon, check_integer
from torch_geometric_dp.accountant.entry import Pairs
from torch_geometric_dp.attacks.attack import (
    Attack,
    check_graph,
    check_model,
)
from torch_geometric_dp.attacks.report import (
    ScoredReport,
    metrics,
    scored_numbers,
)

Model = Callable[[Data], Tensor]

_LEAST = 1e-12  # Of a probability, so that its logarithm is finite.
_HIDDEN, _EPOCHS, _RATE, _DECAY = 16, 200, 0.02, 1e-2


class MembershipInference(Attack):
    r"""Finds out which nodes of a graph a model was trained on.

    The target was trained on the subgraph of its members, and answers about
    the graph of all candidates, which are members and others. The attacker has
    nodes of their own, trains a model like the target on one half of them, and
    asks it about all of them. From its answers, a small network learns how
    those to members differ from those to others: by how sure they are, and by
    how wrong they are. It then judges the target's answers.

    With several shadows, each node is also compared with itself: some nodes get
    sure answers from everyone, so what counts is how much surer the target is
    than models that never saw the node, as in the offline form of LiRA (Carlini
    et al. 2022). No shadow is trained on a candidate: who does that, as in the
    online form, may find more.

    The report's baseline is the same attack on a shadow in place of the target.
    That saw none of the candidates, so whatever is found there is a difference
    between members and others that has nothing to do with the target. If
    members were drawn at random, it is chance.

    Args:
        fit (callable): How the target was trained: from a graph, all of whose
            nodes are for training, to a model. A model goes from a graph to
            probabilities or logits of all classes, for each node, such as
            :obj:`lambda graph: net(graph.x, graph.edge_index)`.
        members (str, optional): The boolean node field that is true for the
            nodes that the target was trained on. The graphs that :obj:`fit`
            gets have it, too, and it is true everywhere.
            (default: :obj:`"train_mask"`)
        shadow (str, optional): The boolean node field that is true for the
            attacker's own nodes. None of them is a member; all others are
            candidates. (default: :obj:`"shadow_mask"`)
        num_shadows (int, optional): The number of models that the attacker
            trains: one, or an even number from 4, of which each pair shares the
            attacker's nodes. (default: :obj:`1`)
        knows_labels (bool, optional): Whether the attacker knows the classes
            :obj:`y` of the candidates. (default: :obj:`True`)
        seed (int, optional): Makes the attacker's own choices repeatable, but
            for what :obj:`fit` draws. (default: :obj:`0`)

    .. code-block:: python

        def fit(graph):   # remembers its rows
            def model(other):
                same = (other.x[:, None] == graph.x).all(dim=2).any(dim=1)
                return torch.stack([5.0 * same, -5.0 * same], dim=1)
            return model

        data.y = data.y % 2
        data.shadow_mask = torch.arange(30) >= 14
        data.train_mask = torch.arange(30) < 7
        target = fit(data.subgraph(data.train_mask))
        report = MembershipInference(fit).run(target, data)
        report['balanced accuracy']   # 1.0
    """
    _aside = ('fit', )  # A function tells its name, and no more.

    def __init__(self, fit: Callable[[Data], Model],
                 members: str = 'train_mask', shadow: str = 'shadow_mask',
                 num_shadows: int = 1, knows_labels: bool = True,
                 seed: int = 0) -> None:
        if not callable(fit):
            raise TypeError(f"'fit' must be a function that trains a model "
                            f"(got '{type(fit).__name__}')")
        if check_integer('num_shadows', num_shadows, 1) != 1 and (
                num_shadows < 4 or num_shadows % 2):
            raise ValueError(f"'num_shadows' must be 1, or an even number from "
                             f"4: pairs, of which one trains on what the other "
                             f"does not (got {num_shadows})")
        self.fit = fit
        self.members, self.shadow = members, shadow
        self.num_shadows = int(num_shadows)
        self.knows_labels = bool(knows_labels)
        self.seed = check_integer('seed', seed, 0)
        metrics()  # Missed now, and not after an hour.

    def arguments(self, all_of_them: bool = False) -> Pairs:
        """The arguments, of which :obj:`fit` tells its name."""
        name = getattr(self.fit, '__name__', type(self.fit).__name__)
        return (('fit', f'<{name}>'), *super().arguments(all_of_them))

    @staticmethod
    def bounds(epsilon: float, delta: float = 0.0) -> dict[str, float]:
        """The most that any attack can reach if the training is private for a
        node that comes or goes.
        """
        odds = math.exp(check_epsilon(epsilon))
        if not 0 <= delta < 1:
            raise ValueError(f"'delta' must be in [0, 1) (got {delta!r})")
        corner = (1 - delta) / (1 + odds)  # Where both lines meet.
        below = (corner * (delta + 1 - corner) + (1 - delta - corner) *
                 (2 - corner)) / 2 + delta
        most = min(odds * 0.01 + delta, 1 - (0.99 - delta) / odds, 1.0)
        return {'balanced accuracy': 1 - corner, 'AUC': below,
                'TPR at 1% FPR': most}

    def run(self, target: Model, data: Data) -> ScoredReport:
        """Judges all nodes that are not the attacker's own.

        Args:
            target (callable): From a graph to probabilities or logits of all
                classes, for each node. It is asked once, about the graph of all
                candidates.
            data (Data): The raw graph, with features, classes, and two masks.
        """
        member, own = self._masks(data)
        truth = member[~own].numpy()
        shadows, judged = data.subgraph(own), data.subgraph(~own)
        answers = self._looks(target, judged, 'target')
        inside = self._halves(shadows.num_nodes)
        models = [self._train(shadows, half) for half in inside]
        seen = torch.stack([self._looks(model, shadows, 'fit')
                            for model in models])
        unseen = torch.stack([self._looks(model, judged, 'fit')
                              for model in models])
        if answers.size(1) != seen.size(2):
            raise ValueError("'target' must answer with as many classes as the "
                             "models that 'fit' trains")
        if self.num_shadows > 1:
            answers = torch.cat([answers, answers - unseen.mean(dim=0)], dim=1)
            seen = _compared(seen, ~inside)
            unseen = _compared(unseen, torch.ones(unseen.shape[:2]).bool())
        judge = _Judge(seen.flatten(0, 1), inside.flatten(), self.seed)
        scores = judge(answers)
        guessed = np.stack([judge(each) for each in unseen])
        chance = [self._numbers(truth, each) for each in guessed]
        return ScoredReport(
            repr(self), self._numbers(truth, scores),
            {name: float(np.mean([each[name] for each in chance]))
             for name in chance[0]}, self._knew(shadows.num_nodes),
            truth=truth, scores=scores, guessed=guessed)

    @staticmethod
    def _numbers(truth: NDArray[np.bool_],
                 scores: NDArray[np.float64]) -> dict[str, float]:
        right = (scores > 0) == truth
        balanced = (right[truth].mean() + right[~truth].mean()) / 2
        return {'balanced accuracy': float(balanced),
                **scored_numbers(truth, scores)}

    def _knew(self, count: int) -> tuple[str, ...]:
        known = 'rows, edges and classes' if self.knows_labels else (
            'rows and edges')
        return ('how the target was trained',
                f'{count} nodes of their own, with classes',
                f'the {known} of all candidates')

    def _masks(self, data: Data) -> tuple[Tensor, Tensor]:
        check_graph(data, 'data')
        masks = []
        for name in (self.members, self.shadow):
            mask, rows = data.get(name), data.num_nodes
            if (not isinstance(mask, Tensor) or mask.dtype != torch.bool
                    or mask.shape != (rows, )):
                got = (f'{mask.dtype} of shape {list(mask.shape)}'
                       if isinstance(mask, Tensor) else mask)
                raise ValueError(f"'{name}' must be a boolean tensor of shape "
                                 f"[{rows}] (got {got})")
            masks.append(mask.cpu())
        member, own = masks
        if (member & own).any():
            node = int((member & own).int().argmax())
            raise ValueError(f"'{self.shadow}' must select none of the nodes "
                             f"of '{self.members}' (got node {node} in both)")
        if int(own.sum()) < 2:
            raise ValueError(f"'{self.shadow}' must select at least two nodes, "
                             f"to train on and to compare with "
                             f"(got {int(own.sum())})")
        count, members = int((~own).sum()), int(member.sum())
        if not 0 < members < count:
            raise ValueError(f"'{self.members}' must select some of the nodes "
                             f"outside '{self.shadow}', and not all of them "
                             f"(got {members} of {count})")
        y = data.get('y')
        if (not isinstance(y, Tensor) or y.shape != (data.num_nodes, )
                or y.is_floating_point()):
            got = (f'{y.dtype} of shape {list(y.shape)}' if isinstance(
                y, Tensor) else y)
            raise ValueError(f"'y' must hold one class for each node, in shape "
                             f"[{data.num_nodes}] (got {got})")
        return member, own

    def _halves(self, count: int) -> Tensor:
        # One row for each shadow. Each pair of them shares all nodes.
        generator = torch.Generator().manual_seed(self.seed)
        halves = torch.zeros(self.num_shadows, count, dtype=torch.bool)
        for i in range(0, self.num_shadows, 2):
            order = torch.randperm(count, generator=generator)
            halves[i, order[:count // 2]] = True
            halves[i + 1:i + 2] = ~halves[i]
        return halves

    def _train(self, graph: Data, half: Tensor) -> Model:
        graph = self._question(graph, 'y').subgraph(half)
        graph[self.members] = torch.ones(graph.num_nodes, dtype=torch.bool)
        return self.fit(graph)

    def _question(self, graph: Data, *keep: str) -> Data:
        # Without what would give the answer away.
        graph = graph.clone()
        for name in {'y', self.members, self.shadow} - {*keep}:
            del graph[name]
        return graph

    def _looks(self, model: Model, graph: Data, name: str) -> Tensor:
        # How sure the answers are, in several ways, and how wrong.
        check_model(model, name)
        if isinstance(model, torch.nn.Module) and model.training:
            warnings.warn(f"'{name}' gave a model in training mode: dropout "
                          f"hides what it knows. Put it into eval mode",
                          stacklevel=3)
        # With gradients: some models fit a part of themselves when asked.
        out = model(self._question(graph))
        out = out.detach() if isinstance(out, Tensor) else out
        rows = graph.num_nodes
        if (not isinstance(out, Tensor) or not out.is_floating_point()
                or out.dim() != 2 or out.size(0) != rows or out.size(1) < 2):
            got = (f'{out.dtype} of shape {list(out.shape)}' if isinstance(
                out, Tensor) else out)
            raise ValueError(f"'{name}' must give a model that answers with "
                             f"floating point numbers of shape [{rows}, "
                             f"num_classes] (got {got})")
        if not out.isfinite().all():
            raise ValueError(f"'{name}' must give a model that answers with "
                             f"finite numbers (got "
                             f"{float(out[~out.isfinite()][0])})")
        log = log_probabilities(out.detach().cpu().double())
        odds = log - torch.log1p(-log.exp().clamp(max=1 - _LEAST))
        looks = [odds.sort(dim=1, descending=True).values,
                 (log.exp() * log).sum(dim=1, keepdim=True)]
        if self.knows_labels:
            y = graph.y.cpu().view(-1, 1)
            if int(y.min()) < 0 or int(y.max()) >= out.size(1):
                raise ValueError(f"'y' must hold classes from 0 to "
                                 f"{out.size(1) - 1}, as '{name}' has them "
                                 f"(got {int(y.min())} to {int(y.max())})")
            looks += [odds.gather(1, y)]
        return torch.cat(looks, dim=1)


def log_probabilities(out: Tensor) -> Tensor:
    """The logarithms of probabilities, from these or from logits: rows that are
    not negative and add up to one are taken for probabilities.

    .. code-block:: python

        log_probabilities(torch.tensor([[0.25, 0.75]])).exp()
        log_probabilities(torch.tensor([[0.0, 1.1]])).exp()   # the same, nearly
    """
    if bool((out >= 0).all()) and bool(
        ((out.sum(dim=1) - 1).abs() < 1e-4).all()):
        return out.clamp(min=_LEAST).log()
    return out.log_softmax(dim=1).clamp(min=math.log(_LEAST))


def _compared(looks: Tensor, outside: Tensor) -> Tensor:
    # Each shadow beside the mean of those that never saw the node, but for its
    # own pair: there, whether it saw the node could be told from their number.
    count, pairs = len(looks), torch.arange(len(looks)) // 2
    out = []
    for i in range(count):
        weight = outside.double() * (pairs != pairs[i]).view(-1, 1)
        others = (weight / weight.sum(dim=0)).unsqueeze(-1) * looks
        out.append(torch.cat([looks[i], looks[i] - others.sum(dim=0)], dim=1))
    return torch.stack(out)


class _Judge:
    # A small network, from what is seen of an answer to whether the node is a
    # member: the logarithm of the odds, if half of all are.
    def __init__(self, looks: Tensor, member: Tensor, seed: int) -> None:
        self._mean = looks.mean(dim=0)
        self._scale = looks.std(dim=0).clamp(min=1e-6)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._net = MLP([looks.size(1), _HIDDEN, 1], norm=None).double()
        rows, y = self._rows(looks), member.double()
        weight = torch.where(member, 1 / y.sum(), 1 / (1 - y).sum())
        optimizer = torch.optim.Adam(self._net.parameters(), lr=_RATE,
                                     weight_decay=_DECAY)
        for _ in range(_EPOCHS):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                self._net(rows).view(-1), y, weight, reduction='sum')
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def _rows(self, looks: Tensor) -> Tensor:
        return (looks - self._mean) / self._scale

    @torch.no_grad()
    def __call__(self, looks: Tensor) -> NDArray[np.float64]:
        # Equal answers get equal scores: sums may differ in their last bits.
        scores: NDArray[np.float64] = self._net(
            self._rows(looks)).view(-1).numpy().round(9)
        return scores
