"""The durable vault under load: many processes on one budget, a charge after a
hundred thousand others, and processes and servers that die at random moments.

    python -m benchmarks.vault_table --postgres URL

The server of PostgreSQL must be on this machine, and this command must be able
to restart it: it finds the data folder by asking the server. Without a URL (or
the variable TORCH_GEOMETRIC_DP_POSTGRES) that part is left out, and the table
says so. It writes vault.json and vault.md into the folder --out.
"""
import argparse
import fcntl
import json
import mmap
import multiprocessing
import os
import random
import secrets
import signal
import sqlite3
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import torch
from torch_geometric.data import Data
from tqdm import tqdm

from benchmarks.machine import machine
from torch_geometric_dp import PrivacyBudget, PrivacyBudgetExceeded
from torch_geometric_dp.accountant import Guarantee, Release
from torch_geometric_dp.release import digest
from torch_geometric_dp.transforms import LabelRR
from torch_geometric_dp.vault.sql import SQLTransaction

PROCESSES = 16
EPSILON = 0.1
SHARE = 0.6  # Of the attempts, that the cap allows.
GOAL = 0.5  # Of a plain insert.
TURNS = 5
SIZES = (10, 1000, 100_000)
ROUNDS = 200  # Charges that a time at some size is the median of.
SEED = 14
FORK = multiprocessing.get_context('fork')
SPAWN = multiprocessing.get_context('spawn')
NOW = time.perf_counter


# Charges, and what they are measured against. #


def releases(budget):
    """What LabelRR enters in the ledger, without drawing anything."""
    return [Release(
        Guarantee(EPSILON, 'labels', 'replace'), mechanism='LabelRR',
        arguments=(('epsilon', EPSILON), ('num_classes', 7)), fields=('y', ),
        release_id=secrets.token_hex(16), graph=budget.identity)]


def charge(budget):
    """One charge of a slot that nobody has; whether it was accepted."""
    entries = releases(budget)
    try:
        budget.bind(secrets.token_hex(32), secrets.token_bytes(32),
                    secrets.token_bytes(32), entries)
    except PrivacyBudgetExceeded:
        return False
    return True


def times(results):
    """Median and 99th percentile, in milliseconds."""
    return {'median': 1e3 * float(np.median(results)),
            'p99': 1e3 * float(np.quantile(results, 0.99))}


def bare_fsync(folder, rounds):
    """Writes a page to the end of a file, and waits for the disk."""
    out = []
    with open(folder / 'fsync', 'wb', buffering=0) as file:
        for _ in range(rounds):
            start = NOW()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            out.append(NOW() - start)
    return {**times(out), 'per second': rounds / sum(out)}


def together(work, count, desc):
    """Runs work(number of the process, attempts, told) in many processes that
    start at once; returns when each attempt began, how long it took and what
    came out, from all of them.
    """
    share, barrier = count // PROCESSES, FORK.Barrier(PROCESSES + 1)
    done = FORK.Value('l', 0)

    def run(number, pipe):
        attempt = work(number)
        barrier.wait()
        out = np.empty((share, 3))
        for i in range(share):
            start = NOW()
            result = attempt()
            out[i] = start, NOW() - start, result
            if i % 50 == 49:
                with done.get_lock():
                    done.value += 50
        pipe.send(out)
        pipe.close()

    pipes, workers = [], []
    for number in range(PROCESSES):
        here, there = FORK.Pipe(duplex=False)
        worker = FORK.Process(target=run, args=(number, there))
        worker.start()
        there.close()
        pipes.append(here)
        workers.append(worker)
    barrier.wait(timeout=120)
    with tqdm(total=share * PROCESSES, desc=desc) as bar:
        found = []
        for here in pipes:
            while not here.poll(0.2):
                bar.update(done.value - bar.n)
            found.append(here.recv())
        bar.update(done.value - bar.n)
    for worker in workers:
        worker.join()
    return np.concatenate(found)


