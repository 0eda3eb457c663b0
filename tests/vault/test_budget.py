import copy
import math
import pickle
import threading

import numpy as np
import pytest
from torch_geometric.data import Data, HeteroData

from tests.accountant.test_ledger import release
from torch_geometric_dp import (
    ContentChanged,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.accountant import Unit

CONTENT, OTHER, NONCE = b'c' * 32, b'o' * 32, b'n' * 32


def charge(budget, *releases, slot=None, content=CONTENT, nonce=NONCE,
           renew=False):
    return budget.bind(slot or releases[0].release_id, content, nonce, releases,
                       renew)


def test_each_unit_has_its_own_cap():
    budget = PrivacyBudget(epsilon=1.0, edges=2.0)
    charge(budget, release('a', 0.6, 'labels'))
    charge(budget, release('b', 1.0, 'features'))
    charge(budget, release('c', 2.0, 'edges', 'add-remove'))
    assert budget.remaining('labels') == 0.4
    assert budget.remaining('features') == 0.0
    assert budget.remaining('edges') == 0.0
    assert budget.remaining('node') == math.inf
    assert len(budget.spent.releases) == 3
    assert budget.caps == dict(features=1.0, labels=1.0, edges=2.0)


def test_over_budget_is_refused_and_nothing_is_entered():
    budget = PrivacyBudget(labels=1.0)
    charge(budget, release('a', 0.6))
    with pytest.raises(PrivacyBudgetExceeded) as info:
        charge(budget, release('b', 0.6))
    assert info.value.unit == 'labels'
    assert info.value.requested == 0.6
    assert info.value.remaining == 0.4
    assert str(info.value) == (
        "Mechanism(name='b') would cost epsilon = 0.6 for 'labels', but the "
        "graph's privacy budget has 0.4 left. Nothing was released")
    assert budget.spent.epsilon('labels') == 0.6
    again = pickle.loads(pickle.dumps(info.value))  # As from a worker.
    assert again.remaining == 0.4 and str(again) == str(info.value)
    charge(budget, release('c', 0.4))
    charge(budget, release('d', 9.0, 'features'))  # Which has no cap.


def test_all_parts_or_none():
    budget = PrivacyBudget(epsilon=1.0)
    parts = [release('a', 0.6), release('b', 0.6, 'features'),
             release('c', 1.1, 'edges', 'add-remove')]
    with pytest.raises(PrivacyBudgetExceeded, match="for 'edges'"):
        charge(budget, *parts, slot='model')
    assert budget.spent.releases == ()
    # Neither is the slot bound: another content may have it.
    _, entries, new = charge(budget, *parts[:2], slot='model', content=OTHER)
    assert new and entries == parts[:2]
    assert budget.spent.releases == tuple(parts[:2])


def test_a_slot_is_bound_to_a_content():
    budget = PrivacyBudget(epsilon=1.0)
    first = charge(budget, release('a', 0.6), slot='s')
    assert first == (NONCE, [release('a', 0.6)], True)
    # The same content has the same noise, entries and names, free.
    again = charge(budget, release('b', 0.6), slot='s', nonce=b'x' * 32)
    assert again == (NONCE, [release('a', 0.6)], False)
    with pytest.raises(ContentChanged, match='Release the whole graph first'):
        charge(budget, release('c', 0.1), slot='s', content=OTHER)
    assert budget.remaining('labels') == 0.4
    # Whoever pays has new noise.
    with pytest.raises(PrivacyBudgetExceeded):
        charge(budget, release('c', 0.5), slot='s', content=OTHER, renew=True)
    assert charge(budget, release('d', 0.6), slot='s')[0] == NONCE
    nonce, _, new = charge(budget, release('e', 0.4), slot='s', content=OTHER,
                           nonce=b'x' * 32, renew=True)
    assert new and nonce == b'x' * 32
    assert budget.remaining('labels') == 0.0
    with pytest.raises(ContentChanged):  # It is bound anew.
        charge(budget, release('f', 0.1), slot='s')


def test_slots_of_budgets_are_their_own():
    one, two = PrivacyBudget(epsilon=1.0), PrivacyBudget(epsilon=1.0)
    charge(one, release('a'), slot='s')
    assert charge(two, release('b'), slot='s', content=OTHER,
                  nonce=b'x' * 32) == (b'x' * 32, [release('b')], True)


def test_decimal_caps_are_reached_exactly():
    budget = PrivacyBudget(epsilon=0.3)
    for name in 'abc':
        charge(budget, release(name, 0.1))
    assert budget.remaining('labels') == 0.0


def test_a_whole_person():
    budget = PrivacyBudget(node=5.0, max_degree=4)
    charge(budget, release('a', 1.0, 'edges', 'add-remove'))
    with pytest.raises(PrivacyBudgetExceeded) as info:
        charge(budget, release('b', 2.0, 'labels'))
    assert info.value.unit == 'node' and info.value.remaining == 1.0
    with pytest.raises(PrivacyBudgetExceeded) as info:
        charge(budget, release('c', 0.3, 'edges', 'add-remove'))
    assert info.value.requested == pytest.approx(1.2)
    charge(budget, release('d', 1.0, 'node'))
    assert budget.remaining('node') == 0.0


def test_a_person_with_some_edges():
    budget = PrivacyBudget(node=5.0, node_edges=3)
    assert budget.node_edges == 3 and budget.max_degree is None
    charge(budget, release('a', 1.0, 'edges', 'add-remove'))
    assert budget.remaining('node') == 2.0
    with pytest.raises(PrivacyBudgetExceeded):
        charge(budget, release('b', 1.5, 'node', 'add-remove'))
    charge(budget, release('c', 2.0, 'node', 'replace'))
    assert budget.remaining('node') == 0.0
    assert 'node_edges = 3' in str(budget)


def test_node_releases_count_for_every_unit():
    budget = PrivacyBudget(epsilon=2.0)
    charge(budget, release('a', 1.0, 'node', 'add-remove'))
    for unit in ('features', 'labels', 'edges'):  # Twice, for a replaced one.
        assert budget.remaining(unit) == 0.0
        with pytest.raises(PrivacyBudgetExceeded):
            charge(budget, release(unit, 0.1, unit))


def test_projections_count():
    budget = PrivacyBudget(epsilon=2.0)
    with pytest.raises(PrivacyBudgetExceeded) as info:
        charge(budget, release('a', 1.0, 'edges', 'add-remove', stability=3))
    assert info.value.requested == 3.0


def test_what_is_taken_as_public_is_not_what_a_budget_protects():
    reads = dict(mechanism='NAP', public=(('x', Unit.FEATURES), ))
    noisy = release('a', 1.0, 'edges', 'add-remove', **reads)
    with pytest.raises(PrivacyBudgetExceeded, match="takes 'features' as "
                                                    "public"):
        charge(PrivacyBudget(epsilon=2.0), noisy)
    budget = PrivacyBudget(edges=2.0)
    charge(budget, noisy)
    assert budget.remaining('edges') == 1.0


def test_delta():
    budget = PrivacyBudget(epsilon=1.0)
    with pytest.raises(PrivacyBudgetExceeded, match=(
            'needs delta = 1e-06, and the budget has delta = 0')):
        charge(budget, release('a', 0.1, delta=1e-6))
    budget = PrivacyBudget(epsilon=1.0, delta=1e-4)
    for i in range(40):  # 4.0 by plain addition.
        charge(budget, release(str(i), 0.05, delta=1e-7))
    assert 0.0 <= budget.remaining('labels') < 0.2


def test_copies_are_the_budget_itself():
    budget = PrivacyBudget(epsilon=1.0)
    assert copy.copy(budget) is budget and copy.deepcopy(budget) is budget
    with pytest.warns(UserWarning, match='is not recorded here'):
        stored = pickle.dumps(budget)
    charge(budget, release('a', 0.6))
    assert pickle.loads(stored) is budget
    assert budget.remaining('labels') == 0.4
    assert budget.identity != PrivacyBudget(epsilon=1.0).identity


def test_a_budget_that_nobody_held_is_still_there():
    budget = PrivacyBudget(epsilon=1.0, node=3.0, max_degree=2)
    charge(budget, release('a', 0.6))
    with pytest.warns(UserWarning, match='is not recorded here'):
        stored, shown = pickle.dumps(budget), repr(budget)
    identity = budget.identity
    del budget
    other = pickle.loads(stored)
    assert other.identity == identity
    assert other.remaining('labels') == 0.4
    assert other.remaining('node') == 2.4
    assert repr(other) == shown == (
        'PrivacyBudget(features=1 of 1, labels=0.4 of 1, edges=1 of 1, '
        'node=2.4 of 3 left)')


def test_threads_share_it():
    budget = PrivacyBudget(epsilon=1.0)
    refused = []

    def run(name):
        try:
            charge(budget, release(name, 0.1))
        except PrivacyBudgetExceeded:
            refused.append(name)

    threads = [threading.Thread(target=run, args=(str(i), ))
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
    (dict(node=1.0), "'node' and one of 'max_degree' and 'node_edges' belong"),
    (dict(node=1.0, max_degree=2, node_edges=1), "belong together"),
    (dict(epsilon=1.0, max_degree=2, node_edges=1), "belong together"),
    (dict(node=1.0, node_edges=-1), "'node_edges' must be a positive"),
    (dict(epsilon=1.0, max_degree=3), "belong together"),
    (dict(node=1.0, max_degree=2.5), "'max_degree' must be a positive"),
    (dict(node=1.0, max_degree=math.inf), "'max_degree' must be a positive"),
    (dict(node=1.0, max_degree=math.nan), "'max_degree' must be a positive"),
    (dict(epsilon=1.0, delta=1.0), "'delta' must lie in [0, 1)"),
])
def test_bad_budgets_are_refused(arguments, message):
    with pytest.raises(ValueError) as info:
        PrivacyBudget(**arguments)
    assert message in str(info.value)


