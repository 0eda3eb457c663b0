import copy
import math
import pickle
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.conftest import FALSE_ALARM
from torch_geometric_dp import noise
from torch_geometric_dp.noise import (
    WORD,
    NoiseSource,
    bernoulli,
    discrete_gaussian,
    discrete_laplace,
    sparse_bernoulli,
    threshold,
    uniform_integers,
    uniforms,
)

SAMPLERS = {
    'bernoulli': lambda source, shape: bernoulli(source, 0.3, shape),
    # Rejects a quarter of the words.
    'integers': lambda source, shape: uniform_integers(source, 3 * 2**61,
                                                       shape),
    'uniforms': uniforms,
    'laplace': lambda source, shape: discrete_laplace(source, 2.7, shape),
    'gaussian': lambda source, shape: discrete_gaussian(source, 2.7, shape),
}


def all_words(source, rows, width):
    return np.concatenate([w.copy() for _, _, w in source.blocks(rows, width)])


def chi_square(draws, probability):
    """The p-value of integer draws against a law, with rare ones lumped."""
    low, high = int(draws.min()), int(draws.max())
    support = np.arange(low, high + 1)
    expected = probability(support) * draws.size
    keep = expected >= 10
    observed = np.bincount(draws.ravel() - low)[keep]
    observed = np.append(observed, draws.size - observed.sum())
    expected = np.append(expected[keep], draws.size - expected[keep].sum())
    return stats.chisquare(observed, np.maximum(expected, 1e-9)).pvalue


def test_words_are_the_aes_ctr_keystream():
    source = NoiseSource(bytes(range(32)))
    key = source.digest('stream')
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    expected = np.frombuffer(stream.update(bytes(8 * 1001)), '<u8')
    assert np.array_equal(all_words(source, 143, 7), expected)


@pytest.mark.parametrize('name', SAMPLERS)
@pytest.mark.parametrize('size', [2, 6, 64, 1024])
def test_draws_do_not_depend_on_the_block_size(name, size, monkeypatch):
    source = NoiseSource.from_seed(1)
    expected = SAMPLERS[name](source, (301, 5))
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', size)
    assert np.array_equal(SAMPLERS[name](source, (301, 5)), expected)


@pytest.mark.parametrize('name', SAMPLERS)
def test_every_row_has_its_own_stream(name):
    source = NoiseSource.from_seed(2)
    expected = SAMPLERS[name](source, (300, 4))
    assert np.array_equal(SAMPLERS[name](source, (200, 4)), expected[:200])


@pytest.mark.parametrize('name', ['discrete_laplace', 'discrete_gaussian'])
@pytest.mark.parametrize('first', [1, 7, 4000])
def test_draws_from_a_row_on(name, first):
    # Some cells need more words than all of them get at first.
    source, sampler = NoiseSource.from_seed(3), getattr(noise, name)
    with mock.patch.object(source, 'derive', wraps=source.derive) as derive:
        expected = sampler(source, 30.0, (8000, 3))
        out = sampler(source, 30.0, (8000 - first, 3), first)
    assert derive.call_count >= 2
    assert np.array_equal(out, expected[first:])


def test_scattered_cells_hold_the_same_words():
    source = NoiseSource.from_seed(4)
    words = all_words(source, 50, 3 * 4).reshape(50, 3, 4)
    rows, columns = np.array([49, 0, 7, 7]), np.array([2, 0, 1, 2])
    gathered = source.gather(rows, columns, width=3, depth=4)
    assert np.array_equal(gathered, words[rows, columns])


def test_sources_are_independent_and_secret():
    one, two = NoiseSource.from_os(), NoiseSource.from_os()
    assert not np.array_equal(all_words(one, 8, 1), all_words(two, 8, 1))
    derived = one.derive('a', 1)
    assert not np.array_equal(all_words(one, 8, 1), all_words(derived, 8, 1))
    # Parts of an address do not run into each other.
    assert one.digest('a', 'b') != one.digest('ab')
    assert one.digest('1') != one.digest(1)
    assert one._key.hex() not in repr(one)
    assert repr(one) == 'NoiseSource(key=<secret>)'
    with pytest.raises(ValueError, match="'key' must have 32 bytes"):
        NoiseSource(b'short')


