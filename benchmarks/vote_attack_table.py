"""What attackers find of the private edges behind `NeighbourVotes`: LinkTeller,
and the strongest one of the definition, who knows all but one pair.

    python -m benchmarks.vote_attack_table
    python -m benchmarks.vote_attack_table --graphs Cora --seeds 1

It goes on where it stopped, and writes vote_attack.json, vote_attack.md and
vote_attack.png into the folder --out. Features and labels are public, and all
edges are private.
"""
import copy
import math
import warnings
from functools import lru_cache

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_curve
from torch_geometric.utils import to_dense_adj

from benchmarks import resumable
from benchmarks.edge_learning_graphs import load
from benchmarks.link_table import trained
from benchmarks.machine import machine
from benchmarks.seeds import mean
from torch_geometric_dp import plot
from torch_geometric_dp.attacks import LinkTeller, MembershipInference
from torch_geometric_dp.attacks.report import scored_numbers
from torch_geometric_dp.audit import epsilon_from_trials
from torch_geometric_dp.graph.pairs import (
    contains,
    from_pairs,
    pair_numbers,
    to_pairs,
)
from torch_geometric_dp.nn.models import NeighbourVotes, public_base
from torch_geometric_dp.noise import NoiseSource

matplotlib.use('Agg')

GRAPHS = ('Caltech36', 'Amherst41', 'Cora')
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
SEEDS, PROBES, DRAWS = 3, 400, 100
ALL = 3000  # Nodes that are probed where only true edges are compared.
SURE = 0.9  # Of epsilon: an edge is claimed, or denied, beyond that.
CONFIDENCE = 0.95
OTHERS = 20  # Pairs without an edge for each with one, to learn a prior from.
LOW = 0.001
FOUND = ('AUC', 'TPR at 1% FPR', 'TPR at 0.1% FPR')

ALIKE, PRIOR = 'similarity of features', 'prior of the strongest attacker'
GCN, GCN_GAME = 'LinkTeller, GCN', 'LinkTeller, GCN, like with like'
SERVED, ASKED = 'LinkTeller, as served', 'LinkTeller, base asked again'
ALONE = 'LinkTeller, base alone'
VOTES, BOTH = 'strongest, votes alone', 'strongest, prior and votes'
GAME = 'strongest, like with like'


class Watched(NeighbourVotes):
    """A model that remembers what only its owner, and the strongest attacker,
    sees.
    """
    def _vote(self, data, number, pairs, ballots, certainty):
        votes = super()._vote(data, number, pairs, ballots, certainty)
        self.seen = pairs, ballots.clone(), certainty.clone(), votes
        return votes

    def _weigh(self, belief, *others):
        self.belief = belief
        return super()._weigh(belief, *others)


class Kept(torch.nn.Module):
    """A base that keeps the copies of it that are trained."""
    def __init__(self, model):
        super().__init__()
        self.model, self.copies = model, []

    def forward(self, x):
        return self.model(x)

    def __deepcopy__(self, memo):
        out = Kept(copy.deepcopy(self.model, memo))
        self.copies.append(out.model)
        return out


class Base:
    """The base of a fitted model, which can be asked about other features."""
    def __init__(self, kept, belief, x):
        self.x, self.belief, self.answers = x, belief, {}
        known, some = None, len(kept.copies) // 3
        for hops in range(3):  # Rows, or averaged over neighbours by features.
            models = kept.copies[hops * some:(hops + 1) * some]
            rows = x
            if hops > 0:
                near, weight = public_base.neighbours_by_features(x)
                rows = public_base._mean(x, near, weight, hops)
            found = torch.stack([_chances(model, rows) for model in models])
            known = _folds(found, belief)
            if known is not None:
                break
        if known is None:
            raise RuntimeError('the base is not one of those that were trained')
        self.models, self.rows, self.fold = models, rows, known
        self.reach = torch.eye(len(x))
        if hops > 0:
            self.reach = public_base._mean(self.reach, near, weight, hops)

    @torch.no_grad()
    def __call__(self, x):
        """What it says if features change. Who is near stays as it was: a row
        that grows keeps its direction.
        """
        changed = (x != self.x).any(dim=1).nonzero().view(-1)
        key = tuple(changed.tolist())
        if key not in self.answers:
            rows = self.rows + self.reach[:, changed] @ (
                x[changed] - self.x[changed])
            self.answers[key] = _combined(torch.stack(
                [_chances(model, rows) for model in self.models]), self.fold)
        return self.answers[key]


