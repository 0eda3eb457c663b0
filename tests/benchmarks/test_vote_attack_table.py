"""The strongest attacker finds what epsilon allows, and no more."""
import json
import math

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from benchmarks import vote_attack_table as table
from torch_geometric_dp.attacks import MembershipInference
from torch_geometric_dp.audit.clopper_pearson import lower_limit
from torch_geometric_dp.graph.pairs import to_pairs
from torch_geometric_dp.mechanisms import EdgeVotes
from torch_geometric_dp.nn.models import neighbour_votes, public_base
from torch_geometric_dp.noise import NoiseSource

FALSE_ALARM = 1e-6


def people(n=60, degree=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.nn.functional.one_hot(y, 3) + 0.5 * torch.randn(
        n, 3, generator=generator)
    u, v = torch.randint(n, (2, n * degree // 2), generator=generator)
    edges = torch.stack([u, v])[:, u != v]
    masks = torch.rand(n, generator=generator) < 0.5
    return Data(x=x, y=y, edge_index=to_undirected(edges, num_nodes=n),
                train_mask=masks, val_mask=~masks, test_mask=~masks)


@pytest.fixture
def fast(monkeypatch):
    """A base that need not be trained."""
    monkeypatch.setattr(
        neighbour_votes, 'public_beliefs',
        lambda base, x, known, edge_index: x.log_softmax(dim=1))


def played(epsilon, draws=300, true_epsilon=None):
    """Who was in, and the evidence, if votes have the noise of an epsilon that
    may not be the one that is promised.
    """
    model = table.Watched(3, 3, epsilon, seed=0).fit(people())
    edges, ballots, certainty, _ = model.seen
    mechanism = EdgeVotes(true_epsilon or epsilon)
    return table.like_with_like(mechanism, edges, ballots, certainty, 0, draws)


def exceeds(truth, scores, epsilon):
    """Whether a test with one of a few limits, fixed before, finds more than
    the bound allows, by more than sampling error: also one that looks for
    edges that are not there.
    """
    limits = np.linspace(-0.95, 0.95, 7) * epsilon
    risk = FALSE_ALARM / (4 * len(limits))
    for limit in limits:
        for true, false in ((scores[truth] > limit, scores[~truth] > limit),
                            (scores[~truth] <= limit, scores[truth] <= limit)):
            least = lower_limit(true.sum(), len(true), risk)
            most = 1 - lower_limit((~false).sum(), len(false), risk)
            if least > table.at_most(epsilon, float(most)):
                return True
    return False


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 4.0])
def test_never_beyond_the_bound(fast, epsilon):
    truth, scores = played(epsilon)
    assert len(truth) > 10_000
    assert 0 < np.abs(scores).max() <= epsilon
    assert not exceeds(truth, scores, epsilon)
    # Nor does it prove more than that, and it proves most of it.
    found = table.epsilon_found(truth, scores, epsilon)
    assert found < epsilon + 0.05
    assert epsilon < 1 or found > 0.85 * epsilon


def test_half_of_the_noise_is_caught(fast):
    assert exceeds(*played(1.0, true_epsilon=2.0), 1.0)


@pytest.mark.parametrize('oriented', [True, False])
def test_evidence(oriented):
    # One pair after the other, by the law of the noise itself.
    data = people(12, 4)
    edges, ballots = to_pairs(data.edge_index), data.x.softmax(dim=1)
    ballots[:6] = torch.eye(3)[data.y[:6]]
    certainty = ballots.max(dim=1).values
    votes = EdgeVotes(0.7, oriented)
    noisy = votes(edges, ballots, certainty, NoiseSource.from_seed(0))
    pairs = np.arange(12 * 11 // 2)

    def likelihood(graph):
        exact = votes.count(graph, ballots, certainty)
        return -float((noisy * votes.steps - exact).abs().sum()) / float(
            votes.scale(3))

    found = table.evidence(votes, edges, ballots, certainty, noisy, pairs)
    for pair, value in zip(pairs, found):
        one = np.union1d(edges, [pair])
        other = np.setdiff1d(edges, [pair])
        assert math.isclose(value, likelihood(one) - likelihood(other),
                            abs_tol=1e-6)
    assert np.abs(found).max() <= 0.7


def test_noise_is_that_of_the_model(fast):
    model = table.Watched(3, 3, 1.0, seed=0).fit(people())
    edges, ballots, certainty, votes = model.seen
    exact = model.mechanism.count(edges, ballots, certainty)
    rest = votes - exact / model.mechanism.steps
    # The mean size of Laplace noise is its scale.
    assert 0.7 < float(rest.abs().mean()) < 1.3


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 8.0])
def test_bounds(epsilon):
    most = MembershipInference.bounds(epsilon)
    assert math.isclose(table.at_most(epsilon, 0.01), most['TPR at 1% FPR'])
    assert math.isclose(table.bounds(epsilon)['AUC'],
                        1 / (1 + math.exp(-epsilon)))
    line = np.linspace(0, 1, 100_001)
    area = np.mean([table.at_most(epsilon, false) for false in line])
    assert math.isclose(area, most['AUC'], rel_tol=1e-4)


def test_base_is_asked_again(monkeypatch):
    monkeypatch.setattr(public_base, '_EPOCHS', 5)
    data = people()
    kept = table.Kept(public_base.default_base(3, 3))
    model = table.Watched(3, 3, 1.0, base=kept, seed=0).fit(data)
    base = table.Base(kept, model.belief, data.x)
    assert torch.allclose(base(data.x), model.belief, atol=1e-3)
    x = data.x.clone()
    x[5] *= 1.5
    change = (base(x) - base(data.x)).abs().sum(dim=1)
    assert change[5] > 1e-3
    # Only those who have features in common with a node are moved by it.
    assert (change[base.reach[:, 5] == 0] == 0).all()


def test_table_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(public_base, '_EPOCHS', 5)
    monkeypatch.setattr(table, 'load', lambda graph, share, seed: people(
        seed=seed))
    monkeypatch.setattr(table, 'PROBES', 30)
    monkeypatch.setattr(table, 'DRAWS', 3)
    table.target.cache_clear()
    arguments = ['--graphs', 'Cora', '--epsilons', '0.5', '2', '--seeds', '2',
                 '--out', str(tmp_path)]
    table.main(arguments)
    results = json.loads((tmp_path / 'vote_attack.json').read_text())
    cells = results[table.key('Cora', 2.0)]
    assert len(cells) == 2
    # Whatever is sent, what is served stays as it is.
    assert [cell[table.SERVED]['AUC'] for cell in cells] == [0.5, 0.5]
    assert all(cell['largest'] <= 2.0 for cell in cells)
    text = (tmp_path / 'vote_attack.md').read_text()
    assert '| LinkTeller, as served | 0.5 | 0.500 ± 0.000 |' in text
    assert '435 candidate pairs' in text
    assert (tmp_path / 'vote_attack.png').exists()
    # It goes on where it stopped, and here that is the end.
    monkeypatch.setattr(table, 'result', None)
    table.main(arguments)
    table.target.cache_clear()
