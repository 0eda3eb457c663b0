import copy
import math
import pickle
import threading

import pytest

from tests.accountant.test_ledger import release
from torch_geometric_dp import PrivacyBudget, PrivacyBudgetExceeded


def test_each_kind_has_its_own_cap():
    budget = PrivacyBudget(epsilon=1.0, edges=2.0)
    budget.charge(release('a', 0.6, 'labels'))
    budget.charge(release('b', 1.0, 'features'))
    budget.charge(release('c', 2.0, 'edges'))
    assert budget.remaining('labels') == 0.4
    assert budget.remaining('features') == 0.0
    assert budget.remaining('edges') == 0.0
    assert budget.remaining('node') == math.inf
    assert len(budget.spent.releases) == 3


def test_over_budget_is_refused_and_nothing_is_entered():
    budget = PrivacyBudget(labels=1.0)
    budget.charge(release('a', 0.6))
    with pytest.raises(PrivacyBudgetExceeded) as info:
        budget.charge(release('b', 0.6))
    assert info.value.kind == 'labels'
    assert info.value.requested == 0.6
    assert info.value.remaining == 0.4
    assert str(info.value) == (
        "Mechanism(b) would cost epsilon = 0.6 for 'labels', but the graph's "
        "privacy budget has 0.4 left. Nothing was released")
    assert budget.spent.epsilon('labels') == 0.6
    again = pickle.loads(pickle.dumps(info.value))  # As from a worker.
    assert again.remaining == 0.4 and str(again) == str(info.value)
    budget.charge(release('c', 0.4))
    budget.charge(release('d', 9.0, 'features'))  # Which has no cap.


def test_decimal_caps_are_reached_exactly():
    budget = PrivacyBudget(epsilon=0.3)
    for name in 'abc':
        budget.charge(release(name, 0.1))
    assert budget.remaining('labels') == 0.0


def test_a_release_is_charged_once():
    budget = PrivacyBudget(epsilon=1.0)
    for _ in range(100):
        budget.charge(release('a', 0.6))
    assert budget.spent.epsilon('labels') == 0.6


def test_a_whole_person():
    budget = PrivacyBudget(node=5.0, max_degree=4)
    budget.charge(release('a', 1.0, 'edges'))
    with pytest.raises(PrivacyBudgetExceeded) as info:
        budget.charge(release('b', 2.0, 'labels'))
    assert info.value.kind == 'node' and info.value.remaining == 1.0
    with pytest.raises(PrivacyBudgetExceeded) as info:
        budget.charge(release('c', 0.3, 'edges'))
    assert info.value.requested == pytest.approx(1.2)
    budget.charge(release('d', 1.0, 'node'))
    assert budget.remaining('node') == 0.0


def test_node_releases_count_for_every_kind():
    budget = PrivacyBudget(epsilon=1.0)
    budget.charge(release('a', 1.0, 'node'))
    for kind in ('features', 'labels', 'edges'):
        with pytest.raises(PrivacyBudgetExceeded):
            budget.charge(release(kind, 0.1, kind))


def test_delta():
    budget = PrivacyBudget(epsilon=1.0)
    with pytest.raises(PrivacyBudgetExceeded):  # No delta was granted.
        budget.charge(release('a', 0.1, delta=1e-6))
    budget = PrivacyBudget(epsilon=1.0, delta=1e-4)
    for i in range(40):  # 4.0 by plain addition.
        budget.charge(release(str(i), 0.05, delta=1e-7))
    assert 0.0 <= budget.remaining('labels') < 0.2


def test_copies_are_the_budget_itself():
    budget = PrivacyBudget(epsilon=1.0)
    assert copy.copy(budget) is budget and copy.deepcopy(budget) is budget
    stored = pickle.dumps(budget)
    budget.charge(release('a', 0.6))
    assert pickle.loads(stored) is budget
    assert budget.remaining('labels') == 0.4
    assert budget.identity != PrivacyBudget(epsilon=1.0).identity


def test_what_workers_spent_comes_home():
    budget = PrivacyBudget(epsilon=1.0)
    identity, caps, degree, delta, spent = budget.__reduce__()[1]
    restore = budget.__reduce__()[0]
    # Two workers charge the same release, and one of them another.
    for _ in range(2):
        restore(identity, caps, degree, delta, spent.spend(release('a', 0.6)))
    assert budget.spent.epsilon('labels') == 0.6
    with pytest.warns(UserWarning, match='have overdrawn the privacy budget '
                      'for labels'):
        restore(identity, caps, degree, delta, spent.spend(release('b', 0.6)))
    assert budget.spent.epsilon('labels') == 1.2
    assert budget.remaining('labels') == -0.2
    with pytest.raises(PrivacyBudgetExceeded):
        budget.charge(release('c', 0.1))


def test_a_budget_from_another_process(monkeypatch):
    budget = PrivacyBudget(epsilon=1.0, node=3.0, max_degree=2)
    budget.charge(release('a', 0.6))
    stored = pickle.dumps(budget)
    monkeypatch.setattr('torch_geometric_dp.accountant.budget._KNOWN', {})
    other = pickle.loads(stored)
    assert other is not budget and other.identity == budget.identity
    assert other.remaining('labels') == 0.4
    assert other.remaining('node') == 2.4
    assert repr(other) == repr(budget) == (
        'PrivacyBudget(features=1 of 1, labels=0.4 of 1, edges=1 of 1, '
        'node=2.4 of 3 left)')


def test_threads_share_it():
    budget = PrivacyBudget(epsilon=1.0)
    refused = []

    def charge(name):
        try:
            budget.charge(release(name, 0.1))
        except PrivacyBudgetExceeded:
            refused.append(name)

    threads = [threading.Thread(target=charge, args=(str(i), ))
               for i in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 20 and budget.remaining('labels') == 0.0


@pytest.mark.parametrize('arguments, message', [
    (dict(), 'A budget needs a cap'),
    (dict(epsilon=0.0), "'epsilon' must be positive (got 0.0)"),
    (dict(labels=-1.0), "'labels' must be positive (got -1.0)"),
    (dict(epsilon=math.nan), "'epsilon' must be positive (got nan)"),
    (dict(node=1.0), "'node' and 'max_degree' belong together"),
    (dict(epsilon=1.0, max_degree=3), "belong together"),
    (dict(node=1.0, max_degree=2.5), "'max_degree' must be a positive"),
    (dict(epsilon=1.0, delta=1.0), "'delta' must lie in [0, 1)"),
])
def test_bad_budgets_are_refused(arguments, message):
    with pytest.raises(ValueError) as info:
        PrivacyBudget(**arguments)
    assert message in str(info.value)


def test_an_identity_without_a_cap():
    budget = PrivacyBudget(epsilon=math.inf)
    budget.charge(release('a', 1e6))
    assert budget.remaining('labels') == math.inf
    with pytest.raises(ValueError, match="'kind' must be one of"):
        budget.remaining('friends')
