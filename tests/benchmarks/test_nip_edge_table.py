import torch
from torch_geometric.data import Data

from benchmarks import nip_edge_table as table
from tests.nn.forms import ring
from torch_geometric_dp.nn.models import neighbour_votes, nip_gnn


def test_report():
    votes = [table.key_of('Cora', 1.0, table.VOTES, e) for e in (1.0, 4.0)]
    nap = table.key_of('Cora', 1.0, '+ NAP with encoder', 4.0)
    text = table.report({votes[0]: [0.5, 0.5], votes[1]: [0.6, 0.7],
                         nap: [0.7, 0.8]})
    # Seed by seed, these differ by the same.
    assert '| + NAP with encoder | not run | | 75.0 ± 63.5 | +10.0 ± 0.0 |' in (
        text)
    assert '| plain votes | 50.0 ± 0.0 | | 65.0 ± 63.5 | |' in text


def test_all_rows_run(monkeypatch):
    for module in (nip_gnn, neighbour_votes):  # They are set, and set back.
        monkeypatch.setattr(module, 'public_beliefs', module.public_beliefs)
    y = torch.arange(60) // 30
    data = Data(x=torch.eye(2)[y].repeat(1, 2), y=y,
                edge_index=torch.cat([ring(30), ring(30) + 30], dim=1),
                train_mask=torch.arange(60) % 3 > 0,
                test_mask=torch.arange(60) % 3 == 0)
    data.edge_private = torch.arange(120) % 4 > 0
    monkeypatch.setattr(table, 'graph_of', lambda *args: data)
    table.beliefs_of.cache_clear()
    for method in table.METHODS:
        assert 0 <= table.result('Cora', 0.6, method, 4.0, 0) <= 1
    for method in table.NODE:
        assert 0 <= table.node_result('Cora', method, 4.0, 0) <= 1
    table.beliefs_of.cache_clear()
