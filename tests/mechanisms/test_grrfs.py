import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.papers.grrfs import law
from tests.conftest import FALSE_ALARM
from torch_geometric_dp import noise
from torch_geometric_dp.mechanisms import GRRFS, grrfs
from torch_geometric_dp.noise import WORD, NoiseSource

# Sizes, and how many columns are sampled.
CASES = [((2, 2, 2), 1), ((2, 2, 2), 2), ((2, 2, 2), 3), ((3, 3), 1),
         ((2, 3), 1), ((2, 3, 4), 1), ((2, 3, 4), 2), ((2, 2, 5), 2),
         ((2, 2, 2, 2), 2), ((4, ), 1)]
EPSILONS = [0.2, 1.0, 3.0]


def promised(epsilon):
    with localcontext(prec=200):
        return Fraction(Decimal(epsilon).exp())


def rows_of(sizes):
    return list(itertools.product(*map(range, sizes)))


def exact_law(mechanism):
    rows = rows_of(mechanism.domain_sizes.tolist())
    return [[mechanism.probability(row, out) for out in rows] for row in rows]


def differ_once(sizes):
    rows = rows_of(sizes)
    return [(i, j) for (i, a), (j, b) in itertools.permutations(
        enumerate(rows), 2) if sum(u != v for u, v in zip(a, b)) == 1]


@pytest.mark.parametrize('epsilon_x', EPSILONS)
@pytest.mark.parametrize('sizes, m', CASES)
def test_exact_epsilon_of_a_row(sizes, m, epsilon_x):
    # All rows, all releases, in the fractions that the machine draws with.
    mechanism = GRRFS(m * epsilon_x, m, sizes)
    exact = exact_law(mechanism)
    assert all(sum(row) == 1 for row in exact)
    matrix = np.array(exact, float)
    assert np.allclose(matrix, law(sizes, m, epsilon_x), rtol=1e-12, atol=0)
    worst = max(max(a / b, b / a) for one, two in itertools.combinations(
        exact, 2) for a, b in zip(one, two))
    assert math.log(worst) == pytest.approx(m * epsilon_x, abs=1e-12)
    # At most what is promised.
    assert worst <= promised(mechanism.epsilon)


@pytest.mark.parametrize('epsilon_x', EPSILONS)
@pytest.mark.parametrize('sizes, m', CASES)
def test_exact_epsilon_of_an_attribute(sizes, m, epsilon_x):
    mechanism = GRRFS(m * epsilon_x, m, sizes)
    exact = exact_law(mechanism)
    worst = max(a / b for i, j in differ_once(sizes)
                for a, b in zip(exact[i], exact[j]))
    assert math.log(worst) == pytest.approx(mechanism.attribute_epsilon,
                                            abs=1e-12)
    printed = math.log(1 + m / len(sizes) * (math.exp(epsilon_x) - 1))
    if len(set(sizes)) == 1 or m == len(sizes):
        assert mechanism.attribute_epsilon == pytest.approx(printed, abs=1e-12)
    else:  # With mixed sizes, a column may cost more than that.
        assert mechanism.attribute_epsilon > printed + 1e-3 * epsilon_x


def test_mixed_sizes_break_the_formula_for_equal_ones():
    # By hand: two columns with three and two values, one of them sampled.
    e = math.e
    a, b = 3 / (e + 2), 2 / (e + 1)
    ratio = (a * e + b) / (a + b)
    mechanism = GRRFS(1.0, 1, [3, 2])
    assert mechanism.attribute_epsilon == pytest.approx(math.log(ratio))
    assert math.log(ratio) > math.log(1 + (e - 1) / 2) + 0.03
    assert (mechanism.probability((0, 0), (0, 1)) /
            mechanism.probability((1, 0), (0, 1)) == pytest.approx(ratio))


@pytest.mark.parametrize('sizes, m', [c for c in CASES if c[1] < len(c[0])])
def test_theorem_1_is_broken(sizes, m):
    # By two rows that differ everywhere: released as the first of them, they
    # are told apart better than Theorem 1 says.
    mechanism = GRRFS(m * 1.0, m, sizes)
    zeros, ones = (0, ) * len(sizes), (1, ) * len(sizes)
    ratio = (mechanism.probability(zeros, zeros) /
             mechanism.probability(ones, zeros))
    claim = math.log(1 + m / len(sizes) * (math.exp(m) - 1))
    assert mechanism.claimed_epsilon == pytest.approx(claim, abs=1e-12)
    assert math.log(ratio) == pytest.approx(m, abs=1e-12)
    assert math.log(ratio) > claim + 0.1


