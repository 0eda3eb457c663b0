import math

import numpy as np
import pytest
from scipy.special import log_softmax

from tests.hrg.dendrograms import SmallGraphs
from torch_geometric_dp.hrg import private_weight, sensitivity
from torch_geometric_dp.hrg.likelihood import node_log_likelihood


@pytest.fixture(scope='module')
def five():
    return SmallGraphs(5)


def test_there_are_105_dendrograms(five):
    assert [len(SmallGraphs(n).trees) for n in (1, 2, 3, 4)] == [1, 1, 3, 15]
    assert len(set(five.trees)) == len(five.trees) == 105


def test_log_likelihood(five):
    # Every graph under every dendrogram.
    for tree, expected in zip(five.trees, five.log_likelihoods):
        node = tree.lca(*five.pairs.T) - 5
        counts = five.has_pair @ np.eye(4, dtype=int)[node]
        for graph in range(0, five.count, 41):
            assert np.array_equal(tree.counts(five.edges(graph)), counts[graph])
        got = [tree.log_likelihood(count) for count in counts]
        assert np.allclose(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize('n', [1, 2, 3, 4, 5])
def test_the_sensitivity_is_tight(n):
    # Over all dendrograms, and all graphs with and without a pair.
    graphs = SmallGraphs(n)
    changes = graphs.changes(graphs.log_likelihoods)
    worst = max((np.abs(change).max() for change in changes), default=0.0)
    assert sensitivity(n) == pytest.approx(worst, abs=1e-12)


@pytest.mark.parametrize('n', [6, 7, 20, 61])
def test_sensitivity_of_larger_graphs(n):
    # Over all numbers of pairs that a root can part, and of edges among them.
    worst = max(
        abs(node_log_likelihood(e + 1, a * (n - a))
            - node_log_likelihood(e, a * (n - a)))
        for a in range(1, n) for e in range(a * (n - a)))
    assert sensitivity(n) == pytest.approx(worst, rel=1e-12)


def test_sensitivity_by_hand():
    assert sensitivity(2) == 0.0
    assert sensitivity(3) == pytest.approx(2 * math.log(2))
    assert sensitivity(4) == pytest.approx(math.log(4) + 3 * math.log(4 / 3))
    # Equation 15 of the paper lacks a factor, and is about 1 too small.
    assert sensitivity(2708) == pytest.approx(math.log(1354**2) + 1, abs=1e-6)
    for n in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="'num_nodes' must be an integer"):
            sensitivity(n)


def worst_loss(five, weight, public):
    # Over all private graphs and their neighbours, from the exact distribution
    # over all dendrograms.
    target = five.log_likelihoods[:, [public]] + weight * five.log_likelihoods
    return max(np.abs(change).max()
               for change in five.changes(log_softmax(target, axis=0)))


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 5.0, 50.0])
def test_a_draw_is_private(five, epsilon):
    path = five.graph([(0, 1), (1, 2), (2, 3), (3, 4)])
    star = five.graph([(0, 1), (0, 2), (0, 3), (0, 4)])
    loss = [worst_loss(five, private_weight(epsilon, 5), public)
            for public in (0, path, star, five.count - 1)]
    assert max(loss) <= epsilon
    # Not by accident: half of the noise would not do.
    loss = [worst_loss(five, 2 * private_weight(epsilon, 5), public)
            for public in (0, path, star, five.count - 1)]
    assert max(loss) > epsilon


def test_private_weight():
    assert private_weight(1.0, 2) == 0.0  # There is only one dendrogram.
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="'epsilon' must be a positive"):
            private_weight(epsilon, 5)


@pytest.mark.parametrize('pairs', [10**6, 10**9, 2**40])
def test_large_terms_do_not_cancel(pairs):
    # One edge, or all but one: -(log N + 1), up to 1/N.
    one = -math.log(pairs) - 1
    assert node_log_likelihood(1, pairs) == pytest.approx(one, abs=1 / pairs)
    assert node_log_likelihood(pairs - 1, pairs) == pytest.approx(one, abs=1e-3)
