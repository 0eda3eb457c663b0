import numpy as np
import pytest

from torch_geometric_dp.hrg.edges import check_edges, neighbours


@pytest.mark.parametrize('edges, message', [
    ([[0, 1], [1, 3]], r'join nodes from 0 to 2 \(got \(1, 3\) in column 1\)'),
    ([[0, -1], [1, 1]], r'join nodes from 0 to 2 \(got \(-1, 1\) in column 1'),
    ([[0, 2], [1, 2]], r'join different nodes \(got \(2, 2\) in column 1\)'),
    ([[0, 1], [1, 0]], r'every edge once, .* \(got \(1, 0\) in column 1\)'),
    ([[0, 1, 0], [1, 2, 1]], r'every edge once, .* \(got \(0, 1\) in column 2'),
    ([[0, 1, 2]], r'integers of shape \[2, num_edges\] \(got int64 of shape'),
    ([[0.0], [1.0]], r'integers of shape \[2, num_edges\] \(got float64'),
])
def test_wrong_edges_are_refused_by_name(edges, message):
    with pytest.raises(ValueError, match=f"'public' must .*{message}"):
        check_edges('public', edges, 3)


def test_the_input_is_copied():
    edges = np.array([[0], [1]])
    assert check_edges('edges', edges, 2) is not edges
    for empty in ((), [[], []], np.empty((2, 0))):
        assert check_edges('edges', empty, 1).shape == (2, 0)


def test_neighbours():
    rng = np.random.RandomState(0)
    pairs = np.argwhere(np.triu(rng.rand(30, 30) < 0.2, 1)).T
    pairs = np.ascontiguousarray(pairs[:, rng.permutation(pairs.shape[1])])
    first, ends, column = neighbours(pairs, 30)
    assert first[-1] == pairs.size
    for v in range(30):
        part = slice(first[v], first[v + 1])
        assert sorted(ends[part]) == sorted(pairs[1][pairs[0] == v].tolist()
                                            + pairs[0][pairs[1] == v].tolist())
        for end, j in zip(ends[part], column[part]):
            assert {end, v} == set(pairs[:, j])
