import copy
import json
import math
import pickle

import pytest
import torch

from torch_geometric_dp import Guarantee, PrivacyAccountant, Release
from torch_geometric_dp.accountant import (
    GaussianNoise,
    LaplaceNoise,
    Projection,
    Relation,
    Trust,
    Unit,
)

ENTRY = ('graph', 'seed', 'parameters', 'outputs', 'public', 'stability',
         'bases', 'processed', 'fields', 'arguments', 'mechanism')


def release(name='a', epsilon=1.0, unit='labels', relation='replace',
            **kwargs):
    entry = {key: kwargs.pop(key) for key in ENTRY if key in kwargs}
    entry = {'mechanism': 'Mechanism', 'arguments': (('name', name), ),
             'fields': ('field', ), **entry}
    return Release(Guarantee(epsilon, unit, relation, **kwargs),
                   release_id=name, **entry)


def ledger(*releases):
    return PrivacyAccountant(tuple(releases))


def test_units_are_kept_apart():
    both = ledger(release('a', 1.0, 'features'), release('b', 2.0, 'labels'))
    assert both.epsilon('features') == 1.0
    assert both.epsilon(Unit.LABELS) == 2.0
    assert both.epsilon('edges') == both.epsilon('edge') == 0.0
    assert both.epsilon('node') == 3.0
    with pytest.raises(ValueError, match="'unit' must be one of 'features', "
                                         "'labels', 'edges', 'node' "):
        both.epsilon('everything')


def test_pure_epsilons_add_up():
    assert ledger(*[release(str(i), 0.1) for i in range(3)]).epsilon(
        'labels') == 0.3


def test_one_release_counts_once():
    same = ledger(release('a')).spend(release('a'))
    assert same.epsilon('labels') == 1.0 and len(same.releases) == 1
    merged = PrivacyAccountant.merge([same, ledger(release('a')), same])
    assert merged.epsilon('labels') == 1.0


@pytest.mark.parametrize('cheaper', [
    dict(epsilon=0.1), dict(unit='features'), dict(graph='someone'),
    dict(stability=1), dict(public=()), dict(also=((Unit.NODE, 0), )),
])
def test_two_entries_of_one_name_must_tell_the_same(cheaper):
    # Or one entry would hide the other, and which of them is chance.
    true = dict(stability=3, public=(('x', Unit.FEATURES), ))
    books = ledger(release('a', **true))
    forged = ledger(release('a', **{**true, **cheaper}))
    for order in ([books, forged], [forged, books]):
        with pytest.raises(ValueError, match="'releases' must tell one thing"):
            PrivacyAccountant.merge(order)
    # What was done to it since makes no difference to what it cost.
    later = release('a', **true, processed='Other()', outputs=(('y', 'f0'), ))
    assert len(books.spend(later).releases) == 1


def test_graphs_with_an_identity_hold_different_people():
    two = ledger(release('a', 1.0, graph='one'), release('b', 2.0, graph='one'),
                 release('c', 2.5, graph='two'))
    assert two.epsilon('labels') == 3.0
    # What has no identity may be about anybody.
    assert two.spend(release('d', 0.5)).epsilon('labels') == 3.5


def test_that_identities_are_different_people_is_an_assumption():
    belief = '! assumes that graphs with different identities hold different'
    one = ledger(release('a', graph='one'), release('b', graph='one'),
                 release('c'))
    assert belief not in str(one)
    assert belief in str(one.spend(release('d', graph='two')))


def test_a_whole_node_by_group_privacy():
    books = ledger(release('a', 1.0, 'features'),
                   release('b', 0.5, 'edges', 'add-remove'))
    assert books.epsilon('node', max_degree=4) == 3.0
    assert books.epsilon('node', max_degree=4, relation='replace') == 5.0
    with pytest.raises(ValueError, match="'max_degree' must be a positive"):
        books.epsilon('node')
    with pytest.raises(ValueError, match="'relation' must be one of"):
        books.epsilon('node', max_degree=4, relation='swap')
    # A release that protects the node protects all that is the node's.
    books = books.spend(release('c', 2.0, 'node'))
    assert books.epsilon('features') == 3.0
    assert books.epsilon('edges') == 2.5
    assert books.epsilon('node', max_degree=4) == 5.0


