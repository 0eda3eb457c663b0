import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.conftest import FALSE_ALARM
from torch_geometric_dp import noise
from torch_geometric_dp.mechanisms import RandomizedResponse
from torch_geometric_dp.mechanisms.randomized_response import _respond
from torch_geometric_dp.noise import WORD, NoiseSource

CASES = [(c, eps) for c in (2, 7, 40) for eps in (0.1, 1.0, 5.0)]


@pytest.mark.parametrize('num_classes, epsilon', CASES)
def test_exact_epsilon(num_classes, epsilon):
    mechanism = RandomizedResponse(epsilon, num_classes)
    matrix = mechanism.transition_matrix()
    assert torch.allclose(matrix.sum(dim=1), torch.ones_like(matrix[0]),
                          rtol=0, atol=1e-15)
    # All pairs of inputs, all outputs.
    loss = (matrix[:, None] / matrix[None]).log().abs().max()
    assert abs(loss - epsilon) < 1e-12
    # In integers, where nothing is rounded: at most what was promised.
    odds = mechanism.keep / mechanism.other
    assert math.log(odds) == pytest.approx(epsilon, abs=1e-12)
    assert odds <= Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**52))


@given(st.floats(1e-6, 60), st.integers(2, 1000))
def test_rounding_never_costs_privacy(epsilon, num_classes):
    mechanism = RandomizedResponse(epsilon, num_classes)
    p, q = mechanism.keep, mechanism.other
    assert p + (num_classes - 1) * q == 1 and 0 < q <= p
    bound = Fraction(math.exp(min(epsilon, 50))) * (1 + Fraction(1, 2**50))
    assert p / q <= bound


@pytest.mark.parametrize('num_classes, epsilon', [(2, 1.0), (3, 0.5),
                                                  (7, 1.0), (40, 5.0)])
