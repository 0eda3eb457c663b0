import copy

import pytest
import torch
from torch.utils.data import Dataset as TorchDataset
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose

from torch_geometric_dp import (
    ContentChanged,
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.mechanisms import RandomizedResponse
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.release import trials
from torch_geometric_dp.transforms import BoundDegree, FeatureRR, LabelRR

N = 2000  # With so many labels, two draws never agree by chance (3**-1000).


def labels(budget=None, n=N):
    data = Data(x=torch.zeros(n, 1), y=torch.arange(n) % 3)
    if budget is not None:
        data.privacy_budget = budget
    return data


class OneGraph(TorchDataset):
    """The same raw graph at every index, released at every access."""
    def __init__(self, data, transform, length):
        self.data, self.transform, self.length = data, transform, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.transform(self.data)


@pytest.mark.parametrize('context', ['fork', 'spawn'])
def test_one_release_over_epochs_and_workers(context):
    data = labels(PrivacyBudget(epsilon=1.0))
    transform = LabelRR(epsilon=0.6, num_classes=3)
    loader = DataLoader(OneGraph(data, transform, 50), batch_size=5,
                        num_workers=2, multiprocessing_context=context,
                        persistent_workers=context == 'spawn')
    outputs = [out for _ in range(2) for batch in loader
               for out in batch.to_data_list()]
    assert len(outputs) == 100
    for out in outputs:
        assert torch.equal(out.y, outputs[0].y)
        assert out.privacy == outputs[0].privacy
        assert out.privacy.epsilon('labels') == 0.6
        assert out.privacy_budget is data.privacy_budget
    # What the workers spent has come home, once; and here it is the same.
    assert data.privacy_budget.spent.epsilon('labels') == 0.6
    assert torch.equal(transform(data).y, outputs[0].y)
    assert data.privacy_budget.remaining('labels') == 0.4
    everything = PrivacyAccountant.merge(out.privacy for out in outputs)
    assert everything.epsilon('labels') == 0.6


def test_a_second_release_is_refused_before_it_draws(monkeypatch):
    data = labels(PrivacyBudget(epsilon=1.0))
    LabelRR(0.6, 3)(data)

    def draw(*args):
        raise AssertionError('noise was drawn')

    monkeypatch.setattr(RandomizedResponse, '__call__', draw)
    monkeypatch.setattr(NoiseSource, 'blocks', draw)
    monkeypatch.setattr(NoiseSource, 'gather', draw)
    for second in (LabelRR(0.5, 3), LabelRR(0.6, 4), LabelRR(0.6, 3).renew(),
                   LabelRR(0.6, 3, seed=0)):
        with pytest.raises(PrivacyBudgetExceeded) as info:
            second(data)
        assert info.value.requested == second.epsilon
        assert info.value.remaining == 0.4
    assert data.privacy_budget.spent.epsilon('labels') == 0.6


def test_two_branches_draw_on_one_budget():
    data = labels(PrivacyBudget(epsilon=1.0))
    one, two = data.clone(), copy.deepcopy(data)
    private = LabelRR(0.6, 3)(one)
    assert torch.equal(LabelRR(0.6, 3)(two).y, private.y)
    with pytest.raises(PrivacyBudgetExceeded):
        LabelRR(0.5, 3)(two)


def test_equal_content_on_two_graphs_gets_other_noise():
    transform = LabelRR(1.0, 3)
    one, two = (labels(PrivacyBudget(epsilon=1.0)) for _ in range(2))
    assert not torch.equal(transform(one).y, transform(two).y)
    assert transform(one).privacy != transform(two).privacy


def test_two_instances_with_equal_arguments_are_one_release():
    data = labels(PrivacyBudget(epsilon=2.0))
    private = LabelRR(1.0, 3)(data)
    again = LabelRR(epsilon=1, num_classes=3)(data)
    assert torch.equal(again.y, private.y) and again.privacy == private.privacy
    assert data.privacy_budget.remaining('labels') == 1.0
    # Other arguments have other noise, even where they change nothing else.
    data.everywhere = torch.ones(N, dtype=torch.bool)
    other = LabelRR(1.0, 3, mask='everywhere')(data)
    assert not torch.equal(other.y, private.y)
    assert data.privacy_budget.remaining('labels') == 0.0


def test_changed_content_is_refused_or_renewed():
    data = labels(PrivacyBudget(epsilon=2.0))
    transform = LabelRR(1.0, 3)
    before = transform(data)
    data.y = data.y.clone()
    data.y[0] = (data.y[0] + 1) % 3
    for other in (data, labels(data.privacy_budget, N - 1)):
        with pytest.raises(ContentChanged):
            transform(other)
    assert data.privacy_budget.remaining('labels') == 1.0
    after = transform.renew()(data)
    assert not torch.equal(after.y[1:], before.y[1:])
    assert data.privacy_budget.remaining('labels') == 0.0
    assert torch.equal(transform(data).y, after.y)
    with pytest.raises(PrivacyBudgetExceeded):
        transform.renew()(labels(data.privacy_budget, N - 1))
    # What was refused has changed nothing: the newest release is there yet.
    assert torch.equal(LabelRR(1.0, 3)(data).y, after.y)


def test_a_changed_mask_is_changed_content():
    data = labels(PrivacyBudget(epsilon=2.0))
    data.mask = torch.arange(N) < 100
    transform = LabelRR(1.0, 3, mask='mask')
    transform(data)
    data.mask = torch.arange(N) < 101
    with pytest.raises(ContentChanged):
        transform(data)
    # What is not read makes no difference.
    LabelRR(0.5, 3)(data)
    data.x = data.x + 1
    LabelRR(0.5, 3)(data)
    assert data.privacy_budget.remaining('labels') == 0.5


def test_changed_arguments_are_a_new_release():
    data = labels(PrivacyBudget(epsilon=1.0))
    transform = LabelRR(0.6, 3)
    transform(data)
    transform.epsilon = 6.0
    with pytest.raises(PrivacyBudgetExceeded):
        transform(data)


def test_without_a_budget_noise_is_fresh():
    data, transform = labels(), LabelRR(1.0, 3)
    with trials():
        one, two = transform(data), transform(data)
    assert not torch.equal(one.y, two.y)
    both = PrivacyAccountant.merge([one.privacy, two.privacy])
    assert both.epsilon('labels') == 2.0


def test_no_two_workers_draw_the_same_noise():
    loader = DataLoader(OneGraph(labels(), LabelRR(1.0, 3), 4), num_workers=2)
    outputs = [batch.y for batch in loader]
    assert len({tuple(y.tolist()) for y in outputs}) == 4


def test_seeds_repeat_and_are_recorded():
    data = labels()
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        transform = LabelRR(1.0, 3, seed=5)
        runs.append([transform(data), transform(data)])
    assert torch.equal(runs[0][0].y, runs[1][0].y)
    assert torch.equal(runs[0][1].y, runs[1][1].y)
    assert not torch.equal(runs[0][0].y, runs[0][1].y)  # Fresh every time.
    # Names of releases do not repeat: what was released twice adds up.
    ledgers = [run[0].privacy for run in runs]
    assert PrivacyAccountant.merge(ledgers).epsilon('labels') == 2.0
    assert runs[0][0].privacy.releases[0].seed == 5
    assert 'seeded with 5, not secret' in str(runs[0][0].privacy)
    assert not torch.equal(LabelRR(1.0, 3, seed=6)(data).y, runs[0][0].y)


def test_torch_seeds_do_not_matter():
    outputs = []
    for _ in range(2):
        torch.manual_seed(0)
        with trials():
            outputs.append(LabelRR(1.0, 3)(labels()).y)
    assert not torch.equal(*outputs)


def test_released_data_costs_nothing_more():
    budget = PrivacyBudget(epsilon=1.0)
    out = Compose([LabelRR(1.0, 3), LabelRR(5.0, 3), LabelRR(5.0, 3)])(
        labels(budget))
    assert out.privacy.epsilon('labels') == 1.0
    assert budget.remaining('labels') == 0.0
    assert out.privacy.releases[0].processed == repr(LabelRR(5.0, 3))


@pytest.mark.parametrize('budget', [True, False])
def test_raw_data_under_a_ledger_is_refused(budget):
    # Were it free iff it equals what was released, that would tell.
    data = labels(PrivacyBudget(epsilon=9.0) if budget else None)
    with trials():
        out = LabelRR(1.0, 3)(data)
    changed = out.y.clone()
    changed[0] = (changed[0] + 1) % 3
    for y in (data.y, changed, out.y[1:]):
        again = copy.copy(out)
        again.y = y
        with pytest.raises(ValueError, match="'y' must be as it was released"):
            LabelRR(1.0, 3)(again)
    # Another field is none of its business.
    FeatureRR(1.0, (0.0, 1.0))(out)


def test_an_overdrawn_compose_releases_nothing():
    budget = PrivacyBudget(epsilon=1.0)
    data = labels(budget)
    with pytest.raises(PrivacyBudgetExceeded):
        LabelRR(1.5, 3)(data)
    assert budget.spent.releases == () and 'privacy' not in data


@pytest.mark.parametrize('transform', [
    LabelRR(0.6, 3), FeatureRR(0.6, (0.0, 1.0)), BoundDegree(2)])
def test_raw_batches_of_a_loader_are_refused(transform):
    # Their noise would have to go by the node, and the content by the batch.
    data = labels(PrivacyBudget(epsilon=1.0))
    data.edge_index = torch.tensor([[0, 1], [1, 0]])
    data.n_id = torch.arange(N)
    with pytest.raises(ValueError, match=f"'n_id' tells .* that "
                       f"{type(transform).__name__} would be paid for .*: "
                       f"release the whole graph first, and sample batches "
                       f"from the release"):
        transform(data)
    hetero = HeteroData()
    hetero['a'].x, hetero['a'].y = data.x, data.y
    hetero['a', 'to', 'a'].edge_index = data.edge_index
    hetero['b'].n_id = torch.arange(3)  # One type of nodes is enough.
    hetero.privacy_budget = data.privacy_budget
    with pytest.raises(ValueError, match="'n_id' tells"):
        transform(hetero)
    assert data.privacy_budget.spent.releases == ()


def test_batches_of_a_release_are_free():
    data = labels(PrivacyBudget(epsilon=1.0))
    out = LabelRR(0.6, 3)(data)
    for seed in range(2):
        order = torch.randperm(N, generator=torch.Generator().manual_seed(seed))
        for n_id in order.split(300):
            batch = out.subgraph(n_id)
            assert batch.privacy == out.privacy
    assert data.privacy_budget.remaining('labels') == 0.4


@pytest.mark.sparse
@pytest.mark.parametrize('workers', [0, 2])
def test_neighbor_loader(workers):
    pytest.importorskip('torch_sparse')
    from torch_geometric.loader import NeighborLoader
    data = labels(PrivacyBudget(epsilon=1.0))
    node = torch.arange(N)
    data.edge_index = torch.stack([node, (node + 1) % N])
    options = dict(num_neighbors=[2, 2], batch_size=128, shuffle=True,
                   num_workers=workers)
    with pytest.raises(ValueError, match="'n_id'"):
        next(iter(NeighborLoader(data, transform=LabelRR(0.6, 3), **options)))
    assert data.privacy_budget.remaining('labels') == 1.0
    private = LabelRR(0.6, 3)(data)
    for batch in NeighborLoader(private, **options):
        assert torch.equal(batch.y, private.y[batch.n_id])
        assert batch.privacy.epsilon('labels') == 0.6
    assert data.privacy_budget.remaining('labels') == 0.4


def test_node_types_have_their_own_noise():
    data = HeteroData()
    data['a'].y = data['b'].y = torch.arange(N) % 3
    data.privacy_budget = PrivacyBudget(epsilon=1.0)
    out = LabelRR(1.0, 3)(data)
    assert not torch.equal(out['a'].y, out['b'].y)
