import contextlib
import os
import secrets

import pytest

from tests.vault.processes import POSTGRES, Place, database


def _place(tmp_path, store, secret):
    (tmp_path / 'state').mkdir()
    return Place(store, 'people', secret, {
        'TORCH_GEOMETRIC_DP_STATE': str(tmp_path / 'state')})


@pytest.fixture
def file(tmp_path):
    """A place for a vault in a file, with its key beside it."""
    return _place(tmp_path, str(tmp_path / 'people.vault'), None)


@pytest.fixture(params=['SQLite', 'PostgreSQL'])
def place(request, tmp_path):
    """A place for a vault, which nobody else uses."""
    secret = str(tmp_path / 'key')
    if request.param == 'SQLite':
        yield _place(tmp_path, str(tmp_path / 'people.vault'), secret)
        return
    url = os.environ.get(POSTGRES)
    if url is None:
        pytest.skip(f"'{POSTGRES}' is not set")
    import psycopg
    name = f'vault_{secrets.token_hex(8)}'
    with contextlib.closing(psycopg.connect(url, autocommit=True)) as server:
        server.execute(f'CREATE DATABASE {name}')
        try:
            yield _place(tmp_path, database(url, name), secret)
        finally:
            server.execute(f'DROP DATABASE {name} WITH (FORCE)')
