import copy

import pytest
import torch
from torch.utils.data import Dataset as TorchDataset
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose

from torch_geometric_dp import (
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.mechanisms import RandomizedResponse
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms import LabelRR

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
                        num_workers=2, multiprocessing_context=context)
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


def test_the_second_instance_is_refused_before_it_draws(monkeypatch):
    data = labels(PrivacyBudget(epsilon=1.0))
    LabelRR(0.6, 3)(data)
    second = LabelRR(0.6, 3)

    def draw(*args):
        raise AssertionError('noise was drawn')

    monkeypatch.setattr(RandomizedResponse, '__call__', draw)
    monkeypatch.setattr(NoiseSource, 'blocks', draw)
    monkeypatch.setattr(NoiseSource, 'gather', draw)
    with pytest.raises(PrivacyBudgetExceeded) as info:
        second(data)
    assert info.value.requested == 0.6 and info.value.remaining == 0.4
    assert data.privacy_budget.spent.epsilon('labels') == 0.6


def test_two_branches_draw_on_one_budget():
    data = labels(PrivacyBudget(epsilon=1.0))
    one, two = data.clone(), copy.deepcopy(data)
    LabelRR(0.6, 3)(one)
    with pytest.raises(PrivacyBudgetExceeded):
        LabelRR(0.6, 3)(two)


def test_equal_content_on_two_graphs_gets_other_noise():
    transform = LabelRR(1.0, 3)
    one, two = (labels(PrivacyBudget(epsilon=1.0)) for _ in range(2))
    assert not torch.equal(transform(one).y, transform(two).y)
    assert transform(one).privacy != transform(two).privacy


def test_two_instances_draw_other_noise():
    data = labels(PrivacyBudget(epsilon=2.0))
    assert not torch.equal(LabelRR(1.0, 3)(data).y, LabelRR(1.0, 3)(data).y)
    assert data.privacy_budget.remaining('labels') == 0.0


def test_changed_content_is_a_new_release():
    data = labels(PrivacyBudget(epsilon=2.0))
    transform = LabelRR(1.0, 3)
    before = transform(data)
    data.y = data.y.clone()
    data.y[0] = (data.y[0] + 1) % 3
    after = transform(data)
    assert not torch.equal(after.y[1:], before.y[1:])
    assert data.privacy_budget.remaining('labels') == 0.0
    with pytest.raises(PrivacyBudgetExceeded):
        transform(labels(data.privacy_budget, N - 1))


def test_changed_arguments_are_a_new_release():
    data = labels(PrivacyBudget(epsilon=1.0))
    transform = LabelRR(0.6, 3)
    transform(data)
    transform.epsilon = 6.0
    with pytest.raises(PrivacyBudgetExceeded):
        transform(data)


def test_without_a_budget_noise_is_fresh():
    data, transform = labels(), LabelRR(1.0, 3)
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
    assert runs[0][0].privacy == runs[1][0].privacy
    assert runs[0][0].privacy.releases[0].seed == 5
    assert 'seeded with 5, not secret' in str(runs[0][0].privacy)
    assert not torch.equal(LabelRR(1.0, 3, seed=6)(data).y, runs[0][0].y)


def test_torch_seeds_do_not_matter():
    outputs = []
    for _ in range(2):
        torch.manual_seed(0)
        outputs.append(LabelRR(1.0, 3)(labels()).y)
    assert not torch.equal(*outputs)


def test_released_data_costs_nothing_more():
    budget = PrivacyBudget(epsilon=1.0)
    out = Compose([LabelRR(1.0, 3), LabelRR(5.0, 3), LabelRR(5.0, 3)])(
        labels(budget))
    assert out.privacy.epsilon('labels') == 1.0
    assert budget.remaining('labels') == 0.0
    # But raw data that comes in again does.
    out.y = labels().y
    with pytest.raises(PrivacyBudgetExceeded):
        LabelRR(1.0, 3)(out)
    # And without a budget, it is one more release.
    out = LabelRR(1.0, 3)(labels())
    out.y = labels().y
    assert LabelRR(1.0, 3)(out).privacy.epsilon('labels') == 2.0


