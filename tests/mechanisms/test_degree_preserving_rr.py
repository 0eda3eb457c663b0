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
from torch_geometric_dp.accountant import Relation, Unit
from torch_geometric_dp.graph.pairs import (
    from_pairs,
    num_pairs,
    to_pairs,
)
from torch_geometric_dp.mechanisms import DegreePreservingRR
from torch_geometric_dp.mechanisms.degree_preserving_rr import (
    _few_up_to,
    _levels,
)
from torch_geometric_dp.noise import NoiseSource

PAIRS, NODES = 6, 4
GRAPHS = range(2**PAIRS)
BOTH = [('edge', None, 'add-remove'), ('edge', None, 'replace'),
        ('node', 3, 'add-remove'), ('node', 3, 'replace'),
        ('node', 1, 'add-remove'), ('node', 1, 'replace')]


def pairs(graph):
    return np.array([i for i in range(PAIRS) if graph >> i & 1], np.int64)


def degrees(graph):
    return np.bincount(from_pairs(pairs(graph)).numpy().ravel(),
                       minlength=NODES)


def neighbours(graph, unit, relation):
    u, v = from_pairs(np.arange(PAIRS)).numpy()
    for other in GRAPHS:
        diff = graph ^ other
        if unit == 'edge':
            size = bin(diff).count('1')
            same = bin(graph).count('1') == bin(other).count('1')
            if size == (1 if relation == 'add-remove' else 2) and (
                    relation == 'add-remove' or same):
                yield other
            continue
        for k in range(NODES):
            mine = sum(1 << i for i in range(PAIRS) if k in (u[i], v[i]))
            if diff & ~mine == 0 and (relation == 'replace'
                                      or other & mine == 0):
                yield other


def chances(mechanism, level, share):
    """The exact probabilities that a pair without, and one with, an edge is
    drawn, from the integers of the samplers: a block with T = 2**level, and a
    threshold of `share` out of 2**63.
    """
    with localcontext(prec=80):
        rate, _ = noise.coins.dart_board(mechanism._flip * Decimal(2)**level)
        head = 1 - (-rate).exp()
        kept = Decimal(mechanism._limit() >> -level) / 2**64
        return head * share / 2**63, kept * share / 2**63


@given(st.floats(1e-5, 60), st.integers(-40, 0), st.integers(1, 2**63))
def test_exact_ratio_of_a_pair(epsilon, level, share):
    mechanism = DegreePreservingRR(epsilon)
    with localcontext(prec=60):
        none, edge = chances(mechanism, level, share)
        part = Decimal(epsilon) * (1 - Decimal(mechanism.share))
        # No error term.
        assert 1 <= edge / none <= part.exp()
        assert 1 <= (1 - none) / (1 - edge) <= part.exp()
        if level > -20 and epsilon < 30:  # And next to nothing is lost.
            assert edge / none >= part.exp() * (1 - Decimal(2)**-40)


@pytest.mark.parametrize('unit, cap, relation', BOTH)
@pytest.mark.parametrize('epsilon, share', [(0.2, 0.1), (4.0, 0.3)])
def test_all_graphs_with_four_nodes(unit, cap, relation, epsilon, share):
    # Degrees, their number and pairs are three releases, of which the worst
    # outputs meet.
    mechanism = DegreePreservingRR(epsilon, unit, cap, relation, share)
    none, edge = chances(mechanism, 0, 2**63)
    pair = float(max((edge / none).ln(), ((1 - none) / (1 - edge)).ln()))
    scales = []
    for scale in (mechanism._scale, mechanism._number_scale):
        t, s = noise.discrete.laplace_grid(scale)
        scales.append(t / s)
    worst = 0.0
    allowed = [graph for graph in GRAPHS
               if degrees(graph).max() <= (cap or NODES)]
    for graph in allowed:
        for other in neighbours(graph, unit, relation):
            if other not in allowed:
                continue
            moved = np.abs(degrees(graph) - degrees(other)).sum()
            number = abs(len(pairs(graph)) - len(pairs(other)))
            changed = bin(graph ^ other).count('1')
            worst = max(worst, moved / scales[0] + number / scales[1] +
                        changed * pair)
    assert worst <= epsilon
    # What is replaced never changes the number of edges as well, and a node
    # cannot have six neighbours among four.
    if relation == 'add-remove':
        assert worst > epsilon * (1 - 1e-6)
    elif cap != 3:
        assert worst > epsilon * (1 - share / 11) * (1 - 1e-6)