def test_a_replaced_node_goes_and_comes():
    books = ledger(release('a', 2.0, 'node', 'add-remove'))
    assert books.epsilon('node') == 2.0
    assert books.epsilon('node', relation='replace') == 4.0
    # So do its row, its label and an edge that changes.
    for unit in ('features', 'labels', 'edges'):
        assert books.epsilon(unit) == 4.0
    books = books.spend(release('b', 1.0, 'node'))  # One is replaced there.
    assert books.epsilon('node', relation='replace') == 5.0


def test_a_projection_is_a_number_of_the_ledger():
    steps = Projection('BoundDegree', (('max_degree', 2), ), ('edge_index', ),
                       3)
    books = PrivacyAccountant().project(steps).project(steps)
    assert books.stability('edge_index') == 3 and books.stability('x') == 1
    books = books.spend(release('a', 1.0, 'edges', 'add-remove', stability=3))
    assert books.epsilon('edges') == 3.0
    assert books.epsilon('edges', relation='replace') == 6.0
    assert books.epsilon('node', max_degree=2) == 6.0
    assert '3 x 1' in str(books) and '= edges: epsilon = 3' in str(books)
    assert 'one raw edge changes up to 3 of the edges' in str(books)


def test_what_is_proven_beside_the_table():
    books = ledger(release('a', 1.0, 'node', also=((Unit.FEATURES, 0), )))
    assert books.epsilon('features') == 0.0 and books.epsilon('labels') == 1.0


def test_what_is_read_and_taken_as_public():
    books = ledger(release('a', 1.0, 'edges', 'add-remove', mechanism='NAP',
                           public=(('x', Unit.FEATURES), ('num_nodes', None))))
    assert books.public('features') == ['NAP']
    assert books.epsilon('features') == books.epsilon(
        'node', max_degree=1) == math.inf
    assert books.epsilon('edges') == 1.0 and books.epsilon('labels') == 0.0
    assert '= features: taken as public by NAP' in str(books)
    assert '= labels: not released, 0 spent' in str(books)
    assert '! NAP(name=\'a\'): takes as public: x, num_nodes' in str(books)


def test_a_special_case_of_a_mechanism_is_recognised():
    books = ledger(release('a', mechanism='MyLabelRR', bases=('LabelRR', )))
    assert books.find('field', 'LabelRR') is books.releases[0]
    with pytest.raises(ValueError, match="must hold a release of 'field' by "
                                         "'GRRFS'"):
        books.find('field', 'GRRFS')
    twice = books.spend(release('b', mechanism='LabelRR'))
    with pytest.raises(ValueError, match='must hold one release'):
        twice.find('field', 'LabelRR')
    after = books.rewrite(books.releases[0], (('field', '0f'), ), 'Smooth()')
    with pytest.raises(ValueError, match=r'the output of Smooth\(\)'):
        after.find('field', 'LabelRR')
    assert after.epsilon('labels') == 1.0


def test_group_privacy_of_delta():
    guarantee = Guarantee(0.5, 'edges', 'add-remove', delta=1e-6)
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

    def hops(multiplier):
        return ledger(*[release(
            str(i), 0.9, 'edges', 'add-remove', delta=1e-5,
            event=GaussianNoise(multiplier)) for i in range(5)])

    # Known: 5 hops of noise 8.3419 with sensitivity 1 are (1, 1e-5)-private.
    books = hops(8.3419)
    tight = books.epsilon('edges', delta=1e-5, method='pld')
    assert tight == pytest.approx(1.0, abs=1e-2)
    assert tight <= books.epsilon('edges', delta=1e-5, method='rdp') < 1.5
    # Two edges of a node are twice the sensitivity.
    node = books.epsilon('node', delta=1e-5, max_degree=2, method='pld')
    assert node == pytest.approx(hops(8.3419 / 2).epsilon(
        'edges', delta=1e-5, method='pld'), rel=1e-3)