def summary(rounds):
    """Rates and times of some rounds. What is accepted is counted until the
    last one of its round was.
    """
    spans, until, rates = [], [], []
    for start, took, good in (found.T for found in rounds):
        end, good = start + took - start.min(), good > 0
        spans.append(end.max())
        if good.any():
            until.append(end[good].max())
            rates.append(float(good.sum() / until[-1]))
    _, took, good = np.concatenate(rounds).T
    good = good > 0
    out = {'attempts': len(good), 'accepted': int(good.sum()),
           'attempts per second': float(len(good) / sum(spans)),
           'accepted per second': float(good.sum() / sum(until)),
           'rounds': rates, **times(took[good])}
    if not good.all():
        out['refused'] = times(took[~good])
    return out


def many_charges(where, count):
    """A name, what a process does, and what is to be seen afterwards."""
    name = f'many {secrets.token_hex(4)}'
    cap = round(SHARE * count * EPSILON, 6)
    budget = PrivacyBudget.open(where, name, labels=cap)

    def work(number):
        budget.remaining('labels')  # Opened, and its history read.
        return lambda: charge(budget)

    return work, lambda out: balance(where, name, cap, out)


def balance(where, name, cap, out):
    """What the processes were told, against what is in the vault."""
    budget, told = PrivacyBudget.open(where, name), out['accepted']
    found = [line.release for line in budget.history() if line.release]
    out['allowed'] = round(cap / EPSILON)
    out['entries'] = len(found)
    out['different'] = len({release.release_id for release in found})
    out['left'] = budget.remaining('labels')
    out['exact'] = (told == len(found) == out['different'] == out['allowed']
                    and out['left'] == 0)


def kind(where):
    return 'PostgreSQL' if where.startswith('postgres') else 'SQLite'


