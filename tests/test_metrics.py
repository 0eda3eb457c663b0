import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from torch_geometric_dp import metrics
from torch_geometric_dp.metrics import degree_distance, random_walk_distance

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def edges(n):
    node = st.integers(0, n - 1)
    return st.lists(st.tuples(node, node), max_size=20).map(
        lambda e: torch.tensor(e, dtype=torch.long).view(-1, 2).t())


def walks(edge_index, n):
    matrix = torch.zeros(n, n, dtype=torch.double)
    matrix[edge_index[0], edge_index[1]] = 1.0
    matrix[range(n), range(n)] += (matrix.sum(dim=1) == 0).double()
    return matrix / matrix.sum(dim=1, keepdim=True)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), edges(n),
                                                     edges(n))),
       st.integers(1, 5), st.sampled_from([1, 20, 10**6]))
def test_random_walk_distance(graphs, hops, block):
    n, a, b = graphs
    power_a = power_b = torch.eye(n, dtype=torch.double)
    squares = 0.0
    for _ in range(hops):
        power_a, power_b = power_a @ walks(a, n), power_b @ walks(b, n)
        squares += float((power_a - power_b).pow(2).mean())
    whole, metrics._BLOCK = metrics._BLOCK, block
    try:
        distance = random_walk_distance(a, b, n, hops)
    finally:
        metrics._BLOCK = whole
    assert distance == pytest.approx((squares / hops)**0.5, abs=1e-12)


def test_random_walk_distance_by_hand():
    # Two nodes that stay, or change places: 1 at odd hops, 0 at even ones.
    none, both = torch.empty(2, 0).long(), PATH[:, :2]
    assert random_walk_distance(none, both, 2, hops=1) == 1.0
    assert random_walk_distance(none, both, 2) == pytest.approx(0.5**0.5)
    assert random_walk_distance(PATH, PATH, 3) == 0.0


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), edges(n),
                                                     edges(n))))
def test_degree_distance(graphs):
    n, a, b = graphs

    def degrees(edge_index):
        simple = set(zip(*edge_index.tolist()))
        return [sum(u == node for u, _ in simple) for node in range(n)]

    expected = wasserstein_distance(degrees(a), degrees(b))
    assert degree_distance(a, b, n) == pytest.approx(expected, abs=1e-12)


def test_the_graphs_are_named():
    far = PATH + 1
    for function in (random_walk_distance, degree_distance):
        with pytest.raises(ValueError, match=r"'edge_index_b' must hold nodes "
                           r"from 0 to 2 .got others in column 2"):
            function(PATH, far, 3)
        with pytest.raises(ValueError, match="'edge_index_a' must hold"):
            function(far, PATH, 3)
        with pytest.raises(ValueError, match="'num_nodes' must be an integer "
                           "of at least 1 .got 0"):
            function(PATH, PATH, 0)
    with pytest.raises(ValueError, match="'hops' must be an integer"):
        random_walk_distance(PATH, PATH, 3, hops=0)
