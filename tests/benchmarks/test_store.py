from dataclasses import replace

import pytest

from benchmarks.harness import Fact, Growth, Row
from benchmarks.store import Suite, load, merge, save

ROWS = (Row('a', 'ours', 1e6, 2.0, 1.5, 2.5, 'numpy', 1.5, True),
        Fact('b', 'memory', 12.5, 'MiB', most=64.0),
        Growth('c', 'ours', 1.01, 'as exponent', most=1.05, sizes=(10, 100),
               seconds=(1.0, 10.5), low=1.0, high=1.02))
SUITE = Suite(ROWS, {'cores': 2}, '2026-01-01', 3.5, False)


def test_there_and_back(tmp_path):
    path = tmp_path / 'speed.json'
    assert load(path) == {}
    save(path, {'noise': SUITE})
    back = load(path)['noise']
    assert back.rows[:2] == ROWS[:2] and replace(back, rows=ROWS) == SUITE
    assert type(back.rows[2]) is Growth
    assert list(back.rows[2].sizes) == [10, 100]
    save(path, load(path))
    assert load(path)['noise'] == back


def test_a_suite_replaces_its_own_rows_alone():
    other = replace(SUITE, rows=ROWS[:1])
    merged = merge({'noise': SUITE, 'hrg': SUITE}, {'hrg': other})
    assert merged == {'noise': SUITE, 'hrg': other}
    assert merge({}, {'hrg': other}) == {'hrg': other}


def test_a_quick_run_replaces_no_full_one():
    quick = replace(SUITE, quick=True)
    with pytest.raises(ValueError, match="'hrg' must not be a quick run"):
        merge({'hrg': SUITE}, {'hrg': quick})
    assert merge({'hrg': quick, 'noise': SUITE}, {'hrg': quick})
    assert merge({'hrg': quick}, {'hrg': SUITE}) == {'hrg': SUITE}
