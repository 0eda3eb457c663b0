"""The papers' matrices of all pairs against what we say of our releases."""
import math

import numpy as np
import torch

from benchmarks.papers import edge_rand, grrfs, lap_graph
from torch_geometric_dp.mechanisms import GRRFS, EdgeRand, LapGraph
from torch_geometric_dp.noise import NoiseSource

# A ring: as many edges as nodes.
NODES = 300
RING = torch.stack([torch.arange(NODES), (torch.arange(NODES) + 1) % NODES])


def kept(pairs):
    """How many pairs are edges of the ring."""
    low, high = np.sort(np.asarray(pairs), axis=0)
    return int(((high - low == 1) | (high - low == NODES - 1)).sum())


def test_edge_rand():
    torch.manual_seed(0)
    mechanism = EdgeRand(3.0)
    upper = torch.stack([RING.min(0).values, RING.max(0).values])
    for pairs in (edge_rand.pairs(upper, NODES, mechanism.flip),
                  mechanism(RING, NODES, NoiseSource.from_seed(0))):
        # Six standard deviations each.
        expected = mechanism.expected_edges(NODES, NODES)
        assert abs(pairs.size(1) - expected) < 6 * math.sqrt(expected)
        flip = mechanism.flip
        assert abs(kept(pairs) - NODES * (1 - flip)) < 6 * math.sqrt(
            NODES * flip)


def test_lap_graph():
    np.random.seed(0)
    theirs = lap_graph.pairs(RING, NODES, 12.0, 0.5)
    ours = LapGraph(12.0, 0.5)(RING, NODES, NoiseSource.from_seed(0))
    for pairs in (theirs, ours):  # 12 deviations of the count's noise.
        assert abs(pairs.shape[1] - NODES) < 3
        assert kept(pairs) > 0.6 * NODES


def test_grrfs():
    np.random.seed(0)
    x, mechanism = np.ones((20_000, 4)), GRRFS(2.0, 2, 3, 4)
    ours = mechanism(torch.from_numpy(x), NoiseSource.from_seed(0)).numpy()
    theirs = grrfs.release(x, 3, 2, 1.0)
    keep = 0.5 * math.e / (math.e + 2) + 0.5 / 3
    for out in (ours, theirs):  # Six standard deviations.
        assert np.abs((out == 1).mean(axis=0) - keep).max() < (
            6 * math.sqrt(keep * (1 - keep) / len(x)))
