"""Other processes, which know nothing of this one, and places for vaults."""
import contextlib
import multiprocessing
import os
import sqlite3
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import torch
from torch_geometric.data import Data

from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.transforms import LabelRR

POSTGRES = 'TORCH_GEOMETRIC_DP_POSTGRES'
# As new as after a start, without the time that it takes: forked from a process
# that has imported everything and opened nothing.
CONTEXT = multiprocessing.get_context('forkserver')
CONTEXT.set_forkserver_preload([__name__])
_PATIENCE = 60  # Seconds, after which a test fails.


class Place(NamedTuple):
    """Where a budget is, and the secret of its vault."""
    store: str
    name: str
    secret: Any
    environ: dict = {}

    def open(self, **kwargs):
        """The budget, as a program opens it."""
        return PrivacyBudget.open(self.store, self.name, secret=self.secret,
                                  **kwargs)

    def sql(self, *statements):
        """Goes behind the vault's back; returns what the last one found."""
        if self.store.startswith('postgres'):
            import psycopg
            connection = psycopg.connect(self.store)
            connection.execute('SET search_path TO torch_geometric_dp')
        else:
            connection = sqlite3.connect(self.store)
        with contextlib.closing(connection):
            for statement in statements:
                cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description else None
            connection.commit()
            if not self.store.startswith('postgres'):  # All in one file.
                connection.execute('PRAGMA wal_checkpoint(TRUNCATE)')
        return rows

    def elsewhere(self, work, *args):
        """What other processes answer."""
        return self.start(work, *args).answer()

    def start(self, work, *args):
        """A process that is at work."""
        return Running(work, (self, *args), self.environ)


class Running:
    """A process that is at work."""
    def __init__(self, work, args, environ):
        self.pipe, there = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_run, args=(
            there, dict(environ), work, args), daemon=True)
        self.process.start()
        there.close()

    def receive(self):
        """What it says next."""
        assert self.pipe.poll(_PATIENCE), 'It says nothing'
        return self.pipe.recv()

    def answer(self):
        """What it returns, or raises."""
        good, out = self.receive()
        self.process.join(_PATIENCE)
        if not good:
            raise out
        return out

    def kill(self):
        """As a power failure would."""
        self.process.kill()
        self.process.join(_PATIENCE)
        said = []
        with contextlib.suppress(EOFError, ConnectionError):
            while self.pipe.poll():
                said.append(self.pipe.recv())
        return said


PIPE: Any = None  # To who has started this process.


def _run(pipe, environ, work, args):
    global PIPE
    PIPE = pipe
    os.environ.update(environ)
    torch.set_num_threads(1)
    try:
        out = True, work(*args)
    except Exception as error:
        out = False, error
    pipe.send(out)


def raw(budget, content=0):
    """A raw graph."""
    return Data(y=(torch.arange(40) + content) % 2, privacy_budget=budget)


LabelRR(1.0, num_classes=2)(raw(None))  # So that children find it compiled.


def make(place, **terms):
    """Makes a budget."""
    return place.open(**(terms or {'labels': 1.0})).identity


def let_out(place, epsilon=0.25, content=0, renew=False, **kwargs):
    """What is released, under a budget that is there."""
    transform = LabelRR(epsilon, num_classes=2)
    if renew:
        transform.renew()
    out = transform(raw(place.open(**kwargs), content))
    return out.y.tolist(), out.privacy.to_json()


def look(place, **kwargs):
    """What is left, the number of releases, and all that happened."""
    budget = place.open(**kwargs)
    return (budget.remaining('labels'), len(budget.spent.releases),
            [line.what for line in budget.history()])


def database(url, name):
    """The address of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f'/{name}'))
