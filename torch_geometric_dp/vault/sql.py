"""Budgets in tables: what SQLite and PostgreSQL share."""
from collections.abc import Callable, Sequence
from typing import Any

from torch_geometric_dp.vault.store import Account, Entry, Slot, VaultError

#: The version of the tables. A vault of a newer one is refused; one of an older
#: one is brought forward by the statements that stand at its version.
VERSION = 1
MIGRATIONS: dict[int, tuple[str, ...]] = {}

_TABLES = '''
CREATE TABLE vault (name TEXT PRIMARY KEY, value {bytes} NOT NULL){ordered};
CREATE TABLE budgets (
    identity TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, terms TEXT NOT NULL,
    number BIGINT NOT NULL, link {bytes} NOT NULL, tally TEXT NOT NULL,
    tag {bytes} NOT NULL);
CREATE TABLE entries (
    identity TEXT NOT NULL, number BIGINT NOT NULL, at TEXT NOT NULL,
    who TEXT NOT NULL, kind TEXT NOT NULL, content TEXT NOT NULL,
    link {bytes} NOT NULL, PRIMARY KEY (identity, number)){ordered};
CREATE TABLE slots (
    identity TEXT NOT NULL, slot TEXT NOT NULL, fingerprint {bytes} NOT NULL,
    nonce {bytes} NOT NULL, key_version BIGINT NOT NULL,
    first_entry BIGINT NOT NULL, last_entry BIGINT NOT NULL,
    tag {bytes} NOT NULL, PRIMARY KEY (identity, slot)){ordered}
'''

ACCOUNT = ('SELECT terms, number, link, tally, tag FROM budgets '
           'WHERE identity = ?')
ENTRIES = ('SELECT number, at, who, kind, content, link FROM entries '
           'WHERE identity = ? AND number >= ? AND number <= ? '
           'ORDER BY number')
SLOT = ('SELECT fingerprint, nonce, key_version, first_entry, last_entry, '
        'tag FROM slots WHERE identity = ? AND slot = ?')

Execute = Callable[[str, Sequence[Any]], Any]


def tables(binary: str, ordered: str = '') -> list[str]:
    """The statements that make the tables, in a dialect of SQL."""
    text = _TABLES.format(bytes=binary, ordered=ordered)
    return [statement.strip() for statement in text.split(';')]


def _bytes(value: Any) -> bytes:
    # SQLite keeps whatever it is given.
    if not isinstance(value, (bytes, memoryview)):
        raise VaultError(f"The vault was changed: it holds {value!r:.40} in "
                         f"place of bytes. Nothing was released")
    return bytes(value)


class SQLTransaction:
    """A transaction on one budget, given a function that executes a statement
    with :obj:`?` for its parameters. :obj:`lock` is what a dialect adds to a
    statement that locks what it reads.
    """
    def __init__(self, execute: Execute, identity: str,
                 lock: str = '') -> None:
        self._execute = execute
        self._identity = identity
        self._lock = lock

    def ahead(self, number: int | None, slot: str | None) -> None:
        """Says what will be asked for; here it is at hand."""

    def account(self) -> Account:
        """The budget."""
        row = self._execute(ACCOUNT + self._lock,
                            (self._identity, )).fetchone()
        if row is None:
            raise LookupError(f"The vault has no budget with the identity "
                              f"{self._identity}")
        terms, number, link, tally, tag = row
        return Account(terms, number, _bytes(link), tally, _bytes(tag))

    def entries(self, first: int, last: int | None = None) -> list[Entry]:
        """The entries with numbers from :obj:`first` to :obj:`last`."""
        rows = self._execute(ENTRIES, (self._identity, first,
                                        2**62 if last is None else last))
        return [Entry(*row)._replace(link=_bytes(row[5]))
                for row in rows.fetchall()]

    def slot(self, slot: str) -> Slot | None:
        """What a slot is bound to, if it is."""
        row = self._execute(SLOT, (self._identity, slot)).fetchone()
        if row is None:
            return None
        fingerprint, nonce, key, first, last, tag = row
        return Slot(_bytes(fingerprint), _bytes(nonce), key, first, last,
                    _bytes(tag))

    def save(self, account: Account, entries: Sequence[Entry]) -> None:
        """Writes the budget as it is now, and new entries."""
        self._execute(
            'UPDATE budgets SET terms = ?, number = ?, link = ?, tally = ?, '
            'tag = ? WHERE identity = ?', (*account, self._identity))
        for entry in entries:
            self._execute('INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)',
                          (self._identity, *entry))

    def bind(self, slot: str, bound: Slot) -> None:
        """Binds a slot, or binds it anew."""
        self._execute(
            'INSERT INTO slots VALUES (?, ?, ?, ?, ?, ?, ?, ?) '
            'ON CONFLICT (identity, slot) DO UPDATE SET '
            'fingerprint = excluded.fingerprint, nonce = excluded.nonce, '
            'key_version = excluded.key_version, '
            'first_entry = excluded.first_entry, '
            'last_entry = excluded.last_entry, tag = excluded.tag',
            (self._identity, slot, *bound))

    def lock(self) -> None:
        """Keeps all others out of the whole vault."""
        if self._lock:
            self._execute('LOCK TABLE vault, budgets IN EXCLUSIVE MODE', ())

    def find(self, name: str) -> str | None:
        """The identity of a budget."""
        row = self._execute('SELECT identity FROM budgets WHERE name = ?',
                            (name, )).fetchone()
        return None if row is None else str(row[0])

    def names(self) -> list[str]:
        """The names of all budgets."""
        rows = self._execute('SELECT name FROM budgets ORDER BY name', ())
        return [row[0] for row in rows.fetchall()]

    def create(self, name: str, account: Account,
               entries: Sequence[Entry]) -> None:
        """A new budget."""
        self._execute('INSERT INTO budgets VALUES (?, ?, ?, ?, ?, ?, ?)',
                      (self._identity, name, *account))
        self.save(account, entries)

    def on(self, identity: str) -> 'SQLTransaction':
        """The same transaction, on another budget."""
        return SQLTransaction(self._execute, identity, self._lock)

    def load(self) -> dict[str, bytes]:
        """What is known of the vault itself."""
        rows = self._execute('SELECT name, value FROM vault ORDER BY name', ())
        return {name: _bytes(value) for name, value in rows.fetchall()}

    def keep(self, known: dict[str, bytes]) -> None:
        """Writes that."""
        self._execute('DELETE FROM vault', ())
        for name, value in known.items():
            self._execute('INSERT INTO vault VALUES (?, ?)', (name, value))