def thinning(mechanism, targets):
    weights = mechanism.weights(targets)
    chance = np.minimum(np.outer(weights, weights), 1.0)
    np.fill_diagonal(chance, 0)
    return chance


@pytest.mark.parametrize('graph', [0b000000, 0b010110])
def test_draws(graph, monkeypatch):
    # Given the targets, pairs are independent: the law of whole graphs.
    mechanism, source = DegreePreservingRR(2.0), NoiseSource.from_seed(graph)
    targets = np.array([1.7, 0.9, 1.2, 0.6])
    monkeypatch.setattr(mechanism, 'targets', lambda *args: targets)
    weights = mechanism.weights(targets)
    monkeypatch.setattr(mechanism, 'weights', lambda targets: weights)
    u, v = from_pairs(np.arange(PAIRS)).numpy()
    thin = thinning(mechanism, targets)[u, v]
    assert len(set(np.ceil(np.log2(thin)))) > 1  # Several blocks.
    has = np.array([graph >> i & 1 for i in range(PAIRS)])
    drawn = thin * np.where(has, 1 - mechanism.flip, mechanism.flip)
    bits = np.array([[out >> i & 1 for i in range(PAIRS)] for out in GRAPHS])
    law = np.where(bits, drawn, 1 - drawn).prod(axis=1)
    outcomes = [int((1 << mechanism.release(
        pairs(graph), PAIRS, source.derive(i))).sum()) for i in range(500)]
    assert chi_square(np.array(outcomes), lambda i: law[i]) > FALSE_ALARM


def random_graph(n, mean, seed=0):
    # Heavy tails, and edges that are random given the degrees.
    random = np.random.RandomState(seed)
    weight = np.minimum(random.pareto(1.5, n) + 1, n / 50)
    ends = random.choice(n, (2, int(n * mean / 2)), p=weight / weight.sum())
    return to_pairs(torch.from_numpy(ends))


def expected_degrees(mechanism, edges, n, targets):
    thin = thinning(mechanism, targets)
    u, v = from_pairs(edges).numpy()
    true = (1 - 2 * mechanism.flip) * thin[u, v]
    return (mechanism.flip * thin.sum(axis=1) + np.bincount(u, true, n) +
            np.bincount(v, true, n))


def by_decile(values, targets):
    parts = np.array_split(np.argsort(targets, kind='stable'), 10)
    return np.array([values[part].sum() / targets[part].sum()
                     for part in parts])


@pytest.mark.parametrize('epsilon', [0.3, 2.0, 5.0, 8.0, 12.0])
def test_expected_degrees(epsilon):
    n = 2000
    edges = random_graph(n, mean=8)
    mechanism = DegreePreservingRR(epsilon)
    degree = np.bincount(from_pairs(edges).numpy().ravel(),
                         minlength=n).astype(float)
    expected = expected_degrees(mechanism, edges, n, degree)
    assert np.abs(by_decile(expected, degree) - 1).max() < 0.02
    # The form of Eq. 12 is far from it.
    s = 2 * mechanism.flip
    printed = 2 * degree / (degree + n - n * s + degree * s)
    after = degree * (1 - s) + s * (n - 1) / 2
    assert np.abs(by_decile(printed * after, degree) - 1).max() > 0.2


@pytest.mark.parametrize('epsilon', [0.5, 2.0])
def test_expected_degrees_from_noisy_ones(epsilon):
    # Where most of the output is noise, targets are met though the true
    # degrees are others.
    n = 2000
    edges = random_graph(n, mean=8)
    mechanism = DegreePreservingRR(epsilon)
    targets = mechanism.targets(edges, n, NoiseSource.from_seed(3))
    expected = expected_degrees(mechanism, edges, n, targets)
    assert np.abs(by_decile(expected, targets) - 1).max() < 0.02


