import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_dp.graph.pairs import to_pairs
from torch_geometric_dp.transforms import LapGraph


def test_repr():
    assert repr(LapGraph(5)) == 'LapGraph(epsilon=5.0)'
    assert repr(LapGraph(5, 'secret', 0.1, max_edges=100, seed=3)) == (
        "LapGraph(epsilon=5.0, private='secret', count_share=0.1, "
        "max_edges=100, seed=3)")


@pytest.mark.parametrize('epsilon', [1.0, 10.0])
def test_as_many_edges_as_there_were(epsilon):
    n, node = 2000, torch.arange(2000)
    ring = torch.stack([node, (node + 1) % n])
    data = Data(x=node, edge_index=torch.cat([ring, ring.flip(0)], dim=1))
    out = LapGraph(epsilon, count_share=0.1, seed=0)(data)
    # The noisy count, within 20 scales (2e-9).
    assert abs(out.num_edges / 2 - n) < 20 / (0.1 * epsilon)
    kept = len(set(to_pairs(out.edge_index)) & set(to_pairs(ring)))
    # Two million pairs: a small epsilon drowns the edges, a large one does not.
    assert kept < 20 if epsilon == 1 else kept > 0.85 * n


def test_bad_count_share():
    with pytest.raises(ValueError, match="'count_share' must lie between 0"):
        LapGraph(1.0, count_share=1.0)
