import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.papers.feature_rr import transition_matrix
from tests.conftest import FALSE_ALARM
from torch_geometric_dp import noise
from torch_geometric_dp.mechanisms import FeatureRR
from torch_geometric_dp.mechanisms import feature_rr as module
from torch_geometric_dp.mechanisms.feature_rr import best_bins
from torch_geometric_dp.noise import NoiseSource

UNIT = (0.0, 1.0)


@pytest.mark.parametrize('k', [2, 3, 5, 16, 257])
@pytest.mark.parametrize('epsilon', [1e-3, 0.1, 1.0, 5.0, 10.0])
def test_exact_epsilon(k, epsilon):
    matrix = FeatureRR(epsilon, bins=k).transition_matrix()
    assert np.allclose(matrix, transition_matrix(epsilon, k), rtol=1e-8)
    # All pairs of inputs, all outputs.
    log = np.log(matrix)
    loss = (log.max(axis=0) - log.min(axis=0)).max()
    assert epsilon - 1e-9 < loss <= epsilon + 1e-12


@pytest.mark.parametrize('k', [2, 3, 4, 7])
@pytest.mark.parametrize('epsilon', [1e-9, 0.3, 2.0, 12.0])
def test_the_integers_keep_the_promise(k, epsilon):
    # In fractions, where nothing is rounded.
    prefix = module._table(epsilon, k).prefix
    weight = [int(prefix[j + 1]) - int(prefix[j]) for j in range(k)]
    law = [[Fraction(weight[abs(u - t)], sum(weight[abs(v - t)]
                                             for v in range(k)))
            for u in range(k)] for t in range(k)]
    worst = max(law[t][u] / law[s][u]
                for t, s, u in itertools.product(range(k), repeat=3))
    assert worst <= Fraction(math.exp(epsilon))
    assert math.log(worst) > epsilon - 1e-9


@pytest.mark.parametrize('epsilon', [20.0, 40.0, 500.0])
def test_huge_epsilons_get_some_more_noise(epsilon):
    matrix = FeatureRR(epsilon, bins=8).transition_matrix()
    log = np.log(matrix)
    assert 19.9 < (log.max(axis=0) - log.min(axis=0)).max() <= epsilon


@pytest.mark.parametrize('k', [2, 5, 16, 300])
@pytest.mark.parametrize('value', [0.0, 0.3, 0.999, 1.0])
def test_draws(k, value):
    mechanism = FeatureRR(1.5, UNIT, bins=k)
    x = torch.full((10**5, 1), value, dtype=torch.double)
    out = mechanism(x, NoiseSource.from_seed(k)).view(-1).numpy()
    outputs, probabilities = mechanism.distribution(value)
    assert np.abs(outputs[:, None] - np.unique(out)).min(axis=0).max() < 1e-12
    counts = np.bincount(np.searchsorted(outputs - 1e-9, out) - 1, minlength=k)
    expected = probabilities * out.size
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


def test_every_integer_finds_its_bin():
    # The guide table against a plain search, at and around all borders.
    for epsilon, k in ((0.0, 5), (1.0, 2), (3.0, 16), (9.0, 1000)):
        table = module._table(epsilon, k)
        borders = table.prefix[:-1].astype(object)
        for shift in (0, 1, -1):
            integers = [int(b) + shift for b in borders
                        if 0 <= int(b) + shift < int(table.prefix[-1])]
            integers = np.array(integers, np.uint64)
            j = table.guide[integers >> np.uint64(table.shift)].astype(int)
            exact = np.searchsorted(table.prefix, integers, 'right') - 1
            assert (j <= exact).all()


def test_columns_have_their_own_epsilon():
    epsilons = [0.0, 0.5, 4.0]
    mechanism = FeatureRR(epsilons, ([0.0, -1.0, 5.0], [1.0, 1.0, 9.0]),
                          bins=4)
    assert mechanism.guarantee.epsilon == 4.5
    x = torch.tensor([[0.1, -0.9, 5.1]]).repeat(50000, 1)
    out = mechanism(x, NoiseSource.from_seed(0))
    for column in range(3):
        outputs, probabilities = mechanism.distribution(
            float(x[0, column]), column)
        hits = (out[:, column, None] - torch.from_numpy(outputs)).abs() < 1e-4
        counts = hits.sum(dim=0).numpy()
        assert counts.sum() == 50000
        assert stats.chisquare(counts, probabilities *
                               50000).pvalue > FALSE_ALARM
    assert np.allclose(mechanism.transition_matrix(0), 0.25)


@pytest.mark.parametrize('decode', ['none', 'unbiased', 'posterior'])
def test_expected_error(decode):
    k, epsilon, value = 5, 1.3, 0.37
    mechanism = FeatureRR(epsilon, UNIT, k, decode)
    matrix, centres = transition_matrix(epsilon, k), (np.arange(k) + 0.5) / k
    code = {
        'none': centres,
        'unbiased': np.linalg.solve(matrix, centres),
        'posterior': matrix.T @ centres / matrix.sum(axis=0),
    }[decode]
    expected = np.abs(code - value) @ matrix[int(value * k)]
    assert mechanism.expected_error(value) == pytest.approx(expected)
    outputs, _ = mechanism.distribution(value)
    assert np.allclose(outputs, np.sort(code))
    if decode == 'unbiased':  # For all values, up to the width of a bin.
        for t in range(k):
            assert mechanism.bias(centres[t]) == pytest.approx(0, abs=1e-9)


