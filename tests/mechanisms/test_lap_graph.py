import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.conftest import FALSE_ALARM
from tests.test_noise import chi_square
from torch_geometric_dp import noise
from torch_geometric_dp.graph.pairs import num_pairs
from torch_geometric_dp.mechanisms import LapGraph, lap_graph
from torch_geometric_dp.noise import NoiseSource

PAIRS = 6  # Of four nodes; a graph is a number of six bits.
GRAPHS = range(2**PAIRS)


def pairs(graph):
    return np.array([i for i in range(PAIRS) if graph >> i & 1], np.int64)


def bits(number):
    return bin(number).count('1')


def law_of_noisy_cells(graph, epsilon):
    """The probability of each set of the |set| largest cells, from the
    definition: integer Laplace noise on each bit, uniform ties.
    """
    reach = math.ceil(40 / epsilon)
    z, a = np.arange(-reach, reach + 2), math.exp(-epsilon)

    def cell(bit):
        at = (1 - a) / (1 + a) * a**np.abs(z - bit)
        below = np.concatenate([[0], np.cumsum(at)[:-1]])
        above = np.concatenate([np.cumsum(at[::-1])[::-1][1:], [0]])
        return at, below, above

    cells = [cell(graph >> i & 1) for i in range(PAIRS)]
    law = np.zeros(len(GRAPHS))
    for chosen in GRAPHS:
        if chosen == 0:
            law[chosen] = 1.0
            continue
        # At the lowest level that is chosen: which cells are there, in it (at
        # least one) and outside.
        for level in GRAPHS:
            inside = bits(level & chosen)
            if inside == 0:
                continue
            terms = np.ones(len(z))
            for i, (at, below, above) in enumerate(cells):
                terms *= (at if level >> i & 1 else
                          above if chosen >> i & 1 else below)
            law[chosen] += terms.sum() / math.comb(bits(level), inside)
    return law


def law_of_cells(mechanism, graph):
    """The same from the mechanism's integers: randomised response, cut or
    filled at random.
    """
    tau = mechanism._tau / lap_graph._SCORES
    law = np.zeros(len(GRAPHS))
    for ones, chosen in itertools.product(GRAPHS, GRAPHS):
        flips, k, t = bits(graph ^ ones), bits(ones), bits(chosen)
        if t <= k and chosen & ~ones == 0:
            ways = math.comb(k, t)
        elif t > k and ones & ~chosen == 0:
            ways = math.comb(PAIRS - k, t - k)
        else:
            continue
        law[chosen] += tau**flips * (1 - tau)**(PAIRS - flips) / ways
    return law


def law_of_count(mechanism, edges, count):
    """The probability of each noisy count that is moved into its range."""
    t, s = noise.discrete.laplace_grid(mechanism._scale)
    ratio = math.exp(-s / t)
    law = (1 - ratio) / (1 + ratio) * ratio**np.abs(
        np.arange(count + 1, dtype=float) - edges)
    law[0] += ratio**(edges + 1) / (1 + ratio)
    law[-1] += ratio**(count - edges + 1) / (1 + ratio)
    return law


def law_of_graph(mechanism, graph):
    sizes = [bits(out) for out in GRAPHS]
    count = law_of_count(mechanism, bits(graph), PAIRS)
    return law_of_cells(mechanism, graph) * count[sizes]


@pytest.mark.parametrize('epsilon', [0.2, 1.0, 4.0])
def test_noisy_cells_are_randomised_response(epsilon):
    # The lemma, by brute force. It depends on the number of edges alone.
    mechanism = LapGraph(epsilon, count_share=0.5)
    for edges in range(PAIRS + 1):
        graph = 2**edges - 1
        expected = law_of_noisy_cells(graph, epsilon / 2)
        assert np.allclose(law_of_cells(mechanism, graph), expected, 1e-9, 0)


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 5.0])
@pytest.mark.parametrize('share', [0.01, 0.5])
def test_all_graphs_with_four_nodes(epsilon, share):
    mechanism = LapGraph(epsilon, share)
    laws = np.array([law_of_graph(mechanism, graph) for graph in GRAPHS])
    assert np.allclose(laws.sum(axis=1), 1, 0, 1e-12)
    losses = [np.abs(np.log(laws[graph] / laws[graph ^ 1 << pair])).max()
              for graph in GRAPHS for pair in range(PAIRS)]
    assert max(losses) <= epsilon
    # Most of it is used: one edge in a release of one, or none in none.
    assert max(losses) > 0.6 * epsilon


