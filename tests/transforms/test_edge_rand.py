import math

import torch
from scipy import stats
from torch_geometric.data import Data

from tests.conftest import FALSE_ALARM
from torch_geometric_dp.graph.pairs import num_pairs, to_pairs
from torch_geometric_dp.transforms import EdgeRand


def test_repr():
    assert repr(EdgeRand(5)) == 'EdgeRand(epsilon=5.0)'
    assert repr(EdgeRand(5, 'secret', max_edges=100, seed=3)) == (
        "EdgeRand(epsilon=5.0, private='secret', max_edges=100, seed=3)")


def test_flips():
    n, node = 300, torch.arange(300)
    ring = torch.stack([node, (node + 1) % n])
    chords = torch.stack([node, (node + 2) % n])
    edge_index = torch.cat([ring, ring.flip(0), chords, chords.flip(0)], dim=1)
    private = torch.arange(4 * n) < 2 * n
    out = EdgeRand(3.0, seed=0)(Data(x=node, edge_index=edge_index,
                                     edge_private=private))
    before = set(to_pairs(ring))
    after = set(to_pairs(out.edge_index[:, out.edge_private]))
    flip = 1 / (1 + math.exp(3))
    lost, new = len(before - after), len(after - before)
    assert stats.binomtest(lost, n, flip).pvalue > FALSE_ALARM
    # Pairs that are public never count as new ones.
    free = num_pairs(n) - 2 * n
    assert stats.binomtest(new, free, flip).pvalue > FALSE_ALARM
    assert out.privacy.releases[0].parameter('flip') == flip
