"""A vault in one file of SQLite, for all processes of one machine."""
import os
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, TypeVar

from torch_geometric_dp.vault.sql import (
    MIGRATIONS,
    VERSION,
    SQLTransaction,
    tables,
)
from torch_geometric_dp.vault.store import CONNECTED, LOCK, VaultError

_flock: Any = None
with suppress(ImportError):  # Without file locks, SQLite waits by itself.
    import fcntl as _flock

T = TypeVar('T')

_OURS = 0x54474450  # What SQLite knows a vault by.
_PASSING = _OURS + 1  # And one that goes with its process.
_REMOTE = ('nfs', 'cifs', 'smb', 'fuse.sshfs', '9p', 'lustre', 'afs', 'ceph')


class SQLiteStore:
    """A store in one file of SQLite. All of its processes are on one machine,
    and wait for each other in a queue. What was written is on disk before
    anything is released. The file is opened when it is needed, and by each
    process for itself.

    Args:
        address (str): The path of the file.
        create (bool, optional): Whether the file is made if it is not there.
            (default: :obj:`False`)
        durable (bool, optional): If set to :obj:`False`, what was written need
            not outlive the machine. (default: :obj:`True`)

    .. code-block:: python

        store = SQLiteStore('people.vault', create=True)
        store.run('', lambda transaction, again: transaction.names())   # []
    """
    def __init__(self, address: str | os.PathLike[str], create: bool = False,
                 durable: bool = True) -> None:
        self.address = os.path.abspath(os.fspath(address))
        self.durable = durable
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._pid = 0
        if create and not os.path.exists(self.address):
            self._make()
        if durable:
            _warn_of_network(self.address)

    def _make(self) -> None:
        # Complete before it has its name: nobody sees half of it.
        folder = os.path.dirname(self.address)
        ours = _OURS if self.durable else _PASSING
        with self._errors():
            file, path = tempfile.mkstemp(dir=folder)  # For its owner alone.
            os.close(file)
            try:
                connection = sqlite3.connect(path, isolation_level=None)
                for statement in tables('BLOB', ' WITHOUT ROWID'):
                    connection.execute(statement)
                connection.execute(f'PRAGMA application_id={ours}')
                connection.execute(f'PRAGMA user_version={VERSION}')
                # Now, or the first processes would hinder each other.
                connection.execute('PRAGMA journal_mode=WAL')
                connection.close()
                with suppress(FileExistsError):  # Somebody was faster.
                    os.link(path, self.address)
            finally:
                os.unlink(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return SQLiteStore, (self.address, False, self.durable)

    def _connect(self) -> sqlite3.Connection:
        # One connection for each process, never one of before a fork.
        try:
            status = os.stat(self.address)
        except FileNotFoundError:
            raise VaultError(
                f"There is no vault at {self.address}: what was spent is not "
                f"known, so nothing can be released. If there was one, put it "
                f"back; to make one, open it with its caps, as in "
                f"PrivacyBudget.open('people.vault', epsilon=8.0). A budget "
                f"without a file of its own lives as long as the process that "
                f"made it") from None
        file = status.st_dev, status.st_ino
        if (self._connection is None or self._pid != os.getpid()
                or self._file != file):
            connection = sqlite3.connect(
                f'{Path(self.address).as_uri()}?mode=rw', uri=True, timeout=60,
                isolation_level=None, check_same_thread=False)
            self._check(connection)
            for pragma in ('trusted_schema=OFF', 'journal_mode=WAL',
                           f"synchronous={'FULL' if self.durable else 'OFF'}"):
                connection.execute(f'PRAGMA {pragma}')
            self._connection, self._pid, self._file = (connection, os.getpid(),
                                                       file)
            CONNECTED.add(self)
        return self._connection

    def close(self) -> None:
        """Ends the connection; the next transaction makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            connection.close()

    def _check(self, connection: sqlite3.Connection) -> None:
        try:
            ours, = connection.execute('PRAGMA application_id').fetchone()
            version, = connection.execute('PRAGMA user_version').fetchone()
        except sqlite3.DatabaseError:
            ours = version = None
        if ours not in (_OURS, _PASSING):
            raise VaultError(f"The vault of this budget is something else "
                             f"({self.address}): nothing can be released")
        if version > VERSION:
            raise VaultError(
                f"The vault {self.address} was made by a newer version (its "
                f"tables have version {version}, and this one knows up to "
                f"{VERSION}): upgrade torch_geometric_dp")
        self.durable = ours == _OURS  # As whoever made it said.
        for step in range(version, VERSION):
            with self._locked(connection):
                for statement in MIGRATIONS[step]:
                    connection.execute(statement)
                connection.execute(f'PRAGMA user_version={step + 1}')

    @contextmanager
    def _locked(self, connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute('BEGIN IMMEDIATE')
        try:
            yield
            connection.execute('COMMIT')
        except BaseException:
            if connection.in_transaction:  # A full disk has ended it already.
                connection.execute('ROLLBACK')
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise VaultError(
                f"The vault {self.address} cannot be used: {error}. Nothing "
                f"was released; what the vault held before is still there"
            ) from error

    @contextmanager
    def _queue(self) -> Iterator[None]:
        # SQLite polls, which is unfair; a file lock has a queue.
        file = os.open(f'{self.address}.lock', os.O_CREAT | os.O_RDWR, 0o600)
        try:
            if _flock is not None:
                _flock.flock(file, _flock.LOCK_EX)
            yield
        finally:
            os.close(file)

    def run(self, identity: str, work: Callable[[Any, bool], T]) -> T:
        """Does some work on a budget while nobody else does."""
        with LOCK, self._errors():
            connection = self._connect()  # Or it is no vault, and stays alone.
            with self._queue(), self._locked(connection):
                return work(SQLTransaction(connection.execute, identity), False)


def _warn_of_network(address: str) -> None:
    # The file system that holds the longest part of the path.
    try:
        mounts = [line.split()[1:3] for line in Path(
            '/proc/mounts').read_text().splitlines()]
    except OSError:
        return
    holding = [(len(where), kind) for where, kind in mounts
               if os.path.commonpath([where, address]) == where]
    if holding and max(holding)[1].startswith(_REMOTE):
        warnings.warn(
            f"The vault {address} lies on a network file system "
            f"({max(holding)[1]}), where file locks may not hold, and then two "
            f"machines may overspend: use a local disk, or a vault in "
            f"PostgreSQL for several machines", stacklevel=4)


_TEMPORARY: dict[str, SQLiteStore] = {}


def temporary_store() -> SQLiteStore:
    """The store of all budgets that this process makes without a file. Its
    children share it; it goes with the process that made it.

    .. code-block:: python

        temporary_store() is temporary_store()   # True
    """
    with LOCK:
        if 'store' not in _TEMPORARY:
            folder = tempfile.mkdtemp(prefix='torch_geometric_dp-')
            # Unlike `atexit`, this also runs in forked workers, and there only
            # for what they have made themselves.
            Finalize(None, shutil.rmtree, (folder, True), exitpriority=0)
            _TEMPORARY['store'] = SQLiteStore(
                os.path.join(folder, 'vault'), create=True, durable=False)
        return _TEMPORARY['store']
