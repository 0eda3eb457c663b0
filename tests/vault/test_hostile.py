"""Files that somebody else has written: they may hold wrong things, but they
cannot change a budget, forge a ledger, or run anything.
"""
import io
import math
import os
import pickle
import sqlite3
import zipfile

import pytest
import torch
from torch_geometric.data import Batch, Data

from tests.accountant.test_ledger import FULL, release
from tests.vault.test_budget import charge
from torch_geometric_dp import (
    Guarantee,
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
    Release,
)
from torch_geometric_dp.accountant import (
    GaussianNoise,
    Projection,
    Relation,
    Trust,
    Unit,
)
from torch_geometric_dp.pyg import Ledgers
from torch_geometric_dp.transforms import LabelRR
from torch_geometric_dp.vault import SQLiteStore, VaultError
from torch_geometric_dp.vault.budget import _create, _reduce, restore_budget
from torch_geometric_dp.vault.vault import Vault


class Op:
    """What a crafted pickle does: call something, and write into the result.
    """
    def __init__(self, function, args, state=None):
        self.function, self.args, self.state = function, args, state

    def __reduce__(self):
        out = self.function, self.args
        return out if self.state is None else (*out, self.state)


def by_pickle(thing):
    return pickle.loads(pickle.dumps(thing, protocol=2))


def by_torch(thing):
    """As :obj:`torch.load(weights_only=True)` reads a file."""
    file = io.BytesIO()
    torch.save(0, file)
    out = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(out, 'w') as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith('data.pkl'):
                content = pickle.dumps(thing, protocol=2)
            new.writestr(name, content)
    out.seek(0)
    return torch.load(out, weights_only=True)


LOADERS = pytest.mark.parametrize('load', [by_pickle, by_torch])
REFUSED = (ValueError, TypeError, AttributeError, pickle.UnpicklingError)


@LOADERS
@pytest.mark.parametrize('state', [
    {'_terms': {'caps': {'labels': '1e9'}, 'max_degree': None, 'delta': 0.9}},
    {'_spent': PrivacyAccountant()}, {'_last': 10**9}, {'identity': 'other'},
    {'_store': None}, {'caps': {'labels': 1e9}}, {'_last': -5},
    (None, {'_spent': PrivacyAccountant(), '_last': 10**9}),
    ({'_last': 10**9}, {'_spent': PrivacyAccountant()}),
    {'_spent': PrivacyAccountant((release('b', 9.0), ))}, {'new': 1},
])
def test_no_file_changes_a_budget(load, state):
    budget = PrivacyBudget(labels=1.0)
    charge(budget, release('a', 1.0))
    shown = repr(budget)
    restore, where = _reduce(budget)
    assert load(Op(restore, where)) is budget
    with pytest.raises(REFUSED):
        load(Op(restore, where, state))
    assert repr(budget) == shown and budget.identity == where[1]
    assert budget.spent.releases == (release('a', 1.0), )
    assert budget.caps == {'labels': 1.0} and budget.delta == 0.0
    with pytest.raises(PrivacyBudgetExceeded):
        charge(budget, release('c', 0.1))


@LOADERS
def test_the_first_file_does_not_shadow_a_budget(load, tmp_path):
    # A vault of the attacker's, that has the identity but not the charges.
    budget = PrivacyBudget(labels=1.0)
    charge(budget, release('a', 1.0))
    address, identity = budget._vault.store.address, budget.identity
    del budget
    forged = SQLiteStore(str(tmp_path / 'vault'), create=True)
    _create(Vault(forged), 'mine', identity, {
        'caps': {'labels': '1e9'}, 'max_degree': None, 'node_edges': None,
        'delta': 0.0})
    first = load(Op(restore_budget, (forged.address, identity)))
    assert first.remaining('labels') == 1e9  # It is one, but another one.
    true = load(Op(restore_budget, (address, identity)))
    assert true is not first and true.remaining('labels') == 0.0
    with pytest.raises(PrivacyBudgetExceeded):
        charge(true, release('b', 0.1))