def test_numbers_of_the_paper():
    # Citeseer: 53 columns, m = 10.
    for epsilon_x, printed in ((1.0, 8.3), (0.1, 0.3), (0.01, 0.02)):
        mechanism = GRRFS(10 * epsilon_x, 10, 2, 53)
        assert mechanism.claimed_epsilon == pytest.approx(printed, abs=0.05)
    assert GRRFS(10.0, 10, 2, 10).claimed_epsilon == 10.0
    assert GRRFS(1e5, 10, 2, 53).claimed_epsilon == pytest.approx(
        1e5 + math.log(10 / 53), rel=1e-12)
    assert GRRFS(1e5, 10, [2, 3] * 20).attribute_epsilon == pytest.approx(
        1e4, rel=1e-3)


@given(st.lists(st.integers(2, 40), min_size=1, max_size=6), st.data(),
       st.floats(0.01, 300))
def test_rounding_never_costs_privacy(sizes, data, epsilon):
    m = data.draw(st.integers(1, len(sizes)))
    mechanism = GRRFS(epsilon, m, sizes)
    odds = Fraction(1)
    for size in sorted(sizes)[-m:]:
        response = mechanism._responses[size]
        odds *= response.keep / response.other
    assert odds <= promised(epsilon)


@pytest.mark.parametrize('sizes, m', [((2, 3, 4), 2), ((2, 2, 2, 2), 2),
                                      ((5, 2), 1), ((3, 3, 3), 3)])
def test_draws_follow_the_law(sizes, m):
    # 2 * 10^5 releases of each of two rows, against the exact law.
    mechanism = GRRFS(m * 1.5, m, sizes)
    rows = rows_of(sizes)
    for seed, row in enumerate([rows[0], rows[-1]]):
        x = torch.tensor([row]).expand(200_000, -1)
        out = mechanism(x, NoiseSource.from_seed(seed)).numpy()
        number = np.ravel_multi_index(tuple(out.T), sizes)
        counts = np.bincount(number, minlength=len(rows))
        expected = np.array([float(mechanism.probability(row, to))
                             for to in rows])
        pvalue = stats.chisquare(counts, expected * len(x)).pvalue
        assert pvalue > FALSE_ALARM / 2


@pytest.mark.parametrize('d, m', [(1433, 10), (53, 10), (9, 1), (9, 8)])
def test_every_column_is_chosen_equally_often(d, m):
    # With no noise at all in the chosen columns, and values that the others
    # meet by chance once in 2**20 times.
    n = 20_000 if d < 100 else 2000
    mechanism = GRRFS(40.0 * m, m, 2**20, d)
    x = torch.full((n, d), 77)
    chosen = mechanism(x, NoiseSource.from_seed(1)) == 77
    sure = chosen.sum(dim=1)
    assert (sure >= m).all() and (sure == m).float().mean() > 0.99
    counts = chosen.sum(dim=0).numpy()
    # Columns of one row exclude each other, which makes the sum of squares
    # smaller by (d - m) / (d - 1).
    square = ((counts - n * m / d)**2).sum() / (n * m / d)
    square *= (d - 1) / (d - m)
    tail = stats.chi2.cdf(square, d - 1)
    assert FALSE_ALARM / 2 < tail < 1 - FALSE_ALARM / 2
    if d == 9 and m == 8:  # And pairs of columns, too.
        left_out = (~chosen[sure == m]).int().argmax(dim=1)
        pvalue = stats.chisquare(np.bincount(left_out, minlength=9)).pvalue
        assert pvalue > FALSE_ALARM


def digits(word, radices):
    product = math.prod(radices)
    number, rest = divmod(word * product, WORD)
    out = []
    for radix in reversed(radices):
        number, digit = divmod(number, radix)
        out.append(digit)
    return out[::-1], rest < WORD % product


@pytest.mark.parametrize('sizes, m', [((3, 5, 7, 2), 2), ((2, ) * 70, 3),
                                      ((2**32, 2**31, 6, 9, 1000), 1)])
