import math
from types import SimpleNamespace

import pytest
import torch
from scipy import stats
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from tests.conftest import FALSE_ALARM
from tests.nn.models.test_neighbour_votes import planted
from torch_geometric_dp import (
    ContentChanged,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.accountant.gaussian import gaussian_loss
from torch_geometric_dp.audit import verify_exactly
from torch_geometric_dp.audit.clopper_pearson import lower_limit
from torch_geometric_dp.mechanisms import NodeVotes
from torch_geometric_dp.nn.models import NeighbourVotes, node_level_votes
from torch_geometric_dp.noise import NoiseSource


def model(epsilon=8.0, seed=0, **arguments):
    arguments = arguments or dict(edges=1)
    return NeighbourVotes(3, 3, epsilon, unit='node', delta=1e-5, seed=seed,
                          **arguments)


@pytest.fixture(scope='module')
def people():
    data = planted(degree=60)
    data.x = data.x.clamp(min=0.0)
    return data


def right(data, classes):
    return float((classes == data.y)[~data.train_mask].float().mean())


@pytest.mark.parametrize('arguments', [dict(edges=1), dict(edges=5),
                                       dict(max_degree=100)])
def test_votes_find_the_classes(people, arguments):
    fitted = model(16.0, **arguments).fit(people)
    assert right(people, fitted.predict(people)) > 0.8
    ledger = fitted.privacy
    assert ledger.epsilon('features') == ledger.epsilon('labels') == 16.0
    if 'edges' in arguments:
        assert ledger.epsilon('node', **arguments) == 16.0
    else:
        assert ledger.epsilon('node', relation='replace') == 16.0
    assert 'for that node alone' in str(ledger)
    assert verify_exactly(fitted).exact <= 16.0


def test_few_edges_are_not_asked(people, monkeypatch):
    few = people.clone()
    few.edge_index = few.edge_index[:, :100]

    def never(*args):
        raise AssertionError

    monkeypatch.setattr(NodeVotes, '__call__', never)
    model(1.0).fit(few)
    with pytest.raises(AssertionError):
        model(16.0).fit(people)


def test_what_a_person_without_a_label_is_told_is_told_to_nobody_else(
        people, monkeypatch):
    monkeypatch.setattr(NeighbourVotes, 'admit', lambda *args: SimpleNamespace(
        source=NoiseSource.from_seed(0)))  # The same noise, whatever is read.
    w = int((~people.train_mask).nonzero()[0])
    other = people.clone()
    other.x = people.x.clone()
    other.x[w] = torch.tensor([9.0, 0.0, 4.0])
    other.y = people.y.clone()
    other.y[w] = (people.y[w] + 1) % 3  # Which is never read.
    one, two = model().fit(people).scores, model().fit(other).scores
    changed = (one != two).any(dim=1)
    assert changed.nonzero().view(-1).tolist() == [w]


def planted_people(count, coins):
    """People with a label, each with one neighbour without, who hears nobody
    else.
    """
    u = torch.arange(count)
    y = torch.cat([coins.long(), torch.zeros(count, dtype=torch.long)])
    return Data(x=torch.ones(2 * count, 1), y=y, train_mask=torch.arange(
        2 * count) < count, edge_index=to_undirected(torch.stack([
            u, u + count])))


def tried(data, coins, monkeypatch, scale=1.0):
    """A lower bound on the noise's loss, from the whole of a fit: people are
    planted, each with a coin for a label, and their neighbours' scores tell.
    Coins are told apart best by the difference of two scores, and noise of
    one of them is independent of all others. A guess is right with a chance of
    at most Phi(1 / (2 multiplier)), by the definition of Gaussian privacy.
    """
    monkeypatch.setattr(node_level_votes, '_LEAST', 0.0)
    plain = NodeVotes.scale
    monkeypatch.setattr(NodeVotes, 'scale', lambda *args: scale * plain(*args))
    fitted = NeighbourVotes(1, 2, 4.0, unit='node', delta=1e-5, edges=1,
                            seed=0).fit(data)
    heard = fitted.scores[len(coins):]
    gap = heard[:, 1] - heard[:, 0]
    guess = gap > gap.median()
    hits = int((guess == coins).sum())
    p = float(lower_limit(hits, len(coins), FALSE_ALARM))
    multiplier = 1 / (2 * stats.norm.ppf(max(p, 0.5 + 1e-9)))
    return gaussian_loss(multiplier, 1e-5), hits / len(coins)


def test_planted_people_are_as_private_as_promised(monkeypatch):
    coins = torch.rand(20_000, generator=torch.Generator().manual_seed(1)) < 0.5
    data = planted_people(len(coins), coins)
    bound, share = tried(data, coins, monkeypatch)
    assert bound <= 4.0
    votes = NodeVotes(4.0, 1e-5, edges=1)
    power = stats.norm.cdf(math.sqrt(0.85) / (2 * votes.multiplier))
    assert share == pytest.approx(power, abs=0.02)  # It is a good attack.
    bound, _ = tried(data, coins, monkeypatch, scale=1 / math.sqrt(2))
    assert bound > 4.0  # A factor was lost.


def test_a_budget_pays_once(people):
    data = people.clone()
    data.privacy_budget = PrivacyBudget(node=8.0, node_edges=1, delta=1e-5)
    one = model(seed=None).fit(data).scores
    assert data.privacy_budget.remaining('node') == pytest.approx(0.0,
                                                                  abs=1e-3)
    assert torch.equal(model(seed=None).fit(data).scores, one)
    with pytest.raises(PrivacyBudgetExceeded):
        model(7.0, seed=None).fit(data)
    sparse = data.clone()
    sparse.x = data.x.to_sparse()
    same = model(seed=None).fit(sparse)
    assert torch.equal(same.predict(sparse), one.argmax(dim=1))
    data.y = data.y.roll(1)
    with pytest.raises(ContentChanged):
        model(seed=None).fit(data)


@pytest.mark.parametrize('where', [True, False])
def test_what_is_refused_costs_nothing(people, where):
    data = people.clone()
    data.x = people.x.clone()
    data.x[(data.train_mask == where).nonzero()[0]] = -1.0
    data.privacy_budget = PrivacyBudget(node=16.0, node_edges=1, delta=1e-5)
    with pytest.raises(ValueError, match="'x' must not be negative"):
        model(seed=None).fit(data)
    with pytest.raises(ValueError, match="'max_degree' must be larger"):
        model(seed=None, max_degree=2).fit(data)
    assert data.privacy_budget.remaining('node') == 16.0
    signed = model(16.0, edges=1, clip=1.0).fit(data)
    assert right(data, signed.predict(data)) > 0.8


@pytest.mark.parametrize('arguments, message', [
    (dict(unit='node', edges=1), "'delta' must be given"),
    (dict(unit='node', delta=1e-5), "Either 'edges'"),
    (dict(unit='node', delta=1e-5, edges=1, rounds=2), "'rounds' must not"),
    (dict(unit='node', delta=1e-5, edges=1, form='both'), "'form' must not"),
    (dict(unit='node', delta=1e-5, edges=1, private='p'), "'private' must"),
    (dict(delta=1e-5), "'delta' must not be given for unit='edge'"),
    (dict(edges=2), "'edges' must not be given"),
    (dict(max_degree=2), "'max_degree' must not be given"),
    (dict(clip=1.0), "'clip' must not be given for unit='edge'"),
    (dict(unit='graph'), "'unit' must be"),
])
def test_what_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        NeighbourVotes(3, 3, 1.0, **arguments)


def test_a_cap_has_to_hold(people):
    with pytest.raises(ValueError, match="'max_degree' must be larger"):
        model(max_degree=3).fit(people)


def test_a_copy_knows_what_was_told(people):
    fitted = model().fit(people)
    other = model(seed=1)
    other.load_state_dict(fitted.state_dict())
    assert torch.equal(other.predict(people), fitted.predict(people))
    assert other.privacy.epsilon('node', edges=1) == 8.0