def test_seeds_repeat_and_global_seeds_do_not_matter():
    torch.manual_seed(0)
    np.random.seed(0)
    first = uniforms(NoiseSource.from_seed(5), 10)
    secret = uniforms(NoiseSource.from_os(), 10)
    torch.manual_seed(0)
    np.random.seed(0)
    assert np.array_equal(uniforms(NoiseSource.from_seed(5), 10), first)
    assert not np.array_equal(uniforms(NoiseSource.from_seed(6), 10), first)
    assert not np.array_equal(uniforms(NoiseSource.from_os(), 10), secret)


@pytest.mark.parametrize('clone', [
    copy.deepcopy,
    lambda source: pickle.loads(pickle.dumps(source)),
])
def test_copies_are_the_same_source(clone):
    source = NoiseSource.from_os()
    assert np.array_equal(uniforms(clone(source), 5), uniforms(source, 5))


def test_fingerprints_are_keyed():
    one, two = NoiseSource.from_seed(0), NoiseSource.from_seed(1)
    content = np.arange(100, dtype=np.uint8)
    changed = content.copy()
    changed[50] += 1
    assert one.fingerprint([content]) == one.fingerprint([content.copy()])
    assert one.fingerprint([content]) != two.fingerprint([content])
    assert one.fingerprint([content]) != one.fingerprint([changed])
    assert one.fingerprint([content]) != one.fingerprint([content[:99]])
    blocks = iter([content[:7], content[:0], content[7:]])
    assert one.fingerprint(blocks) == one.fingerprint([content])


@given(st.fractions(0, 1))
def test_thresholds_round_up(probability):
    limit = threshold(probability)
    assert probability <= Fraction(limit, WORD) < probability + Fraction(
        1, WORD)


def test_thresholds_at_the_ends():
    source = NoiseSource.from_seed(0)
    assert threshold(0) == 0 and threshold(1) == WORD
    assert not bernoulli(source, 0, 1000).any()
    assert bernoulli(source, 1, 1000).all()
    with pytest.raises(ValueError, match='got 1.5'):
        threshold(1.5)


def test_bernoulli_frequency():
    hits = int(bernoulli(NoiseSource.from_seed(0), 0.3, 10**6).sum())
    assert stats.binomtest(hits, 10**6, 0.3).pvalue > FALSE_ALARM


@given(st.floats(0, 0.5, exclude_min=True) | st.fractions(
    Fraction(1, 10**12), Fraction(1, 2)))
def test_darts_hit_with_the_probability_asked_for(probability):
    rate, bits = noise.coins.dart_board(probability)
    assert bits <= 61 and 2 <= rate * 2**bits <= noise.coins._DARTS
    assert bits == 61 or rate * 2**bits > noise.coins._DARTS / 2
    # 1 - exp(-rate) in 100 digits: rounded up, and by next to nothing.
    asked = max(Fraction(probability), Fraction(1, 2**60))
    with localcontext(prec=100):
        hit = 1 - (-rate).exp()
        ratio = hit * asked.denominator / asked.numerator
        assert 1 < ratio < 1 + Decimal(10)**-57


@pytest.mark.parametrize('mean', ['1.7', '16.5', '32'])
def test_poisson(mean):
    draws = noise.coins._poisson(NoiseSource.from_seed(0), Decimal(mean),
                                 2 * 10**5)

    def probability(k):
        return stats.poisson.pmf(k, float(mean))

    assert chi_square(draws.astype(np.int64), probability) > FALSE_ALARM


