import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from tests.conftest import FALSE_ALARM
from torch_geometric_dp.accountant import Unit
from torch_geometric_dp.audit import (
    PrivacyViolation,
    audit,
    verify_exactly,
)
from torch_geometric_dp.graph.pairs import from_pairs, to_pairs
from torch_geometric_dp.mechanisms import EdgeVotes, edge_votes
from torch_geometric_dp.noise import NoiseSource

FORMS = pytest.mark.parametrize('oriented', [True, False])
RELATIONS = pytest.mark.parametrize('relation', ['add-remove', 'replace'])
N, PAIRS = 4, 6
GRAPHS = [np.array([pair for pair in range(PAIRS) if number >> pair & 1],
                   np.int64) for number in range(2**PAIRS)]


def neighbours(relation):
    """All pairs of graphs with four nodes that differ in one edge."""
    out = []
    for i, j in itertools.combinations(range(len(GRAPHS)), 2):
        apart = len(set(GRAPHS[i]) ^ set(GRAPHS[j]))
        if apart == 1 if relation == 'add-remove' else (
                apart == 2 and len(GRAPHS[i]) == len(GRAPHS[j])):
            out.append((i, j))
    return np.array(out).T


def elections():
    """Ballots and certainties: all sure of one class, of different ones, not
    sure at all, and with ties.
    """
    generator = torch.Generator().manual_seed(0)
    one, all_ = torch.eye(3)[[0, 0, 0, 0]], torch.eye(3)[[0, 1, 2, 0]]
    yield one, torch.tensor([0.9, 0.5, 0.7, 0.1])
    yield all_, torch.tensor([0.1, 0.2, 0.3, 0.4])
    yield all_, torch.zeros(N)
    yield (torch.rand(N, 3, generator=generator).softmax(dim=1),
           torch.rand(N, generator=generator).round(decimals=1))


def losses(mechanism, election, relation):
    """The loss of the worst output, for all neighbouring graphs. P(z) is
    proportional to exp(-|z| / scale): it is the L1 distance over the scale.
    """
    sums = torch.stack([mechanism.count(pairs, *election) for pairs in GRAPHS])
    one, two = neighbours(relation)
    return (sums[one] - sums[two]).abs().sum(dim=(1, 2)).numpy() / float(
        mechanism.scale(3))


@FORMS
@RELATIONS
@pytest.mark.parametrize('epsilon', [0.1, 4.0])
def test_exact_loss_of_all_small_graphs(oriented, relation, epsilon):
    mechanism = EdgeVotes(epsilon, oriented, relation)
    worst = max(losses(mechanism, election, relation).max()
                for election in elections())
    # Never more, and no smaller epsilon holds.
    assert epsilon * (1 - 1e-5) < worst <= epsilon
    exact = verify_exactly(mechanism)
    assert exact.holds and exact.claimed == epsilon
    assert epsilon * (1 - 1e-5) < exact.exact <= epsilon


@FORMS
@RELATIONS
def test_two_rounds_add_up(oriented, relation):
    # What the first round says decides how the second one votes.
    mechanism = EdgeVotes(0.5, oriented, relation)
    single = [losses(mechanism, election, relation)
              for election in elections()]
    both = [first + second
            for first, second in itertools.product(single, repeat=2)]
    assert 1 - 1e-5 < np.max(both) <= 1


class Halved(EdgeVotes):
    """Counts one end of an edge where both hear."""
    def scale(self, num_features, weight=None):
        return super().scale(num_features, weight) / 2


@FORMS
def test_a_halved_scale_is_caught(oriented):
    mechanism = Halved(1.0, oriented)
    election = next(elections())
    assert losses(mechanism, election, 'add-remove').max() > 1.9
    assert not verify_exactly(mechanism).holds


