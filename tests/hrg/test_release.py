import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tests.conftest import FALSE_ALARM
from torch_geometric_dp.hrg import (
    BlockCounts,
    Blocks,
    Dendrogram,
    random_dendrogram,
)
from torch_geometric_dp.hrg.release import _distinct
from torch_geometric_dp.noise import NoiseSource

ALL = np.array(list(itertools.combinations(range(7), 2))).T


def tree(n, seed=0):
    return random_dendrogram(n, NoiseSource.from_seed(seed))


@pytest.mark.parametrize('n', [1, 2, 3, 7, 50])
@pytest.mark.parametrize('largest', [1, 2, 3, 8, 100])
def test_blocks_are_a_partition_of_all_pairs(n, largest):
    blocks = Blocks(tree(n), largest)
    assert blocks.pairs.sum() == n * (n - 1) // 2
    every = np.array(list(itertools.combinations(range(n), 2))).reshape(-1, 2)
    assert np.array_equal(blocks.counts(every.T), blocks.pairs)
    if n > 1 and largest >= n:
        assert len(blocks.pairs) == 1


def test_merged_subtrees_are_one_block():
    # ((0, 1), (2, 3)) beside (4, (5, 6))
    dendrogram = Dendrogram([[0, 1], [2, 3], [7, 8], [5, 6], [4, 10], [9, 11]])
    assert sorted(Blocks(dendrogram, 1).pairs) == [1, 1, 1, 2, 4, 12]
    assert sorted(Blocks(dendrogram, 3).pairs) == [1, 1, 3, 4, 12]
    assert sorted(Blocks(dendrogram, 4).pairs) == [3, 6, 12]


@pytest.mark.parametrize('largest', [1, 3])
def test_exact_epsilon_of_the_counts(largest):
    # All graphs over five nodes and all pairs of neighbouring ones: an edge
    # changes one count by one, so for the law of the noise that is drawn, the
    # loss of any outcome is that of one step.
    blocks = Blocks(tree(5), largest)
    pairs = list(itertools.combinations(range(5), 2))
    epsilon = 0.7
    scale = BlockCounts(epsilon).scale
    seen = {}
    for bits in itertools.product((0, 1), repeat=10):
        edges = [pair for bit, pair in zip(bits, pairs) if bit]
        seen[bits] = blocks.counts(np.array(edges, int).reshape(-1, 2).T)
    worst = 0.0
    for bits, counts in seen.items():
        for i in range(10):
            other = bits[:i] + (1 - bits[i], ) + bits[i + 1:]
            # sum over blocks of | |c - x| - |c - y| | / scale, at its largest
            worst = max(worst, np.abs(counts - seen[other]).sum() / scale)
    assert epsilon - 1e-9 < worst <= epsilon
    assert BlockCounts(epsilon).worst_case().epsilon == pytest.approx(worst)


def test_noisy_counts_have_the_noise_that_was_promised():
    blocks, epsilon = Blocks(tree(7), 3), 0.5
    exact = blocks.counts(ALL[:, ::2])
    noise = np.concatenate([
        BlockCounts(epsilon)(blocks, ALL[:, ::2], NoiseSource.from_seed(i)) -
        exact for i in range(4000)])
    ratio = math.exp(-epsilon)
    z = np.arange(-15, 16)
    law = (1 - ratio) / (1 + ratio) * ratio**np.abs(z) * noise.size
    counts = np.array([(noise == value).sum() for value in z])
    rest = noise.size - counts.sum(), noise.size - law.sum()
    assert stats.chisquare(np.append(counts, rest[0]),
                           np.append(law, rest[1])).pvalue > FALSE_ALARM


def test_the_block_of_each_edge():
    # ((0, 1), (2, 3)) beside (4, (5, 6))
    dendrogram = Dendrogram([[0, 1], [2, 3], [7, 8], [5, 6], [4, 10], [9, 11]])
    blocks = Blocks(dendrogram, 3)
    block = blocks.find(ALL)
    assert np.array_equal(np.bincount(block), blocks.pairs)
    place = dict(zip(map(tuple, ALL.T.tolist()), block.tolist()))
    assert place[4, 5] == place[5, 6] == place[4, 6] != place[3, 4]
    assert place[0, 1] != place[2, 3]


@pytest.mark.parametrize('largest', [1, 4, 7])
def test_pairs_are_drawn_with_the_probability_of_their_block(largest):
    blocks = Blocks(tree(7), largest)
    p = np.linspace(0.05, 0.95, len(blocks.pairs))
    hits, runs = np.zeros((7, 7)), 3000
    for i in range(runs):
        edges, block = blocks.draw(p, NoiseSource.from_seed(i))
        assert np.array_equal(np.bincount(block, minlength=len(p)),
                              blocks.counts(edges))
        u, v = np.sort(edges, axis=0)
        assert len(np.unique(7 * u + v)) == len(u)  # No pair twice.
        hits[u, v] += 1
    for u, v in ALL.T:
        chance = p[np.argmax(blocks.counts([[u], [v]]))]
        test = stats.binomtest(int(hits[u, v]), runs, chance)
        assert test.pvalue > FALSE_ALARM / 21


@pytest.mark.parametrize('wanted, available', [
    ([0, 3, 10], [5, 3, 10**12]), ([50], [10**6]), ([], []), ([7], [8]),
])
def test_distinct_numbers(wanted, available):
    wanted, available = np.array(wanted, int), np.array(available, int)
    block, place = _distinct(wanted, available, np.random.default_rng(0))
    assert np.array_equal(np.bincount(block, minlength=len(wanted)), wanted)
    assert (place < available[block]).all() and (place >= 0).all()
    assert len(set(zip(block, place))) == len(block)