@pytest.mark.parametrize('mean', ['1', '17.3', '32'])
def test_words_that_tell_how_many_darts_there_are(mean):
    # Around each sum of probabilities, by the sum in 200 digits: what a word
    # is taken for must hold for every number that begins with it.
    mean = Decimal(mean)
    limits = noise.coins._limits(mean)
    with localcontext(prec=200):
        terms = [(-mean).exp()]
        for k in range(1, 400):
            terms.append(terms[-1] * mean / k)
        sums = np.cumsum(np.array(terms))
        assert len(limits) > mean and 1 - sums[len(limits)] < Decimal(2)**-62
        for limit in limits.tolist():
            words = [min(limit + i, WORD - 1) for i in range(-6, 4)]
            out = np.empty(len(words), np.uint8)
            noise.coins._fill_poisson(np.array(words, np.uint64), limits, out)
            unclear = 0
            for word, result in zip(words, out.tolist()):
                low, high = Decimal(word) / WORD, Decimal(word + 1) / WORD
                if result == noise.coins._UNCLEAR:
                    unclear += 1
                    continue
                assert sums[result] >= high
                assert result == 0 or sums[result - 1] <= low
                # And a second word does not change it.
                for more in (0, WORD - 1):
                    assert noise.coins._poisson_at(
                        mean, iter([word, more])) == result
            assert unclear >= 1
    out = np.empty(1, np.uint8)
    noise.coins._fill_poisson(np.array([WORD - 1], np.uint64), limits, out)
    assert out[0] == noise.coins._UNCLEAR


def test_numbers_that_take_more_than_a_word(monkeypatch):
    # The first words of exp(-1), and then one below, one above.
    with localcontext(prec=100):
        first, rest = divmod(int(Decimal(-1).exp() * 2**128), WORD)
        third = int(Decimal(-1).exp() * 2**192) % WORD
    for words, result in (([first, rest - 1], 0), ([first, rest + 1], 1),
                          ([first, rest, third - 1], 0),
                          ([first, rest, third + 1], 1)):
        assert noise.coins._poisson_at(Decimal(1), iter(words)) == result
        with pytest.raises(RuntimeError):  # One word less does not tell.
            noise.coins._poisson_at(Decimal(1), iter(words[:-1]))
    # Close to one, where hundreds of darts are left.
    assert noise.coins._poisson_at(Decimal(1), iter([WORD - 1] * 6 + [0])) > 60
    # The draws are the same if no word ever tells.
    source = NoiseSource.from_seed(0)
    expected = noise.coins._poisson(source, Decimal(20), 500)
    monkeypatch.setattr(noise.coins, '_limits',
                        lambda mean: np.empty(0, np.uint64))
    assert np.array_equal(noise.coins._poisson(source, Decimal(20), 500),
                          expected)


@pytest.mark.parametrize('p', [0.06, 0.3])  # By darts, and by all coins.
def test_sparse_coins_are_independent(p):
    # All 64 outcomes of six coins.
    draws = 4000
    source = NoiseSource.from_seed(0)
    outcomes = [sum(1 << int(place) for place in sparse_bernoulli(
        source.derive(i), p, 6)) for i in range(draws)]
    heads = np.array([bin(i).count('1') for i in range(64)])
    law = p**heads * (1 - p)**(6 - heads)
    assert chi_square(np.array(outcomes), lambda i: law[i]) > FALSE_ALARM


