"""A vault in PostgreSQL, for several machines."""
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from torch_geometric_dp.vault.sql import (
    ACCOUNT,
    ENTRIES,
    MIGRATIONS,
    SLOT,
    VERSION,
    SQLTransaction,
    tables,
)
from torch_geometric_dp.vault.store import CONNECTED, LOCK, VaultError

T = TypeVar('T')

_PATIENCE = 60.0  # Seconds until a server that restarts is back,
_AT_FIRST = 10.0  # or one that never answered: its name may be wrong.
_SCHEMA = 'torch_geometric_dp'


class PostgresStore:
    """A store in a PostgreSQL database, in a schema of its own. A transaction
    locks the row of its budget. If the server goes away meanwhile, it is asked
    again until it is back, and nothing is charged twice.

    Args:
        url (str): Where it is, as in :obj:`"postgresql://user@host/database"`.
            Its password is kept by this process alone: elsewhere, give it by
            :obj:`PGPASSWORD` or a password file.
        create (bool, optional): Whether its tables are made if they are not
            there. (default: :obj:`True`)

    .. code-block:: python

        store = PostgresStore('postgresql://owner:password@localhost/people')
        store.address   # 'postgresql://owner@localhost/people'
    """
    durable = True

    def __init__(self, url: str, create: bool = True) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise ImportError(
                "A vault in PostgreSQL needs the package 'psycopg': pip "
                "install 'torch_geometric_dp[vault]'") from error
        self._psycopg = psycopg
        self._url = url
        self._create = create
        self.address = _without_password(url)
        self._connection: Any = None
        self._pid = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return PostgresStore, (self.address, )

    def _connect(self) -> Any:
        # One connection for each process, never one of before a fork.
        if (self._connection is None or self._connection.closed
                or self._pid != os.getpid()):
            connection = self._psycopg.connect(self._url, connect_timeout=10)
            connection.autocommit = True
            self._check(connection)
            self._connection, self._pid = connection, os.getpid()
            CONNECTED.add(self)
        return self._connection

    def close(self) -> None:
        """Ends the connection; the next transaction makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            connection.close()

    def _check(self, connection: Any) -> None:
        there, = connection.execute('SELECT to_regclass(%s)', (
            f'{_SCHEMA}.vault', )).fetchone()
        if there is None and not self._create:
            raise VaultError(f"There is no vault in {self.address}")
        with connection.transaction():
            # One process makes the tables, and the others wait.
            connection.execute("SELECT pg_advisory_xact_lock(1413956688)")
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS {_SCHEMA}')
            connection.execute(f'SET search_path TO {_SCHEMA}')
            known = connection.execute(
                "SELECT to_regclass('vault')").fetchone()[0]
            if known is None:
                for statement in tables('BYTEA'):
                    connection.execute(statement)
                connection.execute('CREATE TABLE version (number INTEGER)')
                connection.execute('INSERT INTO version VALUES (%s)',
                                   (VERSION, ))
            version, = connection.execute(
                'SELECT number FROM version').fetchone()
            if version > VERSION:
                raise VaultError(
                    f"The vault {self.address} was made by a newer version "
                    f"(its tables have version {version}, and this one knows "
                    f"up to {VERSION}): upgrade torch_geometric_dp")
            for step in range(version, VERSION):
                for statement in MIGRATIONS[step]:
                    connection.execute(statement)
            connection.execute('UPDATE version SET number = %s', (VERSION, ))

    def _patiently(self, work: Callable[[Any, bool], T]) -> T:
        # Until the server is back: a transaction whose end is not known is
        # tried again, and has to look whether it was done.
        patience = _PATIENCE if self._pid else min(_PATIENCE, _AT_FIRST)
        end, pause, again = time.monotonic() + patience, 0.05, False
        lost = (self._psycopg.OperationalError, self._psycopg.InterfaceError)
        with LOCK:
            while True:
                try:
                    return work(self._connect(), again)
                except lost as error:
                    self.close()
                    again = True
                    if time.monotonic() > end:
                        raise VaultError(
                            f"The vault {self.address} cannot be reached: "
                            f"{error}. Nothing was released") from error
                    time.sleep(pause)
                    pause = min(2 * pause, 1.0)
                except self._psycopg.Error as error:
                    self.close()  # In whatever state it is.
                    raise VaultError(f"The vault {self.address} cannot be "
                                     f"used: {error}. Nothing was released"
                                     ) from error

    def run(self, identity: str, work: Callable[[Any, bool], T]) -> T:
        """Does some work on a budget while nobody else does."""
        def attempt(connection: Any, again: bool) -> T:
            # The end of the pipeline waits for the answer to COMMIT.
            with connection.pipeline(), connection.transaction():
                return work(_Pipelined(connection, identity), again)

        return self._patiently(attempt)


class _Pipelined(SQLTransaction):
    """A transaction that waits for the server only when it needs an answer: the
    row stays locked for two trips, however many statements there are.
    """
    def __init__(self, connection: Any, identity: str) -> None:
        super().__init__(self._send, identity, ' FOR UPDATE')
        self._connection = connection
        self._asked: dict[tuple[str, Sequence[Any]], Any] = {}

    def _send(self, statement: str, parameters: Sequence[Any]) -> Any:
        known = self._asked.pop((statement, parameters), None)
        return known or self._connection.execute(
            statement.replace('?', '%s'), parameters)

    def ahead(self, number: int | None, slot: str | None) -> None:
        """Asks for the budget, and then for an entry and a slot: each statement
        sees what was there when the row was locked.
        """
        wanted: list[tuple[str, Sequence[Any]]] = [
            (ACCOUNT + self._lock, (self._identity, ))]
        if number is not None:
            wanted.append((ENTRIES, (self._identity, number, number)))
        if slot is not None:
            wanted.append((SLOT, (self._identity, slot)))
        # A row lock is handed over in two steps, and this one in a queue.
        self._send('SELECT pg_advisory_xact_lock(hashtextextended(?, 0))',
                   (self._identity, ))
        self._asked = {each: self._send(*each) for each in wanted}


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user = f'{parts.username}@' if parts.username else ''
    port = f':{parts.port}' if parts.port else ''
    return urlunsplit(parts._replace(
        netloc=f"{user}{parts.hostname or ''}{port}"))
