"""Where budgets are kept: a file that several processes share."""
import json
import os
import secrets
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NamedTuple, Protocol

_TABLES = '''
CREATE TABLE IF NOT EXISTS vault (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS budgets (
    identity TEXT PRIMARY KEY, terms TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS charges (
    number INTEGER PRIMARY KEY AUTOINCREMENT, identity TEXT NOT NULL,
    entry TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS charges_of ON charges (identity, number);
CREATE TABLE IF NOT EXISTS slots (
    identity TEXT NOT NULL, slot TEXT NOT NULL, fingerprint BLOB NOT NULL,
    nonce BLOB NOT NULL, entries TEXT NOT NULL,
    PRIMARY KEY (identity, slot));
'''

_OURS = 0x54474450  # What SQLite knows a vault by.

#: Held by whoever uses a vault in this process. Nobody forks meanwhile: a child
#: would inherit half a transaction, and wait for its end for ever.
LOCK = threading.RLock()
if hasattr(os, 'register_at_fork'):
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release,
                        after_in_child=LOCK.release)


class Slot(NamedTuple):
    """What is bound: a content, the noise that belongs to it, and the entries
    that it was charged with.
    """
    fingerprint: bytes
    nonce: bytes
    entries: list[Any]


class Transaction(Protocol):
    """What can be done while nobody else does anything to one budget."""
    def slot(self, slot: str) -> Slot | None:
        """What a slot is bound to, if it is."""

    def bind(self, slot: str, bound: Slot) -> None:
        """Binds a slot, or binds it anew."""

    def charges(self, after: int) -> list[tuple[int, Any]]:
        """The entries that were charged after a number, with theirs."""

    def charge(self, entry: Any) -> None:
        """One more entry."""


class Store(Protocol):
    """A place for budgets. Whoever writes another one needs these four.

    .. code-block:: python

        def charges(store: Store, identity: str) -> list:
            with store.transaction(identity) as transaction:
                return transaction.charges(after=0)

        store = SQLiteStore('some.vault', create=True)
        charges(store, 'people')   # []
    """
    #: Where it is, for whoever wants to open it again.
    address: str

    def key(self) -> bytes:
        """The secret that all noise is derived from."""

    def create(self, identity: str, terms: Any) -> None:
        """A new budget; its terms never change."""

    def terms(self, identity: str) -> Any:
        """The terms of a budget."""

    def transaction(self, identity: str) -> Any:
        """A context in which nobody else changes a budget: all that happens in
        it happens, or nothing of it.
        """


