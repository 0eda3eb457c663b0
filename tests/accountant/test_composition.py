import itertools
import math
import warnings

import pytest
from diffprivlib import BudgetAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_geometric_dp.accountant import composition
from torch_geometric_dp.accountant.composition import (
    compose,
    exact_sum,
    total_delta,
)

COSTS = st.lists(
    st.tuples(st.sampled_from([0.05, 0.1, 0.3, 1.0]),
              st.sampled_from([0.0, 1e-6, 1e-4])), min_size=1, max_size=8)


def oracle(epsilon, costs):
    """The theorem as it stands: a sum over all rows of coins."""
    lost = 0.0
    for signs in itertools.product((1, -1), repeat=len(costs)):
        p = q = 1.0
        for sign, (eps, _) in zip(signs, costs):
            p *= math.exp(eps if sign > 0 else 0) / (1 + math.exp(eps))
            q *= math.exp(eps if sign < 0 else 0) / (1 + math.exp(eps))
        lost += max(p - math.exp(epsilon) * q, 0.0)
    return 1 - math.prod(1 - d for _, d in costs) * (1 - lost)


def test_pure_epsilons_add_up_exactly():
    assert exact_sum([0.1] * 3) == 0.3
    assert exact_sum([0.1] * 10) == 1.0
    assert exact_sum([]) == 0.0
    assert compose([(0.1, 0.0)] * 3, 0.0) == 0.3
    assert compose([(math.inf, 0.0), (1.0, 0.0)], 0.0) == math.inf


def test_deltas_are_precise():
    assert total_delta([]) == 0.0
    assert total_delta([1e-5]) == 1e-5
    assert total_delta([1e-20, 1e-20]) == pytest.approx(2e-20, rel=1e-12)
    assert total_delta([1.0, 0.5]) == 1.0


@given(COSTS, st.sampled_from([1e-5, 1e-3, 1e-2, 0.2]))
@settings(deadline=None)
def test_optimal_composition_is_what_the_theorem_says(costs, delta):
    epsilon = compose(costs, delta)
    if delta < total_delta(d for _, d in costs):
        assert epsilon == math.inf
    else:
        assert oracle(epsilon, costs) <= delta * (1 + 1e-9)  # it holds ...
        if epsilon > 0:  # ... and nothing smaller does.
            assert oracle(epsilon - 1e-6, costs) > delta * (1 - 1e-9)


@given(COSTS, st.sampled_from([1e-4, 1e-2]))
@settings(deadline=None)
def test_never_worse_than_diffprivlib(costs, slack):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        theirs, delta = BudgetAccountant(slack=slack,
                                         spent_budget=costs).total()
    # Their theorem is a closed form above the optimum.
    assert compose(costs, delta) <= theirs * (1 + 1e-9)


def test_the_closed_form_is_diffprivlibs(monkeypatch):
    monkeypatch.setattr(composition, '_MOST_CASES', 0)
    costs = [(0.1, 1e-6)] * 50 + [(0.2, 0.0)] * 30
    theirs, delta = BudgetAccountant(slack=1e-3, spent_budget=costs).total()
    assert compose(costs, delta) == pytest.approx(theirs, rel=1e-9)


def test_many_equal_releases_are_cheaper_together():
    costs = [(0.01, 0.0)] * 1000
    assert compose(costs, 1e-6) < 1.7 < compose(costs, 0.0) == 10.0


def test_large_epsilons():
    assert compose([(800.0, 0.0)] * 3, 1e-6) <= 2400.0
    assert compose([], 1e-6) == 0.0
    assert compose([(0.0, 0.0)], 1e-6) == 0.0
