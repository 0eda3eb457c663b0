import sys

import numpy as np
import pytest

from torch_geometric_dp.attacks import (
    AttackReport,
    AttributeInference,
    LinkTeller,
    MembershipInference,
    ScoredReport,
)
from torch_geometric_dp.attacks.report import scored_numbers


def report():
    return AttackReport('Guess(1)', {'accuracy': 0.75, 'odd': 2.0},
                        {'accuracy': 0.5}, ('the sun', 'the moon'))


def test_says_all():
    assert str(report()) == (
        'Guess(1)\n'
        '  accuracy  0.75 (without the target: 0.5)\n'
        '  odd       2\n'
        '  the attacker knew: the sun; the moon')
    assert report()['odd'] == 2.0


def test_bars():
    pytest.importorskip('matplotlib').use('Agg')
    ax = report().plot()
    widths = [bar.get_width() for bar in ax.patches]
    assert widths[:3] == [0.75, 2.0, 0.5] and np.isnan(widths[3])
    assert ax.get_title() == 'Guess'


def test_scored_numbers_by_counting():
    rng = np.random.RandomState(0)
    truth, scores = rng.rand(500) < 0.3, rng.randint(0, 9, 500).astype(float)
    yes, no = scores[truth], scores[~truth]
    above = (yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2
    numbers = scored_numbers(truth, scores)
    assert numbers['AUC'] == pytest.approx(above)
    # The top score is tied between many: one hundredth of the false ones, and
    # as large a part of the true ones as goes with it.
    share = 0.01 / (no == 8).mean()
    assert numbers['TPR at 1% FPR'] == pytest.approx(share * (yes == 8).mean())


def test_curve():
    pytest.importorskip('matplotlib').use('Agg')
    found = ScoredReport('Guess', {}, {}, (), truth=np.array([True, False]),
                         scores=np.array([1.0, 0.0]),
                         guessed=np.array([0.0, 0.0]))
    ax = found.plot()
    assert ax.get_title() == 'Guess' and ax.get_xscale() == 'log'
    false, true = ax.lines[0].get_data()
    assert true[false == 0].tolist() == [0.0, 1.0]
    assert false[-1] == 1 and (true[false > 0] == 1).all()


def test_curve_says_what_the_numbers_say():
    # One true suspicion is sure, and all else is tied: the curve has two
    # corners, far apart, and between them it is straight on plain axes alone.
    pytest.importorskip('matplotlib').use('Agg')
    truth, scores = np.arange(1000) < 100, (np.arange(1000) < 1).astype(float)
    numbers = scored_numbers(truth, scores)
    ax = ScoredReport('Guess', numbers, {}, (), truth, scores,
                      guessed=scores).plot()
    false, true = ax.lines[0].get_data()
    assert (np.diff(false) >= 0).all() and (np.diff(true) >= 0).all()
    seen = np.exp(np.interp(np.log(0.01), np.log(false[2:]),
                            np.log(true[2:])))  # As on the axes.
    assert numbers['TPR at 1% FPR'] == pytest.approx(0.01 + 0.99 * 0.01)
    assert seen == pytest.approx(numbers['TPR at 1% FPR'], rel=1e-3)


def test_curve_without_the_target():
    # What is found without it is no leak, so it must be seen beside it.
    pytest.importorskip('matplotlib').use('Agg')
    truth = np.arange(1000) < 100
    guessed = np.stack([truth, ~truth]).astype(float)
    for guess, wanted in ((guessed[0], 1), (guessed[1], 0), (guessed, 0.5)):
        ax = ScoredReport('Guess', {}, {}, (), truth, np.zeros(1000),
                          guess).plot()
        false, true = ax.lines[1].get_data()
        assert true[false < 1] == pytest.approx(wanted)
        assert [text.get_text() for text in ax.get_legend().get_texts()] == [
            'with the target', 'without it', 'guessing']


@pytest.mark.parametrize('make', [
    LinkTeller, AttributeInference, lambda: MembershipInference(lambda x: x)])
def test_scikit_learn_is_missed_before_anything_is_run(make, monkeypatch):
    monkeypatch.setitem(sys.modules, 'sklearn.metrics', None)
    with pytest.raises(ImportError, match=r'torch_geometric_dp\[attacks\]'):
        make()