def test_decoding_knows_nothing_where_there_is_nothing_to_know():
    for decode in ('unbiased', 'posterior'):
        mechanism = FeatureRR(0.0, UNIT, 4, decode)
        out = mechanism(torch.rand(100, 1), NoiseSource.from_seed(0))
        assert (out == 0.5).all()


@pytest.mark.parametrize('decode', ['none', 'unbiased', 'posterior'])
@pytest.mark.parametrize('epsilon', [0.1, 2.0, 9.0])
def test_the_best_number_of_bins(decode, epsilon):
    def error(k):
        mechanism = FeatureRR(epsilon, UNIT, k, decode)
        values = (np.arange(400) + 0.5) / 400
        return np.mean([mechanism.expected_error(v) for v in values])

    best = best_bins(epsilon, decode)
    assert error(best) <= min(error(k) for k in (2, 3, 4, 6, 12)) * 1.01
    assert FeatureRR(epsilon, decode=decode).bins[0] == best
    assert best_bins(0.0) == 2


def test_the_closed_form_of_the_mean_error():
    mechanism = FeatureRR(2.0, (-1.0, 1.0), 6, 'posterior')
    values = (np.arange(6000) + 0.5) / 3000 - 1
    mean = np.mean([mechanism.expected_error(v) for v in values])
    assert module._mean_error(2.0, 6, 'posterior') == pytest.approx(mean)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 20), st.integers(1, 4), st.integers(2, 300),
       st.sampled_from([torch.float, torch.double, torch.half,
                        torch.bfloat16]))
def test_any_matrix(n, d, bins, dtype):
    x = torch.linspace(0, 1, n * d).view(n, d).to(dtype)
    mechanism = FeatureRR([1.0] * d, UNIT, bins)
    out = mechanism(x, NoiseSource.from_seed(0))
    assert out.shape == x.shape and out.dtype == dtype
    assert ((out >= 0) & (out <= 1)).all()


@pytest.mark.parametrize('size', [2, 64, 4096])
@pytest.mark.parametrize('threads', [1, 2])
def test_blocks_and_threads_change_nothing(size, threads, monkeypatch):
    x = torch.rand(2000, 7)
    mechanism = FeatureRR(list(range(7)), UNIT, 9)
    # Totals that reject many words, so that the second attempts matter.
    monkeypatch.setattr(module, '_TOTAL_BITS', 63)
    module._table.cache_clear()
    mechanism = FeatureRR(list(range(7)), UNIT, 9)
    expected = mechanism(x, NoiseSource.from_seed(0))
    assert not expected.isnan().any()
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', size)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: threads)
    out = mechanism(x, NoiseSource.from_seed(0))
    module._table.cache_clear()
    assert torch.equal(out, expected)


def test_words_that_would_bring_bias_are_rejected():
    # 2**64 mod T words are one too many; the word 0 is the first of them.
    mechanism = FeatureRR(0.5, UNIT, 3)
    total = int(mechanism._tables[0].prefix[3])
    surplus = 2**64 % total
    assert surplus > 0
    one = np.ones(1)
    columns = 0 * one, 3 * one, one / 2, one / 2, np.array([3]), np.array([0])
    tables = module._pack(mechanism._tables, mechanism._codes)

    def rejected(word):
        return module._respond(np.array([word], np.uint64), np.zeros(1),
                               np.zeros(1, np.int64), np.empty(1), columns,
                               tables)

    inverse = pow(total // math.gcd(total, 2**64), -1, 2**64)
    assert rejected(0) == 1 and rejected(2**64 - 1) == 0
    # The words whose product ends on the last rejected, and the first other.
    shift = math.gcd(total, 2**64)
    for rest, answer in ((surplus - shift, 1), (surplus, 0)):
        assert rejected(rest // shift * inverse % (2**64 // shift)) == answer


def test_rejection_has_no_bias(monkeypatch):
    monkeypatch.setattr(module, '_TOTAL_BITS', 63)
    module._table.cache_clear()
    mechanism = FeatureRR(0.5, UNIT, 3)
    out = mechanism(torch.zeros(10**5, 1), NoiseSource.from_seed(0)).numpy()
    module._table.cache_clear()
    counts = np.bincount((out.ravel() * 3).astype(int), minlength=3)
    expected = transition_matrix(0.5, 3)[0] * 1e5
    assert stats.chisquare(counts, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize('arguments, message', [
    (dict(epsilons=-1.0), "'epsilons[0]' must be a positive, finite number"),
    (dict(epsilons=[1.0, math.inf]), "'epsilons[1]' must be a positive"),
    (dict(bounds=(1.0, 0.0)), "'bounds' must be finite, and the lower one"),
    (dict(bounds=(0.0, math.inf)), "'bounds' must be finite"),
    (dict(bins=1), "'bins' must be an integer of at least 2 (got 1)"),
    (dict(bins=10**6), "'bins' must be at most 32768 (got 1000000)"),
    (dict(decode='best'), "'decode' must be one of"),
])
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError) as info:
        FeatureRR(**{'epsilons': 1.0, **arguments})
    assert message in str(info.value)


@pytest.mark.parametrize('value', [-0.1, 1.1, math.nan, math.inf])
def test_bad_values(value):
    x = torch.tensor([[0.5, 0.5], [0.5, value]])
    with pytest.raises(ValueError) as info:
        FeatureRR([1.0, 1.0], UNIT)(x, NoiseSource.from_seed(0))
    assert "'x' must lie within its bounds, from 0.0 to 1.0 in column 1" in str(
        info.value)
    assert 'in row 1' in str(info.value)
    with pytest.raises(ValueError, match=r'must have shape \[num_nodes, 1\]'):
        FeatureRR([1.0], UNIT)(x, NoiseSource.from_seed(0))