class SQLiteStore:
    """A store in one file of SQLite. It is open only while it is used: nothing
    of it survives a fork, and whoever uses it sees if it is gone.

    Args:
        address (str): The path of the file.
        create (bool, optional): Whether the file is made.
            (default: :obj:`False`)

    .. code-block:: python

        store = SQLiteStore('people.vault', create=True)
        store.create('people', {'caps': {'labels': '1.0'}})
        store.terms('people')['caps']['labels']   # '1.0'
    """
    def __init__(self, address: str, create: bool = False) -> None:
        self.address = address
        self._key: bytes | None = None
        if create:
            os.close(os.open(address, os.O_CREAT | os.O_EXCL | os.O_RDWR,
                             0o600))
            with closing(self._connect()) as connection:
                connection.executescript(_TABLES)
                connection.execute("INSERT INTO vault VALUES ('key', ?)",
                                   (secrets.token_bytes(32), ))
                connection.execute(f'PRAGMA application_id={_OURS}')

    def __reduce__(self) -> tuple[Any, ...]:
        return SQLiteStore, (self.address, )  # And not the key.

    def _connect(self) -> sqlite3.Connection:
        if not os.path.isfile(self.address):
            raise FileNotFoundError(
                f"The vault of this budget is gone ({self.address}): what was "
                f"spent is not known any more, so nothing can be released. A "
                f"budget that was not opened from a file of its own lives as "
                f"long as the process that made it")
        return sqlite3.connect(
            f'{Path(self.address).absolute().as_uri()}?mode=rw', uri=True,
            timeout=60, isolation_level=None)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with LOCK, closing(self._connect()) as connection:
            try:
                ours = connection.execute('PRAGMA application_id').fetchone()
            except sqlite3.DatabaseError:
                ours = None
            if ours != (_OURS, ):
                raise ValueError(f"The vault of this budget is something else "
                                 f"({self.address}): nothing can be released")
            for pragma in ('trusted_schema=OFF', 'journal_mode=TRUNCATE',
                           'synchronous=OFF'):
                connection.execute(f'PRAGMA {pragma}')
            yield connection

    def key(self) -> bytes:
        """The secret that all noise is derived from."""
        if self._key is None:
            with self._open() as connection:
                row = connection.execute(
                    "SELECT value FROM vault WHERE name = 'key'").fetchone()
            self._key = bytes(row[0])
        return self._key

    def create(self, identity: str, terms: Any) -> None:
        """A new budget; its terms never change."""
        with self._open() as connection:
            connection.execute('INSERT INTO budgets VALUES (?, ?)',
                               (identity, json.dumps(terms)))

    def terms(self, identity: str) -> Any:
        """The terms of a budget."""
        with self._open() as connection:
            row = connection.execute(
                'SELECT terms FROM budgets WHERE identity = ?',
                (identity, )).fetchone()
        if row is None:
            raise LookupError(f"The vault {self.address} has no budget with "
                              f"the identity {identity}")
        return json.loads(row[0])

    @contextmanager
    def transaction(self, identity: str) -> Iterator['_SQLiteTransaction']:
        """A context in which nobody else changes a budget."""
        with self._open() as connection:
            connection.execute('BEGIN IMMEDIATE')
            try:
                yield _SQLiteTransaction(connection, identity)
            except BaseException:
                connection.execute('ROLLBACK')
                raise
            connection.execute('COMMIT')


class _SQLiteTransaction:
    def __init__(self, connection: sqlite3.Connection, identity: str) -> None:
        self._connection = connection
        self._identity = identity

    def slot(self, slot: str) -> Slot | None:
        row = self._connection.execute(
            'SELECT fingerprint, nonce, entries FROM slots '
            'WHERE identity = ? AND slot = ?', (self._identity, slot),
        ).fetchone()
        return row and Slot(bytes(row[0]), bytes(row[1]), json.loads(row[2]))

    def bind(self, slot: str, bound: Slot) -> None:
        self._connection.execute(
            'INSERT OR REPLACE INTO slots VALUES (?, ?, ?, ?, ?)',
            (self._identity, slot, bound.fingerprint, bound.nonce,
             json.dumps(bound.entries)))

    def charges(self, after: int) -> list[tuple[int, Any]]:
        rows = self._connection.execute(
            'SELECT number, entry FROM charges '
            'WHERE identity = ? AND number > ? ORDER BY number',
            (self._identity, after))
        return [(number, json.loads(entry)) for number, entry in rows]

    def charge(self, entry: Any) -> None:
        self._connection.execute(
            'INSERT INTO charges (identity, entry) VALUES (?, ?)',
            (self._identity, json.dumps(entry)))


_TEMPORARY: dict[str, Any] = {}


def temporary_store() -> SQLiteStore:
    """The store of all budgets that this process makes without a file. Its
    children share it; it goes with the process that made it.
    """
    with LOCK:
        if 'store' not in _TEMPORARY:
            folder = tempfile.mkdtemp(prefix='torch_geometric_dp-')
            # Unlike `atexit`, this also runs in forked workers, and there only
            # for what they have made themselves.
            Finalize(None, shutil.rmtree, (folder, True), exitpriority=0)
            _TEMPORARY['store'] = SQLiteStore(os.path.join(folder, 'vault'),
                                              create=True)
        store: SQLiteStore = _TEMPORARY['store']
        return store
