"""A budget that outlives its process: one suite for all stores."""
import contextlib
import os
import pickle
from urllib.parse import urlsplit

import pytest

from tests.vault.processes import let_out, look, make, raw
from torch_geometric_dp import (
    ContentChanged,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.transforms import LabelRR
from torch_geometric_dp.vault import VaultError


def test_the_same_bits_and_one_charge_in_another_process(place):
    place.elsewhere(make)
    first = place.elsewhere(let_out)
    assert place.elsewhere(let_out) == first
    assert place.elsewhere(let_out, 0.5) != first
    assert place.elsewhere(look)[:2] == (0.25, 2)
    with pytest.raises(PrivacyBudgetExceeded) as info:
        place.elsewhere(let_out, 0.3)
    assert info.value.remaining == 0.25
    assert place.elsewhere(look)[:2] == (0.25, 2)


def test_terms_are_set_once(place):
    terms = dict(labels=1.0, edges=2.0, node=9.0, max_degree=4, delta=1e-6)
    identity = make(place, **terms)
    assert make(place, **terms) == identity
    for other, message in [
            (dict(labels=1.5), 'caps = labels=1.0, edges=2.0, node=9.0, and '
                               'not labels=1.5'),
            (dict(features=1.0), 'caps = .*, and not features=1.0'),
            (dict(delta=1e-5), 'delta = 1e-06, and not 1e-05'),
            (dict(max_degree=5), 'max_degree = 4, and not 5')]:
        with pytest.raises(ValueError, match=(
                f"The budget 'people' exists, with other terms: {message}")):
            make(place, **{**terms, **other})
    budget = place.open()
    assert budget.identity == identity and budget.max_degree == 4
    assert budget.caps == dict(labels=1.0, edges=2.0, node=9.0)
    with pytest.raises(ValueError, match='A budget needs a cap'):
        place.open(delta=0.5)
    with pytest.raises(TypeError, match="'friends' is no cap"):
        place.open(friends=1.0)


def test_a_name_that_is_not_there(place):
    place.elsewhere(make)
    with pytest.raises(LookupError, match="'nobody' is no budget of .*"
                                          r"\(got people\)"):
        place._replace(name='nobody').elsewhere(look)



def raise_labels(place, cap):
    place.open().raise_caps('the board said so', labels=cap)


def test_caps_are_raised_in_the_open(place):
    place.elsewhere(make)
    place.elsewhere(let_out, 1.0)
    with pytest.raises(PrivacyBudgetExceeded):
        place.elsewhere(let_out, 0.5)
    place.elsewhere(raise_labels, 1.5)
    place.elsewhere(let_out, 0.5)
    left, _, history = place.elsewhere(look)
    assert left == 0.0
    assert [line.split('(')[0] for line in history] == [
        'caps: labels=1', 'LabelRR', 'caps: labels=1.5 ', 'LabelRR']
    assert 'the board said so' in history[2]
    budget = place.open()
    for why, caps, message in [('why', dict(labels=1.4), 'only be raised'),
                               ('why', dict(edges=9.0), 'has no cap'),
                               ('why', dict(labels=float('nan')), 'only be'),
                               (' ', dict(labels=9.0), 'for what reason')]:
        with pytest.raises(ValueError, match=message):
            budget.raise_caps(why, **caps)
    assert budget.caps == {'labels': 1.5} and len(budget.history()) == 4


def test_other_content_is_refused_in_another_process(place):
    place.elsewhere(make)
    first = place.elsewhere(let_out)
    with pytest.raises(ContentChanged):
        place.elsewhere(let_out, 0.25, 1)
    assert place.elsewhere(look)[:2] == (0.75, 1)
    second = place.elsewhere(let_out, 0.25, 1, True)
    assert second != first and place.elsewhere(look)[:2] == (0.5, 2)
    with pytest.raises(ContentChanged):
        place.elsewhere(let_out)


def spend(place, number):
    budget, done = place.open(labels=1.0), 0
    same = LabelRR(0.2, num_classes=2)(raw(budget)).y.tolist()
    for i in range(4):
        with contextlib.suppress(PrivacyBudgetExceeded):
            LabelRR(0.05 + 1e-9 * (4 * number + i), num_classes=2)(raw(budget))
            done += 1
    return same, done


def test_eight_processes_spend_no_more_than_there_is(place):
    # Nobody has made it before: they all do, and it is one.
    workers = [place.start(spend, number) for number in range(8)]
    told = [worker.answer() for worker in workers]
    assert sum(done for _, done in told) == 15
    assert all(same == told[0][0] for same, _ in told)
    left, releases, _ = place.elsewhere(look)
    assert releases == 16 and 0 <= left < 0.06


def test_two_names_are_two_graphs(place):
    other = place._replace(name='others')
    assert place.elsewhere(make) != other.elsewhere(make)
    place.elsewhere(let_out, 1.0)
    assert other.elsewhere(let_out, 1.0, 1) is not None
    assert place.elsewhere(look)[0] == other.elsewhere(look)[0] == 0.0
    ledger = place.elsewhere(let_out, 1.0)[1]
    assert ledger != other.elsewhere(let_out, 1.0, 1)[1]


# The secret. #


def rotate(place, new):
    place.open().rotate(new)


def keys_of_slots(place):
    return [key for key, in place.sql(
        'SELECT key_version FROM slots ORDER BY first_entry')]


def test_rotation(place, tmp_path):
    place.elsewhere(make)
    place._replace(name='others').elsewhere(make)
    first = place.elsewhere(let_out)
    held = place.open()  # By a program that goes on meanwhile.
    new = str(tmp_path / 'new key')
    place.elsewhere(rotate, new)
    after = place._replace(secret=new)
    assert after.elsewhere(let_out) == first
    after.elsewhere(let_out, 0.5)
    assert keys_of_slots(place) == [1, 2]
    after.elsewhere(let_out, 0.25, 1, True)
    assert keys_of_slots(place) == [2, 2]
    with pytest.raises(VaultError, match='The secret is not the one'):
        place.elsewhere(let_out)
    with pytest.raises(VaultError, match='The secret is not the one'):
        LabelRR(0.25, num_classes=2)(raw(held))
    assert after.open() is held and held.remaining('labels') == 0.0
    assert held.history()[2].what == 'the secret was changed'
    assert after._replace(name='others').elsewhere(look)[2][1:] == [
        'the secret was changed']


def rotate_file(place, dies=False):
    budget = place.open()
    if dies:
        os.replace = lambda *args: os._exit(1)
    budget.rotate()


def test_rotation_of_the_key_file(file):
    file.elsewhere(make)
    first, held = file.elsewhere(let_out), file.open()
    with open(f'{file.store}.key') as lines:
        old = lines.read()
    file.elsewhere(rotate_file)
    with open(f'{file.store}.key') as lines:
        assert lines.read() != old
    assert file.elsewhere(let_out) == first
    assert LabelRR(0.25, num_classes=2)(raw(held)).y.tolist() == first[0]
    LabelRR(0.5, num_classes=2)(raw(held))
    assert keys_of_slots(file) == [1, 2]


def test_who_dies_in_a_rotation_has_lost_no_secret(file):
    file.elsewhere(make)
    first = file.elsewhere(let_out)
    with pytest.raises(EOFError):
        file.elsewhere(rotate_file, True)
    assert os.path.exists(f'{file.store}.key.new')
    assert file.elsewhere(let_out) == first
    assert not os.path.exists(f'{file.store}.key.new')
    file.elsewhere(rotate_file)
    assert file.elsewhere(let_out) == first


def test_a_lost_secret(place, tmp_path):
    place.elsewhere(make)
    place.elsewhere(let_out)
    new = place._replace(secret=str(tmp_path / 'another key'))
    with pytest.raises(VaultError, match='The secret of this vault is not '
                                         'there'):
        new.elsewhere(let_out)
    (tmp_path / 'another key').touch(mode=0o600)
    (tmp_path / 'another key').write_text('something else entirely')
    with pytest.raises(VaultError, match=r'lost=True\) goes on with a new'):
        new.elsewhere(let_out)
    assert new.elsewhere(opened_as_lost)[:2] == (0.75, 1)
    with pytest.raises(VaultError, match='released with a secret that is lost'):
        new.elsewhere(let_out)
    with pytest.raises(VaultError, match='The secret is not the one'):
        place.elsewhere(let_out)
    second = new.elsewhere(let_out, 0.25, 0, True)
    assert new.elsewhere(let_out) == second
    left, releases, history = new.elsewhere(opened_as_lost)
    assert (left, releases) == (0.5, 2)
    assert history.count('the secret was lost') == 1


def opened_as_lost(place):
    return look(place, lost=True)


def sixteen_bytes():
    return b'sixteen bytes of a secret manager'


def test_secrets_of_the_environment_and_of_a_manager(place):
    told = place._replace(secret=None, environ={
        **place.environ,
        'TORCH_GEOMETRIC_DP_SECRET': sixteen_bytes().decode()})
    told.elsewhere(make)
    first = told.elsewhere(let_out)
    assert place._replace(secret=sixteen_bytes).elsewhere(let_out) == first
    assert os.path.exists(place.store) is not place.store.startswith('postgres')
    assert not os.path.exists(f'{place.store}.key')
    with pytest.raises(ValueError, match="'new' must be given"):
        told.elsewhere(rotate, None)
    with pytest.raises(VaultError, match='at least 16 bytes'):
        place._replace(secret=bytes).elsewhere(let_out)


def test_a_vault_without_a_place_for_its_key_asks_for_it(place):
    if place.store.startswith('postgres'):
        with pytest.raises(ValueError, match="'secret' must be given"):
            place._replace(secret=None).elsewhere(make)


# Pickles. #


def load(place, content):
    budget = pickle.loads(content)
    out = LabelRR(0.25, num_classes=2)(raw(budget))
    return out.y.tolist(), out.privacy.to_json(), budget.identity


def test_pickles_hold_neither_secret_nor_password(place, recwarn):
    store = place.store
    if store.startswith('postgres'):
        user = urlsplit(store).username
        store = store.replace(f'{user}@', f'{user}:PaSsWoRd@')
    secret = sixteen_bytes()
    place = place._replace(store=store, secret=sixteen_bytes)
    budget = place.open(labels=1.0)
    first = let_out(place)
    things = [budget, budget._vault.store, raw(budget)]
    content = b''.join(map(pickle.dumps, things))
    content += repr([*things, str(budget)]).encode()
    for hidden in (b'PaSsWoRd', secret, budget.key(), budget._vault._read(
            False)):
        assert hidden not in content and hidden.hex().encode() not in content
    assert not [w for w in recwarn if 'recorded' in str(w.message)]
    # Whoever has the secret can go on with it.
    there = place._replace(environ={
        **place.environ, 'TORCH_GEOMETRIC_DP_SECRET': secret.decode()})
    assert there.elsewhere(load, pickle.dumps(budget)) == (
        *first, budget.identity)
    with pytest.raises((VaultError, ValueError), match='[Ss]ecret'):
        place.elsewhere(load, pickle.dumps(budget))


def test_a_copy_of_the_database_has_no_key(file):
    file.elsewhere(make)
    file.elsewhere(let_out)
    file.sql('SELECT 1')
    with open(file.store, 'rb') as content:
        content = content.read()
    budget = PrivacyBudget.open(file.store, file.name)
    with open(f'{file.store}.key', 'rb') as key:
        assert key.read().strip() not in content
    assert budget.key() not in content
    assert budget._vault._read(False) not in content