def test_words_decide_as_the_radices_say(sizes, m):
    # Against Python's integers, word by word, at the ends of their range, too.
    d = len(sizes)
    mechanism = GRRFS(2.0 * m, m, sizes)
    plan = grrfs._Plan(mechanism)
    generator = np.random.RandomState(0)
    words = generator.randint(0, 2**64, (300, plan.depth), np.uint64)
    ends = np.array([0, 1, WORD - 1, WORD // 3], np.uint64)
    words[:4] = ends[:, None]
    words[range(4, 8), range(4)] = 0  # The first words on their own, too.
    x = np.stack([generator.randint(0, size, 300) for size in sizes], axis=1)
    out = np.empty_like(x)
    rejected = set(plan.draw(words.reshape(-1), x, out).tolist())
    groups = []
    for radices, _, ends in plan.radices:
        starts = [0, *ends[:-1]]
        groups += [[int(r) for r in radices[a:b]]
                   for a, b in zip(starts, ends)]
        if len(sizes) == 70:
            assert all(math.prod(g) <= WORD for g in groups)
    if d == 4:  # By the choice, and by the values.
        assert {0, 4, 5} <= rejected and 6 not in rejected
    for i in range(300):
        drawn, bad = [], False
        for word, radices in zip(words[i].tolist(), groups):
            some, reject = digits(word, radices)
            drawn, bad = drawn + some, bad or reject
        assert (i in rejected) == bad
        chosen = []
        for j, t in zip(range(d - m, d), drawn[:m]):
            chosen.append(j if t in chosen else t)
        expected = drawn[m:]
        for word, c in zip(words[i, len(groups):].tolist(), chosen):
            q, value = mechanism._responses[sizes[c]]._other, x[i, c]
            others = [v for v in range(min(sizes[c], 2000)) if v != value]
            expected[c] = value if word >= q * (sizes[c] - 1) else (
                others[word // q] if sizes[c] < 2000 else
                word // q + (word // q >= value))
        assert out[i].tolist() == expected


def test_a_binary_column_takes_one_bit():
    assert grrfs._Plan(GRRFS(10.0, 10, 2, 1433)).depth == 36
    choice, values = grrfs._Plan(GRRFS(10.0, 10, 2, 1433)).radices
    assert len(values[1]) == math.ceil(1433 / 64) and not values[1].any()


def test_rejected_rows_are_drawn_again(monkeypatch):
    # Half of the words are rejected here, some rows again and again. The
    # numbers with two digits that would come out of rejected words are all
    # but two in 33.
    monkeypatch.setattr(grrfs, '_PRODUCT', WORD)
    sizes = 11 * 2**28, 3 * 2**30, 2
    mechanism = GRRFS(40.0, 1, sizes)
    limits = grrfs._Plan(mechanism).radices[1][1]
    assert int(limits[0]) / WORD == 31 / 64
    x = torch.full((200_000, 3), 5)
    x[:, 2] = 0
    out = mechanism(x, NoiseSource.from_seed(0))
    drawn = out[(out[:, :2] != 5).all(dim=1)]  # Neither digit was replaced.
    number = (drawn[:, 0] % 33 * (sizes[1] % 33) + drawn[:, 1]) % 33
    pvalue = stats.chisquare(np.bincount(number, minlength=33)).pvalue
    assert len(drawn) > 60_000 and pvalue > FALSE_ALARM


@pytest.mark.parametrize('dtype', [
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
])
def test_all_types(dtype):
    mechanism = GRRFS(2.0, 2, 2, 5)
    x = (torch.arange(500).view(100, 5) % 3 == 0).to(dtype)
    out = mechanism(x, NoiseSource.from_seed(0))
    assert out.dtype == dtype
    assert torch.equal(out.long(),
                       mechanism(x.long(), NoiseSource.from_seed(0)))


@pytest.mark.parametrize('dtype, size, wide', [
    (torch.uint8, 256, torch.uint8), (torch.uint8, 257, torch.long),
    (torch.int8, 200, torch.long), (torch.bool, 3, torch.long),
    (torch.bfloat16, 300, torch.float), (torch.float16, 2049, torch.float16),
    (torch.float, 2**25, torch.double),
])
def test_types_that_cannot_hold_all_values(dtype, size, wide):
    mechanism = GRRFS(1.0, 1, size, 2)
    out = mechanism(torch.zeros(2000, 2, dtype=dtype), NoiseSource.from_seed(0))
    assert out.dtype == wide
    mechanism.check(out)
    assert out.max() > size * 0.6


@settings(max_examples=40)
@given(st.integers(0, 40), st.integers(1, 30), st.data())
def test_any_shape(n, d, data):
    m = data.draw(st.integers(1, d))
    sizes = data.draw(st.lists(st.integers(2, 50), min_size=d, max_size=d))
    mechanism = GRRFS(2.0, m, sizes)
    x = torch.stack([torch.arange(n) % size for size in sizes], dim=1)
    out = mechanism(x, NoiseSource.from_seed(0))
    assert out.shape == x.shape
    mechanism.check(out)


@pytest.mark.parametrize('size', [1, 64, 2**12])
@pytest.mark.parametrize('threads', [1, 3])
def test_blocks_and_threads_make_no_difference(size, threads, monkeypatch):
    mechanism = GRRFS(2.0, 3, [2, 3, 5, 2, 9], 5)
    x = torch.arange(1000).view(200, 5) % 2
    expected = mechanism(x, NoiseSource.from_seed(0))
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', size)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: threads)
    assert torch.equal(mechanism(x, NoiseSource.from_seed(0)), expected)
    # Strided input, too.
    strided = x.t().contiguous().t()
    assert torch.equal(mechanism(strided, NoiseSource.from_seed(0)), expected)


@pytest.mark.parametrize('x, message', [
    (torch.tensor([[0, 1, 0], [1, 2, 0]]), "'x' must hold integers from 0 to 1 "
     "in column 1 (got another value, or none, in row 1)"),
    (torch.tensor([[0, 1, 5], [1, -1, 5]]), "'x' must hold integers from 0 to "
     "1 in column 1 (got another value, or none, in row 1)"),
    (torch.tensor([[0.0, 1.0, 4.5]]), "'x' must hold integers from 0 to 5 in "
     "column 2 (got another value, or none, in row 0)"),
    (torch.tensor([[math.nan, 1.0, 4.0]]), "'x' must hold integers from 0 to "
     "1 in column 0 (got another value, or none, in row 0)"),
    (torch.tensor([[0.0, 1.0, math.inf]]), "'x' must hold integers from 0 to "
     "5 in column 2 (got another value, or none, in row 0)"),
    (torch.zeros(2, 4), "'x' must have shape [num_nodes, 3] (got [2, 4])"),
    (torch.zeros(3), "'x' must have shape [num_nodes, 3] (got [3])"),
])
def test_values_outside_the_domain(x, message):
    with pytest.raises(ValueError) as info:
        GRRFS(1.0, 1, [2, 2, 6])(x, NoiseSource.from_seed(0))
    assert str(info.value) == message


@pytest.mark.parametrize('arguments, message', [
    ((0, 1, [2, 2]), "'epsilon' must be a positive, finite number (got 0)"),
    ((math.inf, 1, [2, 2]), "'epsilon' must be a positive, finite number "
     "(got inf)"),
    ((1.0, 0, [2, 2]), "'num_sampled' must be an integer of at least 1 "
     "(got 0)"),
    ((1.0, 3, [2, 2]), "'num_sampled' must be at most the number of columns, "
     "which is 2 (got 3)"),
    ((1.0, 1.5, [2, 2]), "'num_sampled' must be an integer of at least 1 "
     "(got 1.5)"),
    ((1.0, 1, [2, 1]), "'domain_sizes[1]' must be an integer of at least 2 "
     "(got 1)"),
    ((1.0, 1, 2), "'num_features' must be an integer of at least 1 "
     "(got None)"),
    ((1.0, 1, [2, 2], 3), "'domain_sizes' must be one number, or one for each "
     "of the 3 columns (got 2)"),
    ((1.0, 1, []), "'domain_sizes' must be one number, or one for each of the "
     "None columns (got 0)"),
    ((1.0, 1, '22'), "'domain_sizes' must be an integer of at least 2 (got "
     "'22')"),
    ((1.0, 1, [2**33]), "'domain_sizes' must be at most 4294967296 "
     "(got 8589934592)"),
])
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError) as info:
        GRRFS(*arguments)
    assert str(info.value) == message


def test_repr():
    assert repr(GRRFS(10, 2, 2, 3)) == (
        'GRRFS(epsilon=10.0, num_sampled=2, domain_sizes=(2, 2, 2), '
        'num_features=3)')
    assert repr(GRRFS(1, 1, torch.tensor([2, 3]))) == (
        'GRRFS(epsilon=1.0, num_sampled=1, domain_sizes=(2, 3), '
        'num_features=2)')
