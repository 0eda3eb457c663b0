"""Running sums tell what the whole ledger tells, and never less."""
import itertools
import json
import math
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.accountant.test_ledger import ledger, release
from torch_geometric_dp.accountant import GaussianNoise, Unit
from torch_geometric_dp.accountant.gaussian import gaussian_loss
from torch_geometric_dp.accountant.spending import (
    Spending,
    spend,
    spending_from_plain,
    spending_to_plain,
)

UNITS = ['features', 'labels', 'edges', 'node']
EPSILONS = st.integers(1, 40).map(lambda i: i / 10)
PURE = st.tuples(EPSILONS, st.sampled_from(UNITS), st.just(0.0))
PAIRS = st.tuples(EPSILONS, st.sampled_from(UNITS),
                  st.sampled_from([0.0, 1e-6, 1e-9]))
SIGMAS = st.lists(st.integers(20, 400).map(lambda i: i / 10), min_size=1,
                  max_size=6)


def entries(costs):
    return [release(str(i), epsilon, unit, 'add-remove' if unit == 'edges' else
                    'replace', delta=delta)
            for i, (epsilon, unit, delta) in enumerate(costs)]


def gaussian(sigmas, delta=1e-6):
    return [release(f'g{i}', gaussian_loss(sigma, delta), delta=delta,
                    event=GaussianNoise(sigma))
            for i, sigma in enumerate(sigmas)]


def spent(releases, degree=3):
    return spend({unit: Spending() for unit in Unit}, releases, degree)


@given(st.lists(PURE, max_size=12))
def test_pure_releases_cost_what_the_ledger_says(costs):
    releases = entries(costs)
    for unit, part in spent(releases).items():
        assert part.epsilon(0.0) == ledger(*releases).epsilon(
            unit, 0.0, max_degree=3)


@given(st.lists(PAIRS, max_size=6), st.sampled_from([1e-4, 1e-5]))
def test_pairs_cost_what_the_ledger_says(costs, delta):
    releases = entries(costs)
    for unit, part in spent(releases).items():
        assert part.epsilon(delta) == pytest.approx(ledger(*releases).epsilon(
            unit, delta, max_degree=3), rel=1e-12)


@given(st.lists(PAIRS, max_size=40))
def test_many_of_them_cost_no_less(costs):
    # Where a charge has no time for the best bound, it takes a larger one.
    releases = entries(costs)
    for unit, part in spent(releases).items():
        true = ledger(*releases).epsilon(unit, 1e-3, max_degree=3)
        assert part.epsilon(1e-3) >= true * (1 - 1e-12)


@given(st.lists(PAIRS, max_size=8), SIGMAS)
def test_order_makes_no_difference(costs, sigmas):
    releases = [*entries(costs), *gaussian(sigmas)]
    one, two = spent(releases), spent(releases[::-1])
    for unit in Unit:
        assert one[unit].epsilon(1e-4) == pytest.approx(
            two[unit].epsilon(1e-4), rel=1e-9)


@given(st.lists(PAIRS, max_size=8), SIGMAS, PAIRS)
def test_one_more_never_costs_less(costs, sigmas, more):
    before = spent([*entries(costs), *gaussian(sigmas)])
    after = spend(before, [release('more', more[0], more[1], delta=more[2])],
                  3)
    for unit in Unit:
        assert after[unit].epsilon(1e-4) >= before[unit].epsilon(1e-4) * (
            1 - 1e-9)


@given(SIGMAS)
def test_gaussian_noise_adds_up_without_loss(sigmas):
    accounting = pytest.importorskip('dp_accounting')
    from dp_accounting.pld import PLDAccountant

    part = spent(gaussian(sigmas))[Unit.LABELS]
    one = 1 / math.sqrt(sum(sigma**-2 for sigma in sigmas))
    assert part.epsilon(1e-5) == pytest.approx(gaussian_loss(one, 1e-5),
                                               rel=1e-9)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for sigma in sigmas:
        accountant.compose(accounting.GaussianDpEvent(sigma))
    # Which rounds up, to a thousandth for each.
    bound = accountant.get_epsilon(1e-5)
    assert bound - 1e-3 * (len(sigmas) + 1) <= part.epsilon(1e-5) <= bound


@settings(max_examples=30)
@given(st.lists(st.tuples(EPSILONS, st.just('labels'), st.just(0.0)),
                min_size=1, max_size=4), SIGMAS)
def test_a_mixture_costs_no_less_than_the_truth(costs, sigmas):
    # Coins are the worst that a pure epsilon can be: each adds its epsilon to
    # the loss, or takes it away. All Gaussian noise is one.
    mu = math.sqrt(sum(sigma**-2 for sigma in sigmas))
    epsilon = spent([*entries(costs), *gaussian(sigmas)])[Unit.LABELS].epsilon(
        1e-5)

    def delta(epsilon):
        below = NormalDist().cdf
        return below(mu / 2 - epsilon / mu) - math.exp(epsilon) * below(
            -mu / 2 - epsilon / mu)

    true = 0.0
    for signs in itertools.product((-1, 1), repeat=len(costs)):
        loss = sum(sign * cost for sign, (cost, _, _) in zip(signs, costs))
        true += delta(epsilon - loss) * math.prod(
            1 / (1 + math.exp(-sign * cost))
            for sign, (cost, _, _) in zip(signs, costs))
    assert true <= 1e-5 * (1 + 1e-9)


@given(st.lists(PAIRS, max_size=30), SIGMAS, st.booleans())
def test_the_plain_form_is_the_same(costs, sigmas, public):
    releases = [*entries(costs), *gaussian(sigmas)]
    if public:
        releases.append(release('p', unit='edges', mechanism='NAP',
                                public=(('x', Unit.FEATURES), )))
    before = spent(releases)
    plain = json.loads(json.dumps(spending_to_plain(before)))
    assert spending_from_plain(plain) == before
    assert math.isinf(before[Unit.FEATURES].epsilon(0.5)) == public


def test_a_hundred_thousand_are_as_short_as_ten():
    part, some = Spending(), entries([(0.1, 'labels', 0.0),
                                      (0.2, 'labels', 1e-12)])
    for i in range(10000):
        part = part.add(some[i % 2], Unit.LABELS)
    assert len(json.dumps(spending_to_plain({Unit.LABELS: part}))) < 1000
    assert part.pairs.total == '1500.0'


def test_infinity_is_not_forgotten():
    part = spent([release('a', math.inf)])[Unit.LABELS]
    plain = json.loads(json.dumps(spending_to_plain({Unit.LABELS: part})))
    again = spending_from_plain(plain)[Unit.LABELS]
    assert again.epsilon(0.5) == math.inf
    assert again.add(release('b', 1.0), Unit.LABELS).epsilon(0.5) == math.inf