@pytest.mark.parametrize('method', ['rdp', 'pld'])
def test_tight_accounting_counts_every_pure_release(method):
    pytest.importorskip('dp_accounting')
    books = ledger(*[release(str(i), 1.0) for i in range(10)],
                   release('laplace', 0.5, event=LaplaceNoise(2.0)))
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
            parameters=(('sizes', (2, (3, 0.1))), ('limit', math.inf)),
            arguments=(('epsilon', 0.1), ('bounds', (-math.inf, 1)),
                       ('mask', None), ('signed', True)),
            bases=('Column', ), outputs=(('x', 'ab' * 32), )),
    release('b', math.inf, 'node', graph='g', delta=1e-5, model='central',
            claimed_epsilon=4.0, event=GaussianNoise(2.0),
            also=((Unit.EDGES, 3), (Unit.LABELS, 0)), processed='Smooth()'),
    release('c', 0.1 + 0.2, 'edges', 'add-remove', event=LaplaceNoise(1 / 3),
            stability=3, public=(('x', Unit.FEATURES), ('num_nodes', None))),
), (Projection('BoundDegree', (('max_degree', 4), ), ('edge_index', ), 3,
               ('nobody has more than 4 edges', )), ))


@pytest.mark.parametrize('clone', [
    copy.copy,
    copy.deepcopy,
    lambda books: pickle.loads(pickle.dumps(books)),
    lambda books: PrivacyAccountant.from_json(books.to_json()),
])
def test_copies_are_equal(clone):
    again = clone(FULL)
    assert again == FULL and hash(again) == hash(FULL)
    assert repr(again.releases) == repr(FULL.releases)  # In their types, too.
    assert str(again) == str(FULL)


def test_json_is_strict():
    def refuse(constant):
        raise AssertionError(constant)

    json.loads(FULL.to_json(), parse_constant=refuse)


@pytest.mark.parametrize('text', [
    '{"version": 1, "releases": []}', '{"releases": []}', '[]', '2', 'null'])
def test_other_versions_are_refused(text):
    with pytest.raises(ValueError, match="'version' of a ledger must be 2"):
        PrivacyAccountant.from_json(text)


def paths(value, path=()):
    """The way to every value of a nested record."""
    yield path
    items = value.items() if isinstance(value, dict) else (
        enumerate(value) if isinstance(value, list) else ())
    for key, part in items:
        yield from paths(part, (*path, key))


def changed(content, path, new):
    content = copy.deepcopy(content)
    *way, last = path
    part = content
    for key in way:
        part = part[key]
    part[last] = new(part[last])
    return json.dumps(content)


PLAIN = json.loads(FULL.to_json())


@pytest.mark.parametrize('new', [
    lambda old: None, lambda old: 'text', lambda old: 'two\nlines',
    lambda old: -1.5, lambda old: 10**400, lambda old: [], lambda old: [[]],
    lambda old: {}, lambda old: {'type': 'PrivacyBudget'}, lambda old: [old],
    lambda old: {'type': 'float', 'value': 'nan'}, lambda old: True,
    lambda old: {'type': 'Release'}, lambda old: {'type': ['float']},
    lambda old: {'type': 'float', 'value': 'many'},
    lambda old: ({**old, 'more': 1} if isinstance(old, dict) else {'more': 1}),
])
def test_any_value_of_a_file_may_be_wrong(new):
    # It is refused with a ValueError, or it is the same type of value.
    for path in list(paths(PLAIN))[1:]:
        try:
            books = PrivacyAccountant.from_json(changed(PLAIN, path, new))
        except ValueError:
            continue
        assert PrivacyAccountant.from_json(books.to_json()) == books or (
            'nan' in books.to_json())
        for entry in books.releases:
            promise = entry.guarantee
            assert promise.epsilon >= 0 and 0 <= promise.delta < 1
            assert type(promise.epsilon) is type(promise.delta) is float
            assert type(promise.unit) is Unit and type(promise.model) is Trust
            assert type(promise.relation) is Relation
            assert type(entry.stability) is int and entry.stability >= 1
            assert all(type(field) is str for field in entry.fields)
            assert all(size >= 0 for _, size in promise.also)
        assert '\n\n' not in str(books) and str(books).count('\n') == (
            1 + len(books._rows()) + 2 + len(books._notes()))