@pytest.mark.parametrize('graph', [0b000000, 0b010110])
def test_draws(graph):
    mechanism, source = LapGraph(3.0, 0.5), NoiseSource.from_seed(graph)
    outcomes = [int((1 << mechanism.release(
        pairs(graph), PAIRS, source.derive(i))).sum()) for i in range(3000)]
    law = law_of_graph(mechanism, graph)
    assert chi_square(np.array(outcomes), lambda i: law[i]) > FALSE_ALARM


def test_draws_of_a_sparse_graph():
    # 780 pairs, few of which ever get a score: how many true edges are kept.
    count, edges = num_pairs(40), np.arange(0, 780, 26)
    mechanism, source = LapGraph(4.0, 0.5), NoiseSource.from_seed(0)
    assert mechanism._cut(len(edges) + 20, count) < lap_graph._SCORES / 1.5
    m, tau = len(edges), mechanism._tau / lap_graph._SCORES
    a, b = np.arange(m + 1)[:, None], np.arange(30, 170)[None]
    ones = stats.binom.pmf(a, m, 1 - tau) * stats.binom.pmf(b, count - m, tau)
    law = np.zeros(m + 1)
    for t, p in enumerate(law_of_count(mechanism, m, count)):
        for kept in range(min(m, t) + 1):
            if p < 1e-9:
                break
            cut = np.exp(stats.hypergeom.logpmf(kept, a + b, a, t))
            filled = np.exp(stats.hypergeom.logpmf(
                kept - a, count - a - b, m - a, t - a - b))
            law[kept] += p * (ones * np.where(a + b >= t, cut,
                                              filled)).sum()
    assert law.sum() == pytest.approx(1, abs=1e-6)
    releases = [mechanism.release(edges, count, source.derive(i))
                for i in range(2000)]
    kept = np.array([np.isin(out, edges).sum() for out in releases])
    assert chi_square(kept, lambda k: law[k]) > FALSE_ALARM
    # All other pairs are equally likely.
    others = np.delete(np.bincount(np.concatenate(releases), minlength=count),
                       edges)
    assert stats.chisquare(others).pvalue > FALSE_ALARM


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 2**60))
def test_enough_pairs_have_a_score(wanted, count):
    wanted = min(wanted, count)
    cut = LapGraph(1.0)._cut(wanted, count)
    if cut < lap_graph._SCORES:
        mean = cut / lap_graph._SCORES * count
        assert (mean - wanted)**2 / (2 * mean) >= 100 * math.log(2)
        assert mean <= 3 * wanted + 300 and mean <= count / 2 + 1
    else:
        assert count <= 4 * wanted + 600