def test_an_overdrawn_compose_releases_nothing():
    budget = PrivacyBudget(epsilon=1.0)
    data = labels(budget)
    with pytest.raises(PrivacyBudgetExceeded):
        LabelRR(1.5, 3)(data)
    assert budget.spent.releases == () and 'privacy' not in data


def batches(data, transform, seed=0):
    """What a loader that samples neighbours hands out, without one."""
    order = torch.randperm(N, generator=torch.Generator().manual_seed(seed))
    for n_id in order.split(300):
        batch = copy.copy(data)
        batch.x, batch.y, batch.n_id = data.x[n_id], data.y[n_id], n_id
        yield transform(batch)


def test_batches_of_one_graph_are_one_release():
    data = labels(PrivacyBudget(epsilon=1.0))
    transform = LabelRR(0.6, 3)
    seen = torch.full((N, ), -1)
    for epoch in range(2):
        for batch in batches(data, transform, seed=epoch):
            if epoch == 0:
                seen[batch.n_id] = batch.y
            assert torch.equal(seen[batch.n_id], batch.y)
    assert data.privacy_budget.remaining('labels') == 0.4
    assert "hold the same values in all batches" in str(batch.privacy)
    # A changed row draws again; the others do not.
    data.y = data.y.clone()
    data.y[:1000] = (data.y[:1000] + 1) % 3
    again = torch.full((N, ), -1)
    for batch in batches(data, transform):
        again[batch.n_id] = batch.y
    assert torch.equal(again[1000:], seen[1000:])
    assert 300 < int((again[:1000] != seen[:1000]).sum()) < 900


def test_a_node_that_stands_twice_in_a_batch_is_released_once():
    data = labels()
    n_id = torch.arange(N).repeat(2)
    data.y, data.n_id = data.y[n_id], n_id
    y = LabelRR(1.0, 3)(data).y
    assert torch.equal(y[:N], y[N:])


def test_batches_in_which_some_rows_have_no_number_are_refused():
    budget = PrivacyBudget(epsilon=1.0)
    data = HeteroData()
    data['a'].y = data['b'].y = torch.arange(N) % 3
    data['a'].n_id = torch.arange(N)
    data.privacy_budget = budget
    with pytest.raises(ValueError, match="'n_id' must hold the number of each "
                       "of the 2000 rows of 'b.y'.*got None"):
        LabelRR(0.6, 3)(data)
    data['b'].n_id = torch.arange(N - 1)
    with pytest.raises(ValueError, match=r"got \[1999\]"):
        LabelRR(0.6, 3)(data)
    assert budget.spent.releases == ()
    data['b'].n_id = torch.arange(N)
    assert LabelRR(0.6, 3)(data).privacy.epsilon('labels') == 0.6


@pytest.mark.sparse
@pytest.mark.parametrize('workers', [0, 2])
def test_neighbor_loader(workers):
    pytest.importorskip('torch_sparse')
    from torch_geometric.loader import NeighborLoader
    data = labels(PrivacyBudget(epsilon=1.0))
    node = torch.arange(N)
    data.edge_index = torch.stack([node, (node + 1) % N])
    loader = NeighborLoader(data, num_neighbors=[2, 2], batch_size=128,
                            transform=LabelRR(0.6, 3), shuffle=True,
                            num_workers=workers)
    seen = torch.full((N, ), -1)
    for _ in range(2):
        for batch in loader:
            known = seen[batch.n_id] >= 0
            assert torch.equal(batch.y[known], seen[batch.n_id][known])
            seen[batch.n_id] = batch.y
            assert batch.privacy.epsilon('labels') == 0.6
    assert (seen >= 0).all()
    assert data.privacy_budget.remaining('labels') == 0.4


def test_node_types_have_their_own_noise():
    data = HeteroData()
    data['a'].y = data['b'].y = torch.arange(N) % 3
    data.privacy_budget = PrivacyBudget(epsilon=1.0)
    out = LabelRR(1.0, 3)(data)
    assert not torch.equal(out['a'].y, out['b'].y)
