import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage

from tests.hrg.dendrograms import all_dendrograms, clades
from torch_geometric_dp.hrg import Dendrogram, random_dendrogram
from torch_geometric_dp.noise import NoiseSource


def caterpillar(n):
    """Leaves join one after the other: as deep as can be."""
    return Dendrogram([[i if i == 0 else n + i - 1, i + 1]
                       for i in range(n - 1)])


def ancestors(tree, node):
    while node >= 0:
        yield node
        node = int(tree.parent[node])


def renamed(tree, seed):
    # Other numbers for the internal nodes below the root, and other sides.
    n, rng = tree.num_leaves, np.random.RandomState(seed)
    new = np.arange(2 * n - 1)
    new[n:-1] = rng.permutation(new[n:-1])
    children = np.empty_like(tree.children)
    children[new[n:] - n] = new[tree.children]
    flip = rng.rand(n - 1) < 0.5
    children[flip] = children[flip, ::-1]
    return Dendrogram(children)


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_arrays(n, seed):
    tree = random_dendrogram(n, NoiseSource.from_seed(seed))
    assert tree.num_leaves == n
    assert sorted(tree.order) == list(range(n))
    assert np.array_equal(tree.order[tree.start[:n]], np.arange(n))
    assert tree.parent[-1] == -1 and tree.size[-1] == n
    for node, (left, right) in enumerate(tree.children.tolist(), n):
        assert tree.parent[left] == tree.parent[right] == node
        assert tree.size[node] == tree.size[left] + tree.size[right]
        assert tree.size[left] >= tree.size[right]
        assert tree.start[left] == tree.start[node]
        assert tree.start[right] == tree.start[node] + tree.size[left]
    intervals = {frozenset(tree.order[start:start + size].tolist())
                 for start, size in zip(tree.start, tree.size)}
    assert intervals == clades(tree)
    assert tree.pairs.sum() == n * (n - 1) // 2


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 30), seed=st.integers(0, 10**6), deep=st.booleans())
def test_lowest_common_ancestors(n, seed, deep):
    tree = caterpillar(n) if deep else random_dendrogram(
        n, NoiseSource.from_seed(seed))
    u, v = np.meshgrid(np.arange(2 * n - 1), np.arange(2 * n - 1))
    got = tree.lca(u, v)
    for a in range(2 * n - 1):
        above = list(ancestors(tree, a))
        for b in range(2 * n - 1):
            expected = next(x for x in ancestors(tree, b) if x in above)
            assert got[b, a] == expected


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 20), seed=st.integers(0, 10**6))
def test_counts(n, seed):
    tree = random_dendrogram(n, NoiseSource.from_seed(seed))
    rng = np.random.RandomState(seed)
    adjacent = np.triu(rng.rand(n, n) < rng.rand(), 1)
    edges = np.argwhere(adjacent).T
    flip = rng.rand(edges.shape[1]) < 0.5  # The direction does not matter.
    counts = tree.counts(np.where(flip, edges[::-1], edges))
    adjacent |= adjacent.T
    for i, (left, right) in enumerate(tree.children):
        rows, columns = (tree.order[tree.start[x]:tree.start[x] + tree.size[x]]
                         for x in (left, right))
        assert counts[i] == adjacent[np.ix_(rows, columns)].sum()


def test_a_deep_tree():
    n = 10**5
    tree = caterpillar(n)
    assert np.array_equal(tree.lca(0, np.arange(1, n)),
                          np.arange(n, 2 * n - 1))
    assert tree.counts([np.arange(n - 1), np.arange(1, n)]).tolist() == [
        1] * (n - 1)


def test_one_and_two_leaves():
    one, two = Dendrogram([]), Dendrogram([[0, 1]])
    assert one.num_leaves == 1 and one.order.tolist() == [0]
    assert one.counts([[], []]).tolist() == [] == one.pairs.tolist()
    assert one.log_likelihood([]) == 0.0 and one.lca(0, 0) == 0
    assert two.counts([[1], [0]]).tolist() == [1] == two.pairs.tolist()
    assert two.log_likelihood([1]) == two.log_likelihood([0]) == 0.0
    assert one != two


def test_equality():
    trees = all_dendrograms(5)
    for i, tree in enumerate(trees):
        other = renamed(tree, i)
        assert other == tree and hash(other) == hash(tree)
        assert other != trees[i - 1]
    assert len({clades(tree) for tree in trees}) == len(set(trees)) == 105
    assert trees[0] != 'tree'


def test_from_a_linkage():
    points = np.random.RandomState(0).rand(20, 2)
    matrix = linkage(points, 'average')
    tree = Dendrogram(matrix[:, :2])
    assert np.array_equal(tree.size[20:], matrix[:, 3])
    assert tree.children.dtype == np.int64


def test_save_and_load(tmp_path):
    tree = random_dendrogram(50, NoiseSource.from_seed(0))
    tree.save(tmp_path / 'tree')
    again = Dendrogram.load(tmp_path / 'tree')
    assert again == tree and np.array_equal(again.order, tree.order)
    assert repr(again) == 'Dendrogram(num_leaves=50)'


def test_it_cannot_be_changed_by_accident():
    children = np.array([[0, 1], [2, 3]])
    tree = Dendrogram(children)
    assert children.tolist() == [[0, 1], [2, 3]]  # Nor can the input.
    with pytest.raises(ValueError, match='read-only'):
        tree.children[0, 0] = 2


@pytest.mark.parametrize('children, message', [
    ([[0, 1], [1, 2]], r'every node from 0 to 3 once \(got \[0 1 1 2\]'),
    ([[0, 1], [2, 4]], r'every node from 0 to 3 once'),
    ([[0, 1.5], [2, 3]], r'every node from 0 to 3 once'),
    ([[0, 3], [1, 2]], r'hang below the root, node 4 \(got a circle\)'),
    ([[0, 1, 2]], r'shape \[num_leaves - 1, 2\] \(got \[1, 3\]\)'),
])
def test_wrong_children_are_refused(children, message):
    with pytest.raises(ValueError, match=f"'children' must .*{message}"):
        Dendrogram(children)


@pytest.mark.parametrize('counts', [[0, 2], [0, -1], [1], [0, np.nan]])
def test_wrong_counts_are_refused(counts):
    with pytest.raises(ValueError, match="'counts' must hold, for each of the "
                                         "2 internal"):
        Dendrogram([[0, 1], [2, 3]]).log_likelihood(counts[::-1])


def test_wrong_nodes_are_refused():
    tree = Dendrogram([[0, 1], [2, 3]])
    for node in (-1, 5):
        with pytest.raises(ValueError, match="'v' must hold nodes from 0 to 4"):
            tree.lca(0, [1, node])
