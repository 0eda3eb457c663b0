import json
from dataclasses import replace

import pytest

from benchmarks import goals
from benchmarks.goals import (
    Answer,
    Goal,
    MissingResult,
    Stored,
    in_tests,
    measured,
)
from benchmarks.harness import Fact
from benchmarks.report import STORE
from benchmarks.store import load
from tests.benchmarks.test_store import ROWS, SUITE

STORED = Stored({'noise': SUITE})


def test_measured():
    assert measured('noise', '^a$')(STORED) == Answer('2 [1.5, 2.5]', True)
    assert measured('noise', '^b$', 'mem')(STORED) == Answer('12.5 MiB', True)
    assert measured('noise', '^c$')(STORED).found == '1.010 [1.000, 1.020]'
    slow = replace(SUITE, rows=(*ROWS, replace(ROWS[0], ratio=1.0)))
    answer = measured('noise', '^a$')(Stored({'noise': slow}))
    assert answer == Answer('2 [1.5, 2.5]; 1 [1.5, 2.5]', False)


@pytest.mark.parametrize('ask, message', [
    (measured('hrg', 'a'), "the suite 'hrg' is not stored"),
    (measured('noise', 'zebra'), "has no row for 'zebra'"),
    (measured('noise', 'a', against='torch'), "has no row for 'a'"),
    (in_tests('test_noise.py::test_zebra'), "there is no test"),
    (in_tests('test_zebra.py::test_noise'), "there is no test"),
])
def test_what_is_not_stored_is_an_error(ask, message):
    with pytest.raises(MissingResult, match=message):
        ask(STORED)


def test_a_row_without_a_goal_answers_none():
    bare = Stored({'noise': replace(SUITE, rows=(
        replace(ROWS[0], goal=None), ))})
    with pytest.raises(MissingResult, match="has no goal"):
        measured('noise', 'a')(bare)


def test_the_growth_of_a_limit_answers_none():
    ours = replace(ROWS[2], task='c, time against items')
    limit = replace(ours, most=None)
    both, alone = (Stored({'noise': replace(SUITE, rows=rows)})
                   for rows in ((ours, limit), (limit, )))
    assert goals.growth('noise', '^c')(both) == Answer(
        '1.010 [1.000, 1.020]; limit 1.010', True)
    with pytest.raises(MissingResult, match="no goal for the growth of '.c'"):
        goals.growth('noise', '^c')(alone)


def test_a_diagnostic_that_says_nothing_is_missed():
    def suite(*units):
        return Stored({'hrg': replace(SUITE, rows=tuple(
            Fact(f'Cora, public edges, {start} starts', 'split R-hat', 2.0,
                 unit) for start, unit in zip(
                     ('random', 'two METIS, two random', 'METIS'), units)))})

    assert goals.diagnostic(suite('(warned)', '(warned)', '(did not warn)')).met
    for silent in (('(did not warn)', '(warned)'),
                   ('(warned)', '(did not warn)')):
        assert goals.diagnostic(suite(*silent, '(warned)')).met is False


def test_missing_tables(tmp_path):
    stored = Stored({}, tmp_path)
    for answer in (goals.heterogeneous, goals.table_1, goals.node_level,
                   goals.caught, goals.accused, goals.which_to_use):
        with pytest.raises(MissingResult, match='is not stored'):
            answer(stored)
    (tmp_path / 'nip.json').write_text(json.dumps(
        {'cora|ClassSumClassifier|4': [0.71, 0.73]}))
    assert stored.mean('nip.json', 'cora|ClassSumClassifier|4') == (
        pytest.approx(72.0))
    with pytest.raises(MissingResult, match="no cell 'citeseer"):
        goals.node_level(stored)
    (tmp_path / 'rgnn.md').write_text('# RGNN\n')
    with pytest.raises(MissingResult, match="does not say"):
        goals.table_1(stored)


def test_tables_that_are_worse_are_missed(tmp_path):
    stored = Stored({}, tmp_path)
    (tmp_path / 'rgnn.md').write_text('It is ahead in 47 of 48 cells.')
    assert goals.table_1(stored) == Answer('47 of 48 cells', False)
    text = goals.Stored({}).table('audit.md')
    (tmp_path / 'audit.md').write_text(text)
    assert goals.caught(stored).met and goals.accused(stored).met
    (tmp_path / 'audit.md').write_text(text.replace('| caught |',
                                                    '| MISSED |', 1))
    assert goals.caught(stored).met is False
    (tmp_path / 'audit.md').write_text(text.replace('| 0 | 200 |',
                                                    '| 1 | 200 |', 1))
    assert goals.accused(stored).met is False


def test_table(monkeypatch):
    monkeypatch.setattr(goals, 'GOALS', (
        Goal('Noise', 'fast', measured('noise', '^a$')),
        Goal('Noise', 'small', lambda stored: Answer('9', False), 'too large'),
        Goal('Noise', 'known', lambda stored: Answer('', None),
             'nobody looked'),
        Goal('Noise', 'cheap', lambda stored: Answer('7', False)),
        Goal('Chain', 'fast', measured('hrg', ''))))
    assert goals.markdown(STORED) == (
        '5 goals: 1 met, 2 missed, 2 not measured.\n\n'
        '| | asked | found | |\n|---|---|---|---|\n'
        '| Noise | fast | 2 [1.5, 2.5] | met |\n'
        '| Noise | small | 9 | **missed**: too large |\n'
        '| Noise | known |  | not measured: nobody looked |\n'
        '| Noise | cheap | 7 | **missed**: no reason is known |\n'
        "| Chain | fast |  | not measured: the suite 'hrg' is not stored: run "
        "python -m benchmarks hrg |\n")
    assert len(goals.missing(STORED)) == 1


def test_every_goal_has_an_answer():
    # Whether it is met is not for a test to say: a busy machine, or a new one,
    # may miss it, and then the table says so.
    stored = Stored(load(goals.ROOT / STORE))
    assert goals.missing(stored) == []
    assert all(answer.found for _, answer, _ in goals.judged(stored))


def test_every_goal_of_a_suite_is_in_the_table():
    seen, suites = [], load(goals.ROOT / STORE)

    class Watched(Stored):
        def rows(self, *args, **kwargs):
            found = super().rows(*args, **kwargs)
            seen.extend(map(id, found))
            return found

    goals.judged(Watched(suites))
    for name, suite in suites.items():
        for row in suite.rows:
            if row.met is not None and getattr(row, 'unit', '') not in (
                    's', 'ns'):  # Those of single fits and steps.
                assert id(row) in seen, (name, row)


@pytest.mark.parametrize('ratios, met', [
    ((0.5, 0.45, 0.4), True), ((0.4, 0.5, 0.45), True),
    ((0.5, 0.45, 0.38), False), ((0.38, 0.45, 0.5), False)])
def test_flat_in_the_number_of_bins(ratios, met):
    suite = replace(SUITE, rows=tuple(
        replace(ROWS[0], task=f'features, {4**i} bins', name='FeatureRR',
                ratio=ratio, against='torch.rand')
        for i, ratio in enumerate(ratios)))
    assert goals.flat(Stored({'features': suite})).met is met
