import copy
import json
import math
import pickle

import pytest

from torch_geometric_dp import Guarantee, PrivacyAccountant, Release


def release(name='a', epsilon=1.0, protects='labels', graph=None, **kwargs):
    extra = {key: kwargs.pop(key) for key in ('seed', 'parameters', 'output')
             if key in kwargs}
    guarantee = Guarantee(epsilon, protects, 'one is replaced', **kwargs)
    return Release(guarantee, f'Mechanism({name})', ('field', ), name, graph,
                   **extra)


def ledger(*releases):
    return PrivacyAccountant(tuple(releases))


def test_kinds_are_kept_apart():
    both = ledger(release('a', 1.0, 'features'), release('b', 2.0, 'labels'))
    assert both.epsilon('features') == 1.0
    assert both.epsilon('labels') == 2.0
    assert both.epsilon('edges') == 0.0
    assert both.epsilon('node') == 3.0
    with pytest.raises(ValueError, match="'kind' must be one of"):
        both.epsilon('everything')


def test_pure_epsilons_add_up():
    assert ledger(*[release(str(i), 0.1) for i in range(3)]).epsilon(
        'labels') == 0.3


def test_one_release_counts_once():
    same = ledger(release('a')).spend(release('a'))
    assert same.epsilon('labels') == 1.0 and len(same.releases) == 1
    merged = PrivacyAccountant.merge([same, ledger(release('a')), same])
    assert merged.epsilon('labels') == 1.0


def test_graphs_with_an_identity_hold_different_people():
    two = ledger(release('a', 1.0, graph='one'), release('b', 2.0, graph='one'),
                 release('c', 2.5, graph='two'))
    assert two.epsilon('labels') == 3.0
    # What has no identity may be about anybody.
    assert two.spend(release('d', 0.5)).epsilon('labels') == 3.5


def test_a_whole_node_by_group_privacy():
    books = ledger(release('a', 1.0, 'features'), release('b', 0.5, 'edges'))
    assert books.epsilon('node', max_degree=4) == 3.0
    assert books.epsilon('node', max_degree=4, neighbours='replace') == 5.0
    with pytest.raises(ValueError, match="'max_degree' must be a positive"):
        books.epsilon('node')
    with pytest.raises(ValueError, match="'neighbours' must be"):
        books.epsilon('node', max_degree=4, neighbours='swap')
    # A release that protects the node protects all that is the node's.
    books = books.spend(release('c', 2.0, 'node'))
    assert books.epsilon('features') == 3.0
    assert books.epsilon('edges') == 2.5
    assert books.epsilon('node', max_degree=4) == 5.0


def test_a_replaced_node_goes_and_comes():
    promise = Guarantee(2.0, 'node', 'one node is added or removed')
    books = ledger(Release(promise, 'Mechanism', ('x', ), 'a'))
    assert books.epsilon('node') == books.epsilon('edges') == 2.0
    assert books.epsilon('node', neighbours='replace') == 4.0
    books = books.spend(release('b', 1.0, 'node'))  # One is replaced there.
    assert books.epsilon('node', neighbours='replace') == 5.0


def test_group_privacy_of_delta():
    guarantee = Guarantee(0.5, 'edges', '', delta=1e-6)
    # The chain of single changes, written out.
    epsilon, delta = 0.0, 0.0
    for _ in range(3):
        delta = 1e-6 + math.exp(0.5) * delta
        epsilon += 0.5
    assert guarantee.group(3) == (epsilon, pytest.approx(delta))
    assert guarantee.group(1) == (0.5, 1e-6)
    assert guarantee.group(0) == (0.0, 0.0)
    assert guarantee.group(10**4) == (5000.0, 1.0)


def test_epsilon_and_delta():
    books = ledger(*[release(str(i), 0.1, delta=1e-7) for i in range(20)])
    assert books.delta('labels') == pytest.approx(2e-6, rel=1e-4)
    assert books.epsilon('labels') == 2.0
    assert books.epsilon('labels', delta=1e-4) < 1.7
    assert books.epsilon('labels', delta=1e-7) == math.inf
    with pytest.raises(ValueError, match="'delta' must lie in"):
        books.epsilon('labels', delta=1.0)