@LOADERS
def test_a_budget_whose_vault_is_gone_refuses(load, tmp_path):
    data = Data(y=torch.arange(4) % 2)
    data.privacy_budget = load(Op(restore_budget, (str(tmp_path / 'v'), 'me')))
    assert repr(data.privacy_budget) == 'PrivacyBudget(its vault is gone)'
    with pytest.raises(VaultError, match='nothing can be released'):
        LabelRR(1.0, num_classes=2)(data)
    assert not (tmp_path / 'v').exists()


def test_a_vault_that_goes_away_is_missed_at_once(monkeypatch):
    monkeypatch.setattr('torch_geometric_dp.vault.sqlite._TEMPORARY', {})
    data = Data(y=torch.arange(4) % 2, privacy_budget=PrivacyBudget(labels=9.0))
    LabelRR(1.0, num_classes=2)(data)
    os.remove(data.privacy_budget._vault.store.address)
    for epsilon in (1.0, 2.0):
        with pytest.raises(VaultError, match='what was spent is not known, '
                                             'so nothing'):
            LabelRR(epsilon, num_classes=2)(data)
    assert not os.path.exists(data.privacy_budget._vault.store.address)


def test_a_budget_that_its_vault_does_not_know_refuses():
    address = PrivacyBudget(labels=1.0)._vault.store.address
    data = Data(y=torch.arange(4) % 2, privacy_budget=restore_budget(
        address, 'nobody'))
    with pytest.raises(LookupError, match='no budget with the identity nobody'):
        LabelRR(1.0, num_classes=2)(data)


@pytest.mark.parametrize('kind', ['text', 'database', 'empty', 'folder'])
def test_other_files_are_left_as_they_are(tmp_path, kind):
    path = tmp_path / 'theirs'
    if kind == 'folder':
        path.mkdir()
    elif kind == 'database':
        with sqlite3.connect(path) as connection:
            connection.execute('CREATE TABLE budgets (identity, terms)')
        connection.close()
    else:
        path.write_bytes(b'a text' * 1000 if kind == 'text' else b'')
    before = path.read_bytes() if path.is_file() else None
    budget = restore_budget(str(path), 'me')
    with pytest.raises(VaultError, match=(
            'unable to open database file' if kind == 'folder' else
            'nothing can be released')):
        charge(budget, release('a'))
    assert 'vault is gone' in repr(budget)
    assert [p.name for p in tmp_path.iterdir()] == ['theirs']
    assert before is None or path.read_bytes() == before


@LOADERS
@pytest.mark.parametrize('args', [
    (), ('only one', ), (1, 2), (b'a', b'b'), (None, 'a'), ('a', 'b', 'c'),
    (['a'], 'b')])
def test_a_budget_is_known_by_two_strings(load, args):
    with pytest.raises(REFUSED):
        load(Op(restore_budget, args))


def test_loading_makes_no_budgets():
    with pytest.raises(pickle.UnpicklingError):
        by_torch(Op(PrivacyBudget, (1e9, )))


FROZEN = [
    *FULL.releases, *FULL.projections, FULL, FULL.releases[1].guarantee,
    GaussianNoise(2.0), *Unit, *Relation, *Trust, Ledgers([FULL]),
]