class Election:
    """Votes on a graph, whose rows are the ballots."""
    def __init__(self, mechanism):
        self.mechanism = mechanism
        self.guarantee = mechanism.guarantee

    def canaries(self, data=None):
        return self.mechanism.canaries()

    def __call__(self, data):
        return self.mechanism(to_pairs(data.edge_index), data.x,
                              torch.zeros(data.num_nodes),
                              NoiseSource.from_seed(int(torch.randint(
                                  2**62, ()))))


@FORMS
def test_audit(oriented):
    report = audit(Election(EdgeVotes(1.0, oriented)), trials=4000, seed=0)
    assert report.check().lower_bound > 0.3
    caught = audit(Election(Halved(1.0, oriented)), trials=4000, seed=0)
    with pytest.raises(PrivacyViolation):
        caught.check()


def coin(pair):
    """SplitMix64's last step, in integers."""
    z = (pair + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return bool((z ^ z >> 31) & 1)


@FORMS
def test_sums_are_those_of_the_equation(oriented):
    ballots, certainty = list(elections())[-1]
    mechanism = EdgeVotes(1.0, oriented)
    rows = mechanism.to_steps(ballots)
    for pairs in GRAPHS:
        expected = torch.zeros(N, 3, dtype=torch.double)
        for u, v in from_pairs(pairs).t().tolist():
            if not oriented or certainty[u] > certainty[v]:
                expected[v] += rows[u]
            if not oriented or certainty[v] > certainty[u]:
                expected[u] += rows[v]
            if oriented and certainty[u] == certainty[v]:
                low, high = (v, u) if coin(v * (v - 1) // 2 + u) else (u, v)
                expected[low] += rows[high]
        assert torch.equal(mechanism.count(pairs, ballots, certainty), expected)


def test_ties_are_broken_by_fair_coins_of_pairs():
    # Of the pair alone: or one edge could turn another one around.
    pairs = np.arange(50 * 49 // 2)
    ballots = torch.eye(50)
    sums = EdgeVotes(1.0).count(pairs, ballots, torch.zeros(50)) > 0
    heads = [coin(pair) for pair in pairs.tolist()]
    u, v = from_pairs(pairs)
    assert sums[v, u].tolist() == heads
    assert (sums[u, v] ^ sums[v, u]).all()
    assert stats.binomtest(sum(heads), len(pairs)).pvalue > FALSE_ALARM


@FORMS
def test_threads_change_nothing(oriented, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    ballots = torch.rand(30, 3, generator=generator).softmax(dim=1)
    certainty = torch.rand(30, generator=generator).round(decimals=1)
    pairs = np.arange(0, 435, 2)
    mechanism, out = EdgeVotes(1.0, oriented), []
    for threads in (1, 3):
        monkeypatch.setattr(torch, 'get_num_threads', lambda n=threads: n)
        monkeypatch.setattr(edge_votes, '_PER_NODE', 2)
        out.append(mechanism.count(pairs, ballots, certainty))
    assert torch.equal(*out) and out[0].sum() > 0


@FORMS
@RELATIONS
def test_noise_is_of_the_stated_scale(oriented, relation):
    mechanism = EdgeVotes(0.5, oriented, relation)
    expected = {True: 1, False: 2}[oriented] * (
        1 + (relation == 'replace')) / 0.5
    assert mechanism.deviation(4) == pytest.approx(expected, rel=1e-6)
    out = mechanism(np.empty(0, np.int64), torch.zeros(20_000, 4),
                    torch.zeros(20_000), NoiseSource.from_seed(0))
    size = out.abs().double()
    # The magnitude of Laplace noise is as large as its deviation.
    limit = stats.norm.isf(FALSE_ALARM / 2) / math.sqrt(size.numel())
    assert abs(float(size.mean()) / expected - 1) < limit


def test_promise():
    promise = EdgeVotes(1.0).guarantee
    assert promise.unit == Unit.EDGES and promise.epsilon == 1.0
    assert promise.delta == 0.0
    assert repr(EdgeVotes(1.0, oriented=False)) == (
        "EdgeVotes(epsilon=1.0, oriented=False)")
    with pytest.raises(ValueError, match="'epsilon'"):
        EdgeVotes(0.0)