def test_targets():
    n = 5000
    edges = random_graph(n, mean=8)
    degree = np.bincount(from_pairs(edges).numpy().ravel(), minlength=n)
    for epsilon, error in ((0.5, 1.1), (8.0, 0.35), (200.0, 1e-2)):
        mechanism = DegreePreservingRR(epsilon)
        out = mechanism.targets(edges, n, NoiseSource.from_seed(0))
        assert (out >= 0).all()
        # The number of edges, up to its own noise.
        room = 30 * mechanism._number_scale + 1
        assert abs(out.sum() / 2 - len(edges)) < room
        # Closer to the truth than the noisy degrees, and soon than the mean.
        wrong = np.abs(out - degree).mean()
        assert wrong < mechanism.degree_scale
        assert wrong <= error * np.abs(degree - degree.mean()).mean()


def test_without_noise_targets_are_degrees():
    edges = random_graph(300, mean=5)
    degree = np.bincount(from_pairs(edges).numpy().ravel(), minlength=300)
    out = DegreePreservingRR(1e4).targets(edges, 300, NoiseSource.from_seed(0))
    assert np.allclose(out, degree, atol=0.05)


@given(st.integers(0, 10**7))
def test_few_degrees(most):
    few = _few_up_to(most)
    assert few[0] == 0 and few[-1] == most and len(few) < 400
    assert (np.diff(few) >= 1).all()
    assert (np.diff(few) <= np.maximum(1, 0.06 * few[:-1])).all()


@given(st.lists(st.floats(0, 2**20), min_size=1))
def test_levels(weights):
    weights = np.array(weights)
    levels = _levels(weights)
    assert (np.exp2(levels) >= weights).all()
    assert (levels[weights == 0] == -21).all()
    inside = weights > 2.0**-20
    assert (np.exp2(levels[inside] - 1) < weights[inside]).all()


def test_draws_of_a_large_graph():
    # Counts of true and of false pairs, and the degrees of the output.
    n = 2000
    edges = random_graph(n, mean=8)
    mechanism, source = DegreePreservingRR(6.0), NoiseSource.from_seed(5)
    out = mechanism.release(edges, num_pairs(n), source)
    assert (np.diff(out) > 0).all() and out.max() < num_pairs(n)
    targets = mechanism.targets(edges, n, source.derive('degrees'))
    thin = thinning(mechanism, targets)
    u, v = from_pairs(edges).numpy()
    kept = (1 - mechanism.flip) * thin[u, v]
    limit = stats.norm.isf(FALSE_ALARM / 4)
    true = np.isin(out, edges).sum()
    assert abs(true - kept.sum()) < limit * math.sqrt(kept.sum())
    false = mechanism.flip * (thin.sum() / 2 - thin[u, v].sum())
    assert abs(len(out) - true - false) < limit * math.sqrt(false)
    assert abs(len(out) - mechanism.expected_edges(n, len(edges))) < (
        0.05 * len(edges))
    drawn = np.bincount(from_pairs(out).numpy().ravel(), minlength=n)
    expected = expected_degrees(mechanism, edges, n, targets)
    chance = mechanism.flip * thin
    chance[u, v] = chance[v, u] = kept
    variance = (chance * (1 - chance)).sum(axis=1)
    score = (drawn - expected)**2 / variance
    assert abs(score.sum() - n) < 8 * math.sqrt(2 * n)


def test_large_graphs_stay_sparse():
    # 5 * 10^11 pairs, at an epsilon that would make EdgeRand draw a third.
    n = 10**6
    edges = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])[:, ::10]
    out = DegreePreservingRR(1.0)(edges, n, NoiseSource.from_seed(0))
    assert abs(out.size(1) - n / 10) < 0.05 * n / 10
    assert (out[0] < out[1]).all() and out.max() < n


@pytest.mark.parametrize('n', [0, 1, 2, 5])
@pytest.mark.parametrize('full', [False, True])
def test_small_graphs(n, full):
    edges = torch.combinations(torch.arange(n)).t() if full else (
        torch.empty(2, 0, dtype=torch.long))
    for epsilon in (0.1, 3.0, 1e5):
        for seed in range(20):
            out = DegreePreservingRR(epsilon)(edges, n,
                                              NoiseSource.from_seed(seed))
            assert out.size(1) <= num_pairs(n)
    assert (torch.equal(out, edges) or not full) or n == 5


