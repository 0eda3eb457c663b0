"""Whoever can write to a vault, but has no secret, cannot lower what was spent,
nor change what is released: it is noticed, and nothing is released.
"""
import hashlib
import shutil
from pathlib import Path

import pytest

from tests.vault.processes import let_out, look, make
from torch_geometric_dp.vault import VaultError


def filled(place):
    """A vault with two releases, which are entries 2 and 3."""
    place.elsewhere(make)
    return [place.elsewhere(let_out, epsilon) for epsilon in (0.25, 0.5)]


def contents(place):
    return [sorted(place.sql(f'SELECT * FROM {table}'), key=repr)
            for table in ('vault', 'budgets', 'entries', 'slots')]


def is_refused(place, match, again=True):
    before = contents(place)
    for epsilon in (0.25, 0.125) if again else (0.125, ):
        with pytest.raises(VaultError, match=match):
            place.elsewhere(let_out, epsilon)
    assert contents(place) == before


CHANGES = {
    'deleted': ['DELETE FROM entries WHERE number = 2'],
    'shortened': ['DELETE FROM entries WHERE number = 3'],
    'shortened well': ['DELETE FROM entries WHERE number = 3',
                       'UPDATE budgets SET number = 2, link = (SELECT link '
                       'FROM entries WHERE number = 2)'],
    'emptied': ['DELETE FROM entries'],
    'changed': ["UPDATE entries SET content = replace(content, '0.5', '0.1')"],
    'changed time': ["UPDATE entries SET at = 'then' WHERE number = 2"],
    'changed name': ["UPDATE entries SET who = 'me' WHERE number = 2"],
    'changed kind': ["UPDATE entries SET kind = 'terms' WHERE number = 2"],
    'changed link': ['UPDATE entries SET link = (SELECT link FROM budgets) '
                     'WHERE number = 2'],
    'reordered': [f'UPDATE entries SET number = {new} WHERE number = {old}'
                  for old, new in ((2, 9), (3, 2), (9, 3))],
    'added': ["INSERT INTO entries SELECT identity, 4, at, who, kind, content, "
              "link FROM entries WHERE number = 3"],
    'terms': ["UPDATE budgets SET terms = replace(terms, '1.0', '9.0')"],
    'tally': ["UPDATE budgets SET tally = replace(tally, '0.75', '0.10')"],
    'number': ['UPDATE budgets SET number = 2'],
    'link': ['UPDATE budgets SET link = tag'],
    'keys': ["DELETE FROM vault WHERE name <> 'id'"],
}


@pytest.mark.parametrize('change', CHANGES)
def test_changes_are_refused(file, change):
    filled(file)
    file.sql(*CHANGES[change])
    is_refused(file, 'not the one' if change == 'keys' else 'was changed')


@pytest.mark.parametrize('change', ['deleted', 'reordered', 'tally', 'terms'])
def test_changes_are_refused_by_all_stores(place, change):
    if not place.store.startswith('postgres'):
        pytest.skip('is among the others')
    filled(place)
    place.sql(*CHANGES[change])
    is_refused(place, 'was changed')


@pytest.mark.parametrize('change', [
    "UPDATE budgets SET tag = 'text'", 'UPDATE budgets SET link = 9999999999',
    "UPDATE budgets SET number = 'three'", "UPDATE budgets SET terms = x'00'",
    "UPDATE entries SET content = x'00'", "UPDATE entries SET number = 2.5 "
    "WHERE number = 3", "UPDATE entries SET link = 5", "UPDATE vault SET "
    "value = 5", "UPDATE vault SET value = x'00' WHERE name <> 'id'"])
def test_things_of_another_kind_are_refused(file, change):
    # SQLite keeps whatever it is given.
    filled(file)
    file.sql(change)
    is_refused(file, '.')


SLOTS = {
    'nonce': ['UPDATE slots SET nonce = fingerprint'],
    'fingerprint': ['UPDATE slots SET fingerprint = nonce'],
    'key': ['UPDATE slots SET key_version = 2'],
    'entry': ['UPDATE slots SET first_entry = 3, last_entry = 3'],
    'tag': ['UPDATE slots SET tag = nonce'],
}


@pytest.mark.parametrize('change', [*SLOTS, 'swapped'])
def test_slots_are_sealed(place, change):
    # Or one release could be given the noise of another.
    filled(place)
    if change == 'swapped':
        (one, ), (two, ) = place.sql('SELECT slot FROM slots')
        place.sql(*(f"UPDATE slots SET slot = '{new}' WHERE slot = '{old}'"
                    for old, new in ((one, 'x'), (two, one), ('x', two))))
    else:
        place.sql(*SLOTS[change])
    before = contents(place)
    with pytest.raises(VaultError, match='is bound to was changed'):
        place.elsewhere(let_out, 0.25)
    assert contents(place) == before
    place.elsewhere(let_out, 0.125)  # The account is as it was.


def test_a_slot_that_is_taken_away_costs_again(file):
    first, _ = filled(file)
    file.sql('DELETE FROM slots')
    assert file.elsewhere(let_out, 0.25) != first
    assert file.elsewhere(look)[0] == 0.0


