import numpy as np
import pytest
import torch
from torch_geometric.data import Data

nip_table = pytest.importorskip('benchmarks.nip_table')


@pytest.fixture
def raw_lastfm(tmp_path):
    """Files of the shape of LastFM Asia, with 14 classes of 5 to 18 nodes."""
    random = np.random.RandomState(0)
    target = np.repeat(np.arange(14), np.arange(5, 19))
    (tmp_path / 'raw').mkdir()
    np.savez(tmp_path / 'raw' / 'lastfm_asia.npz', target=target,
             features=random.randn(len(target), 8),
             edges=random.randint(0, len(target), (300, 2)))
    return tmp_path


def test_lastfm_keeps_its_ten_largest_classes(raw_lastfm, monkeypatch):
    data = nip_table.lastfm(raw_lastfm)
    assert data.y.bincount().tolist() == list(range(18, 8, -1))
    assert data.x.shape == (135, 16) and data.x.min() == 0
    assert data.edge_index.max() < 135
    monkeypatch.setitem(nip_table.GRAPHS, 'lastfm', lambda: data)
    nip_table.graph_of.cache_clear()
    for method in (nip_table.OURS, 'majority class', 'NIP-GNN'):
        assert 0 <= nip_table.result('lastfm', method, 4.0, seed=0) <= 1
    nip_table.graph_of.cache_clear()
    nip_table.form.cache_clear()


def test_split():
    data = nip_table.split(Data(x=torch.ones(200, 1)), seed=0)
    parts = [data[f'{name}_mask'] for name in ('train', 'val', 'test')]
    assert torch.equal(sum(part.int() for part in parts),
                       torch.ones(data.num_nodes, dtype=torch.int))
    assert [int(p.sum()) for p in parts] == [150, 20, 30]


def test_interval():
    values = np.random.RandomState(1).normal(size=400)
    assert nip_table.interval(values) == pytest.approx(1.96 / 20, rel=0.2)
