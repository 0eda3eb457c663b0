import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import is_undirected

pytest.importorskip('matplotlib')

from benchmarks import local_label_table as table  # noqa: E402
from benchmarks.rgnn_graphs import split  # noqa: E402
from torch_geometric_dp.transforms import LabelRR  # noqa: E402


def graph(n=60):
    y = torch.arange(n) % 3
    u = torch.arange(n)
    edge_index = torch.stack([u, (u + 3) % n])
    return Data(x=torch.nn.functional.one_hot(y, 3).float(), y=y,
                edge_index=torch.cat([edge_index, edge_index.flip(0)], dim=1))


def test_control_has_no_edge_within_a_class():
    data = graph()
    control = table.rewired(data)
    u, v = control.edge_index
    assert (control.y[u] != control.y[v]).all()
    assert is_undirected(control.edge_index)
    assert 0.8 * data.num_edges <= control.num_edges <= data.num_edges


def test_rows_read_released_labels_alone(monkeypatch):
    monkeypatch.setattr(table, 'TRAINING', {'epochs': 2})
    monkeypatch.setattr(table, 'LabelEnsemble',
                        lambda *args: table_ensemble(*args))
    data = split(graph(), 0)
    private = LabelRR(3.0, 3, mask='released', seed=0)(data)
    for name, row in table.ROWS.items():
        if name != table.FREE:  # It is the one that has no privacy.
            assert row(private, None).shape == (60, )


def table_ensemble(*args):
    from torch_geometric_dp.nn.models import LabelEnsemble
    return LabelEnsemble(*args, folds=2, epochs=2)


def test_verdict():
    def values(ours, diffusion, gcn, safe):
        return {table.OURS: ours, table.PARTS[0]: diffusion,
                table.PARTS[1]: gcn, table.SAFE: safe}

    low, high = [0.50, 0.52], [0.60, 0.62]  # An interval of 12.7 points.
    assert table.verdict('Cora', values([0.55], low, high, low)) == (
        True, pytest.approx(-0.06))
    assert table.verdict('Cora', values([0.45], low, high, low))[0] is False
    assert table.verdict('control', values([0.495], high, high, low))[0]
    assert not table.verdict('control', values([0.48], low, low, low))[0]
    assert table.verdict('Cora', values([], low, high, low))[0] is None
