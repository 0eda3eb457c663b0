import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.conftest import FALSE_ALARM
from tests.test_noise import chi_square
from torch_geometric_dp import noise
from torch_geometric_dp.graph.pairs import num_pairs
from torch_geometric_dp.mechanisms import EdgeRand
from torch_geometric_dp.noise import NoiseSource

PAIRS = 6  # Of four nodes; a graph is a number of six bits.
GRAPHS = range(2**PAIRS)


def pairs(graph):
    return np.array([i for i in range(PAIRS) if graph >> i & 1], np.int64)


def flip_of(mechanism):
    """The exact probability of a flip, from the integers of the sampler."""
    if 16 * mechanism._flip > 1:  # All coins are tossed.
        return Decimal(noise.threshold(mechanism._flip)) / 2**64
    rate, _ = noise.coins.dart_board(mechanism._flip)
    return 1 - (-rate).exp()


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 5.0])
def test_all_graphs_with_four_nodes(epsilon):
    with localcontext(prec=100):
        flip = flip_of(EdgeRand(epsilon))

        def law(graph, out):
            flips = bin(graph ^ out).count('1')
            return flip**flips * (1 - flip)**(PAIRS - flips)

        laws = [[law(graph, out) for out in GRAPHS] for graph in GRAPHS]
        worst = max(laws[graph][out] / laws[graph ^ 1 << pair][out]
                    for graph, out in itertools.product(GRAPHS, GRAPHS)
                    for pair in range(PAIRS))
        # No error term: at most epsilon, to the last of 60 digits.
        assert Decimal(epsilon) - Decimal(2)**-55 < worst.ln() <= epsilon


@given(st.floats(2.0**-50, 100))
def test_rounding_never_costs_privacy(epsilon):
    with localcontext(prec=100):
        flip = flip_of(EdgeRand(epsilon))
        assert 0 < flip < Decimal('0.5')
        assert (1 - flip) / flip <= Decimal(epsilon).exp()
        assert (1 - flip) / flip >= Decimal(min(epsilon, 36)).exp() * (
            1 - Decimal(2)**-58)


@pytest.mark.parametrize('graph', [0b000000, 0b010110])
def test_draws(graph):
    epsilon, source = 1.0, NoiseSource.from_seed(graph)
    mechanism = EdgeRand(epsilon)
    outcomes = [int((1 << mechanism.release(
        pairs(graph), PAIRS, source.derive(i))).sum()) for i in range(4000)]
    flips = np.array([bin(graph ^ out).count('1') for out in GRAPHS])
    law = mechanism.flip**flips * (1 - mechanism.flip)**(PAIRS - flips)
    assert chi_square(np.array(outcomes), lambda i: law[i]) > FALSE_ALARM


def test_against_a_dense_matrix():
    # Both kinds of pairs, in a graph with 179,700 of them.
    n, epsilon = 600, 4.0
    edges = torch.stack([torch.arange(n), (torch.arange(n) + 7) % n])
    mechanism = EdgeRand(epsilon)
    out = mechanism(edges, n, NoiseSource.from_seed(0))
    assert (out[0] < out[1]).all() and out.dtype == torch.long
    raw, released = torch.zeros(2, n, n, dtype=torch.bool)
    raw[edges.min(0).values, edges.max(0).values] = True
    released[out[0], out[1]] = True
    upper = torch.ones(n, n).triu(1).bool()
    assert int(released.sum()) == out.size(1)
    for cells in (raw, upper & ~raw):
        flips = int((raw ^ released)[cells].sum())
        assert stats.binomtest(flips, int(cells.sum()),
                               mechanism.flip).pvalue > FALSE_ALARM
    expected = mechanism.expected_edges(n, n)
    assert expected == pytest.approx(
        n * (1 - mechanism.flip) + mechanism.flip * (num_pairs(n) - n))
    assert abs(out.size(1) - expected) < 5 * math.sqrt(expected)


def test_the_flips_do_not_depend_on_the_graph():
    source, mechanism = NoiseSource.from_seed(0), EdgeRand(1.0)
    flips = mechanism.release(np.arange(0), PAIRS, source)
    for graph in GRAPHS:
        out = mechanism.release(pairs(graph), PAIRS, source)
        assert out.tolist() == sorted(set(pairs(graph)) ^ set(flips))


def test_large_graphs_stay_sparse():
    # 5 * 10^11 pairs.
    n = 10**6
    edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    mechanism = EdgeRand(20.0)
    out = mechanism(edges, n, NoiseSource.from_seed(0))
    assert abs(out.size(1) - mechanism.expected_edges(n, n)) < 200


@pytest.mark.parametrize('n', [0, 1, 2])
def test_small_graphs(n):
    none = torch.empty(2, 0, dtype=torch.long)
    outputs = {EdgeRand(0.1)(none, n, NoiseSource.from_seed(i)).size(1)
               for i in range(50)}
    assert outputs == ({0, 1} if n == 2 else {0})


@pytest.mark.parametrize('size', [2, 64])
def test_draws_do_not_depend_on_the_block_size(size, monkeypatch):
    edges = torch.stack([torch.arange(99), torch.arange(1, 100)])
    expected = EdgeRand(2.0)(edges, 100, NoiseSource.from_seed(0))
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', size)
    out = EdgeRand(2.0)(edges, 100, NoiseSource.from_seed(0))
    assert torch.equal(out, expected)


def test_bad_input():
    source = NoiseSource.from_seed(0)
    with pytest.raises(ValueError, match="'edge_index' must hold nodes from 0"):
        EdgeRand(1.0)(torch.tensor([[0], [3]]), 3, source)
    with pytest.raises(ValueError, match="'epsilon' must be a positive, finite "
                       "number .got 0"):
        EdgeRand(0)
    with pytest.raises(ValueError, match=r"'epsilon' must be at least 2\*\*-50"
                       ".*got 1e-16"):
        EdgeRand(1e-16)


def test_repr():
    assert repr(EdgeRand(5)) == 'EdgeRand(epsilon=5.0)'