@torch.no_grad()
def _chances(model, rows):
    model.eval()
    return model(rows).softmax(dim=1)


def _combined(found, fold):
    # Labelled nodes are judged by the model that has not seen them.
    aside = found[fold.clamp(min=0), torch.arange(len(fold))]
    return torch.where(fold[:, None] < 0, found.mean(dim=0),
                       aside).clamp(min=1e-6).log()


def _folds(found, belief):
    # Which model judged each node, and -1 for all of them; nothing if none did.
    every = torch.cat([found.mean(dim=0, keepdim=True), found])
    error = (every.clamp(min=1e-6).log() - belief).abs().amax(dim=2)
    least, fold = error.min(dim=0)
    return fold - 1 if least.max() < 1e-3 else None


def directions(mechanism, pairs, certainty):
    """Who tells whom, for each pair; once more the other way round where both
    ends hear. The attacker's own code, from what is documented.
    """
    u, v = from_pairs(pairs)
    if not mechanism.oriented:
        return torch.cat([u, v]), torch.cat([v, u])
    z = pairs.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    coin = (z ^ (z >> np.uint64(31))) & np.uint64(1) == 1
    sure = certainty.double()
    ahead = (sure[u] > sure[v]) | (
        (sure[u] == sure[v]) & torch.from_numpy(coin))
    return torch.where(ahead, u, v), torch.where(ahead, v, u)


