"""What several processes and programs, ranks, and a kill -9 make of a budget.
"""
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest
import torch

from tests.vault import processes
from tests.vault.processes import let_out, look, make, raw
from torch_geometric_dp import PrivacyBudget, PrivacyBudgetExceeded
from torch_geometric_dp.transforms import LabelRR
from torch_geometric_dp.vault.sql import SQLTransaction

ROOT = Path(__file__).parents[2]


def all_of_it(place, number):
    budget = place.open(labels=1.0)
    try:
        LabelRR(0.6 + 1e-3 * number, num_classes=2)(raw(budget))
    except PrivacyBudgetExceeded:
        return 0
    return 1


def test_eight_processes_with_a_cap_of_one(file):
    # Without a vault they released 4.8 together.
    workers = [file.start(all_of_it, number) for number in range(8)]
    assert sum(worker.answer() for worker in workers) == 1
    assert file.elsewhere(look)[1] == 1


def program(place, text):
    os.chdir(os.path.dirname(place.store))
    here = {}
    exec(text, here)
    budget, private = here['data'].privacy_budget, here['private']
    return (private.x.tolist(), private.y.tolist(),
            budget.remaining('features'), budget.remaining('labels'))


def test_the_first_example_run_twice(file):
    pytest.importorskip('sklearn')
    text = re.search('```python\n(.*?)```', (ROOT / 'README.md').read_text(),
                     re.S)[1]
    budget = 'PrivacyBudget(epsilon=64.0)'
    assert budget in text
    kept = text.replace(budget, "PrivacyBudget.open('people.vault', "
                                "epsilon=64.0)")
    first = file.elsewhere(program, kept)
    assert file.elsewhere(program, kept) == first  # The same, and paid once.
    assert first[2:] == (0.0, 62.0)
    # Another one costs more, and is not forgotten.
    more = kept.replace('LabelRR(epsilon=2.0', 'LabelRR(epsilon=3.0')
    assert file.elsewhere(program, more)[3] == 59.0
    assert file.elsewhere(program, kept)[3] == 59.0
    # Without a file, each program has a budget and noise of its own.
    alone = file.elsewhere(program, text)
    assert alone[3] == 62.0 and alone[1] != first[1]


def rank(place, number, gloo):
    if gloo:
        torch.distributed.init_process_group(
            'gloo', init_method=f'file://{place.store}.ranks', rank=number,
            world_size=2)
    try:
        with pytest.raises(RuntimeError, match=(
                r'one of 2 ranks.*PrivacyBudget.open\(')):
            PrivacyBudget(labels=1.0)
        out = LabelRR(0.6, num_classes=2)(raw(place.open(labels=1.0)))
        return out.y.tolist(), place.open().remaining('labels')
    finally:
        if gloo:
            torch.distributed.destroy_process_group()


@pytest.mark.parametrize('gloo', [False, True])
def test_ranks_share_what_is_opened(file, gloo):
    # Each with a budget of its own, they said 0.6 and had spent 1.2.
    ranks = []
    for number in range(2):
        environ = {} if gloo else {'RANK': str(number), 'WORLD_SIZE': '2'}
        ranks.append(file._replace(environ={**file.environ, **environ}).start(
            rank, number, gloo))
    one, two = (each.answer() for each in ranks)
    assert one == two and one[1] == 0.4


def test_one_rank_is_a_program():
    # As `torchrun --nproc-per-node 1` starts it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('RANK', '0')
        patch.setenv('WORLD_SIZE', '1')
        assert PrivacyBudget(labels=1.0).remaining('labels') == 1.0


# Kill. #


def release_and_wait(place):
    processes.PIPE.send(let_out(place))
    time.sleep(600)


def test_a_charge_is_there_after_a_kill(place):
    place.elsewhere(make)
    worker = place.start(release_and_wait)
    told = worker.receive()
    worker.kill()
    assert place.elsewhere(look)[:2] == (0.75, 1)
    assert place.elsewhere(let_out) == told


def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def die_there(place, moment):
    budget = place.open()
    if moment == 'before':
        PrivacyBudget.bind = die
    elif moment == 'within':
        SQLTransaction.bind = die
    elif moment == 'after':
        PrivacyBudget._see = die
    LabelRR(0.25, num_classes=2)(raw(budget))


@pytest.mark.parametrize('moment', ['before', 'within', 'after'])
def test_who_dies_has_paid_or_not(place, moment):
    place.elsewhere(make)
    with pytest.raises((EOFError, ConnectionError)):
        place.elsewhere(die_there, moment)
    paid = moment == 'after'
    assert place.elsewhere(look)[1] == paid
    out = place.elsewhere(let_out)
    assert place.elsewhere(let_out) == out
    assert place.elsewhere(look)[:2] == (0.75, 1)


def release_for_ever(place, start):
    budget, number = place.open(), start
    while True:
        out = LabelRR(1 + number / 1024, num_classes=2)(raw(budget))
        processes.PIPE.send((number, out.y.tolist(), out.privacy.to_json()))
        number += 1


def again(place, told):
    budget = place.open()
    known = {r.release_id: r.guarantee.epsilon for r in budget.spent.releases}
    for number, labels, ledger in told:
        out = LabelRR(1 + number / 1024, num_classes=2)(raw(budget))
        assert (out.y.tolist(), out.privacy.to_json()) == (labels, ledger)
    # That was free, and nothing was ever charged twice.
    epsilons = [r.guarantee.epsilon for r in budget.spent.releases]
    assert len(epsilons) == len(known) == len(set(epsilons))
    assert 1e9 - budget.remaining('labels') == pytest.approx(sum(epsilons))
    return len(epsilons)


def test_kills_at_random_moments(place):
    kills = 5 if place.store.startswith('postgres') else 20
    moments = random.Random(0)
    make(place, labels=1e9)
    place.open()._vault.store.close()
    told, start = [], 0
    for _ in range(kills):
        worker = place.start(release_for_ever, start)
        told.append(worker.receive())
        time.sleep(moments.uniform(0, 0.02))
        told += [said for said in worker.kill() if len(said) == 3]
        start = told[-1][0] + 1
    # The last of each may be paid and not told: it is released by the next.
    assert len(told) <= place.elsewhere(again, told) <= len(told) + 1
    assert [number for number, _, _ in told] == list(range(len(told)))