@LOADERS
@pytest.mark.parametrize('thing', FROZEN, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize('state', [
    {'epsilon': 0.0}, {'releases': ()}, {'guarantee': None},
    {'mechanism': 'A\n= labels: epsilon = 0'}, {'multiplier': 1e9},
    {'_value_': 'labels'}, {'_name_': 'LABELS'}, {'_ledgers': []},
    (None, {'epsilon': 0.0, '_value_': 'labels', 'multiplier': 1e9}),
])
def test_no_file_writes_into_a_record(load, thing, state):
    function, args, *_ = thing.__reduce_ex__(2)
    shown = repr(thing), str(thing)
    same = load(Op(function, args))
    assert type(same) is type(thing) and str(same) == str(thing)
    with pytest.raises(REFUSED):
        load(Op(function, args, state))
    # Words are shared by everybody in the process.
    assert shown == (repr(thing), str(thing))
    assert [unit.value for unit in Unit] == ['features', 'labels', 'edges',
                                             'node']


class New:
    """A record that was never constructed, or through a back door."""
    def __init__(self, cls, state):
        self.cls, self.state = cls, state

    def __reduce_ex__(self, protocol):
        import copyreg
        return copyreg.__newobj__, (self.cls, ), self.state


@LOADERS
@pytest.mark.parametrize('cls', [Guarantee, Release, Projection, GaussianNoise,
                                 PrivacyAccountant, PrivacyBudget, Ledgers])
def test_nothing_is_made_around_its_constructor(load, cls):
    content = pickle.dumps(Data(), protocol=2)
    assert content  # The pickles here are of the same protocol.
    # NEWOBJ, then BUILD: written by hand, as pickle would not.
    name = f'c{cls.__module__}\n{cls.__qualname__}\n'.encode()
    state = pickle.dumps({'releases': (), 'epsilon': 0.0}, protocol=2)[2:-1]
    crafted = b'\x80\x02' + name + b')\x81' + state + b'b.'

    class Raw:
        def __reduce__(self):
            raise AssertionError

    with pytest.raises(REFUSED):
        if load is by_pickle:
            pickle.loads(crafted)
        else:
            load_crafted(crafted)


def load_crafted(content):
    file, out = io.BytesIO(), io.BytesIO()
    torch.save(0, file)
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(out, 'w') as new:
        for name in old.namelist():
            new.writestr(name, content if name.endswith('data.pkl') else
                         old.read(name))
    out.seek(0)
    return torch.load(out, weights_only=True)


LINE = 'LabelRR\n= labels: epsilon = 0'


@LOADERS
@pytest.mark.parametrize('position', range(13))
def test_no_file_forges_a_line_of_the_table(load, position):
    function, args = FULL.releases[0].__reduce__()
    for text in (LINE, (LINE, ), ((LINE, 1), ), (('a', LINE), )):
        forged = (*args[:position], text, *args[position + 1:])
        with pytest.raises(REFUSED):
            load(Op(PrivacyAccountant, ((Op(function, forged), ), )))


@LOADERS
@pytest.mark.parametrize('position, value', [
    (0, -1.0), (0, math.nan), (0, '0'), (1, 'nobody'), (2, 'swapped'),
    (3, 2.0), (5, (LINE, )), (5, 'abc'), (7, ('gaussian', 1.0)), (8, 'labels'),
    (8, (('labels', -1), )), (8, (('labels', 0.5), ))])
def test_no_file_holds_a_promise_that_is_none(load, position, value):
    function, args = FULL.releases[0].guarantee.__reduce__()
    with pytest.raises(REFUSED):
        load(Op(function, (*args[:position], value, *args[position + 1:])))


def test_nothing_runs():
    # What is not on the list of safe names is refused by name.
    for function, args in ((os.system, ('true', )), (eval, ('1', )),
                           (SQLiteStore, ('/', True)),
                           (PrivacyBudget.for_each, ([], ))):
        with pytest.raises(pickle.UnpicklingError):
            by_torch(Op(function, args))


def test_merging_a_forged_ledger_does_not_lower_what_was_spent():
    true = PrivacyAccountant((release('a', 4.0, graph='me'), ))
    forged = PrivacyAccountant.from_json(true.to_json().replace('4.0', '0.1'))
    with pytest.raises(ValueError, match='must tell one thing'):
        PrivacyAccountant.merge([forged, true])


@pytest.mark.parametrize('form', ['one', 'batch', 'list'])
def test_what_is_released_goes_through_safe_files(graph, tmp_path, form):
    data = PrivacyBudget.for_each([graph, graph], epsilon=2.0)
    transform = LabelRR(1.0, num_classes=3)
    private = [transform(one) for one in data]
    thing = {'one': private[0], 'batch': Batch.from_data_list(private),
             'list': private}[form]
    with pytest.warns(UserWarning, match='is not recorded here'):
        torch.save(thing, tmp_path / 'thing.pt')
    again = torch.load(tmp_path / 'thing.pt', weights_only=form != 'batch')
    first = {'one': lambda: again, 'batch': lambda: again[0],
             'list': lambda: again[0]}[form]()
    assert first.privacy == private[0].privacy
    assert first.privacy_budget is data[0].privacy_budget
    assert torch.equal(first.y, private[0].y)
    if form == 'batch':
        assert again.privacy.epsilon('labels') == 1.0