def test_every_word_decides_as_the_intervals_say(num_classes, epsilon):
    # At all borders of all intervals, and next to them.
    mechanism = RandomizedResponse(epsilon, num_classes)
    q = mechanism._other
    borders = {w for i in range(num_classes) for w in
               (i * q - 1, i * q, i * q + 1, i * q + q // 2)}
    borders = sorted(w for w in borders | {0, WORD - 1} if 0 <= w < WORD)
    words = np.array(borders, np.uint64)
    for value in range(num_classes):
        out = np.empty(len(words), np.int64)
        _respond(words, np.full(len(words), value), out, np.uint64(q),
                 np.uint64(q * (num_classes - 1)))
        others = [v for v in range(num_classes) if v != value]
        expected = [others[w // q] if w < q * (num_classes - 1) else value
                    for w in borders]
        assert out.tolist() == expected


@pytest.mark.parametrize('num_classes, epsilon', CASES)
def test_draws(num_classes, epsilon):
    # 10^6 draws for one true value; the other outputs of all values together.
    mechanism = RandomizedResponse(epsilon, num_classes)
    values = torch.arange(10**6) % num_classes
    out = mechanism(values, NoiseSource.from_seed(0))
    shift = (out - values) % num_classes
    probability = torch.roll(mechanism.transition_matrix()[-1], 1).numpy()
    counts = np.bincount(shift.numpy(), minlength=num_classes)
    assert stats.chisquare(counts, probability * 10**6).pvalue > FALSE_ALARM
    # And every pair of a value and an output on its own.
    pairs = np.bincount((values * num_classes + out).numpy(),
                        minlength=num_classes**2)
    totals = np.bincount(values.numpy())
    expected = mechanism.transition_matrix().numpy() * totals[:, None]
    pvalue = stats.chi2.sf(((pairs - expected.ravel())**2 /
                            expected.ravel()).sum(),
                           num_classes * (num_classes - 1))
    assert pvalue > FALSE_ALARM


def test_expected_error():
    assert RandomizedResponse(1.0, 3).expected_error() == pytest.approx(
        2 / (math.e + 2), rel=1e-12)


@pytest.mark.parametrize('dtype', [
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
])
@pytest.mark.parametrize('masked', [False, True])
def test_all_types(dtype, masked):
    mechanism = RandomizedResponse(1.0, 2)
    values = (torch.arange(1000) % 2).to(dtype)
    mask = torch.arange(1000) < 500 if masked else None
    out = mechanism(values, NoiseSource.from_seed(0), mask)
    long = mechanism(values.long(), NoiseSource.from_seed(0), mask)
    assert torch.equal(out.long(), long)
    holds_minus_one = dtype not in (torch.uint8, torch.bool)
    assert out.dtype == (dtype if not masked or holds_minus_one else
                         torch.int64)


def test_masked_rows_tell_nothing():
    mechanism = RandomizedResponse(1.0, 3)
    mask = torch.tensor([True, False, True, False])
    values = torch.tensor([[0, 1], [-7, 99], [2, 2], [5, 5]])
    out = mechanism(values, NoiseSource.from_seed(0), mask)
    assert (out[~mask] == -1).all() and (out[mask] >= 0).all()
    # A row's noise does not depend on who else is selected.
    everyone = mechanism(values.clamp(0, 2), NoiseSource.from_seed(0))
    assert torch.equal(out[mask], everyone[mask])


@pytest.mark.parametrize('shape', [(100, ), (100, 3), (100, 2, 2), (1, ),
                                   (0, ), (0, 3), (3, 0)])
@pytest.mark.parametrize('size', [2, 64])
@pytest.mark.parametrize('threads', [1, 3])
def test_shapes_blocks_and_threads(shape, size, threads, monkeypatch):
    mechanism = RandomizedResponse(1.0, 5)
    values = torch.arange(math.prod(shape)).view(shape) % 5
    expected = mechanism(values, NoiseSource.from_seed(0))
    assert expected.shape == values.shape
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', size)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: threads)
    assert torch.equal(mechanism(values, NoiseSource.from_seed(0)), expected)


def test_strided_input():
    mechanism = RandomizedResponse(1.0, 5)
    values = (torch.arange(200) % 5).view(2, 100).t()
    out = mechanism(values, NoiseSource.from_seed(0))
    expected = mechanism(values.contiguous(), NoiseSource.from_seed(0))
    assert torch.equal(out, expected)


@pytest.mark.parametrize('value', [-1, 3, 10**9])
def test_values_outside_the_domain(value):
    values = torch.tensor([0, 2, value, 1])
    with pytest.raises(ValueError) as info:
        RandomizedResponse(1.0, 3)(values, NoiseSource.from_seed(0))
    assert str(info.value) == ("'values' must hold integers from 0 to 2 "
                               "(got another value, or none, in row 2)")


@pytest.mark.parametrize('value', [0.5, math.nan, math.inf, -math.inf, -1.0])
def test_floats_that_are_no_classes(value):
    values = torch.tensor([[0.0, 1.0], [1.0, value]])
    with pytest.raises(ValueError, match=r'\(got .* in row 1\)'):
        RandomizedResponse(1.0, 2)(values, NoiseSource.from_seed(0))


@pytest.mark.parametrize('epsilon', [0, 0.0, -1.0, math.nan, math.inf, '1',
                                     None, True])
def test_bad_epsilon(epsilon):
    with pytest.raises(ValueError) as info:
        RandomizedResponse(epsilon, 3)
    assert str(info.value) == (f"'epsilon' must be a positive, finite number "
                               f"(got {epsilon!r})")


@pytest.mark.parametrize('num_classes', [1, 0, -2, 2.5, '3', True])
def test_bad_num_classes(num_classes):
    with pytest.raises(ValueError) as info:
        RandomizedResponse(1.0, num_classes)
    assert str(info.value) == (f"'num_classes' must be an integer of at least "
                               f"2 (got {num_classes!r})")


def test_an_epsilon_that_64_bits_cannot_tell_from_zero():
    with pytest.raises(ValueError, match="'epsilon' is too small"):
        RandomizedResponse(1e-18, 1000)


def test_repr():
    assert repr(RandomizedResponse(1, 3)) == (
        'RandomizedResponse(epsilon=1.0, num_classes=3)')


@pytest.mark.parametrize('dtype, most', [
    (torch.bool, 2), (torch.uint8, 256), (torch.int8, 128),
    (torch.bfloat16, 257), (torch.half, 2049), (torch.float, 2**24 + 1)])
def test_types_that_cannot_hold_all_classes(dtype, most):
    y = torch.tensor([0, 1]).to(dtype)
    RandomizedResponse(1.0, most).check(y)
    with pytest.raises(ValueError, match="'values' must have a type that"):
        RandomizedResponse(1.0, most + 1).check(y)
