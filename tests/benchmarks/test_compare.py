import math
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks import goals
from benchmarks.compare import is_measure, main, measures
from benchmarks.harness import Fact
from benchmarks.report import STORE
from benchmarks.store import load, save
from tests.benchmarks.test_store import ROWS, SUITE


@pytest.fixture
def files(tmp_path):
    """A function that stores two suites, and compares them."""
    def run(old, new, name='noise', **machine):
        paths = [tmp_path / 'old.json', tmp_path / 'new.json']
        save(paths[0], {'noise': replace(SUITE, rows=old)})
        save(paths[1], {name: replace(SUITE, rows=new, machine={
            **SUITE.machine, **machine})})
        return main([str(path) for path in paths])
    return run


def test_equal_files_pass(files, capsys):
    assert files(ROWS, ROWS) == 0
    assert capsys.readouterr().out.startswith(
        '3 measures in both, 0 of them worse')


def test_another_machine_is_said(files, capsys):
    assert files(ROWS, ROWS, cores=4, memory='8 GiB') == 0
    assert 'not the same machine: cores 2 / cores 4, memory 8 GiB\n' in (
        capsys.readouterr().out)


@pytest.mark.parametrize('place, change, worse', [
    (0, {'ratio': 1.41}, False),
    (0, {'ratio': 1.39}, True),
    (0, {'ratio': 20.0}, False),
    (0, {'rate': 1.0}, False),  # A time is nothing.
    (1, {'value': 30.0}, False),  # Within what a process has by chance.
    (1, {'value': 40.0}, True),
    (1, {'value': 0.0}, False),
    (2, {'value': 1.1}, False),
    (2, {'value': 1.12}, True),
    (2, {'seconds': (9.0, 90.0)}, False),
    (0, {'ratio': math.nan}, True),
    (1, {'value': math.nan}, True),
    (2, {'value': math.nan}, True),
])
def test_what_is_worse(files, capsys, place, change, worse):
    new = list(ROWS)
    new[place] = replace(ROWS[place], **change)
    assert files(ROWS, tuple(new)) == int(worse)
    assert ('WORSE: noise: ' + ROWS[place].task in
            capsys.readouterr().out) == worse


@pytest.mark.parametrize('value, worse', [(1.5, False), (1.6, True)])
def test_ratios_of_costs(files, capsys, value, worse):
    cost = Fact('d', 'memory', 1.2, 'times input plus output')
    assert files((*ROWS, cost), (*ROWS, replace(cost, value=value))) == worse
    assert ('1.2 times input plus output, and now 1.6' in
            capsys.readouterr().out) == worse


def test_times_are_never_compared(files, capsys):
    slow = Fact('d', 'takes', 1.0, 's', most=2.0)
    assert files((*ROWS, slow), (*ROWS, replace(slow, value=900.0))) == 0


def test_the_growth_of_a_limit_is_not_ours(files):
    limit = replace(ROWS[2], name='limit', most=None)
    assert files((*ROWS, limit), (*ROWS, replace(limit, value=9.0))) == 0


def test_what_is_missing_is_said(files, capsys):
    assert files(ROWS, ROWS[:2]) == 0
    assert 'only in the old one: noise: c: ours' in capsys.readouterr().out
    assert files(ROWS[1:], ROWS) == 0
    assert ('only in the new one: noise: a: ours against numpy' in
            capsys.readouterr().out)


def test_nothing_in_common_is_no_success(files, capsys):
    assert files(ROWS, ROWS, name='hrg') == 1
    assert 'nothing to compare' in capsys.readouterr().out


def test_a_quick_run_is_compared_with_a_quick_one(tmp_path, capsys):
    paths = [tmp_path / 'full.json', tmp_path / 'quick.json']
    save(paths[0], {'noise': SUITE})
    save(paths[1], {'noise': replace(SUITE, quick=True)})
    assert main([str(path) for path in paths]) == 1
    out = capsys.readouterr().out
    assert 'only in the old one: noise: a: ours against numpy' in out
    assert 'only in the new one: noise (quick): a: ours against numpy' in out
    assert 'nothing to compare' in out
    assert main([str(paths[1])] * 2) == 0


def test_no_measure_hides_another():
    # Two with one name would be compared as one.
    for name, suite in load(goals.ROOT / STORE).items():
        rows = list(filter(is_measure, suite.rows))
        assert len(measures({name: suite})) == len(rows)


@pytest.mark.parametrize('way', [['-m', 'benchmarks.compare'],
                                 [str(goals.ROOT / 'benchmarks/compare.py')]])
def test_as_a_command(way, tmp_path):
    paths = [tmp_path / 'old.json', tmp_path / 'new.json']
    for path, ratio in zip(paths, (2.0, 1.0)):
        save(path, {'noise': replace(SUITE, rows=(
            replace(ROWS[0], ratio=ratio), *ROWS[1:]))})
    root = goals.ROOT if way[0] == '-m' else tmp_path
    for order, code in ((paths, 1), (paths[::-1], 0)):
        run = subprocess.run([sys.executable, *way, *order], cwd=root,
                             capture_output=True, text=True)
        assert run.returncode == code and run.stderr == ''
        assert f'{code} of them worse' in run.stdout


def test_missing_files(tmp_path, capsys):
    with pytest.raises(SystemExit) as info:
        main([str(tmp_path / 'none.json')] * 2)
    assert info.value.code == 2
