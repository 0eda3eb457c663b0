from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_geometric_dp._validate import (
    check_choice,
    check_epsilon,
    check_integer,
)
from torch_geometric_dp.accountant import Guarantee, Unit
from torch_geometric_dp.graph.pairs import Pairs, from_pairs
from torch_geometric_dp.mechanisms.edge_mechanism import check_unit
from torch_geometric_dp.mechanisms.edge_votes import EdgeVotes
from torch_geometric_dp.mechanisms.mechanism import WorstCase
from torch_geometric_dp.mechanisms.node_votes import NodeVotes
from torch_geometric_dp.nn.models.node_level_votes import node_level_scores
from torch_geometric_dp.nn.models.private_model import (
    PrivateModel,
    edge_pairs,
)
from torch_geometric_dp.nn.models.public_base import (
    default_base,
    public_beliefs,
)
from torch_geometric_dp.nn.models.training import check_fitted
from torch_geometric_dp.nn.models.vote_likelihood import VoteLikelihood
from torch_geometric_dp.release import Content, Part

FORMS = ('auto', 'oriented', 'both')

# Fixed numbers, the same for every graph.
_BOTH_FROM = 8.0  # An epsilon at which noise is no longer what counts.
_AUDIENCE = 0.3  # Of the labelled nodes, which hear votes like all others.
_PRIOR = 0.5  # How far the weights of a belief and of votes are from one.