def evidence(mechanism, edges, ballots, certainty, noisy, pairs):
    """For each of the pairs, the logarithm of how much likelier the noisy votes
    are with an edge than without, exactly, if all other edges are known.
    """
    rows = mechanism.to_steps(ballots)
    exact = mechanism.count(edges, ballots, certainty)
    tells, hears = directions(mechanism, pairs, certainty)
    there = torch.from_numpy(contains(edges, pairs)).double()
    there = there.repeat(len(tells) // len(pairs))
    rest = (noisy * mechanism.steps).round()[hears] - exact[hears]
    rest += there[:, None] * rows[tells]
    gain = rest.abs() - (rest - rows[tells]).abs()
    out = gain.sum(dim=1).view(-1, len(pairs)).sum(dim=0)
    return (out / float(mechanism.scale(ballots.size(1)))).numpy()


def like_with_like(mechanism, edges, ballots, certainty, seed, draws):
    """A coin for each candidate decides whether its edge is in the graph: who
    was in, and the evidence. In each draw of coins and noise, every node that
    hears somebody has one candidate, so that their noises are independent.
    """
    if not mechanism.oriented:
        raise ValueError('an edge must vote at one end')
    hears = directions(mechanism, edges, certainty)[1].numpy()
    state, truth, scores = np.random.RandomState(seed), [], []
    for draw in range(draws):
        order = state.permutation(len(edges))
        chosen = order[np.unique(hears[order], return_index=True)[1]]
        coin = state.rand(len(chosen)) < 0.5
        kept = np.delete(edges, chosen[~coin])
        source = NoiseSource.from_seed(1000 * seed + draw)
        noisy = mechanism(kept, ballots, certainty, source)
        truth.append(coin)
        scores.append(evidence(mechanism, kept, ballots, certainty, noisy,
                               edges[chosen]))
    return np.concatenate(truth), np.concatenate(scores)


def numbers(truth, scores):
    false, true, _ = roc_curve(truth, scores)
    return {**scored_numbers(truth, scores),
            FOUND[2]: float(np.interp(LOW, false, true))}


def at_most(epsilon, false):
    """The largest true-positive rate of a test of one edge."""
    odds = math.exp(epsilon)
    return min(odds * false, 1 - (1 - false) / odds)


def bounds(epsilon):
    """The most that any test of one edge can reach, as for one node."""
    most = MembershipInference.bounds(epsilon)
    return {FOUND[0]: most[FOUND[0]], FOUND[1]: most[FOUND[1]],
            FOUND[2]: at_most(epsilon, LOW)}


def epsilon_found(truth, scores, epsilon):
    """What the attack proves epsilon to be at least."""
    claimed, denied = (sign * scores > SURE * epsilon for sign in (1, -1))
    right = (claimed & truth).sum() + (denied & ~truth).sum()
    return float(epsilon_from_trials(right, (claimed | denied).sum(),
                                     len(truth), CONFIDENCE, 0.0))


class Target:
    """A graph, its candidates, and what is known without votes."""
    def __init__(self, graph, seed):
        self.data, self.seed = load(graph, 1.0, seed), seed
        self.attack = LinkTeller(PROBES, seed=seed)
        pairs, self.truth = self.attack.candidates(self.data)
        self.pairs = pair_numbers(pairs)
        self.edges = to_pairs(self.data.edge_index)
        self.nodes, self.base, self.guess = pairs.unique(), None, None

    def fit(self, epsilon):
        data, classes = self.data, int(self.data.y.max()) + 1
        kept = Kept(public_base.default_base(data.num_features, classes))
        model = Watched(data.num_features, classes, epsilon, base=kept,
                        seed=self.seed).fit(data)
        assert math.isclose(model.privacy.epsilon('edges'), epsilon)
        if self.base is None:
            self.base = Base(kept, model.belief, data.x)
            self.guess = self._prior(model)
        # No edge is public, so the base has not seen one, nor epsilon.
        assert torch.equal(self.base.belief, model.belief)
        return model

    def link_teller(self, answer, attack=None):
        with warnings.catch_warnings():  # That nothing can be found.
            warnings.simplefilter('ignore')
            return (attack or self.attack).run(answer, self.data)

    def _prior(self, model):
        # The logarithm of the odds of an edge at each candidate, learnt from
        # the pairs that are no candidates, without votes.
        n = self.data.num_nodes
        looks = self._looks(model)
        u, v = np.triu_indices(n, 1)
        probed = np.isin(np.arange(n), self.nodes)
        other = ~(probed[u] & probed[v])
        edge = self._adjacency().numpy()[u, v] > 0
        state = np.random.RandomState(self.seed)
        joined, apart = (np.flatnonzero(other & each)
                         for each in (edge, ~edge))
        some = np.append(joined, state.choice(apart, min(
            OTHERS * len(joined), len(apart)), replace=False))
        judge = HistGradientBoostingClassifier(
            max_iter=100, random_state=self.seed).fit(
                looks(u[some], v[some]), edge[some])
        pairs = self.attack.candidates(self.data)[0].numpy()
        return judge.decision_function(looks(*pairs))

    def _looks(self, model):
        edge = self._adjacency()
        degree = edge.sum(dim=1)
        rows = torch.nn.functional.normalize(
            self.data.x - self.data.x.mean(dim=0), dim=1)
        ballots, chance = model.seen[1].float(), model.belief.exp()
        common = edge @ edge
        # The pair itself is not known, and so not counted.
        either = degree[:, None] + degree - 2 * edge - common
        same = [matrix.numpy() for matrix in (
            rows @ rows.t(), ballots @ ballots.t(), chance @ chance.t(),
            common, (edge / (2 + degree).log()) @ edge, common / (1 + either))]
        edge, degree = edge.numpy(), degree.numpy()

        def looks(u, v):
            ends = np.sort([degree[u] - edge[u, v], degree[v] - edge[u, v]], 0)
            return np.stack([*ends, *(each[u, v] for each in same)], axis=1)

        return looks

    def _adjacency(self):
        return to_dense_adj(self.data.edge_index,
                            max_num_nodes=self.data.num_nodes)[0]


@lru_cache(maxsize=1)
def target(graph, seed):
    return Target(graph, seed)


def free(graph, seed):
    """Without the target, and without privacy."""
    here = target(graph, seed)
    here.base or here.fit(1.0)  # What is known of it holds for all epsilons.
    model, accuracy = trained(here.data, seed)
    report = here.link_teller(lambda x: model(x, here.data.edge_index))
    alone = here.link_teller(here.base)
    return {ALIKE: numbers(here.truth, report.guessed),
            PRIOR: numbers(here.truth, here.guess),
            ALONE: numbers(here.truth, alone.scores),
            GCN: {**numbers(here.truth, report.scores), 'accuracy': accuracy},
            GCN_GAME: _gcn_game(here),
            'pairs': len(here.truth), 'edges': int(here.truth.sum())}


def _gcn_game(here):
    # A coin for each edge: those in the graph against those that are not.
    coin = np.random.RandomState(1000 + here.seed).rand(len(here.edges)) < 0.5
    whole, data = here.data, here.data.clone()
    u, v = whole.edge_index
    number = pair_numbers(torch.stack([torch.minimum(u, v),
                                       torch.maximum(u, v)]))
    data.edge_index = whole.edge_index[:, torch.from_numpy(
        contains(here.edges[coin], number))]
    model, _ = trained(data, here.seed)
    attack = LinkTeller(ALL, seed=here.seed)
    report = here.link_teller(lambda x: model(x, data.edge_index), attack)
    pairs, truth = attack.candidates(whole)
    inside = contains(here.edges[coin], pair_numbers(pairs)[truth])
    scores = report.scores[truth]
    return {**numbers(inside, scores), 'in': int(inside.sum()),
            'out': int((~inside).sum())}


def private(graph, epsilon, seed):
    """All attacks on one fitted model."""
    here = target(graph, seed)
    model = here.fit(epsilon)
    edges, ballots, certainty, votes = model.seen

    def asked_again(x):
        return (model.scores + here.base(x) - here.base.belief).log_softmax(1)

    shift = evidence(model.mechanism, edges, ballots, certainty, votes,
                     here.pairs)
    truth, scores = like_with_like(model.mechanism, edges, ballots, certainty,
                                   seed, DRAWS)
    right = model.predict(here.data) == here.data.y
    return {
        SERVED: numbers(here.truth, here.link_teller(
            lambda x: model.scores).scores),
        ASKED: numbers(here.truth, here.link_teller(asked_again).scores),
        VOTES: numbers(here.truth, shift),
        BOTH: numbers(here.truth, here.guess + shift),
        GAME: {**numbers(truth, scores), 'in': int(truth.sum()),
               'out': int((~truth).sum()),
               'epsilon': epsilon_found(truth, scores, epsilon)},
        'largest': float(np.abs(np.concatenate([shift, scores])).max()),
        'accuracy': float(right[here.data.test_mask].float().mean())}


def result(graph, epsilon, seed):
    if epsilon is None:
        return free(graph, seed)
    return private(graph, epsilon, seed)


def key(graph, epsilon):
    return str((graph, epsilon))


def shown(values, name, what, digits=3):
    return mean([value[name][what] for value in values], digits, factor=1)


def row(label, epsilon, values, name):
    return (f'| {label} | {epsilon} | ' + ' | '.join(
        shown(values, name, what) for what in FOUND) + ' |\n')


def count(values, what, name=None):
    found = [value[name][what] if name else value[what] for value in values]
    return f'{np.mean(found):,.0f}'


def suspected(results, graph):
    """Edges among all pairs of the probed nodes."""
    base = results[key(graph, None)]
    text = (f'### All pairs of {PROBES} nodes\n\n{count(base, "pairs")} '
            f'candidate pairs, of which {count(base, "edges")} have an edge; '
            f'{len(base)} seeds.\n\n| attacker | epsilon | '
            + ' | '.join(FOUND) + ' |\n' + '|---' * 5 + '|\n'
            + row(f'*no target: {ALIKE}*', '', base, ALIKE)
            + row(f'*no target: {PRIOR}*', '', base, PRIOR)
            + row(f'*no target: {ALONE}*', '', base, ALONE))
    for name in (SERVED, ASKED, VOTES, BOTH):
        for epsilon in EPSILONS:
            if values := results.get(key(graph, epsilon)):
                text += row(name, f'{epsilon:g}', values, name)
    return text + row(f'{GCN} without privacy', '', base, GCN) + '\n'


def alike(results, graph):
    """Edges that are in the graph, or not, by a coin."""
    base = results[key(graph, None)]
    some = next(v for e in EPSILONS if (v := results.get(key(graph, e))))
    text = (f'### Like with like\n\n{count(some, "in", GAME)} candidates in '
            f'and {count(some, "out", GAME)} out of the graph, over {DRAWS} '
            f'draws for each of {len(some)} seeds; for the GCN, '
            f'{count(base, "in", GCN_GAME)} and '
            f'{count(base, "out", GCN_GAME)}, one draw.\n\n| attacker '
            '| epsilon | ' + ' | '.join(f'{what} | at most' for what in FOUND)
            + ' | epsilon is at least | largest score '
            '| accuracy of the model |\n' + '|---' * 11 + '|\n')
    for epsilon in EPSILONS:
        values = results.get(key(graph, epsilon))
        if not values:
            continue
        most = bounds(epsilon)
        text += f'| strongest, votes | {epsilon:g} | ' + ' | '.join(
            f'{shown(values, GAME, what, 4)} | {most[what]:.4f}'
            for what in FOUND)
        largest = max(value['largest'] for value in values)
        accuracy = mean([value['accuracy'] for value in values])
        text += (f' | {shown(values, GAME, "epsilon", 2)} | {largest:.4f} '
                 f'| {accuracy} |\n')
    text += f'| {GCN} without privacy | | ' + ' | '.join(
        f'{shown(base, GCN_GAME, what, 4)} | 1' for what in FOUND)
    accuracy = mean([value[GCN]['accuracy'] for value in base])
    return text + f' | | | {accuracy} |\n\n'


def curve(cells, name, what):
    return {epsilon: [value[name][what] for value in values]
            for epsilon, values in cells.items()}


def figure(results, graphs):
    fig, axes = plt.subplots(2, len(graphs), squeeze=False, sharey='row',
                             figsize=(4.2 * len(graphs), 7.4))
    for ax, below, graph in zip(*axes, graphs):
        base = results[key(graph, None)]
        cells = {e: values for e in EPSILONS
                 if (values := results.get(key(graph, e)))}
        plot.intervals(
            {name: curve(cells, name, 'AUC')
             for name in (BOTH, VOTES, ASKED, SERVED)},
            {label: np.mean([value[name]['AUC'] for value in base])
             for label, name in ((f'{GCN} without privacy', GCN),
                                 (f'no target: {PRIOR}', PRIOR),
                                 (f'no target: {ALIKE}', ALIKE))}, ax=ax)
        ax.containers[-1][0].set_linestyle('--')  # One lies on another.
        ax.set(title=f'{graph}, all pairs', ylim=(0.42, 1.02), ylabel='')
        plot.intervals({GAME: curve(cells, GAME, FOUND[1])},
                       {f'{GCN} without privacy': np.mean(
                           [v[GCN_GAME][FOUND[1]] for v in base])}, ax=below)
        # Lines between points would cross the bound, which is curved.
        below.containers[0][0].set_linestyle('none')
        line = np.geomspace(EPSILONS[0], EPSILONS[-1], 100)
        below.plot(line, [at_most(e, 0.01) for e in line], color='k', ls='--',
                   lw=1, label='no test of an edge finds more')
        below.set(title=f'{graph}, like with like', yscale='log',
                  ylim=(0.008, 1.2), ylabel='')
        ax.get_legend().remove()
        below.get_legend().remove()
    axes[0, 0].set_ylabel('AUC')
    axes[1, 0].set_ylabel('true positives at 1% false ones')
    fig.tight_layout(h_pad=5.5, rect=(0, 0.06, 1, 1))
    for ax, columns in ((axes[0, 0], 4), (axes[1, 0], 3)):
        place = ax.get_position().y0 - 0.065
        fig.legend(*ax.get_legend_handles_labels(), loc='upper center',
                   bbox_to_anchor=(0.5, place), ncols=columns, frameon=False,
                   fontsize='small')
    return fig


def report(results, graphs):
    versions = ', '.join(f'{name} {version}'
                         for name, version in machine().items()
                         if name in ('python', 'torch', 'torch-geometric'))
    proven = [value[GAME]['epsilon'] > epsilon for graph in graphs
              for epsilon in EPSILONS
              for value in results.get(key(graph, epsilon), [])]
    above = sum(proven)
    text = (
        f'# Attacks on neighbour votes\n\n'
        f'What is found of private edges behind `NeighbourVotes`, with one '
        f'round, its default form and base, all edges private, features and '
        f'labels public. Epsilon is that of one edge that comes or goes, and '
        f'is pure. Mean and 95% t-interval over seeds, each with its own '
        f'split, node numbers, noise and candidates.\n\n'
        f'**LinkTeller, as served.** `predict` answers from votes that were '
        f'released and scores that were stored, whatever features are sent. '
        f'An attack that changes features has nothing to measure: it is at '
        f'chance, at every epsilon. **Base asked again** is a server that does '
        f'more: the base judges the features that are sent, while votes stay '
        f'as they were released. Features then act on other nodes where the '
        f'base averages over neighbours by features, which are public, as it '
        f'does on Cora; on the schools it does not, and nothing acts. *Base '
        f'alone* is that base without any vote, which has seen no private '
        f'edge: what is found there is told by features.\n\n'
        f'**The strongest attacker** knows all noisy votes, the ballots and '
        f'the certainty of all nodes, all public numbers, and the whole graph '
        f'but the candidate pair. Its score is the exact logarithm of how much '
        f'likelier the votes are with the edge than without; that is never '
        f'beyond epsilon. Nobody who tests one pair by its votes does better. '
        f'*Prior and votes* adds what it believed before: odds from features, '
        f'ballots, degrees and neighbours in common, learnt from all other '
        f'pairs. The same attacker without the target has the prior alone, and '
        f'what is above that is leaked. No bound in terms of epsilon holds for '
        f'these numbers by themselves, since different pairs are compared, '
        f'which are not alike before any vote.\n\n'
        f'**Like with like** is the experiment of the definition: a coin for '
        f'each candidate, a true edge, decides whether it is in the graph. '
        f'All else is the same, so that without the target the AUC is 0.5 '
        f'and the true-positive rate the false-positive one. "At most" is '
        f'what pure epsilon allows: a true-positive rate of exp(epsilon) '
        f'times the false-positive one (and the same of what is missed), and '
        f'an AUC of 1 / (1 + exp(-epsilon)). Ballots and directions depend on '
        f'no private edge, so that coins and noise are drawn {DRAWS} times '
        f'for each fitted base, by the mechanism of the model. In each draw, '
        f'a node that hears others has one candidate: noises are independent, '
        f'and numbers may be above the bound by sampling error alone. '
        f'"Epsilon is at least" is the lower bound that the attack proves '
        f'with {CONFIDENCE:.0%} confidence in each seed (below zero: '
        f'nothing; {above} of {len(proven)} are above epsilon, and '
        f'{1 - CONFIDENCE:.0%} may be), and "largest score" is the '
        f'largest logarithm of a ratio '
        f'of likelihoods in all of them. That both come close to epsilon says '
        f'that noise is not wasted; and at epsilon 4 this attacker, who knows '
        f'all else, is seldom wrong.\n\n'
        f'**GCN without privacy** is trained on the same edges, and attacked '
        f'by LinkTeller, who knows features alone. An attacker who knew as '
        f'much as the strongest one would compute the answers of the GCN with '
        f'the edge and without, and see which of them it gave: nothing bounds '
        f'what is found.\n\n'
        f'Made by `python -m benchmarks.vote_attack_table`, with {versions}.'
        f'\n\n![attacks](vote_attack.png)\n\n')
    for graph in graphs:
        text += (f'## {graph}\n\n' + suspected(results, graph)
                 + alike(results, graph))
    return text


def write(results, out):
    graphs = [graph for graph in GRAPHS if results.get(key(graph, None))
              and any(results.get(key(graph, e)) for e in EPSILONS)]
    (out / 'vote_attack.md').write_text(report(results, graphs))
    fig = figure(results, graphs)
    fig.savefig(out / 'vote_attack.png', dpi=110)
    plt.close(fig)


def main(arguments=None):
    parser = resumable.parser(__doc__, GRAPHS, EPSILONS, SEEDS)
    parser.add_argument('--again', action='store_true',
                        help='run all cells again')
    args = parser.parse_args(arguments)
    store = args.out / 'vote_attack.json'
    results = resumable.load(store)
    todo = [(graph, epsilon) for graph in args.graphs
            for epsilon in (None, *args.epsilons)]
    if args.again:
        for cell in todo:
            results.pop(key(*cell), None)
    for seeds in range(1, args.seeds + 1):  # Of one seed, the base is kept.
        resumable.fill(results, store, todo, key, result, seeds)
    write(results, args.out)


if __name__ == '__main__':
    torch.set_num_threads(1)
    main()
