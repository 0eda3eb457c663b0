"""One vault for a process and its children, whatever becomes of them."""
import glob
import multiprocessing
import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from tests.accountant.test_ledger import release
from tests.vault.processes import CONTEXT
from tests.vault.test_budget import charge
from torch_geometric_dp import PrivacyBudget, PrivacyBudgetExceeded
from torch_geometric_dp.transforms import LabelRR
from torch_geometric_dp.vault import SQLiteStore
from torch_geometric_dp.vault.store import Account, Entry

PROCESSES = 8
# The second is sent a budget as a spawned process is, and starts sooner.
CONTEXTS = {'fork': multiprocessing.get_context('fork'), 'spawn': CONTEXT}


def raw(budget):
    return Data(y=torch.arange(40) % 2, privacy_budget=budget)


def spend(budget, number, gate, answers):
    """Releases under a budget as often as it is allowed to: once the same as
    all others, and then with arguments that nobody else has.
    """
    gate.wait()
    same, done = LabelRR(0.2, num_classes=2)(raw(budget)), 0
    for i in range(5):
        part = LabelRR(0.05 + 1e-9 * (5 * number + i), num_classes=2)
        try:
            part(raw(budget))
            done += 1
        except PrivacyBudgetExceeded:
            pass
    answers.put((same.y.tolist(), same.privacy.to_json(), done))


@pytest.mark.parametrize('method', CONTEXTS)
def test_processes_share_one_budget(method):
    # Five tries of 0.05 each in eight processes would be 2.0.
    context = CONTEXTS[method]
    budget = PrivacyBudget(labels=1.0)
    gate, answers = context.Barrier(PROCESSES), context.Queue()
    workers = [context.Process(target=spend, args=(budget, i, gate, answers))
               for i in range(PROCESSES)]
    for worker in workers:
        worker.start()
    told = [answers.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    # Each is a little more than a twentieth, so there are 15, and not 16.
    assert sum(done for _, _, done in told) == 15
    assert len(budget.spent.releases) == 1 + 15
    assert 0 <= budget.remaining('labels') < 0.06
    # What is the same is one release, wherever it is made, and paid once.
    here = LabelRR(0.2, num_classes=2)(raw(budget))
    for labels, ledger, _ in told:
        assert labels == here.y.tolist() and ledger == here.privacy.to_json()


def charge_and_wait(budget, ready):
    charge(budget, release('a', 0.6))
    ready.send('charged')
    time.sleep(600)


@pytest.mark.parametrize('method', CONTEXTS)
def test_a_charge_survives_the_death_of_who_made_it(method):
    context = CONTEXTS[method]
    budget = PrivacyBudget(labels=1.0)
    here, there = context.Pipe()
    worker = context.Process(target=charge_and_wait, args=(budget, there))
    worker.start()
    assert here.poll(30) and here.recv() == 'charged'
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    assert budget.remaining('labels') == 0.4
    charge(budget, release('b', 0.4))


def die_within(budget, ready):
    def work(transaction, again):
        account = transaction.account()
        transaction.save(account._replace(number=2), [
            Entry(2, 'now', 'me', 'release', 'half an entry', b'')])
        ready.send('within')
        time.sleep(600)

    budget._vault.store.run(budget.identity, work)


def test_who_dies_within_a_transaction_has_done_nothing():
    context = multiprocessing.get_context('fork')
    budget = PrivacyBudget(labels=1.0)
    here, there = context.Pipe()
    worker = context.Process(target=die_within, args=(budget, there))
    worker.start()
    assert here.poll(30) and here.recv() == 'within'
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    assert budget.spent.releases == ()
    charge(budget, release('a', 1.0))


def test_a_fork_waits_for_the_transactions_of_other_threads():
    budget = PrivacyBudget(labels=1e9)
    stop = threading.Event()

    def work():
        number = 0
        while not stop.is_set():
            charge(budget, release(f'{threading.get_ident()} {number}', 0.1))
            number += 1

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for i in range(20):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.alarm(60)  # A child that waits for ever is killed.
                    charge(budget, release(f'child {i}', 0.1))
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    names = [r.release_id for r in budget.spent.releases]
    assert sum(name.startswith('child') for name in names) == 20


def test_only_its_owner_can_read_it():
    address = PrivacyBudget(labels=1.0)._vault.store.address
    for name in ('', '.key', '.lock', '-wal'):
        assert stat.S_IMODE(os.stat(address + name).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(address)).st_mode) == 0o700


