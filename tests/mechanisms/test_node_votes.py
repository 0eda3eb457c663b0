import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from tests.conftest import FALSE_ALARM
from torch_geometric_dp.audit import verify_exactly
from torch_geometric_dp.graph.pairs import from_pairs
from torch_geometric_dp.mechanisms import NodeVotes
from torch_geometric_dp.mechanisms.node_votes import STEPS
from torch_geometric_dp.noise import NoiseSource

N, PAIRS, CLASSES = 4, 6, 2
GRAPHS = [np.array([pair for pair in range(PAIRS) if number >> pair & 1],
                   np.int64) for number in range(2**PAIRS)]
ENDS = from_pairs(np.arange(PAIRS)).T.tolist()


def plain(mechanism, edges, known, num_classes):
    """The equation, in a loop."""
    out = torch.zeros(len(known), num_classes, dtype=torch.double)
    hearers = [{u for edge in edges for u in edge if v in edge and u != v
                and known[u] < 0} for v in range(len(known))]
    for v, heard in enumerate(hearers):
        if known[v] >= 0:
            weight = min(1.0, math.sqrt(mechanism.reach / max(len(heard), 1)))
            for u in heard:
                out[u, known[v]] += weight
    return out


@pytest.mark.parametrize('edges', [1, 6, 30])
def test_sums_are_those_of_the_equation(edges):
    mechanism = NodeVotes(8.0, 1e-5, edges=edges)
    generator = np.random.default_rng(edges)
    for _ in range(5):
        pairs = np.flatnonzero(generator.random(30 * 29 // 2) < 0.5)
        known = torch.from_numpy(generator.integers(-2, 3, 30)).clamp(min=-1)
        sums = mechanism.sums(pairs, known, 3) / STEPS
        expected = plain(mechanism, from_pairs(pairs).T.tolist(), known, 3)
        assert torch.allclose(sums, expected, atol=1e-4)
        told = (known >= 0).tolist()
        between = sum(told[u] != told[v] for u, v in from_pairs(
            pairs).T.tolist())
        count = mechanism.count(pairs, known, NoiseSource.from_seed(0), 1e12)
        assert count == pytest.approx(between, abs=1e-3)


def worlds():
    """All that is public: who has a label."""
    return itertools.product((False, True), repeat=N)


def labels(told):
    """All labels that those who have one may have."""
    return [tuple(labels) for labels in itertools.product(*[
        range(CLASSES) if has else (-1, ) for has in told])]


def distances(mechanism, k):
    """The largest distances of the sums of neighbouring graphs, for a node
    with a label, and for one without, by the definition; without its own sum.
    """
    largest = {True: 0.0, False: 0.0}
    for told in worlds():
        sums = {known: torch.stack([
            mechanism.sums(pairs, torch.tensor(known), CLASSES)
            for pairs in GRAPHS]) for known in labels(told)}
        for w in range(N):
            mine = [1 << p for p, ends in enumerate(ENDS) if w in ends]
            masks = [sum(some) for size in range(k + 1)
                     for some in itertools.combinations(mine, size)]
            others = [u for u in range(N) if u != w]
            for one, two in itertools.product(sums, repeat=2):
                if any(one[u] != two[u] for u in others):
                    continue
                for mask in masks:
                    flipped = torch.arange(2**PAIRS) ^ mask
                    apart = (sums[one] - sums[two][flipped])[:, others]
                    largest[told[w]] = max(largest[told[w]], float(
                        apart.square().sum(dim=(1, 2)).max().sqrt()))
    return largest


@pytest.mark.parametrize('k', [1, 2, 3])
def test_the_sensitivity_over_all_small_graphs(k):
    mechanism = NodeVotes(8.0, 1e-5, edges=k)
    found = distances(mechanism, k)
    # Labels reach the bound. So do edges, if k nodes share a neighbour.
    assert max(found.values()) <= mechanism.sensitivity(N)
    assert found[True] == pytest.approx(mechanism.sensitivity(N), rel=1e-6)
    step = STEPS * (1 - math.sqrt(0.5))
    assert found[False] == pytest.approx(min(k, 2) * step, rel=1e-5)


def test_a_mechanism_that_forgets_the_label_is_caught():
    mechanism = NodeVotes(8.0, 1e-5, edges=1)
    half = mechanism.sensitivity(N) / math.sqrt(2)
    assert max(distances(mechanism, 1).values()) > half


@pytest.mark.parametrize('k', [1, 4, 9, 60, 400])
def test_many_edges_and_one_neighbourhood(k):
    # k nodes of one class that all have the same d neighbours lose one more.
    mechanism = NodeVotes(8.0, 1e-5, edges=k)
    d = mechanism.reach
    label = math.sqrt(2 * d) * STEPS
    shared = k * math.sqrt(d) * -np.diff(mechanism.weights(
        np.array([d, d + 1])))[0]
    assert shared <= mechanism.sensitivity(10**4)
    assert mechanism.sensitivity(10**4) == pytest.approx(label, rel=1e-4)
    if d > 1:  # With a smaller reach, edges would count more than labels.
        less = d - 1
        assert k * math.sqrt(less) * (1 - math.sqrt(less / d)) > math.sqrt(
            2 * less)


def test_weights_are_bounded_exactly():
    for k in (1, 7, 300):
        mechanism = NodeVotes(8.0, 1e-5, edges=k)
        degree = np.arange(1, 10**5)
        weight = mechanism.weights(degree)
        assert (degree * weight**2 <= mechanism.reach * STEPS**2).all()
        assert (np.diff(weight) <= 0).all() and weight[0] == STEPS


def test_noise_has_its_scale():
    mechanism = NodeVotes(4.0, 1e-5, edges=1)
    known = torch.full((20_000, ), -1)
    noise = mechanism(np.empty(0, np.int64), known, 2,
                      NoiseSource.from_seed(0), share=0.25)
    scale = mechanism.scale(len(known), 0.25) / STEPS
    assert scale == pytest.approx(2 * math.sqrt(2) * mechanism.multiplier)
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 40_000)
    assert low < float((noise / scale).square().sum()) < high


def test_the_exact_loss_is_the_promise():
    for arguments in (dict(edges=1), dict(max_degree=50)):
        mechanism = NodeVotes(2.0, 1e-6, **arguments)
        exact = verify_exactly(mechanism).exact
        assert exact <= 2.0 and exact == pytest.approx(2.0, rel=1e-3)
        assert mechanism.guarantee.edges == arguments.get('edges')
        assert mechanism.guarantee.model == 'joint'


def test_all_edges_are_twice_the_cap():
    assert NodeVotes(1.0, 1e-5, max_degree=20).flips == 40


def test_what_is_refused():
    for arguments in (dict(), dict(edges=1, max_degree=2)):
        with pytest.raises(ValueError, match="Either 'edges'"):
            NodeVotes(1.0, 1e-5, **arguments)
    with pytest.raises(ValueError, match="'edges' must be"):
        NodeVotes(1.0, 1e-5, edges=-1)