def test_budgets_keep_their_names(place):
    filled(place)
    rich = place._replace(name='rich')
    rich.elsewhere(make)
    place.sql(*(f"UPDATE budgets SET name = '{new}' WHERE name = '{old}'"
                for old, new in (('people', 'x'), ('rich', 'people'),
                                 ('x', 'rich'))))
    is_refused(place, "The name 'people' was given to another budget")
    is_refused(rich, "The name 'rich' was given to another budget")


def make_again(place):
    return place.open(labels=1.0).identity


def test_a_budget_that_is_taken_away_is_missed(place):
    filled(place)
    for table in ('budgets', 'entries', 'slots'):
        place.sql(f'DELETE FROM {table}')
    with pytest.raises(VaultError, match='was seen here before, and was taken'):
        place.elsewhere(make_again)
    assert place.sql('SELECT * FROM budgets') == []


# Copies. #


def copy(file, name):
    file.sql('SELECT 1')  # All is in one file now.
    place = file._replace(store=str(Path(file.store).with_name(name)))
    shutil.copy(file.store, place.store)
    shutil.copy(f'{file.store}.key', f'{place.store}.key')
    return place


def put_back(copy, file):
    for end in ('-wal', '-shm'):
        Path(file.store + end).unlink(missing_ok=True)
    shutil.copy(copy.store, file.store)


def witnesses(file):
    """The files that remember the place and the budget."""
    place = hashlib.sha256(f'place {file.store}'.encode()).hexdigest()
    folder = Path(file.environ['TORCH_GEOMETRIC_DP_STATE'])
    others = {hashlib.sha256(f'place {path}'.encode()).hexdigest()
              for path in [file.store, *Path(file.store).parent.iterdir()]}
    budget, = {path.name for path in folder.iterdir()} - others
    return folder / place, folder / budget


def witness(file):
    return witnesses(file)[1]


def test_yesterdays_copy_is_refused(file):
    filled(file)
    yesterday, today = copy(file, 'yesterday'), file.elsewhere(let_out, 0.125)
    newest = copy(file, 'newest')
    put_back(yesterday, file)
    is_refused(file, 'This vault is not the newest: entry 4')
    is_refused(yesterday, 'This vault is not the newest')
    with pytest.raises(VaultError, match=f'remove {witness(file)}'):
        file.elsewhere(look)
    put_back(newest, file)
    assert file.elsewhere(let_out, 0.125) == today
    # Whoever knows better says so.
    put_back(yesterday, file)
    witness(file).unlink()
    assert file.elsewhere(look)[:2] == (0.25, 2)


def test_it_is_refused_while_a_program_runs(file):
    filled(file)
    yesterday, held = copy(file, 'yesterday'), file.open()
    file.elsewhere(let_out, 0.125)
    assert held.remaining('labels') == 0.125
    held._vault.store.close()
    put_back(yesterday, file)
    with pytest.raises(VaultError, match='This vault is not the newest'):
        held.remaining('labels')


def test_copies_that_went_different_ways_are_refused(file, tmp_path):
    filled(file)
    (tmp_path / 'their state').mkdir()
    theirs = copy(file, 'theirs')._replace(environ={
        'TORCH_GEOMETRIC_DP_STATE': str(tmp_path / 'their state')})
    file.elsewhere(let_out, 0.125)
    theirs.elsewhere(let_out, 0.0625)
    theirs.elsewhere(let_out, 0.03125)  # It is even longer.
    is_refused(theirs._replace(environ=file.environ),
               'two copies that went different ways')
    put_back(theirs, file)
    is_refused(file, 'two copies that went different ways')


def test_half_a_witness_is_none(file):
    filled(file)
    for text in ('', '3', '3 abcd', '3 zz zz', '99 ' + 'ab' * 32 + ' 0'):
        witness(file).write_text(text)
        assert file.elsewhere(look)[:2] == (0.25, 2)
        assert witness(file).read_text().startswith('3 ')


def test_another_vault_in_its_place_is_refused(file):
    first, _ = filled(file)
    old = copy(file, 'old')
    for end in ('', '-wal', '-shm', '.key'):
        Path(file.store + end).unlink(missing_ok=True)
    with pytest.raises(VaultError, match='Another vault was at .*people.vault '
                       f'before.*remove {witnesses(file)[0]}'):
        file.elsewhere(make)
    for end in ('', '.key'):
        shutil.copy(old.store + end, file.store + end)
    for end in ('-wal', '-shm'):
        Path(file.store + end).unlink(missing_ok=True)
    assert file.elsewhere(let_out, 0.25) == first
    # Whoever knows better says so.
    for end in ('', '-wal', '-shm', '.key'):
        Path(file.store + end).unlink(missing_ok=True)
    witnesses(file)[0].unlink()
    file.elsewhere(make)
    assert file.elsewhere(look)[0] == 1.0


def test_looking_for_a_budget_makes_no_vault(file):
    with pytest.raises(VaultError, match='There is no vault at .*epsilon=8.0'):
        file.elsewhere(look)
    file.elsewhere(make)
    assert file.elsewhere(look)[0] == 1.0


def test_a_folder_that_cannot_be_written_is_told(file, tmp_path):
    (tmp_path / 'no folder').write_text('')
    place = file._replace(environ={
        'TORCH_GEOMETRIC_DP_STATE': str(tmp_path / 'no folder')})
    assert 'will not be noticed' in place.elsewhere(warnings_of)


def warnings_of(place):
    with pytest.warns(UserWarning) as caught:
        make(place)
    return str(caught[0].message)
