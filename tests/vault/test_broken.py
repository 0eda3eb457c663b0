"""Disks, files and servers that fail: a clear error, and nothing released."""
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.accountant.test_ledger import release
from tests.vault.processes import let_out, look, make, raw
from tests.vault.test_budget import charge
from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.transforms import LabelRR
from torch_geometric_dp.vault import VaultError, postgres, sqlite


def pragma(budget, text):
    return budget._vault.store._connection.execute(f'PRAGMA {text}').fetchone()


def test_a_full_disk(file):
    budget = file.open(labels=1e9)
    pages, = pragma(budget, 'page_count')
    pragma(budget, f'max_page_count={pages + 2}')
    done = 0
    with pytest.raises(VaultError, match='is full. Nothing was released'):
        while done < 1000:
            charge(budget, release(str(done)))
            done += 1
    assert 0 < done < 1000
    assert budget.remaining('labels') == 1e9 - done
    pragma(budget, 'max_page_count=1000000')
    charge(budget, release(str(done)))
    assert [r.release_id for r in budget.spent.releases] == [
        str(i) for i in range(done + 1)]


class Failing:
    """A connection to a disk that fails in the end."""
    def __init__(self, connection):
        self._connection = connection

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, statement, *args):
        if statement == 'COMMIT':
            raise sqlite3.OperationalError('disk I/O error')
        return self._connection.execute(statement, *args)


def test_a_disk_that_fails_in_the_end(file):
    budget = file.open(labels=1.0)
    store = budget._vault.store
    store._connection = Failing(store._connection)
    with pytest.raises(VaultError, match='disk I/O error. Nothing was'):
        LabelRR(0.25, num_classes=2)(raw(budget))
    store._connection = store._connection._connection
    assert budget.remaining('labels') == 1.0 and not budget.spent.releases
    LabelRR(0.25, num_classes=2)(raw(budget))
    assert file.elsewhere(look)[:2] == (0.75, 1)


def connecting(monkeypatch, change):
    connect = sqlite3.connect

    def changed(path, **kwargs):
        path, kwargs = change(path, kwargs)
        return connect(path, **kwargs)

    monkeypatch.setattr(sqlite.sqlite3, 'connect', changed)


def test_a_file_that_can_only_be_read(file, monkeypatch):
    file.elsewhere(make)
    connecting(monkeypatch, lambda path, kwargs: (
        path.replace('mode=rw', 'mode=ro'), kwargs))  # As for other users.
    with pytest.raises(VaultError, match='readonly database. Nothing was'):
        let_out(file)
    monkeypatch.undo()
    assert file.elsewhere(look)[:2] == (1.0, 0)


def test_a_file_that_is_locked(file, monkeypatch):
    file.elsewhere(make)
    other = sqlite3.connect(file.store, isolation_level=None)
    other.execute('BEGIN IMMEDIATE')
    connecting(monkeypatch, lambda path, kwargs: (
        path, {**kwargs, 'timeout': 0.01}))
    with pytest.raises(VaultError, match='database is locked. Nothing was'):
        let_out(file)
    other.execute('ROLLBACK')
    other.close()
    assert let_out(file) == file.elsewhere(let_out)
    assert file.elsewhere(look)[:2] == (0.75, 1)


@pytest.mark.parametrize('kind', ['nfs4', 'cifs', 'fuse.sshfs', 'ext4'])
def test_a_network_is_warned_of(file, monkeypatch, kind, recwarn):
    folder, read = os.path.dirname(file.store), Path.read_text
    monkeypatch.setattr(Path, 'read_text', lambda self, *args: (
        f'disk / ext4 rw 0 0\nserver {folder} {kind} rw 0 0\n'
        f'server {folder}-other nfs rw 0 0\n'
        if str(self) == '/proc/mounts' else read(self, *args)))
    file.open(labels=1.0)
    told = [str(warning.message) for warning in recwarn]
    assert any(f'network file system ({kind})' in text for text in told) == (
        kind != 'ext4')


def test_a_newer_version(place):
    place.elsewhere(make)
    remote = place.store.startswith('postgres')
    place.sql('UPDATE version SET number = 2' if remote else
              'PRAGMA user_version=2')
    with pytest.raises(VaultError, match='made by a newer version .*upgrade'):
        place.elsewhere(let_out)


def test_an_older_version_is_brought_forward(place, monkeypatch):
    place.elsewhere(make)
    first = place.elsewhere(let_out)
    for module in (sqlite, postgres):
        monkeypatch.setattr(module, 'VERSION', 2)
        monkeypatch.setattr(module, 'MIGRATIONS', {
            1: ('CREATE TABLE more (number BIGINT)', )})
    assert let_out(place) == first
    assert place.sql('SELECT * FROM more') == []
    place.open()._vault.store.close()
    assert let_out(place) == first  # And only once.
    with pytest.raises(VaultError, match='newer version'):
        place.elsewhere(look)


def test_a_corrupted_page(file):
    file.elsewhere(make)
    first = file.elsewhere(let_out)
    file.sql('SELECT 1')
    content, refused = Path(file.store).read_bytes(), 0
    for page in range(len(content) // 4096):
        start = 4096 * page
        broken = (content[:start] + b'\xa5' * 4096 + content[start + 4096:])
        for end in ('-wal', '-shm'):
            Path(file.store + end).unlink(missing_ok=True)
        Path(file.store).write_bytes(broken)
        try:
            assert file.elsewhere(let_out) == first  # A page for nothing.
        except VaultError as error:
            assert 'eleased' in str(error)
            refused += 1
    assert refused >= 5


def test_key_files(file):
    file.elsewhere(make)
    first, key = file.elsewhere(let_out), Path(f'{file.store}.key')
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)
    with pytest.raises(VaultError, match='for its owner alone .*644.*chmod'):
        file.elsewhere(let_out)
    key.chmod(0o600)
    shutil.move(key, f'{key}.away')
    with pytest.raises(VaultError, match='is not there .*Put the key file back'
                                         '.*lost=True'):
        file.elsewhere(let_out)
    assert not key.exists()  # None is made for a vault that has one.
    key.touch(mode=0o600)
    with pytest.raises(VaultError, match='must hold at least 16 bytes'):
        file.elsewhere(let_out)
    shutil.move(f'{key}.away', key)
    assert file.elsewhere(let_out) == first
    assert file.elsewhere(look)[:2] == (0.75, 1)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(VaultError, match='No such file or directory'):
        PrivacyBudget.open(tmp_path / 'no' / 'people.vault', epsilon=1.0)
    with pytest.raises(VaultError, match='There is no vault at'):
        PrivacyBudget.open(tmp_path / 'people.vault')
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_cannot_be_reached(tmp_path, monkeypatch):
    pytest.importorskip('psycopg')
    monkeypatch.setattr(postgres, '_PATIENCE', 0.1)
    with pytest.raises(VaultError, match='(?s)cannot be reached: .*Nothing was '
                                         'released') as info:
        PrivacyBudget.open('postgresql://me:PaSsWoRd@127.0.0.1:1/people',
                           epsilon=1.0, secret=str(tmp_path / 'key'))
    assert 'PaSsWoRd' not in str(info.value)
    assert not (tmp_path / 'key').exists()
