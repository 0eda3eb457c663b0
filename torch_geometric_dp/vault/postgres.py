"""A vault in PostgreSQL, for several machines."""
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from torch_geometric_dp.vault.sql import (
    MIGRATIONS,
    VERSION,
    SQLTransaction,
    tables,
)
from torch_geometric_dp.vault.store import LOCK, VaultError

T = TypeVar('T')

_PATIENCE = 60.0  # Seconds until a server that restarts is back.
_SCHEMA = 'torch_geometric_dp'


class PostgresStore:
    """A store in a PostgreSQL database, in a schema of its own. A transaction
    locks the row of its budget. If the server goes away meanwhile, it is asked
    again until it is back, and nothing is charged twice.

    Args:
        url (str): Where it is, as in :obj:`"postgresql://user@host/database"`.
            Its password is kept by this process alone: elsewhere, give it by
            :obj:`PGPASSWORD` or a password file.
    """
    durable = True

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise ImportError(
                "A vault in PostgreSQL needs the package 'psycopg': pip "
                "install 'torch_geometric_dp[vault]'") from error
        self._psycopg = psycopg
        self._url = url
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
        return self._connection

    def _check(self, connection: Any) -> None:
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
        end, pause, again = time.monotonic() + _PATIENCE, 0.05, False
        lost = (self._psycopg.OperationalError, self._psycopg.InterfaceError)
        with LOCK:
            while True:
                try:
                    return work(self._connect(), again)
                except lost as error:
                    if self._connection is not None:
                        self._connection.close()
                    self._connection, again = None, True
                    if time.monotonic() > end:
                        raise VaultError(
                            f"The vault {self.address} cannot be reached: "
                            f"{error}. Nothing was released") from error
                    time.sleep(pause)
                    pause = min(2 * pause, 1.0)
                except self._psycopg.Error as error:
                    raise VaultError(f"The vault {self.address} cannot be "
                                     f"used: {error}. Nothing was released"
                                     ) from error

    def run(self, identity: str, work: Callable[[Any, bool], T]) -> T:
        """Does some work on a budget while nobody else does."""
        def attempt(connection: Any, again: bool) -> T:
            def execute(statement: str, parameters: Sequence[Any]) -> Any:
                return connection.execute(statement.replace('?', '%s'),
                                          parameters)

            with connection.transaction():
                return work(SQLTransaction(execute, identity, ' FOR UPDATE'),
                            again)

        return self._patiently(attempt)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user = f'{parts.username}@' if parts.username else ''
    port = f':{parts.port}' if parts.port else ''
    return urlunsplit(parts._replace(
        netloc=f"{user}{parts.hostname or ''}{port}"))
