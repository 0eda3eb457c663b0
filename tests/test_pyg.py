"""A ledger that is lost, dropped or counted twice is a failed test here."""
import copy
import pickle
import warnings

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataLoader

from torch_geometric_dp import PrivacyAccountant, PrivacyBudget, pyg
from torch_geometric_dp.transforms import LabelRR


@pytest.fixture
def released(graph):
    graph.privacy_budget = PrivacyBudget(epsilon=1.0)
    return LabelRR(1.0, num_classes=3, mask='train_mask')(graph)


@pytest.mark.parametrize('change', [
    copy.copy,
    copy.deepcopy,
    lambda data: data.clone(),
    lambda data: data.to('cpu'),
    lambda data: data.cpu(),
    lambda data: data.detach(),
    lambda data: data.contiguous(),
    lambda data: data.share_memory_(),
    lambda data: data.to('meta'),
    lambda data: data.subgraph(torch.arange(5)),
    lambda data: data.edge_subgraph(torch.arange(5)),
    lambda data: data.sort(),
    lambda data: data.coalesce(),
    lambda data: T.ToSparseTensor(layout=torch.sparse_csr)(data),
    lambda data: T.RandomLinkSplit()(data)[0],
    lambda data: T.RandomLinkSplit()(data)[2],
    lambda data: T.RandomNodeSplit()(data),
    lambda data: T.LargestConnectedComponents()(data),
    lambda data: T.Compose([T.ToUndirected(), T.NormalizeFeatures()])(data),
    lambda data: pickle.loads(pickle.dumps(data)),
    lambda data: Data.from_dict(data.to_dict()),
    lambda data: data.to_heterogeneous(),
    lambda data: data.to_heterogeneous().to_homogeneous(),
    lambda data: Batch.from_data_list([data, data])[1],
    lambda data: Batch.from_data_list([data]).to_data_list()[0],
    lambda data: next(iter(DataLoader([data], num_workers=1)))[0],
])
def test_survival(released, change):
    out = change(released)
    assert out.privacy == released.privacy
    assert out.privacy_budget is released.privacy_budget
    assert PrivacyAccountant.of(out).epsilon('labels') == 1.0


@pytest.mark.sparse
def test_survival_of_sparse_tensors(released):
    pytest.importorskip('torch_sparse')
    out = T.ToSparseTensor()(released)
    assert out.privacy == released.privacy
    batch = Batch.from_data_list([out, out])
    assert batch[1].privacy == released.privacy


def test_hetero_data():
    data = HeteroData()
    data['paper'].x = torch.zeros(5, 1)
    data['paper'].y = torch.arange(5) % 3
    data['paper', 'cites', 'paper'].edge_index = torch.tensor([[0, 1], [1, 2]])
    data.privacy_budget = PrivacyBudget(epsilon=1.0)
    out = LabelRR(1.0, 3)(data)
    for again in (out.clone(), pickle.loads(pickle.dumps(out)),
                  Batch.from_data_list([out, out])[1], out.to('cpu'),
                  T.ToUndirected()(out),
                  out.subgraph({'paper': torch.arange(2)})):
        assert again.privacy == out.privacy
        assert again.privacy_budget is data.privacy_budget


def test_a_batch_merges_its_ledgers(graph):
    graphs = []
    for epsilon in (1.0, 2.0):
        data = graph.clone()
        data.privacy_budget = PrivacyBudget(epsilon=9.0)
        graphs.append(LabelRR(epsilon, 3)(data))
    # Different graphs hold different people; a copy is not another release.
    batch = Batch.from_data_list(graphs + graphs[:1])
    assert PrivacyAccountant.of(batch).epsilon('labels') == 2.0
    # What is not known to be different people adds up.
    unknown = [LabelRR(1.0, 3)(graph) for _ in range(3)]
    batch = Batch.from_data_list(unknown)
    assert PrivacyAccountant.of(batch).epsilon('labels') == 3.0
    assert PrivacyAccountant.of(Data()).releases == ()


@pytest.mark.parametrize('order', [(0, 1), (1, 0)])
def test_a_batch_of_raw_and_released_graphs_loses_nothing(released, graph,
                                                          order):
    raw = Data(x=graph.x, y=graph.y, edge_index=graph.edge_index,
               train_mask=graph.train_mask)
    graphs = [[released, raw][i] for i in order]
    batch = Batch.from_data_list(graphs)
    assert PrivacyAccountant.of(batch).epsilon('labels') == 1.0
    back = batch.to_data_list()
    assert back[order.index(0)].privacy == released.privacy
    assert back[order.index(0)].privacy_budget is released.privacy_budget
    assert back[order.index(1)].privacy == PrivacyAccountant()
    assert 'privacy' not in raw  # The input is not touched.
    # The one without a budget is released as one without a budget.
    again = LabelRR(0.5, 3, 'train_mask')(back[order.index(1)])
    assert again.privacy.releases[0].graph is None


def test_a_batch_without_ledgers_is_left_alone(graph):
    del graph.privacy_budget
    batch = Batch.from_data_list([graph, graph])
    assert 'privacy' not in batch and 'privacy_budget' not in batch


def test_installing_twice_changes_nothing():
    import torch_geometric.data.batch as module
    before = module.collate
    pyg.install()
    assert module.collate is before


class Saved(InMemoryDataset):
    def __init__(self, root, graphs, pre_transform=None):
        self.graphs = graphs
        super().__init__(root, pre_transform=pre_transform)
        self.load(self.processed_paths[0])

    @property
    def processed_file_names(self):
        return 'data.pt'

    def process(self):
        graphs = self.graphs
        if self.pre_transform is not None:
            graphs = [self.pre_transform(data) for data in graphs]
        self.save(graphs, self.processed_paths[0])


@pytest.mark.parametrize('count', [1, 3])
@pytest.mark.parametrize('budget', [False, True])
def test_saved_datasets(graph, tmp_path, count, budget):
    graphs = [graph.clone() for _ in range(count)]
    for data in graphs if budget else []:
        data.privacy_budget = PrivacyBudget(epsilon=2.0)
    transform = LabelRR(1.0, 3, 'train_mask')
    with warnings.catch_warnings():
        warnings.simplefilter('error')  # No unsafe loading.
        warnings.filterwarnings('ignore', '.* releases again')  # Clones.
        warnings.filterwarnings('ignore', 'A budget is saved')
        dataset = Saved(str(tmp_path), graphs, pre_transform=transform)
        again = Saved(str(tmp_path), None, pre_transform=transform)
    for one, two, raw in zip(dataset, again, graphs):
        assert one.privacy.epsilon('labels') == 1.0
        assert one.privacy == two.privacy and torch.equal(one.y, two.y)
        if budget:
            assert one.privacy_budget is raw.privacy_budget
            assert raw.privacy_budget.remaining('labels') == 1.0


def test_another_epsilon_is_another_pre_transform(graph, tmp_path):
    Saved(str(tmp_path), [graph], pre_transform=LabelRR(1.0, 3))
    with pytest.warns(UserWarning, match='pre_transform'):
        Saved(str(tmp_path), [graph], pre_transform=LabelRR(2.0, 3))