@pytest.mark.parametrize('n', [0, 1, 2, 3, 40])
@pytest.mark.parametrize('epsilon', [0.5, 50.0])
def test_expected_edges(n, epsilon):
    mechanism = LapGraph(epsilon, 0.3)
    for edges in {0, num_pairs(n) // 2, num_pairs(n)}:
        law = law_of_count(mechanism, edges, num_pairs(n))
        exact = law @ np.arange(len(law))
        assert mechanism.expected_edges(n, edges) == pytest.approx(exact)


def test_a_large_epsilon_changes_nothing():
    edges = torch.stack([torch.arange(499), torch.arange(1, 500)])
    out = LapGraph(10**4)(edges, 500, NoiseSource.from_seed(0))
    assert torch.equal(out, edges)


def smallest(numbers, scores, edges, edge_scores, cut, wanted):
    arrays = [np.array(part, np.int64)
              for part in (numbers, scores, edges, edge_scores)]
    first_out, ties = lap_graph._first_out(arrays[1], arrays[3], cut, wanted)
    out = np.empty(wanted, np.int64)
    return out[:lap_graph._take(*arrays, first_out, ties, out)].tolist()


def test_ties_are_broken_by_the_number():
    numbers, scores, edges, own = [1, 5, 9], [8, 3, 1], [2, 7], [3, 3]
    for wanted, kept in ((0, []), (1, [9]), (2, [2, 9]), (3, [2, 5, 9]),
                         (4, [2, 5, 7, 9]), (5, [1, 2, 5, 7, 9]),
                         (9, [1, 2, 5, 7, 9])):
        assert smallest(numbers, scores, edges, own, 10, wanted) == kept


@given(st.data(), st.integers(1, 40), st.integers(0, 20),
       st.sampled_from([1, 2**8, 2**50]))
def test_the_smallest_scores(data, cut, wanted, unit):
    # Against a sort by score and number; some scores are not below the cut.
    cut *= unit
    numbers = data.draw(st.lists(st.integers(0, 30), unique=True))
    scores = [data.draw(st.integers(0, cut + 5) | st.integers(0, 3).map(
        lambda i: i * unit)) for _ in numbers]
    parts = [sorted((n, s) for n, s in zip(numbers, scores) if n % 3 == 0),
             sorted((n, s) for n, s in zip(numbers, scores) if n % 3 > 0)]
    ranked = sorted((s, n) for n, s in zip(numbers, scores) if s < cut)
    expected = sorted(n for _, n in ranked[:wanted])
    (a, x), (b, y) = (zip(*part) if part else ((), ()) for part in parts)
    assert smallest(a, x, b, y, cut, wanted) == expected


def test_large_graphs_stay_sparse():
    # 5 * 10^11 pairs.
    n = 10**6
    edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    out = LapGraph(2.0)(edges, n, NoiseSource.from_seed(0))
    assert abs(out.size(1) - n) < 40 / 0.02
    assert (out[0] < out[1]).all() and out.max() < n
    # Under so little epsilon, next to nothing of the graph is left.
    assert int((out[1] - out[0] == 1).sum()) < 100


@pytest.mark.parametrize('size', [2, 64])
def test_draws_do_not_depend_on_the_block_size(size, monkeypatch):
    edges = torch.stack([torch.arange(99), torch.arange(1, 100)])
    expected = LapGraph(2.0)(edges, 100, NoiseSource.from_seed(0))
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', size)
    out = LapGraph(2.0)(edges, 100, NoiseSource.from_seed(0))
    assert torch.equal(out, expected)


def test_shares_add_up_to_less_than_epsilon():
    for epsilon, share in ((1.0, 0.01), (7.3, 0.2), (1e-9, 0.5)):
        mechanism = LapGraph(epsilon, share)
        odds = lap_graph._SCORES / mechanism._tau - 1
        total = 1 / mechanism._scale + math.log(odds)
        assert epsilon - 1e-8 < total <= epsilon - 3e-12


@pytest.mark.parametrize('share', [0.0, 1.0, -0.1, float('nan')])
def test_bad_count_share(share):
    with pytest.raises(ValueError, match=f"'count_share' must lie between 0 "
                       f"and 1 .got {share}"):
        LapGraph(1.0, share)


def test_bad_epsilon():
    with pytest.raises(ValueError, match=r"'epsilon' must leave at least "
                       r"2\*\*-38 for the count.*got 1e-10, with .* 0.01"):
        LapGraph(1e-10)
    with pytest.raises(ValueError, match="'epsilon' must be a positive"):
        LapGraph(-1.0)


def test_repr():
    assert repr(LapGraph(5)) == 'LapGraph(epsilon=5.0)'
    assert repr(LapGraph(5, 0.1)) == 'LapGraph(epsilon=5.0, count_share=0.1)'