@pytest.mark.parametrize('path, value, message', [
    (('ledger', 'releases', 0, 'more'), 1, 'more'),
    (('ledger', 'more'), 1, 'more'),
    (('ledger', 'releases', 0, 'guarantee', 'more'), 1, 'more'),
    (('ledger', 'releases', 0, 'guarantee', 'epsilon'), '0.1', "'epsilon'"),
    (('ledger', 'releases', 0, 'fields'), 'edge_index', "'fields'"),
    (('ledger', 'releases', 0, 'guarantee', 'assumptions'), 'x', 'assumptions'),
    (('ledger', 'releases', 0, 'stability'), 0, "'stability'"),
    (('ledger', 'releases', 0, 'stability'), 1.5, "'stability'"),
    (('ledger', 'releases', 0, 'seed'), '7', "'seed'"),
    (('ledger', 'releases', 1, 'guarantee', 'also'), [['labels', 0.5]], 'also'),
    (('ledger', 'releases', 1, 'guarantee', 'also'), [['labels', -1]], 'also'),
    (('ledger', 'releases', 1, 'guarantee', 'event'),
     {'type': 'GaussianNoise', 'multiplier': -1.0}, "'multiplier'"),
    (('ledger', 'releases', 1, 'guarantee', 'event'),
     {'type': 'LaplaceNoise', 'multiplier': {'type': 'float', 'value': 'inf'}},
     "'multiplier'"),
])
def test_wrong_files_are_refused_by_name(path, value, message):
    content = copy.deepcopy(PLAIN)
    part = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        PrivacyAccountant.from_json(json.dumps(content))


LINES = ['two\nlines', 'a\rb', 'a\tb', 'a\x1b[2K', 'a\u2028b', 'a\x00',
         'a\x85b', 'a\u202eb', b'bytes', None, 1]


@pytest.mark.parametrize('text', LINES)
@pytest.mark.parametrize('field', [
    'mechanism', 'fields', 'assumptions', 'arguments', 'argument', 'outputs',
    'parameters', 'bases', 'public', 'graph', 'processed', 'name',
    'projection', 'projected', 'projection assumptions'])
def test_text_stays_on_its_line(field, text):
    entries = {
        'mechanism': lambda: release(mechanism=text),
        'fields': lambda: release(fields=(text, )),
        'assumptions': lambda: release(assumptions=(text, )),
        'arguments': lambda: release(arguments=((text, 1), )),
        'argument': lambda: release(arguments=(('a', text), )),
        'outputs': lambda: release(outputs=((text, 'f0'), )),
        'parameters': lambda: release(parameters=((text, 1), )),
        'bases': lambda: release(bases=(text, )),
        'public': lambda: release(public=((text, None), )),
        'graph': lambda: release(graph=text),
        'processed': lambda: release(processed=text),
        'name': lambda: release(text, arguments=()),
        'projection': lambda: Projection(text, (), ('x', ), 1),
        'projected': lambda: Projection('A', (), (text, ), 1),
        'projection assumptions': lambda: Projection('A', (), ('x', ), 1,
                                                     (text, )),
    }
    if (field == 'argument' and text in (None, 1)) or (
            field in ('graph', 'processed') and text is None):
        return  # Where these are right.
    with pytest.raises(ValueError, match='must be one line of printable text'):
        entries[field]()


