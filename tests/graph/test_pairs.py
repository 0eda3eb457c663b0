import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_dp.graph.pairs import (
    MOST_NODES,
    arrows,
    check_edge_index,
    contains,
    degrees,
    from_pairs,
    is_undirected,
    num_pairs,
    pair_numbers,
    pairs_of,
    symmetric_difference,
    to_pairs,
)


@pytest.mark.parametrize('n', range(8))
def test_every_pair_has_one_number(n):
    pairs = list(itertools.combinations(range(n), 2))
    assert num_pairs(n) == len(pairs)
    numbers = to_pairs(torch.tensor(pairs, dtype=torch.long).view(-1, 2).t())
    assert numbers.tolist() == list(range(len(pairs)))
    nodes = from_pairs(numbers)
    assert sorted(map(tuple, nodes.t().tolist())) == pairs


@given(st.integers(1, MOST_NODES - 1), st.data())
def test_there_and_back(high, data):
    # Next to the borders of a column, where the root decides.
    low = data.draw(st.sampled_from([0, high - 1]) | st.integers(0, high - 1))
    nodes = torch.tensor([[low], [high]])
    number = to_pairs(nodes)
    assert number.dtype == np.int64 and 0 <= number[0] < num_pairs(high + 1)
    assert torch.equal(from_pairs(number), nodes)


def test_the_largest_pairs():
    # Their roots have no bits left for a rest.
    high = torch.arange(MOST_NODES - 1000, MOST_NODES)
    for low in (torch.zeros_like(high), high - 1):
        nodes = torch.stack([low, high])
        assert torch.equal(from_pairs(pair_numbers(nodes)), nodes)


def test_directions_repetitions_and_loops():
    edge_index = torch.tensor([[3, 0, 3, 1, 1, 2], [0, 3, 0, 1, 2, 1]])
    for dtype in (torch.long, torch.int, torch.uint8):
        assert to_pairs(edge_index.to(dtype)).tolist() == [2, 3]
    numbers = pair_numbers(edge_index[:, [0, 1, 2, 4, 5]])
    assert numbers.tolist() == [3, 3, 3, 2, 2]


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_contains(numbers, wanted):
    numbers = np.array(sorted(set(numbers)), np.int64)
    found = contains(numbers, np.array(wanted, np.int64))
    assert found.tolist() == [x in numbers for x in wanted]


@pytest.mark.parametrize('ordered', [True, False])
def test_contains_many(ordered):
    random = np.random.RandomState(0)
    numbers = np.unique(random.randint(0, 2000, 800))
    # Gaps of all sizes between those that are wanted.
    wanted = (random.exponential(300, 1000) - 100).astype(np.int64)
    wanted = np.sort(wanted) if ordered else wanted
    found = contains(numbers, wanted)
    assert np.array_equal(found, np.isin(wanted, numbers))


numbers = st.lists(st.integers(0, 12), unique=True).map(
    lambda some: np.array(sorted(some), np.int64))


@given(numbers, numbers)
def test_symmetric_difference(a, b):
    assert symmetric_difference(a, b).tolist() == sorted(set(a) ^ set(b))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans())))
def test_arrows(edges):
    edge_index = torch.tensor([edge[:2] for edge in edges],
                              dtype=torch.long).view(-1, 2).t()
    selected = torch.tensor([edge[2] for edge in edges], dtype=torch.bool)
    ways = {(u, v) for u, v, counts in edges if counts and u != v}
    out = arrows(edge_index, selected)
    assert (np.diff(out) > 0).all() and len(out) == len(ways)
    assert is_undirected(out) == all((v, u) in ways for u, v in ways)
    pairs = {(min(way), max(way)) for way in ways}
    for numbers in (pairs_of(out), to_pairs(edge_index, selected)):
        assert (np.diff(numbers) > 0).all()
        assert set(map(tuple, from_pairs(numbers).t().tolist())) == pairs
    every = arrows(edge_index, torch.ones_like(selected))
    assert np.array_equal(arrows(edge_index), every)
    count = np.bincount([node for pair in pairs for node in pair],
                        minlength=5).tolist()
    assert degrees(numbers, 5).tolist() == count


@pytest.mark.parametrize('edge_index, error, message', [
    ([[0], [1]], TypeError, "'edge_index' must be a dense tensor of shape "
     "[2, num_edges] (got list)"),
    (torch.eye(3).to_sparse(), TypeError, "'edge_index' must be a dense tensor "
     "of shape [2, num_edges] (got torch.sparse_coo)"),
    (torch.zeros(3, 2).long(), ValueError,
     "'edge_index' must have shape [2, num_edges] (got [3, 2])"),
    (torch.zeros(2).long(), ValueError,
     "'edge_index' must have shape [2, num_edges] (got [2])"),
    (torch.zeros(2, 1), ValueError,
     "'edge_index' must hold integers (got torch.float32)"),
    (torch.zeros(2, 1).bool(), ValueError,
     "'edge_index' must hold integers (got torch.bool)"),
    (torch.tensor([[0, 1], [1, 5]]), ValueError,
     "'edge_index' must hold nodes from 0 to 4 (got others in column 1)"),
    (torch.tensor([[0, -1], [1, 0]]), ValueError,
     "'edge_index' must hold nodes from 0 to 4 (got others in column 1)"),
])
def test_bad_edges(edge_index, error, message):
    with pytest.raises(error) as info:
        check_edge_index(edge_index, 5)
    assert str(info.value) == message


@pytest.mark.parametrize('num_nodes, message', [
    (-1, "'num_nodes' must be an integer of at least 0 (got -1)"),
    (2.5, "'num_nodes' must be an integer of at least 0 (got 2.5)"),
    (2**31 + 1, f"'num_nodes' must be at most {2**31} (got {2**31 + 1})"),
])
def test_bad_num_nodes(num_nodes, message):
    with pytest.raises(ValueError) as info:
        num_pairs(num_nodes)
    assert str(info.value) == message