class NeighbourVotes(PrivateModel):
    r"""A node classifier for private edges: neighbours vote on the class of a
    node, under noise.

    A class is what is wanted, so a class is what neighbours tell. A base model
    says what can be told of each node from what is public: features, labels
    of the training nodes, and public edges. Each private edge then casts one
    ballot, at the end that is publicly less certain: the label of the other
    end, if it is a training node, or what the base thinks of it. So each node
    has one noisy number for each class, and one edge has changed one of these
    rows by at most one: Laplace noise of scale :math:`1 / \varepsilon` is
    enough, and no delta is needed. What the votes say is then weighed against
    what the base says, by how likely it is under that noise. The proof stands
    in :mod:`torch_geometric_dp.mechanisms.edge_votes`.

    Edges are what is protected. Features and labels are taken as public, and
    the ledger says so, unless it shows that they were released. Some of the
    training nodes are an audience: they hear votes like nodes without a label,
    and show how much votes are worth. All choices are made on them, or by
    public numbers.

    The votes of all nodes are released once, by :meth:`fit`, and predictions
    are for these nodes. New nodes need votes of their own, which is another
    release: it costs epsilon again, to those edges that vote once more. The
    same fit to the same graph repeats the release under a budget, free of
    charge, as long as the base comes out the same to the last bit; on another
    machine it may not, and is refused, as the old noise would then betray
    edges. Keep the fitted model.

    **Whole people.** With :obj:`unit="node"`, rows, labels and edges are all
    private, and one person's row and label may be any others, together with at
    most :obj:`edges` of its edges, or all of them. Who has a label is public,
    and so is the number of nodes. People with a label cast it at their
    neighbours without one, in votes whose sum of squares is bounded, under
    Gaussian noise (:mod:`torch_geometric_dp.mechanisms.node_votes`). The base
    is a :class:`ClassSumClassifier` out of the same budget. How many votes
    there are is counted first, under noise; where that is too few, nobody is
    asked, and the base gets what is left. What is told to a person is for that
    person alone (joint privacy), which the ledger says: the fitted model holds
    it, and is nothing to be published. It takes for granted that people who
    know each other are alike; where they are not, use the base alone.

    Args:
        in_channels (int): The number of columns of :obj:`x`.
        num_classes (int): The number of classes, a public number.
        epsilon (float): The privacy loss of one edge, or of one person, in
            all.
        form (str, optional): Whether each edge votes at one end
            (:obj:`"oriented"`), or at both, under twice the noise
            (:obj:`"both"`); :obj:`"auto"` decides by epsilon.
            (default: :obj:`"auto"`)
        rounds (int, optional): How often is voted: from the second round on,
            with the answers of the one before. Each of them has its share of
            epsilon, and is charged when it comes. (default: :obj:`1`)
        base (torch.nn.Module, optional): Maps rows of features to scores of
            classes. By default, a small network. (default: :obj:`None`)
        private (str, optional): The boolean edge field that tells which edges
            are private; without it, all are.
            (default: :obj:`"edge_private"`)
        mask (str, optional): The boolean node field that selects the labels to
            learn from. (default: :obj:`"train_mask"`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)
        unit (str, optional): What is protected, :obj:`"edge"` or
            :obj:`"node"`. (default: :obj:`"edge"`)
        delta (float, optional): For nodes: the probability with which the loss
            may be larger. (default: :obj:`None`)
        edges (int, optional): For nodes: at most so many edges change with
            one. (default: :obj:`None`)
        max_degree (int, optional): For nodes, in place of :obj:`edges`: all of
            its edges change with one, and no node has more, in any graph that
            is possible; a public number. (default: :obj:`None`)
        clip (float, optional): For nodes whose features have any sign: values
            are cut to this distance from zero, a public number. By default,
            features must not be negative. (default: :obj:`None`)

    Shapes:
        - **input:** a graph with features :obj:`x`
          :math:`(|\mathcal{V}|, F)`, classes :obj:`y`
          :math:`(|\mathcal{V}|)` and edges :obj:`edge_index`
          :math:`(2, |\mathcal{E}|)`, which count without direction, and once.
        - **output:** classes :math:`(|\mathcal{V}|)`.

    .. code-block:: python

        model = NeighbourVotes(4, num_classes=7, epsilon=1.0)
        classes = model.fit(data).predict(data)
        model.privacy.epsilon('edges')      # 1.0
        model.privacy.epsilon('features')   # inf

        model = NeighbourVotes(4, num_classes=7, epsilon=8.0, unit='node',
                               delta=1e-5, edges=1)
        model.fit(data).privacy.epsilon('node', edges=1)   # 8.0
    """
    scores: Tensor
    fitted: Tensor

    def __init__(self, in_channels: int, num_classes: int, epsilon: float,
                 form: str = 'auto', rounds: int = 1,
                 base: torch.nn.Module | None = None,
                 private: str = 'edge_private', mask: str = 'train_mask',
                 seed: int | None = None, unit: str = 'edge',
                 delta: float | None = None, edges: int | None = None,
                 max_degree: int | None = None,
                 clip: float | None = None) -> None:
        super().__init__(check_integer('num_classes', num_classes, 2), mask,
                         seed)
        self.in_channels = check_integer('in_channels', in_channels, 1)
        self.epsilon = check_epsilon(epsilon)
        self.form = check_choice('form', form, FORMS)
        self.rounds = check_integer('rounds', rounds, 1)
        self.base = base
        self.private = private
        self.unit = check_unit(unit)
        self.delta, self.edges, self.max_degree = delta, edges, max_degree
        self.clip = None if clip is None else check_epsilon(clip, 'clip')
        self._check_unit()
        #: The mechanism of one round, or that of people.
        self.mechanism: Any = NodeVotes(
            self.epsilon, delta or 0.0, edges, max_degree
            ) if self.unit == Unit.NODE else EdgeVotes(
                self.epsilon / self.rounds, self._oriented)
        self.register_buffer('scores', torch.zeros(0, num_classes))
        self.register_buffer('fitted', torch.tensor(False))

    def _check_unit(self) -> None:
        # Arguments that say nothing for the unit are refused, by name.
        node = self.unit == Unit.NODE
        idle = {'form': self.form != 'auto', 'rounds': self.rounds != 1,
                'base': self.base is not None,
                'private': self.private != 'edge_private'} if node else {
                    name: getattr(self, name) is not None
                    for name in ('delta', 'edges', 'max_degree', 'clip')}
        for name, given in idle.items():
            if given:
                raise ValueError(f"'{name}' must not be given for "
                                 f"unit='{'node' if node else 'edge'}'")
        if node and self.delta is None:
            raise ValueError("'delta' must be given for unit='node': the noise "
                             "is Gaussian")

    @property
    def _oriented(self) -> bool:
        if self.form == 'auto':
            return self.epsilon / self.rounds < _BOTH_FROM
        return self.form == 'oriented'

    @property
    def guarantee(self) -> Guarantee:
        """What all rounds together promise."""
        promise: Guarantee = self.mechanism.guarantee
        return replace(promise, epsilon=self.epsilon)

    def worst_case(self) -> WorstCase:
        """The exact epsilon. The ballots of a round follow from what was
        released before it, so that losses add up; and the graphs that differ
        most in one round may do so in all of them.
        """
        case: WorstCase = self.mechanism.worst_case()
        return replace(case, epsilon=self.rounds * case.epsilon)

    def fit(self, data: Any) -> 'NeighbourVotes':
        """Learns the base, releases the votes, and weighs them."""
        self.scores = (node_level_scores(self, data) if self.unit == Unit.NODE
                       else self._edge_level_scores(data))
        self.fitted.fill_(True)
        return self

    def _edge_level_scores(self, data: Any) -> Tensor:
        mask, y = self.labels(data)
        x = self.features(data, self.in_channels)
        if not mask.any():
            raise ValueError(f"'{self.mask}' must select at least one node")
        private, public = edge_pairs(data, self.private)
        known = torch.where(mask, y, -1)
        base = self.base or default_base(self.in_channels, self.num_classes)
        belief = public_beliefs(base, x.to_dense() if x.is_sparse else x, known,
                                from_pairs(public)).cpu()
        audience = self._audience(known)
        score = belief
        for number in range(self.rounds):
            ballots = torch.where(mask[:, None], _one_hot(known, self), (
                score.softmax(dim=1)))
            certainty = ballots.max(dim=1).values
            certainty[audience] = belief.softmax(dim=1).max(
                dim=1).values[audience]
            votes = self._vote(data, number, private, ballots, certainty)
            score = self._weigh(belief, votes, ballots, certainty, public,
                                audience, y)
        return score

    def _audience(self, known: Tensor) -> Tensor:
        # Labelled nodes that hear votes like all others.
        nodes = (known >= 0).nonzero().view(-1)
        if not self.mechanism.oriented:
            return nodes
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(len(nodes), generator=generator)
        return nodes[order[:max(1, round(_AUDIENCE * len(nodes)))]]

    def _vote(self, data: Any, number: int, pairs: Pairs, ballots: Tensor,
              certainty: Tensor) -> Tensor:
        part = Part(self, PrivateModel, self.mechanism.guarantee,
                    ('edge_index', ), self.taken_as_public(data, self.private),
                    (('round', number), ))
        content: Content = [
            ('edge_index', (torch.from_numpy(pairs), )),
            ('ballots', (self.mechanism.to_steps(ballots), )),
            ('certainty', (certainty, ))]
        source = self.admit(data, [part], content).source
        votes: Tensor = self.mechanism(pairs, ballots, certainty, source)
        return votes

    def _weigh(self, belief: Tensor, votes: Tensor, ballots: Tensor,
               certainty: Tensor, public: Pairs, audience: Tensor,
               y: Tensor) -> Tensor:
        # Of nodes that hear votes: what the base, the votes and the public
        # edges say, with the weights that fit the audience.
        hears = certainty < 1.0
        hears[audience] = True
        known = torch.full_like(y, -1)
        known[audience] = y[audience]
        evidence = [belief]
        both = EdgeVotes(1.0, oriented=False)
        counts = [(votes, self.mechanism.deviation(self.num_classes))]
        if len(public):
            counts.append((both.count(public, ballots, certainty)
                           / both.steps, 0.0))
        for count, scale in counts:
            law = VoteLikelihood(count[hears], belief[hears], known[hears],
                                 scale)
            evidence.append(law(count).log_softmax(dim=1))
        parts = torch.stack(evidence)
        weight = _weights(parts[:, audience], y[audience])
        score = (weight[:, None, None] * parts).sum(dim=0)
        return score.log_softmax(dim=1)

    @torch.no_grad()
    def predict(self, data: Any) -> Tensor:
        """The most likely class of each node of the graph that was fitted."""
        check_fitted(self)
        if data.num_nodes != len(self.scores):
            raise ValueError(
                f"'data' must be the graph that was fitted, which has "
                f"{len(self.scores)} nodes (got {data.num_nodes}): votes were "
                f"released for its nodes, and new ones cost again. Fit a model "
                f"to the new graph, and count both")
        return self.scores.argmax(dim=1)


    def _load_from_state_dict(self, state_dict: Any, prefix: str,
                              *args: Any) -> None:
        # There are as many rows as the graph that was fitted has nodes.
        saved = state_dict.get(f'{prefix}scores')
        if isinstance(saved, Tensor):
            self.scores = torch.zeros_like(saved)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _one_hot(known: Tensor, model: NeighbourVotes) -> Tensor:
    return F.one_hot(known.clamp(min=0), model.num_classes).float()


def _weights(parts: Tensor, y: Tensor) -> Tensor:
    # One number for each kind of evidence, near one unless labels tell
    # otherwise.
    weight = torch.ones(len(parts), dtype=torch.double, requires_grad=True)
    parts = parts.double()
    optimizer = torch.optim.LBFGS([weight], max_iter=50,
                                  line_search_fn='strong_wolfe')

    def closure() -> Tensor:
        optimizer.zero_grad()
        score = (weight[:, None, None] * parts).sum(dim=0)
        loss = F.cross_entropy(score, y, reduction='sum') + (
            (weight - 1) / _PRIOR).square().sum() / 2
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weight.detach().clamp(min=0.0).float()