def row_of(where):
    """As many bytes as a charge writes: an entry and a slot."""
    budget = PrivacyBudget.open(where, f'row {secrets.token_hex(4)}',
                                labels=8.0)
    charge(budget)

    def read(transaction, again):
        entry = transaction.on(budget.identity).entries(2)[0]
        # A slot: its name, a fingerprint, a nonce, a seal and three numbers.
        return sum(len(str(part)) for part in entry[:5]) + 32 + 32 + 64 + 120

    return secrets.token_hex(budget._vault.store.run('', read) // 2)


def plain_sqlite(folder, row, queue):
    path = str(folder / f'plain{queue:d}.db')
    with sqlite3.connect(path) as connection:
        connection.execute('PRAGMA journal_mode=WAL')
        connection.execute('CREATE TABLE plain (number INTEGER PRIMARY KEY, '
                           'content TEXT NOT NULL)')

    def work(number):
        connection = sqlite3.connect(path, timeout=600, isolation_level=None)
        connection.execute('PRAGMA synchronous=FULL')

        def insert():
            connection.execute('BEGIN IMMEDIATE')
            connection.execute('INSERT INTO plain (content) VALUES (?)',
                               (row, ))
            connection.execute('COMMIT')
            return True

        def queued():
            file = os.open(f'{path}.lock', os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            insert()
            os.close(file)
            return True

        return queued if queue else insert

    return work


def plain_postgres(url, row, locked):
    import psycopg
    table = f'plain_{secrets.token_hex(4)}'
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE TABLE {table} (number BIGSERIAL PRIMARY '
                           f'KEY, content TEXT NOT NULL)')
        connection.execute(f'CREATE TABLE {table}_lock (number INTEGER)')
        connection.execute(f'INSERT INTO {table}_lock VALUES (0)')

    def work(number):
        connection = psycopg.connect(url, autocommit=True)
        statement = f'INSERT INTO {table} (content) VALUES (%s)'

        def insert():
            connection.execute(statement, (row, ))
            return True

        def queued():
            with connection.transaction():
                connection.execute(f'SELECT number FROM {table}_lock '
                                   f'FOR UPDATE')
                connection.execute(statement, (row, ))
            return True

        return queued if locked else insert

    return work


def under_load(where, folder, count):
    """Charges and plain inserts take turns, so that a slow minute of the
    machine does not favour anybody.
    """
    row = row_of(where)
    if kind(where) == 'SQLite':
        ways = {'insert, own waiting': plain_sqlite(folder, row, False),
                'insert, same file lock': plain_sqlite(folder, row, True)}
    else:
        ways = {'insert, each for itself': plain_postgres(where, row, False),
                'insert, behind one row lock':
                    plain_postgres(where, row, True)}
    ways['charge'], see = many_charges(where, count)
    found = {name: [] for name in ways}
    out = {'row': len(row), 'fsync': bare_fsync(folder, 1000)}
    for turn in range(TURNS):
        for name, work in ways.items():
            # Fewer inserts are enough to know their rate.
            some = count if name == 'charge' else max(3200, 2 * count // 5)
            found[name].append(together(
                work, some // TURNS, f'{kind(where)}, {name}, {turn + 1}'))
    out.update((name, summary(rounds)) for name, rounds in found.items())
    see(out['charge'])
    out['fsync after'] = bare_fsync(folder, 1000)
    return out


# A charge after many others. #


def unsynced(budget):
    """Does not wait for the disk: to fill a vault that is measured later."""
    connection = budget._vault.store._connection
    lite = isinstance(connection, sqlite3.Connection)
    old = 'PRAGMA synchronous=FULL' if lite else 'SET synchronous_commit=on'
    new = 'PRAGMA synchronous=OFF' if lite else 'SET synchronous_commit=off'
    connection.execute(new)
    return lambda: connection.execute(old)


def constant_cost(where, sizes):
    """The median of a charge of one process, after so many others."""
    budget = PrivacyBudget.open(where, f'long {secrets.token_hex(4)}',
                                labels=1e9)
    out, entries = {}, 0
    for size in sizes:
        wait = unsynced(budget)
        for _ in tqdm(range(size - entries), f'filling, {kind(where)}'):
            charge(budget)
        wait()
        took = []
        for _ in range(ROUNDS):
            start = NOW()
            charge(budget)
            took.append(NOW() - start)
        entries = size + ROUNDS
        out[str(size)] = times(took)
    return out


# Processes and servers that die. #

STATES = ('before it', 'in the transaction', 'between charge and draw',
          'after it left')


def graph(budget):
    data = Data(y=torch.arange(50) % 7)
    data.privacy_budget = budget
    return data


def release(data, number):
    """A release that no other number makes, and its bits."""
    out = LabelRR(epsilon=round(1 + 1e-6 * number, 6), num_classes=7)(data)
    return out.privacy.releases[0].release_id, digest(out.y)


def number_of(entry):
    return round(1e6 * (dict(entry.arguments)['epsilon'] - 1))


def releasing(data, first, file, state, most=10**6):
    """Releases one number after another, and writes down what left."""
    budget = data.privacy_budget
    bind, slot = budget.bind, SQLTransaction.bind

    def charging(*args, **kwargs):
        out = bind(*args, **kwargs)
        state[0] = 2
        return out

    def binding(*args, **kwargs):
        state[0] = 1
        return slot(*args, **kwargs)

    budget.bind, SQLTransaction.bind = charging, binding
    for number in range(first, first + most):
        state[0] = 0
        name, bits = release(data, number)
        state[0] = 3
        os.write(file, f'{number} {name} {bits}\n'.encode())


def dying(where, name, kills, seed, at_once=4):
    """Kills processes at random moments, some of them at a time, so that the
    ones that live wait for a lock that a dead one held.
    """
    budget = PrivacyBudget.open(where, name, labels=1e9)
    data, draw, told = graph(budget), random.Random(seed), []
    release(data, 0)  # Whatever has to be compiled.
    counts, unbroken = dict.fromkeys(STATES, 0), 0
    bar = tqdm(total=kills, desc=f'kill -9, {kind(where)}')
    for batch in range(0, kills, at_once):
        living = []
        for i in range(min(at_once, kills - batch)):
            here, there = os.pipe()
            state = mmap.mmap(-1, 1)
            first = 1 + 1000 * (batch + i)
            pid = os.fork()
            if pid == 0:
                try:
                    os.close(here)
                    releasing(data, first, there, state)
                finally:
                    os._exit(1)  # It never comes here by itself.
            os.close(there)
            # Half of them at any moment; the others, from then on, as soon as
            # they are at something that is drawn: some moments are short.
            aim = draw.choice([None, None, None, None, *range(len(STATES))])
            living.append((NOW() + draw.uniform(0, 0.12), pid, here, state,
                           aim))
        for when, pid, here, state, aim in sorted(living,
                                                  key=lambda each: each[0]):
            time.sleep(max(0.0, when - NOW()))
            while aim is not None and state[0] != aim and (
                    NOW() < when + 0.1):
                pass
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            unbroken += not os.WIFSIGNALED(status)
            counts[STATES[state[0]]] += 1
            with open(here, 'rb') as lines:
                told += lines.read().decode().splitlines()
            bar.update()
    bar.close()
    return told, {'kills': kills, 'died otherwise': unbroken, **counts}


def judge(where, name, told, clean, results):
    """In a new process: is all that left in the vault, once, and does the same
    call return it, free?
    """
    budget = PrivacyBudget.open(where, name)
    found = [line.release for line in budget.history() if line.release]
    numbers = [number_of(entry) for entry in found]
    names = {number_of(entry): entry.release_id for entry in found}
    left = {int(line.split()[0]): tuple(line.split()[1:]) for line in told}
    data = graph(budget)
    same = sum(release(data, number) == left[number]
               for number in tqdm(left, f'again, {kind(where)}'))
    # What was charged and did not leave is still there for the same call.
    rest = [number for number in set(numbers) - set(left) if number > 0]
    kept = sum(release(data, number)[0] == names[number] for number in rest)
    after = sum(line.release is not None for line in budget.history())
    results.put({
        'left': len(told), 'entries': len(found) - (0 in numbers),
        'not in the vault': sum(names.get(n) != left[n][0] for n in left),
        'charged twice': len(numbers) - len(set(numbers)),
        'same bits again': same, 'charged and not left': len(rest),
        'of those, returned later': kept,
        'charged by repeating': after - len(found),
        'good': len(left) == len(told) and set(left) <= set(numbers)
        and all(names[n] == left[n][0] for n in left)
        and len(numbers) == len(set(numbers)) and same == len(left)
        and kept == len(rest) and after == len(found)
        and not (clean and rest)})


def judged(where, name, told, clean=False):
    results = SPAWN.Queue()
    process = SPAWN.Process(target=judge,
                            args=(where, name, told, clean, results))
    process.start()
    out = results.get()
    process.join()
    return out


def after_kills(where, kills):
    name = f'kill {secrets.token_hex(4)}'
    told, counts = dying(where, name, kills, SEED)
    out = {**counts, **judged(where, name, told)}
    # One that dies loses at most the release that it was at.
    out['good'] = (out['good'] and not counts['died otherwise']
                   and out['charged and not left'] <= kills)
    return out


def control(url):
    """How to restart the server, as the user that it belongs to."""
    import psycopg
    with psycopg.connect(url) as connection:
        folder, = connection.execute('SHOW data_directory').fetchone()
    pid = (Path(folder) / 'postmaster.pid').read_text().split()[0]
    program = Path(os.readlink(f'/proc/{pid}/exe')).with_name('pg_ctl')
    owner = Path(folder).owner()
    user = ['runuser', '-u', owner, '--'] if os.getuid() == 0 else []
    return [*user, str(program), '-D', folder, '-m', 'immediate', '-w', '-s',
            '-l', os.devnull, 'restart']


def after_restarts(where, restarts, processes=8):
    """The server falls over while processes charge; none of them may notice
    anything but a pause.
    """
    name = f'restart {secrets.token_hex(4)}'
    data = graph(PrivacyBudget.open(where, name, labels=1e9))
    release(data, 0)
    command, draw = control(where), random.Random(SEED)
    stop, workers, files = FORK.Event(), [], []

    def work(first, path):
        with open(path, 'ab', buffering=0) as file:
            for number in range(first, first + 10**6):
                if stop.is_set():
                    return
                name, bits = release(data, number)
                file.write(f'{number} {name} {bits}\n'.encode())

    with tempfile.TemporaryDirectory() as folder:
        for i in range(processes):
            files.append(Path(folder) / str(i))
            workers.append(FORK.Process(target=work, args=(
                1 + 10**6 * i, files[-1])))
            workers[-1].start()
        for _ in tqdm(range(restarts), 'immediate restarts'):
            time.sleep(draw.uniform(0.5, 1.5))
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL)
        time.sleep(2)
        stop.set()
        for worker in workers:
            worker.join()
        told = [line for path in files
                for line in path.read_text().splitlines()]
    failed = sum(worker.exitcode != 0 for worker in workers)
    out = {'restarts': restarts, 'processes that failed': failed,
           **judged(where, name, told, clean=True)}
    out['good'] = out['good'] and not failed
    return out


# The table. #


def verdict(good):
    return 'met' if good else '**missed**'


def load_table(name, part):
    lines = ['| | attempts | attempts a second | accepted a second '
             '| median, ms | 99%, ms |', '|---|---|---|---|---|---|']
    for title in ('fsync', 'fsync after'):
        lines.append(f"| a page and fsync, one process"
                     f"{', afterwards' if title != 'fsync' else ''} | 1000 | "
                     f"{part[title]['per second']:,.0f} | | "
                     f"{part[title]['median']:.2f} | "
                     f"{part[title]['p99']:.2f} |")
    for title, row in part.items():
        if title.startswith(('insert', 'charge')):
            lines.append(
                f"| {title} | {row['attempts']:,} "
                f"| {row['attempts per second']:,.0f} "
                f"| {row['accepted per second']:,.0f} | {row['median']:.2f} "
                f"| {row['p99']:.2f} |")
    row = part['charge']
    lines += ['', f"A row has {part['row']} bytes. Of {row['attempts']:,} "
              f"attempts the cap allows {row['allowed']:,}; the processes were "
              f"told of {row['accepted']:,} accepted ones, the vault has "
              f"{row['entries']:,} entries, {row['different']:,} of them "
              f"different, and {row['left']:g} is left: "
              f"{verdict(row['exact'])}. A refusal took "
              f"{row['refused']['median']:.2f} ms (99%: "
              f"{row['refused']['p99']:.2f} ms)."]
    for title, other in part.items():
        if title.startswith('insert'):
            ratio = row['accepted per second'] / other['accepted per second']
            turns = [a / b for a, b in zip(row['rounds'], other['rounds'])]
            lines.append(f"* Accepted charges against *{title}*: {ratio:.2f} "
                         f"(in turns: {min(turns):.2f} to {max(turns):.2f}; "
                         f"goal: {GOAL}): {verdict(ratio >= GOAL)}.")
    return '\n'.join(lines)


def cost_table(results):
    sizes = next(iter(results.values()))
    lines = ['| | ' + ' | '.join(f'{int(s):,} entries, ms (99%)'
                                 for s in sizes) + ' |',
             '|---' * (len(sizes) + 1) + '|']
    for name, row in results.items():
        lines.append(f'| {name} | ' + ' | '.join(
            f"{row[s]['median']:.2f} ({row[s]['p99']:.2f})" for s in sizes)
            + ' |')
    return '\n'.join(lines)


def death_table(parts):
    lines = ['| | ' + ' | '.join(parts) + ' |', '|---' * (len(parts) + 1) + '|']
    keys = list(dict.fromkeys(key for part in parts.values() for key in part))
    keys.sort(key=lambda key: key == 'good')
    for key in keys:
        cells = [part.get(key, '') for part in parts.values()]
        if key == 'good':
            key, cells = '', [verdict(cell) for cell in cells]
        lines.append(f'| {key} | ' + ' | '.join(
            f'{cell:,}' if isinstance(cell, int) else cell for cell in cells)
            + ' |')
    return '\n'.join(lines)


def markdown(results):
    options = ' --quick' if results['quick'] else ''
    facts = ', '.join(f'{name} {value}' for name, value in
                      results['machine'].items()
                      if name in ('processor', 'cores', 'memory', 'system',
                                  'python'))
    low, high = min(results['load']), max(results['load'])
    text = [f'# The durable vault\n\nMade by `python -m benchmarks.vault_table '
            f'--postgres URL{options}`, seed {SEED}, on {facts}; SQLite '
            f"{sqlite3.sqlite_version}, {results['server']}. The load of the "
            f'machine, its own included, was {low:.1f} to {high:.1f}, with '
            f'other work on it: times are disturbed, and ratios less so, as '
            f'charges and inserts took turns.\n\n## {PROCESSES} processes '
            f'on one budget\n\nA charge is `PrivacyBudget.bind` of a slot that '
            f'is new. Plain inserts are as durable (SQLite: WAL, '
            f'synchronous=FULL, BEGIN IMMEDIATE), and of as many bytes. What '
            f'is accepted is counted until the cap was reached.']
    for name in ('SQLite', 'PostgreSQL'):
        if name in results['load of processes']:
            text.append(f"### {name}\n\n" + load_table(
                name, results['load of processes'][name]))
    text.append('## A charge after many others\n\nOne process; the median of '
                f'{ROUNDS} charges.\n\n' + cost_table(results['cost']))
    text.append('## Processes and servers that die\n\nReleases by `LabelRR`, '
                'each with arguments of its own. What a process was at when it '
                'was killed is told by a byte that it shares with the one that '
                'kills; *in the transaction* is from the first write to the '
                'end of the commit. Everything is judged by a new process.'
                '\n\n' + death_table(results['deaths']))
    if 'PostgreSQL' not in results['cost']:
        text.append('PostgreSQL was left out: no server was named.')
    return '\n\n'.join(text) + '\n'


def server_of(url):
    if url is None:
        return 'no PostgreSQL'
    import psycopg
    with psycopg.connect(url) as connection:
        version, = connection.execute('SHOW server_version').fetchone()
        return f'PostgreSQL {version}, psycopg {psycopg.__version__}'


@contextmanager
def database(url):
    """A database of its own on a server, which goes afterwards."""
    import psycopg
    name = f'vault_{secrets.token_hex(4)}'
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE {name}')
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f'/{name}'))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE {name} WITH (FORCE)')


@contextmanager
def elsewhere():
    """A folder for vaults and for what is remembered of them."""
    with tempfile.TemporaryDirectory(dir='.') as folder:
        os.environ['TORCH_GEOMETRIC_DP_STATE'] = f'{folder}/state'
        os.environ['TORCH_GEOMETRIC_DP_SECRET'] = secrets.token_hex(32)
        yield Path(folder).absolute()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--postgres', default=os.environ.get(
        'TORCH_GEOMETRIC_DP_POSTGRES'))
    parser.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    count, kills = (3200, 40) if args.quick else (100_000, 1000)
    sizes = SIZES[:2] if args.quick else SIZES
    parts, cost, deaths = {}, {}, {}
    results = {'quick': args.quick, 'machine': machine(), 'seed': SEED,
               'server': server_of(args.postgres),
               'load': [os.getloadavg()[0]], 'load of processes': parts,
               'cost': cost, 'deaths': deaths}

    def keep():
        results['load'].append(os.getloadavg()[0])
        (args.out / 'vault.json').write_text(
            json.dumps(results, indent=1) + '\n')

    with ExitStack() as stack:
        folder = stack.enter_context(elsewhere())
        places = {'SQLite': str(folder / 'some.vault')}
        if args.postgres:
            places['PostgreSQL'] = stack.enter_context(
                database(args.postgres))
        for name, where in places.items():
            parts[name] = under_load(where, folder, count)
            keep()
            cost[name] = constant_cost(where, sizes)
            keep()
            number = kills if name == 'SQLite' else kills // 10
            deaths[f'{name}, kill -9'] = after_kills(where, number)
            keep()
        if args.postgres:
            deaths['PostgreSQL, restarted'] = after_restarts(
                places['PostgreSQL'], 2 if args.quick else 20)
    keep()
    text = markdown(results)
    (args.out / 'vault.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