def test_a_large_epsilon_changes_nothing():
    edges = torch.stack([torch.arange(499), torch.arange(1, 500)])
    out = DegreePreservingRR(10**4)(edges, 500, NoiseSource.from_seed(0))
    assert torch.equal(out, edges)


@pytest.mark.parametrize('size', [2, 64])
def test_draws_do_not_depend_on_the_block_size(size, monkeypatch):
    edges = torch.stack([torch.arange(99), torch.arange(1, 100)])
    expected = DegreePreservingRR(2.0)(edges, 100, NoiseSource.from_seed(0))
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', size)
    out = DegreePreservingRR(2.0)(edges, 100, NoiseSource.from_seed(0))
    assert torch.equal(out, expected)


def test_expected_edges():
    mechanism = DegreePreservingRR(4.0)
    assert mechanism.expected_edges(1000, 3000) == pytest.approx(3000)
    # The mean of what is above zero, where there is nothing but noise.
    t, s = noise.discrete.laplace_grid(mechanism._number_scale)
    z = np.arange(0, 40 * t // s)
    law = np.exp(-z * s / t)
    exact = (z * law).sum() / (2 * law.sum() - 1)
    assert mechanism.expected_edges(1000, 0) == pytest.approx(exact)
    # And below all pairs, where there is little else.
    z = np.clip(np.arange(-40 * t // s, 40 * t // s), 0, 3)
    law = np.exp(-np.abs(np.arange(-40 * t // s, 40 * t // s)) * s / t)
    assert mechanism.expected_edges(3, 0) == pytest.approx(
        z @ law / law.sum())


def test_guarantee():
    promise = DegreePreservingRR(2.0).guarantee
    assert (promise.epsilon, promise.unit) == (2.0, Unit.EDGES)
    assert promise.relation == Relation.ADD_REMOVE
    promise = DegreePreservingRR(2.0, 'node', 7, 'replace').guarantee
    assert promise.unit == Unit.NODE and promise.assumptions[1] == (
        "no node has more than 7 edges, in any graph that is possible")
    assert promise.relation == Relation.REPLACE
    # The paper's s, for the rest of epsilon.
    flip = DegreePreservingRR(2.0, 'node', 7, 'replace', share=0.5).flip
    assert 2 * flip == pytest.approx(2 / (math.exp(1.0 / 14) + 1))


@pytest.mark.parametrize('change, message', [
    (dict(epsilon=0), "'epsilon' must be a positive, finite number .got 0"),
    (dict(unit='graph'), "'unit' must be one of .* .got 'graph'"),
    (dict(relation='swap'), "'relation' must be one of .* .got 'swap'"),
    (dict(unit='node'), "'max_degree' belongs to unit='node', which cannot do "
     "without it .got None"),
    (dict(max_degree=3), "'max_degree' belongs to unit='node'.*got 3 for "
     "unit='edges'"),
    (dict(unit='node', max_degree=0), "'max_degree' must be an integer"),
    (dict(share=1.0), "'share' must lie between 0 and 1 .got 1.0"),
    (dict(epsilon=1e-7), r"'epsilon' must leave at least 2\*\*-20 for each of "
     "1 pairs and .* of 2 degrees .got 1e-07"),
])
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        DegreePreservingRR(**{'epsilon': 1.0, **change})


def test_degrees_above_the_cap():
    star = torch.tensor([[0, 0, 0], [1, 2, 3]])
    with pytest.raises(ValueError, match="'max_degree' is too small for this "
                       "graph: some node has more edges .got 2.. BoundDegree"):
        DegreePreservingRR(1.0, 'node', 2)(star, 5, NoiseSource.from_seed(0))


def test_repr():
    assert repr(DegreePreservingRR(5)) == 'DegreePreservingRR(epsilon=5.0)'
    assert repr(DegreePreservingRR(5, 'node', 3, 'replace', 0.2)) == (
        "DegreePreservingRR(epsilon=5.0, unit='node', max_degree=3, "
        "relation='replace', share=0.2)")
