from dataclasses import replace

import pytest

from benchmarks import goals, report
from benchmarks.store import load, save
from tests.benchmarks.test_store import SUITE


def test_the_stored_report_is_the_one_of_the_stored_results():
    suites = load(goals.ROOT / report.STORE)
    stored = (goals.ROOT / 'benchmarks' / 'RESULTS.md').read_text()
    assert stored == report.markdown(suites), (
        'run python -m benchmarks.report')


def test_a_quick_run_says_so(tmp_path):
    pytest.importorskip('matplotlib')
    save(tmp_path / 'a.json', {'noise': replace(SUITE, quick=True)})
    report.main(['--json', str(tmp_path / 'a.json'), '--report',
                 str(tmp_path / 'out')])
    text = (tmp_path / 'out' / 'RESULTS.md').read_text()
    assert 'This is a quick run' in text and '## Goals' not in text
    assert '| a | ours | 1e+06 | numpy (limit) | 2 [1.5, 2.5] ' in text
    assert '| b | memory | 12 MiB | at most 64 | met |' in text
    assert '| c | ours | 1.010 [1.000, 1.020] | 10, 100 ' in text
    assert (tmp_path / 'out' / 'growth.png').stat().st_size > 10_000


def test_a_report_with_holes_is_an_error(tmp_path):
    pytest.importorskip('matplotlib')
    save(tmp_path / 'a.json', {'noise': SUITE})
    with pytest.raises(SystemExit) as info:
        report.main(['--json', str(tmp_path / 'a.json'), '--report',
                     str(tmp_path)])
    assert "the suite 'hrg' is not stored: run python -m benchmarks hrg" in (
        str(info.value))
    text = (tmp_path / 'RESULTS.md').read_text()
    assert "| not measured: the suite 'hrg' is not stored" in text


def test_machines_are_told_apart():
    other = replace(SUITE, machine={'cores': 64})
    text = report.machines({'noise': SUITE, 'labels': SUITE, 'hrg': other})
    assert text.count('| cores | 2 |') == text.count('| cores | 64 |') == 1
    assert 'Suites: `noise` (2026-01-01, 4 s), `labels` (2026-01-01, 4 s).' in (
        text)


def test_short():
    assert list(map(report.short, (500, 10_000, 138_000, 2_000_000))) == [
        '500', '10k', '138k', '2M']