MAKE = '''
import multiprocessing, os, sys
import torch_geometric_dp.transforms
from torch_geometric_dp import PrivacyBudget

def make():
    budget = PrivacyBudget(labels=1.0)
    print(os.path.dirname(budget._vault.store.address), flush=True)

if __name__ == '__main__':
    # Importing makes nothing.
    assert os.listdir(os.environ['TMPDIR']) == ['make.py']
    if 'child' in sys.argv:
        context = multiprocessing.get_context('fork')
        child = context.Process(target=make)
        child.start()
        child.join()
    make()
    if 'parent' in sys.argv:
        budget = PrivacyBudget(labels=1.0)
        context = multiprocessing.get_context('fork')
        child = context.Process(target=make)
        child.start()
        child.join()
        assert os.path.exists(budget._vault.store.address)
        assert budget.remaining('labels') == 1.0
'''


@pytest.mark.parametrize('who, folders', [('child', 2), ('parent', 1)])
def test_a_temporary_vault_goes_with_its_process(tmp_path, who, folders):
    # And with no other: what a child has made goes with the child.
    (tmp_path / 'make.py').write_text(MAKE)
    out = subprocess.run([sys.executable, 'make.py', who], cwd=tmp_path,
                         env={**os.environ, 'TMPDIR': str(tmp_path),
                              'PYTHONPATH': os.pathsep.join(sys.path)},
                         capture_output=True, text=True, check=True)
    made = set(out.stdout.split())
    assert len(made) == folders
    assert all(os.path.dirname(name) == str(tmp_path) for name in made)
    assert glob.glob(str(tmp_path / 'torch_geometric_dp-*')) == []


def test_no_pickle_has_the_key(monkeypatch):
    monkeypatch.setattr('torch_geometric_dp.vault.sqlite._TEMPORARY', {})
    monkeypatch.setattr(tempfile, 'tempdir', None)
    budget = PrivacyBudget(labels=9.0)
    nonces = []
    bind = PrivacyBudget.bind

    def spy(self, *args, **kwargs):
        out = bind(self, *args, **kwargs)
        nonces.append(out[0])
        return out

    monkeypatch.setattr(PrivacyBudget, 'bind', spy)
    transform, data = LabelRR(1.0, num_classes=2), raw(budget)
    private = transform(data)
    assert len(nonces) == 1 and len(budget.key()) == 32
    secret = [budget.key(), *nonces]
    secret += [s.hex().encode() for s in secret]
    with open(f'{budget._vault.store.address}.key', 'rb') as file:
        secret.append(file.read())
    for thing in (budget, budget._vault.store, transform, data, private,
                  private.privacy):
        with warnings.catch_warnings():  # That it is temporary.
            warnings.simplefilter('ignore')
            content = pickle.dumps(thing)
        assert not any(s in content for s in secret)
        assert not any(s in repr(thing).encode() for s in secret)
    # Nor has the vault: the nonce alone, which could be found.
    content = b''.join(Path(budget._vault.store.address + name).read_bytes()
                       for name in ('', '-wal'))
    assert secret[0] not in content and secret[-1] not in content
    assert secret[1] in content


def test_odd_names_are_names(tmp_path):
    folder = tmp_path / 'a#b?mode=memory&c%20 d'
    folder.mkdir()
    store = SQLiteStore(str(folder / 'vault'), create=True)
    account = Account('terms', 0, b'link', 'tally', b'tag')
    store.run('me', lambda on, again: on.create('name', account, []))
    for again in (SQLiteStore(str(folder / 'vault')),
                  SQLiteStore(str(folder / 'vault'), create=True),
                  pickle.loads(pickle.dumps(store))):
        assert again.run('me', lambda on, again: on.account()) == account
        assert again.run('', lambda on, again: on.names()) == ['name']
    assert {path.name for path in folder.iterdir()} == {
        'vault', 'vault-wal', 'vault-shm', 'vault.lock'}
    with pytest.raises(LookupError, match='no budget with the identity you'):
        store.run('you', lambda on, again: on.account())
