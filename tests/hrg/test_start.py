from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.conftest import FALSE_ALARM
from torch_geometric_dp.hrg import (
    Dendrogram,
    metis_dendrogram,
    random_dendrogram,
    start,
)
from torch_geometric_dp.noise import NoiseSource


def cliques(count, size):
    one = np.argwhere(np.triu(np.ones((size, size)), 1)).T
    return np.concatenate([one + i * size for i in range(count)], axis=1)


PATH = np.stack([np.arange(99), np.arange(1, 100)])
ODD = {
    'empty': (np.empty((2, 0), int), 100),
    'one node': (np.empty((2, 0), int), 1),
    'two nodes': (np.array([[1], [0]]), 2),
    'isolated nodes': (2 * PATH[:, :30], 100),
    'two components': (np.delete(PATH, 49, axis=1), 100),
    'star': (np.stack([np.zeros(99, int), np.arange(1, 100)]), 100),
    'path': (PATH, 100),
    'complete': (cliques(1, 60), 60),
    'cliques': (cliques(9, 11), 99),
}


@pytest.mark.parametrize('name', ODD)
def test_every_leaf_is_there_once(name):
    edges, n = ODD[name]
    tree = metis_dendrogram(edges, n)
    assert sorted(tree.order) == list(range(n))
    assert tree.counts(edges).sum() == edges.shape[1]
    assert tree == metis_dendrogram(edges, n)


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 60), p=st.sampled_from([0.01, 0.05, 0.2, 0.9]),
       seed=st.integers(0, 10**6))
def test_any_graph(n, p, seed):
    rng = np.random.RandomState(seed)
    edges = np.argwhere(np.triu(rng.rand(n, n) < p, 1)).T
    tree = metis_dendrogram(edges, n, seed=seed % 3)
    assert sorted(tree.order) == list(range(n))
    assert tree.counts(edges).sum() == edges.shape[1]


def test_components_cost_nothing():
    # Each component is a subtree, and a clique has likelihood one.
    edges, n = ODD['cliques']
    tree = metis_dendrogram(edges, n)
    assert tree.log_likelihood(tree.counts(edges)) == 0.0


def test_it_finds_the_large_structure():
    # Two halves with few edges between them are the two sides of the root.
    rng = np.random.RandomState(0)
    half = np.arange(200) % 2
    p = np.where(half[:, None] == half, 0.1, 0.002)
    edges = np.argwhere(np.triu(rng.rand(200, 200) < p, 1)).T
    tree = metis_dendrogram(edges, 200)
    left = tree.order[:tree.size[tree.children[-1, 0]]]
    assert max(half[left].mean(), 1 - half[left].mean()) > 0.95
    by_chance = random_dendrogram(200, NoiseSource.from_seed(0))
    assert (tree.log_likelihood(tree.counts(edges))
            > by_chance.log_likelihood(by_chance.counts(edges)) + 500)
    # Another seed is another start.
    assert len({metis_dendrogram(edges, 200, seed) for seed in range(5)}) == 5


def test_deep_graphs_need_no_deep_recursion():
    n = 5000
    star = [np.zeros(n - 1, int), np.arange(1, n)]
    assert metis_dendrogram(star, n).num_leaves == n


def test_an_empty_half_is_put_right(monkeypatch):
    monkeypatch.setattr(start.pymetis, 'part_graph',
                        lambda parts, graph, options:
                        (0, [1] * (len(graph.adj_starts) - 1)))
    tree = metis_dendrogram(*ODD['path'])
    assert sorted(tree.order) == list(range(100))


def test_random_dendrograms_are_uniform():
    draws = Counter(random_dendrogram(4, NoiseSource.from_seed(seed))
                    for seed in range(6000))
    assert len(draws) == 15
    assert stats.chisquare(list(draws.values())).pvalue > FALSE_ALARM


def test_random_dendrograms_of_few_leaves():
    source = NoiseSource.from_seed(0)
    assert random_dendrogram(1, source) == Dendrogram([])
    assert random_dendrogram(2, source) == Dendrogram([[0, 1]])


def test_wrong_numbers_of_nodes_are_refused():
    for n in (0, -3, 2.5):
        with pytest.raises(ValueError, match="'num_nodes' must be an integer"):
            metis_dendrogram([[], []], n)
        with pytest.raises(ValueError, match="'num_nodes' must be an integer"):
            random_dendrogram(n, NoiseSource.from_seed(0))
    with pytest.raises(ValueError, match="'edges' must join nodes from 0 to 2"):
        metis_dendrogram([[0], [3]], 3)
