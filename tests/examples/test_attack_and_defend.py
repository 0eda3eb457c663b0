import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from torch_geometric_dp.attacks import AttackReport, ScoredReport

pytest.importorskip('matplotlib')
pytest.importorskip('sklearn')

EXAMPLES = Path(__file__).parents[2] / 'examples'
TITLE = 'Who <is> it?'


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import attack_and_defend
    assert [*attack_and_defend.attacks(None)] == [*attack_and_defend.ABOUT]
    monkeypatch.setattr(attack_and_defend, 'ABOUT', {TITLE: 'They ask.'})
    return attack_and_defend


@pytest.fixture
def reports():
    return {TITLE: [
        ScoredReport('Guess(<1>)', {'AUC': value}, {'AUC': 0.5}, ('a & b', ),
                     truth=np.array([True, False]),
                     scores=np.array([value, 0.3]),
                     guessed=np.array([0.5, 0.5]))
        for value in (0.987, 0.123)]}


def test_table(example, reports):
    rows = re.findall('<tr.*?>(.*?)</tr>', example.table(reports))
    assert [len(re.findall('<t[hd]', row)) for row in rows] == [5, 1, 5]
    assert rows[1] == '<th colspan="5">Who &lt;is&gt; it?</th>'
    cells = re.findall('<td.*?>(.*?)</td>', rows[2])
    assert cells == ['AUC', '0.987', '0.500', '0.123', '0.500']
    assert rows[0].count('<th class="n">') == rows[2].count('<td class="n">')


def test_no_minus_before_zero(example):
    assert example.row(['a', -0.0001, -0.01]) == (
        '<tr><td>a</td><td class="n">0.000</td><td class="n">-0.010</td></tr>')


def test_section(example, reports):
    text = example.section(*next(iter(reports.items())))
    assert 'a &amp; b' in text and '<p>They ask.</p>' in text
    # Two attacks where they differ.
    assert text.count('<p class="knew">Guess(&lt;1&gt;). The attacker') == 1
    one, two = reports[TITLE]
    text = example.section(TITLE, [one, replace(two, attack='Guess(2)')])
    assert 'Guess(&lt;1&gt;), then Guess(2). The attacker' in text
    # All figures are a part of the page.
    assert re.findall('src="([^,]*),', text) == ['data:image/png;base64'] * 2


def test_page(example, tmp_path, monkeypatch, reports):
    asked = []

    def run(data, released, release):
        asked.append((data, released))
        return reports

    monkeypatch.setattr(example, 'run', run)
    path = tmp_path / 'page.html'
    example.main(['--page', str(path), '--edges', '0.5'])
    [(data, released)] = asked
    assert released.privacy.epsilon('edges') == 0.5
    page = path.read_text()
    assert 'EdgeRR(epsilon=0.5)' in page and 'Who &lt;is&gt; it?' in page
    assert 'http' not in page
    # Members, and others that look like them, are as many.
    assert not (data.train_mask & data.shadow_mask).any()
    judged = data.judged_mask & ~data.shadow_mask
    assert int(judged.sum()) == 2 * int(data.train_mask.sum())


def test_both_sides(example, monkeypatch):
    monkeypatch.setattr(example, 'attacks', lambda release: {
        'guess': ([Guess(), Guess()], lambda graph: graph.num_edges, None)})
    data = example.draw_masks(example.DigitsGraph()[0])
    released = data.clone()
    released.edge_index = released.edge_index[:, :10]
    both = example.run(data, released, None)['guess']
    assert [report['edges'] for report in both] == [data.num_edges, 10]


class Guess:
    def run(self, target, data):
        return AttackReport('Guess', {'edges': target}, {}, ())