@pytest.mark.parametrize('arguments', [
    dict(epsilon='8'), dict(labels=True), dict(epsilon=[1.0]),
    dict(epsilon=1.0, delta='1e-5'), dict(node=1.0, max_degree='3')])
def test_budgets_of_the_wrong_type_are_refused(arguments):
    with pytest.raises(TypeError, match="must be a number"):
        PrivacyBudget(**arguments)


def test_an_identity_without_a_cap():
    budget = PrivacyBudget(epsilon=math.inf)
    charge(budget, release('a', 1e6))
    assert budget.remaining('labels') == math.inf
    charge(budget, release('b', math.inf))
    assert budget.remaining('labels') == 0.0
    with pytest.raises(ValueError, match="'unit' must be one of"):
        budget.remaining('friends')


def test_numpy_numbers_are_numbers():
    budget = PrivacyBudget(epsilon=np.float32(0.5), node=np.int64(3),
                           max_degree=np.int64(2))
    assert budget.caps['labels'] == 0.5 and budget.max_degree == 2
    assert budget.delta == 0.0


def test_an_identity_for_each_graph_of_a_dataset():
    graphs = [Data(num_nodes=2), HeteroData(), Data(num_nodes=3)]
    out = PrivacyBudget.for_each(graphs, labels=2.0, delta=1e-5)
    assert len({data.privacy_budget.identity for data in out}) == 3
    assert all(data.privacy_budget.caps == {'labels': 2.0} for data in out)
    assert all(data.privacy_budget.delta == 1e-5 for data in out)
    assert not any('privacy_budget' in data for data in graphs)
