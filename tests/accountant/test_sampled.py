import math

import numpy as np
import pytest

from torch_geometric_dp.accountant import (
    Guarantee,
    PrivacyAccountant,
    Release,
    SampledGaussianNoise,
)
from torch_geometric_dp.accountant.sampled import (
    sampled_epsilon,
    sampled_multiplier,
    sampled_profile,
)

pld = pytest.importorskip('dp_accounting.pld.privacy_loss_distribution')
GRID = np.linspace(-40, 40, 16_001)


def density(law, sigma):
    """Of a mixture of normal laws, as pairs of a mean and a weight."""
    return sum(weight * np.exp(-0.5 * ((GRID - mean) / sigma)**2)
               for mean, weight in law) / (sigma * math.sqrt(2 * math.pi))


def excess(one, two, epsilon):
    """The hockey-stick divergence, integrated."""
    step = GRID[1] - GRID[0]
    return np.maximum(one - math.exp(epsilon) * two, 0).sum() * step


def sums(own, others, number, rate):
    """The law of the sum over a batch, of the own vector and of others."""
    for drawn in (0, 1):
        chance = rate if drawn else 1 - rate
        for k in range(number + 1):
            weight = math.comb(number, k) * rate**k * (1 - rate)**(number - k)
            yield own * drawn + others * k, chance * weight


@pytest.mark.parametrize('number, rate, sigma', [
    (0, 0.2, 0.7), (1, 0.5, 2.0), (1, 0.05, 0.7), (2, 0.9, 0.7), (3, 0.2, 2.0),
    (4, 0.5, 6.0)])
def test_bound_is_above_the_true_divergence(number, rate, sigma):
    epsilons = np.array([-0.5, 0.0, 0.1, 1.0, 2.0])
    for own, pairs in ((1, [(1, 0), (0, 1)]), (2, [(1, -1), (-1, 1), (1, 0)])):
        event = SampledGaussianNoise(sigma, rate, 1, number, own)
        bound = sampled_profile(event, epsilons)
        tight = 0.0
        for (before, after), (one, two) in (
                (pair, change) for pair in pairs
                for change in ((1, -1), (-1, 1), (0.5, -1), (0, 1))):
            true = [excess(density(list(sums(before, one, number, rate)),
                                   sigma),
                           density(list(sums(after, two, number, rate)),
                                   sigma), epsilon) for epsilon in epsilons]
            assert (bound >= np.array(true) - 1e-5).all()
            tight = max(tight, true[1] / bound[1])
        # At 0, it is at most a few percent above the worst of them.
        assert tight > (0.95 if own == 2 or number == 0 else 0.7)


def test_mixture_of_gaussians_is_no_bound_for_examples_that_change():
    # Two examples, each drawn with 1/2, that turn from 1 to -1; the numbers in
    # the module.
    two = [density(list(sums(sign, sign, 1, 0.5)), 2.0) for sign in (1, -1)]
    true = excess(*two, 0.1)
    mixture = excess(density(list(sums(2, 2, 1, 0.5)), 2.0),
                     density([(0.0, 1.0)], 2.0), 0.1)
    event = SampledGaussianNoise(2.0, 0.5, 1, others=1, own=2)
    bound, = sampled_profile(event, 0.1)
    assert [round(value, 4) for value in (mixture, true, bound)] == [
        0.3297, 0.3306, 0.3358]
    # That of dp-accounting is the same mixture.
    theirs = pld.from_mixture_gaussian_mechanism(2.0, [0, 2, 4],
                                                 [0.25, 0.5, 0.25],
                                                 value_discretization_interval=
                                                 1e-2)
    assert theirs.get_delta_for_epsilon(0.1) == pytest.approx(mixture,
                                                              rel=1e-3)


@pytest.mark.parametrize('others, steps, rate', [(0, 100, 0.1),
                                                 (10, 50, 0.02)])
def test_epsilon_beside_dp_accounting(others, steps, rate):
    sigma = 2.0 + others
    event = SampledGaussianNoise(sigma, rate, steps, others, own=2)
    ours = sampled_epsilon(event, 1e-5)
    count = others + 1
    weights = [math.comb(count, k) * rate**k * (1 - rate)**(count - k)
               for k in range(count + 1)]
    theirs = pld.from_mixture_gaussian_mechanism(
        sigma, [2.0 * k for k in range(count + 1)], weights,
        value_discretization_interval=1e-2).self_compose(steps)
    theirs = theirs.get_epsilon_for_delta(1e-5)
    assert theirs <= ours <= 1.15 * theirs


def test_one_example_that_comes_or_goes_is_exact():
    event = SampledGaussianNoise(1.0, 0.05, 100)
    theirs = pld.from_gaussian_mechanism(
        1.0, sampling_prob=0.05,
        value_discretization_interval=1e-3).self_compose(100)
    assert sampled_epsilon(event, 1e-5) == pytest.approx(
        theirs.get_epsilon_for_delta(1e-5), rel=1e-3)
    # All are drawn, once: plain Gaussian noise.
    whole = SampledGaussianNoise(3.7306, 1.0, 1)
    assert sampled_epsilon(whole, 1e-5) == pytest.approx(1.0, rel=1e-3)
    assert sampled_epsilon(SampledGaussianNoise(1.0, 0.05, 0), 1e-5) == 0.0


def test_multiplier_is_enough_and_hardly_more():
    found = sampled_multiplier(2.0, 1e-5, 0.1, 20, others=6)

    def loss(multiplier):
        return sampled_epsilon(
            SampledGaussianNoise(multiplier, 0.1, 20, others=6), 1e-5)

    assert loss(found) <= 2.0 < loss(found / 1.002)
    with pytest.raises(ValueError, match="'epsilon' is too small"):
        sampled_multiplier(1e-7, 1e-12, 1.0, 10)


def test_ledger_knows_the_noise():
    event = SampledGaussianNoise(4.0, 0.1, 20, others=2)
    epsilon = sampled_epsilon(event, 1e-5)
    ledger = PrivacyAccountant(tuple(Release(
        Guarantee(epsilon, 'node', 'add-remove', 1e-5, 'central',
                  event=event), 'DPSGD', (), ('x', ), f'{i}')
        for i in range(2)))
    assert PrivacyAccountant.from_json(ledger.to_json()) == ledger
    twice = ledger.epsilon('node', 1e-5, method='pld')
    both = SampledGaussianNoise(4.0, 0.1, 40, others=2)
    assert twice == pytest.approx(sampled_epsilon(both, 1e-5), rel=1e-2)
    assert twice < 2 * epsilon
    # For two nodes at once, the pair is all that is known.
    assert ledger.epsilon('node', 1e-2, relation='replace',
                          method='pld') > twice
    with pytest.raises(ValueError, match="method='rdp' cannot account"):
        ledger.epsilon('node', 1e-5, method='rdp')


@pytest.mark.parametrize('field, value', [
    ('rate', 0.0), ('rate', 1.5), ('steps', -1), ('steps', 1.5), ('own', 3),
    ('others', -1), ('multiplier', 0.0)])
def test_wrong_numbers_are_refused(field, value):
    with pytest.raises(ValueError, match=f"'{field}'"):
        SampledGaussianNoise(**{'multiplier': 1.0, field: value})
