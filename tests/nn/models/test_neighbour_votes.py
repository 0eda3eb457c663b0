import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.utils import to_undirected

from torch_geometric_dp import (
    ContentChanged,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.audit import audit, verify_exactly
from torch_geometric_dp.mechanisms import EdgeVotes
from torch_geometric_dp.nn.models import (
    NeighbourVotes,
    neighbour_votes,
    public_base,
)
from torch_geometric_dp.nn.models.public_base import public_beliefs
from torch_geometric_dp.transforms import Laplace


def planted(degree=30, seed=0, random=False):
    """300 people of three classes, four of five of whose edges stay in the
    class, or none for that reason; rows tell little.
    """
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(300) % 3
    x = torch.nn.functional.one_hot(y, 3) + 1.5 * torch.randn(
        300, 3, generator=generator)
    u = torch.randint(300, (300 * degree // 2, ), generator=generator)
    far = torch.randint(300, u.shape, generator=generator)
    near = torch.randint(100, u.shape, generator=generator) * 3 + y[u]
    stays = torch.rand(u.shape, generator=generator) < 0.8
    v = far if random else torch.where(stays, near, far)
    known = torch.rand(300, generator=generator) < 0.5
    return Data(x=x, y=y, edge_index=to_undirected(torch.stack([u, v])),
                train_mask=known)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """These rows need no long training."""
    monkeypatch.setattr(public_base, '_EPOCHS', 30)
    monkeypatch.setattr(public_base, '_FOLDS', 2)


@pytest.fixture(scope='module')
def people():
    return planted()


@pytest.fixture
def fast(monkeypatch):
    """A base that need not be trained."""
    def believe(base, x, known, edge_index):
        assert (known >= 0).sum() < len(known)  # No hidden label.
        return x[:, :int(known.max()) + 1].log_softmax(dim=1)

    monkeypatch.setattr(neighbour_votes, 'public_beliefs', believe)


def accuracy(data, model):
    rest = ~data.train_mask
    return float((model.predict(data) == data.y)[rest].float().mean())


def base_accuracy(data):
    belief = public_beliefs(
        neighbour_votes.default_base(3, 3), data.x,
        torch.where(data.train_mask, data.y, -1), torch.empty(2, 0).long())
    rest = ~data.train_mask
    return float((belief.argmax(dim=1) == data.y)[rest].float().mean())


def test_votes_pay(people):
    base = base_accuracy(people)
    assert base < 0.7
    for form in ('oriented', 'both'):
        model = NeighbourVotes(3, 3, 1.0, form, seed=0).fit(people)
        assert accuracy(people, model) > base + 0.2


def test_edges_that_tell_nothing_cost_little():
    data = planted(random=True)
    model = NeighbourVotes(3, 3, 1.0, seed=0).fit(data)
    assert accuracy(data, model) > base_accuracy(data) - 0.05


def test_public_edges_are_free(people):
    data = people.clone()
    u, v = data.edge_index
    data.edge_private = (u * 7 + v * 7) % 10 < 5  # The same in both directions.
    half = NeighbourVotes(3, 3, 0.01, seed=0).fit(data)
    none = NeighbourVotes(3, 3, 0.01, seed=0).fit(people)
    assert accuracy(data, half) > accuracy(people, none) + 0.1


def test_ledger(people, fast):
    model = NeighbourVotes(3, 3, 1.0, seed=0).fit(people)
    assert model.privacy.epsilon('edges') == 1.0
    assert model.privacy.delta('edges') == 0.0
    for unit in ('features', 'labels'):
        assert model.privacy.epsilon(unit) == float('inf')
    release, = model.privacy.releases
    assert release.mechanism == 'NeighbourVotes'
    assert release.fields == ('edge_index', )
    assert 'epsilon=1.0' in release.call
    for rounds in (1, 2, 3):
        model = NeighbourVotes(3, 3, 3.0, rounds=rounds, seed=0).fit(people)
        assert len(model.privacy.releases) == rounds
        assert model.privacy.epsilon('edges') == 3.0
        assert model.mechanism.epsilon == 3.0 / rounds
        exact = verify_exactly(model)
        assert exact.holds and exact.exact == pytest.approx(3.0, rel=1e-5)


def test_budget(people, fast):
    data = people.clone()
    data.privacy_budget = PrivacyBudget(edges=1.5)
    model = NeighbourVotes(3, 3, 1.0).fit(data)
    assert data.privacy_budget.remaining('edges') == 0.5
    again = NeighbourVotes(3, 3, 1.0).fit(data)
    assert torch.equal(again.scores, model.scores)
    assert data.privacy_budget.remaining('edges') == 0.5
    refused = NeighbourVotes(3, 3, 0.6)
    with pytest.raises(PrivacyBudgetExceeded):
        refused.fit(data)
    with pytest.raises(RuntimeError, match='fit'):
        refused.predict(data)
    with pytest.raises(PrivacyBudgetExceeded):
        model.renew().fit(data)
    data.edge_index = data.edge_index[:, (data.edge_index > 0).all(dim=0)]
    with pytest.raises(ContentChanged):
        NeighbourVotes(3, 3, 1.0).fit(data)


@pytest.mark.parametrize('unit', ['features', 'labels', 'node'])
def test_what_is_taken_as_public_must_be(people, unit, fast):
    data = people.clone()
    degree = {'max_degree': 100} if unit == 'node' else {}
    data.privacy_budget = PrivacyBudget(**{unit: 8.0}, **degree)
    with pytest.raises(PrivacyBudgetExceeded):
        NeighbourVotes(3, 3, 1.0).fit(data)


def test_what_was_released_is_read_for_free(people, fast):
    data = people.clone()
    data.privacy_budget = PrivacyBudget(features=8.0, edges=1.0)
    released = Laplace(8.0, bounds=(-9.0, 9.0))(data)
    model = NeighbourVotes(3, 3, 1.0).fit(released)
    assert model.privacy.epsilon('features') == 8.0
    assert model.privacy.epsilon('labels') == float('inf')
    released.x = data.x  # Not what was released.
    with pytest.raises((PrivacyBudgetExceeded, ValueError)):
        NeighbourVotes(3, 3, 0.5).fit(released)


def test_without_a_budget_noise_is_drawn_again(people, fast):
    model = NeighbourVotes(3, 3, 1.0).fit(people)
    first = model.scores.clone()
    with pytest.warns(UserWarning, match='again'):
        model.fit(people)
    assert not torch.equal(first, model.scores)
    assert model.privacy.epsilon('edges') == 2.0


@pytest.mark.parametrize('form', ['oriented', 'both'])
@pytest.mark.parametrize('rounds', [1, 2])
def test_edges_are_seen_through_votes_alone(form, rounds, monkeypatch):
    # With the same votes, other private edges change nothing.
    generator = torch.Generator().manual_seed(0)
    votes = 10 * torch.rand(300, 3, generator=generator).double()
    monkeypatch.setattr(EdgeVotes, '__call__', lambda *args: votes)
    out = []
    for degree, seed in ((4, 1), (20, 2)):
        data, other = planted(), planted(degree, seed)
        data.edge_private = torch.zeros(data.num_edges, dtype=torch.bool)
        data.edge_index = torch.cat([data.edge_index, other.edge_index], dim=1)
        data.edge_private = torch.cat([data.edge_private, torch.ones(
            other.num_edges, dtype=torch.bool)])
        out.append(NeighbourVotes(3, 3, 1.0, form, rounds, seed=0).fit(data))
    assert torch.equal(out[0].scores, out[1].scores)


def test_hidden_labels_change_nothing(people, fast):
    one = NeighbourVotes(3, 3, 1.0, seed=0).fit(people)
    data = people.clone()
    data.y = torch.where(data.train_mask, data.y, -1)
    two = NeighbourVotes(3, 3, 1.0, seed=0).fit(data)
    assert torch.equal(one.scores, two.scores)


def test_directions_copies_and_loops_change_nothing(people, fast):
    one = NeighbourVotes(3, 3, 1.0, seed=0).fit(people)
    data = people.clone()
    u, v = data.edge_index
    some = data.edge_index[:, u < v]
    loops = torch.arange(300).expand(2, -1)
    data.edge_index = torch.cat([some.flip(0), some[:, :50], loops], dim=1)
    two = NeighbourVotes(3, 3, 1.0, seed=0).fit(data)
    assert torch.equal(one.scores, two.scores)


class Fit:
    """What can be seen of a fitted model."""
    def __init__(self):
        self.model = NeighbourVotes(3, 3, 1.0, seed=0)
        self.guarantee = self.model.guarantee

    def __call__(self, data):
        return Data(scores=self.model.fit(data).scores, num_nodes=300,
                    edge_index=torch.empty(2, 0).long())


@pytest.mark.parametrize('silent', [False, True])
def test_audit_of_a_fit(fast, silent, monkeypatch):
    one, two = planted(6), planted(6)
    there = (two.edge_index == torch.tensor([[0], [3]])).all(dim=0)
    assert not there.any()
    two.edge_index = torch.cat([two.edge_index, torch.tensor([[0, 3], [3, 0]])],
                               dim=1)
    if silent:
        monkeypatch.setattr(EdgeVotes, 'release', lambda self, sums, scale,
                            source: sums / self.steps)
    report = audit(Fit(), one, two, trials=100, seed=0)
    assert report.accused == silent


@pytest.mark.parametrize('change, error, message', [
    ({'edge_weight': torch.ones(1)}, ValueError,
     "'edge_weight' must not be there"),
    ({'edge_attr': torch.ones(1)}, ValueError, "'edge_attr' must not be"),
    ({'train_mask': torch.zeros(300).bool()}, ValueError,
     "'train_mask' must select at least one node"),
    ({'train_mask': None}, ValueError, "'train_mask' must be a boolean"),
    ({'x': torch.ones(300, 2)}, ValueError, r"'x' must hold .* \[num_nodes, 3"),
    ({'y': torch.full((300, ), 3)}, ValueError, "'y' must hold classes"),
    ({'edge_private': torch.ones(3)}, ValueError,
     "'edge_private' must be a boolean tensor, one entry for each"),
    ({'edge_index': torch.tensor([[0], [300]])}, ValueError,
     "'edge_index' must hold nodes from 0 to 299"),
])
def test_wrong_graphs_are_refused(people, change, error, message):
    data = people.clone()
    for key, value in change.items():
        data[key] = value
    with pytest.raises(error, match=message):
        NeighbourVotes(3, 3, 1.0).fit(data)


def test_wrong_arguments_are_refused(people, fast):
    with pytest.raises(TypeError, match="'data' must be 'Data'"):
        hetero = HeteroData()
        hetero['a'].update(x=people.x, y=people.y,
                           train_mask=people.train_mask)
        NeighbourVotes(3, 3, 1.0).fit(hetero['a'])
    with pytest.raises(ValueError, match="'form'"):
        NeighbourVotes(3, 3, 1.0, form='none')
    with pytest.raises(ValueError, match="'rounds'"):
        NeighbourVotes(3, 3, 1.0, rounds=0)
    model = NeighbourVotes(3, 3, 1.0, seed=0)
    with pytest.raises(RuntimeError, match='fit'):
        model.predict(people)
    model.fit(people)
    with pytest.raises(ValueError, match='has 300 nodes .got 1.*cost again'):
        model.predict(Data(x=torch.ones(1, 3)))


def test_small_and_odd_graphs(fast):
    lone = Data(x=torch.ones(3, 4), y=torch.tensor([0, 2, 2]),
                edge_index=torch.empty(2, 0).long(),
                train_mask=torch.tensor([True, True, False]))
    for form in ('oriented', 'both'):
        model = NeighbourVotes(4, 4, 1.0, form, seed=0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(neighbour_votes, 'public_beliefs',
                          lambda base, x, known, edges: x.log_softmax(dim=1))
            assert model.fit(lone).predict(lone).shape == (3, )
            assert model.scores.isfinite().all()
    batch = Batch.from_data_list([planted(), planted(seed=1)])
    model = NeighbourVotes(3, 3, 1.0, seed=0).fit(batch)
    assert model.predict(batch).shape == (600, )


def test_it_is_saved_with_its_ledger(people, fast, tmp_path):
    model = NeighbourVotes(3, 3, 1.0, seed=0).fit(people)
    torch.save(model.state_dict(), tmp_path / 'votes.pt')
    again = NeighbourVotes(3, 3, 1.0)
    again.load_state_dict(torch.load(tmp_path / 'votes.pt'))
    assert torch.equal(again.predict(people), model.predict(people))
    assert again.privacy == model.privacy


def test_a_base_of_ones_own(people):
    torch.manual_seed(0)
    base = torch.nn.Linear(3, 3)
    before = base.weight.clone()
    state = torch.get_rng_state()
    model = NeighbourVotes(3, 3, 1.0, base=base, seed=0)
    one = model.fit(people).scores
    assert torch.equal(base.weight, before)  # Copies are trained.
    assert torch.equal(torch.get_rng_state(), state)
    two = NeighbourVotes(3, 3, 1.0, base=torch.nn.Linear(3, 3),
                         seed=0).fit(people).scores
    assert torch.equal(one, two)
    assert 'base=<Linear(' in repr(model)