def test_tight_accounting_of_gaussian_noise():
    pytest.importorskip('dp_accounting')
    # Known: 5 hops of noise 8.3419 with sensitivity 1 are (1, 1e-5)-private.
    noise = [release(str(i), 0.9, 'edges', delta=1e-5,
                     event=('gaussian', 8.3419)) for i in range(5)]
    books = ledger(*noise)
    tight = books.epsilon('edges', delta=1e-5, method='pld')
    assert tight == pytest.approx(1.0, abs=1e-2)
    assert tight <= books.epsilon('edges', delta=1e-5, method='rdp') < 1.5
    # Two edges of a node are twice the sensitivity.
    node = books.epsilon('node', delta=1e-5, max_degree=2, method='pld')
    half = [release(str(i), 0.9, 'edges', delta=1e-5,
                    event=('gaussian', 8.3419 / 2)) for i in range(5)]
    assert node == pytest.approx(
        ledger(*half).epsilon('edges', delta=1e-5, method='pld'), rel=1e-3)


@pytest.mark.parametrize('method', ['rdp', 'pld'])
def test_tight_accounting_counts_every_pure_release(method):
    pytest.importorskip('dp_accounting')
    books = ledger(*[release(str(i), 1.0) for i in range(10)],
                   release('laplace', 0.5, event=('laplace', 2.0)))
    # At delta = 0, and for any method, pure epsilons add up.
    assert books.epsilon('labels', delta=0.0, method=method) == 10.5
    tight = books.epsilon('labels', delta=1e-3, method=method)
    assert 5 < tight <= 10.5
    assert ledger().epsilon('labels', delta=1e-3, method=method) == 0.0
    with pytest.raises(ValueError, match="'method' must be"):
        books.epsilon('labels', delta=1e-3, method='guess')


def test_claims_are_shown_beside_proofs():
    books = ledger(release('a', 10.0, 'features', claimed_epsilon=1.2))
    assert books.epsilon('features') == 10.0
    assert books.claimed_epsilon('features') == 1.2
    assert 'published as epsilon = 1.2' in str(books)


FULL = PrivacyAccountant((
    release('a', 1.0, 'features', seed=3, assumptions=('scores are public', ),
            parameters=(('sizes', (2, 3)), ('limit', math.inf))),
    release('b', math.inf, 'node', graph='g', delta=1e-5, model='central',
            claimed_epsilon=4.0, event=('gaussian', 2.0)),
))


@pytest.mark.parametrize('clone', [
    copy.copy,
    copy.deepcopy,
    lambda books: pickle.loads(pickle.dumps(books)),
    lambda books: PrivacyAccountant.from_json(books.to_json()),
])
def test_copies_are_equal(clone):
    assert clone(FULL) == FULL
    assert hash(clone(FULL)) == hash(FULL)


def test_json_is_strict():
    def refuse(constant):
        raise AssertionError(constant)

    json.loads(FULL.to_json(), parse_constant=refuse)
    with pytest.raises(ValueError, match="'version' of a ledger must be 1"):
        PrivacyAccountant.from_json('{"version": 2, "releases": []}')


def test_table():
    books = ledger(release('a', 0.5), release('b', 1.0, 'features', seed=7),
                   release('c', 1.0, 'features', assumptions=('it rains', )))
    assert str(books) == '\n'.join([
        'released  protects  epsilon  delta  model  mechanism',
        '--------  --------  -------  -----  -----  ------------',
        'field     labels    0.5      0      local  Mechanism(a)',
        'field     features  1        0      local  Mechanism(b)',
        'field     features  1        0      local  Mechanism(c)',
        '= features: epsilon = 2',
        '= labels: epsilon = 0.5',
        '= edges: as they came, nothing was spent',
        '! Mechanism(b): seeded with 7, not secret: who knows the seed undoes '
        'the noise',
        '! Mechanism(c): assumes that it rains',
    ])


def test_html_is_escaped():
    html = ledger(release('<b>'))._repr_html_()
    assert '<table>' in html and '&lt;b&gt;' in html and '<b>' not in html


@pytest.mark.parametrize('arguments, message', [
    (dict(epsilon=-1.0), "'epsilon' must be zero or more"),
    (dict(epsilon=math.nan), "'epsilon' must be zero or more"),
    (dict(delta=1.0), "'delta' must lie in"),
    (dict(protects='friends'), "'protects' must be one of"),
    (dict(model='global'), "'model' must be"),
    (dict(event=('cauchy', 1.0)), "'event' must be"),
])
def test_bad_guarantees_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        release(**arguments)