@pytest.mark.parametrize('unit, relation, sentence', [
    ('features', 'replace', 'the row of one node is replaced'),
    ('labels', 'replace', 'the label of one node is replaced'),
    ('edges', 'add-remove', 'one private edge is added or removed'),
    ('edges', 'replace', 'one private edge is replaced'),
    ('node', 'add-remove', 'one node, with its row, its label and its edges, '
                           'is added or removed'),
    ('node', 'replace', 'one node, with its row, its label and its edges, '
                        'is replaced'),
])
def test_sentences_are_made_and_never_read(unit, relation, sentence):
    promise = Guarantee(1.0, unit, relation)
    assert promise.sentence == sentence
    with pytest.raises((TypeError, AttributeError)):
        Guarantee(1.0, unit, relation, sentence='one node is swapped')
    with pytest.raises(AttributeError):
        promise.sentence = 'one node is swapped'


def test_table():
    books = ledger(release('a', 0.5), release('b', 1.0, 'features', seed=7),
                   release('c', 1.0, 'features', assumptions=('it rains', )))
    assert str(books) == '\n'.join([
        'released  protects  epsilon  delta  model  mechanism',
        "--------  --------  -------  -----  -----  -------------------",
        "field     labels    0.5      0      local  Mechanism(name='a')",
        "field     features  1        0      local  Mechanism(name='b')",
        "field     features  1        0      local  Mechanism(name='c')",
        '= features: epsilon = 2',
        '= labels: epsilon = 0.5',
        '= edges: not released, 0 spent',
        "! Mechanism(name='b'): seeded with 7, not secret: whoever knows the "
        'seed undoes the noise',
        "! Mechanism(name='c'): assumes that it rains",
    ])
    assert repr(books) == ('PrivacyAccountant(features: epsilon = 2; labels: '
                           'epsilon = 0.5)')
    assert repr(ledger()) == 'PrivacyAccountant(empty)'


def test_html_is_escaped():
    html = ledger(release('<b>'))._repr_html_()
    assert '<table>' in html and '&lt;b&gt;' in html and '<b>' not in html


@pytest.mark.parametrize('arguments, message', [
    (dict(epsilon=-1.0), "'epsilon' must be zero or more"),
    (dict(epsilon=math.nan), "'epsilon' must be zero or more"),
    (dict(epsilon='1'), "'epsilon' must be a number"),
    (dict(delta=1.0), "'delta' must lie in"),
    (dict(delta='0'), "'delta' must be a number"),
    (dict(unit='friends'), "'unit' must be one of"),
    (dict(relation='swap'), "'relation' must be one of"),
    (dict(relation='add-remove'), "'relation' must be 'replace' for 'labels'"),
    (dict(model='global'), "'model' must be"),
    (dict(event=('gaussian', 1.0)), "'event' must be"),
    (dict(also=(('labels', 1.5), )), "'also' must count units"),
    (dict(fields='y'), "'fields' must be a tuple of strings"),
    (dict(assumptions='it rains'), "'assumptions' must be a tuple"),
    (dict(stability=math.inf), "'stability' must be a positive integer"),
    (dict(seed=1.5), "'seed' must be an integer"),
])
def test_bad_entries_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        release(**arguments)


def test_numbers_become_plain():
    promise = Guarantee(torch.tensor(1.0), 'labels', 'replace',
                        also=(('edge', torch.tensor(2)), ))
    assert type(promise.epsilon) is float
    assert promise.also == ((Unit.EDGES, 2), )
    with pytest.raises(TypeError, match="must hold entries of the type"):
        ledger('LabelRR')
    with pytest.raises(TypeError, match="'guarantee' must be a 'Guarantee'"):
        Release('epsilon = 1', 'A', (), ('x', ), 'a')