@pytest.mark.parametrize('probability, count', [
    (0.06, 10**5), (0.4, 10**5), (1e-3, 10**8), (1e-8, 5 * 10**12),
])
def test_sparse_coins_are_everywhere(probability, count):
    places = sparse_bernoulli(NoiseSource.from_seed(0), probability, count)
    assert (np.diff(places) > 0).all()
    assert places[0] >= 0 and places[-1] < count
    # The number of heads, and how they spread.
    mean = probability * count
    spread = math.sqrt(mean * (1 - probability))
    assert abs(len(places) - mean) < 5 * spread
    parts = np.bincount(places * 50 // count, minlength=50)
    statistic = (parts - mean / 50)**2 / (mean / 50 * (1 - probability))
    assert stats.chi2.sf(statistic.sum(), 50) > FALSE_ALARM


def test_darts_hit_all_of_a_cell():
    places = sparse_bernoulli(NoiseSource.from_seed(0), 1e-3, 10**8)
    _, bits = noise.coins.dart_board(1e-3)
    parts = np.bincount(places % 2**bits >> bits - 4, minlength=16)
    assert stats.chisquare(parts).pvalue > FALSE_ALARM


@pytest.mark.parametrize('size', [2, 6, 64, 1024])
def test_sparse_coins_do_not_depend_on_the_block_size(size, monkeypatch):
    source = NoiseSource.from_seed(1)
    expected = sparse_bernoulli(source, 0.05, 10**4)
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', size)
    assert np.array_equal(sparse_bernoulli(source, 0.05, 10**4), expected)


def test_sparse_coins_at_the_ends():
    source = NoiseSource.from_seed(0)
    assert sparse_bernoulli(source, 0.5, 0).tolist() == []
    assert sparse_bernoulli(source, 0, 10**18).tolist() == []
    assert sparse_bernoulli(source, 1, 5).tolist() == [0, 1, 2, 3, 4]
    assert sparse_bernoulli(source, 1e-30, 1000).tolist() == []
    with pytest.raises(ValueError, match=r"'count' must lie in .*got -1"):
        sparse_bernoulli(source, 0.5, -1)
    with pytest.raises(ValueError, match="'probability' must lie in"):
        sparse_bernoulli(source, 1.5, 1)


@pytest.mark.parametrize('high', [1, 2, 7, 40, 1000])
def test_uniform_integers(high):
    draws = uniform_integers(NoiseSource.from_seed(high), high, 10**6)
    assert draws.min() >= 0 and draws.max() < high
    counts = np.bincount(draws, minlength=high)
    assert high == 1 or stats.chisquare(counts).pvalue > FALSE_ALARM


def test_uniform_integers_without_modulo_bias():
    # A modulo would hit the lower third twice as often as the others.
    high = 3 * 2**61
    draws = uniform_integers(NoiseSource.from_seed(0), high, 10**5)
    counts = np.bincount(draws // 2**61, minlength=3)
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    # And a product without rejection two of three neighbours more often.
    counts = np.bincount(draws % 3, minlength=3)
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    with pytest.raises(ValueError, match="'high' must lie in"):
        uniform_integers(NoiseSource.from_seed(0), 0, 1)


def test_uniforms_have_53_bits_and_never_touch_the_ends(monkeypatch):
    source = NoiseSource.from_seed(0)
    draws = uniforms(source, 10**6)
    assert stats.kstest(draws, 'uniform').pvalue > FALSE_ALARM
    scaled = draws * 2**53
    assert (scaled == np.rint(scaled)).all() and (scaled % 2 == 1).any()

    # Words of zero are drawn again, those of all ones are below one.
    def extremes(rows, width):
        words = np.zeros(rows * width, np.uint64)
        words[1] = 2**64 - 1
        yield 0, rows, words

    monkeypatch.setattr(source, 'blocks', extremes)
    low, high, *_ = uniforms(source, 10)
    assert 0 < low < 1 and high == 1 - 2.0**-53


@pytest.mark.parametrize('scale', [0.05, 0.7, 1.0, 2.5, 40.0])
def test_discrete_laplace(scale):
    draws = discrete_laplace(NoiseSource.from_seed(0), scale, 2 * 10**5)
    ratio = np.exp(-1 / scale)

    def probability(z):
        return (1 - ratio) / (1 + ratio) * ratio**np.abs(z)

    assert chi_square(draws, probability) > FALSE_ALARM


@pytest.mark.parametrize('sigma', [0.3, 0.7, 1.0, 2.5, 40.0])
def test_discrete_gaussian(sigma):
    draws = discrete_gaussian(NoiseSource.from_seed(0), sigma, 2 * 10**5)
    support = np.arange(-3000, 3001)
    total = np.exp(-support**2 / (2 * sigma**2)).sum()

    def probability(z):
        return np.exp(-z**2 / (2 * sigma**2)) / total

    assert chi_square(draws, probability) > FALSE_ALARM


def test_wide_noise_has_the_right_spread():
    # Large scales: the variance, within five standard errors (6e-7).
    n, scale = 10**5, 2.0**35
    draws = discrete_laplace(NoiseSource.from_seed(0), scale, n) / scale
    assert abs(draws.var() - 2) < 5 * np.sqrt(20 / n)
    draws = discrete_gaussian(NoiseSource.from_seed(0), scale, n) / scale
    assert abs(draws.var() - 1) < 5 * np.sqrt(2 / n)


@given(st.floats(1e-3, 2.0**40))
def test_laplace_scales_are_rounded_up(scale):
    t, s = noise.discrete.laplace_grid(scale)
    assert scale <= t / s <= scale * (1 + 2.0**-28)


@pytest.mark.parametrize('t, s', [(1, 8), (1, 4), (1, 1), (7, 1), (8, 1),
                                  (101, 1), (2**40 + 1, 1), (2**29 + 3, 2**27)])
def test_tables_of_geometric_variables(t, s):
    # The law of the number of blocks, from the integers, against the ideal
    # one: to a part in 2**53, for all entries and for all beyond the table.
    rate, bits, limits, guide = noise.discrete._geometric(t, s)
    step = 2**bits
    assert rate == s / t and (bits == 0 or t / 16 < step * s <= t / 8)
    assert len(limits) == 4 * t // (step * s)
    bounds = [2**64, *limits.tolist(), 0]
    with localcontext(prec=60):
        ratio = (-Decimal(step * s) / t).exp()
        for k, (high, low) in enumerate(pairwise(bounds)):
            ideal = ratio**k * (1 - ratio if k < len(limits) else 1)
            error = Decimal(high - low) / 2**64 / ideal - 1
            assert abs(error) < Decimal(2)**-53
    # The guide never skips a block, and is right for the last of its words.
    for i, k in enumerate(guide.tolist()):
        last = (i + 1) * 2**56 - 1
        assert bounds[k + 1] <= last < bounds[k]


def test_coins_of_exponentials():
    # Exactly as many words say yes as the exponential asks for, to 2**-50.
    for gamma in (1e-9, 0.1, 0.5, 0.999):
        limit = np.uint64(int(np.exp(-gamma) * 2.0**64))
        below = np.array([limit - np.uint64(2**14)])
        above = np.array([limit + np.uint64(2**14)])
        assert noise.discrete._exp_coin(gamma, below, 0, 1) == (1, 1)
        assert noise.discrete._exp_coin(gamma, above, 0, 1) == (0, 1)
    assert noise.discrete._exp_coin(0.0, below, 0, 1) == (1, 0)
    assert noise.discrete._exp_coin(1.5, below, 0, 0)[0] == -1


@pytest.mark.parametrize('scale', [0.0, -1.0, float('nan'), float('inf'),
                                   2.0**41])
def test_bad_scales_are_refused(scale):
    with pytest.raises(ValueError, match="'scale' must lie in"):
        discrete_laplace(NoiseSource.from_seed(0), scale, 1)
    with pytest.raises(ValueError, match="'sigma' must lie in"):
        discrete_gaussian(NoiseSource.from_seed(0), scale, 1)


@pytest.mark.parametrize('name', SAMPLERS)
@pytest.mark.parametrize('shape', [0, (0, 3), (3, 0), (2, 3, 4), 1])
def test_odd_shapes(name, shape):
    out = SAMPLERS[name](NoiseSource.from_seed(0), shape)
    assert out.shape == (shape if isinstance(shape, tuple) else (shape, ))
