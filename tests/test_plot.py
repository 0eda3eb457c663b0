import numpy as np
import pytest
import torch

from tests.accountant.test_ledger import release
from torch_geometric_dp import PrivacyBudget, plot
from torch_geometric_dp.explain import HeteroScores
from torch_geometric_dp.mechanisms import Duchi, FeatureRR

matplotlib = pytest.importorskip('matplotlib')
matplotlib.use('Agg')


def test_scores():
    scores = HeteroScores(torch.rand(9), torch.rand(9), 0.3, public=True)
    ax = plot.scores(scores)
    points = ax.collections[0]
    assert torch.allclose(torch.tensor(points.get_offsets().data),
                          torch.stack([scores.importance,
                                       scores.sensitivity], dim=1))
    assert torch.allclose(torch.tensor(points.get_array()), scores.theta())
    assert '0.3' in ax.get_title()


def test_expected_error():
    ax = plot.expected_error({'Duchi': Duchi, 'FeatureRR': FeatureRR},
                             [0.5, 1.0], [0.0, 0.4],
                             draws={'Duchi': [1, 2], 'FeatureRR': [3, 4]})
    line = ax.lines[0]
    assert line.get_label() == 'Duchi'
    expected = [(Duchi(e).expected_error(0.0) + Duchi(e).expected_error(0.4)) /
                2 for e in (0.5, 1.0)]
    assert line.get_ydata() == pytest.approx(expected)
    assert ax.lines[1].get_ydata().tolist() == [1, 2]


def test_intervals():
    _, ax = matplotlib.pyplot.subplots()
    out = plot.intervals({'a': {2.0: [0.3], 1.0: [0.1, 0.2]}}, {'b': 0.5}, ax)
    assert out is ax
    assert ax.containers[0].lines[0].get_xdata().tolist() == [1.0, 2.0]
    # Student's t with two degrees of freedom: 4.303 / sqrt(3) times the spread.
    assert plot.interval([0.7, 0.8, 0.9]) == pytest.approx(0.2484, abs=1e-4)


def test_spending(monkeypatch, tmp_path):
    monkeypatch.setenv('TORCH_GEOMETRIC_DP_STATE', str(tmp_path / 'state'))
    budget = PrivacyBudget.open(tmp_path / 'vault', 'some $ and $',
                                labels=2.0, edges=4.0)
    for name, epsilon in (('a', 0.5), ('b', 1.0)):
        budget.bind(name, b'c' * 32, b'n' * 32, [release(name, epsilon)])
    budget.raise_caps('more people', labels=3.0)
    ax = plot.spending(budget)
    labels, label_cap, edges, edge_cap = ax.lines
    # The last one is now.
    assert labels.get_ydata().tolist() == [0.0, 0.5, 1.5, 1.5, 1.5]
    assert label_cap.get_ydata().tolist() == [2.0, 2.0, 2.0, 3.0, 3.0]
    assert edges.get_ydata().tolist() == [0.0] * 5
    assert edge_cap.get_ydata().tolist() == [4.0] * 5
    assert labels.get_drawstyle() == 'steps-post'
    assert label_cap.is_dashed() and not labels.is_dashed()
    times = labels.get_xdata()
    assert [time.isoformat() for time in times[:4]] == [
        line.at for line in budget.history()]
    assert all(a <= b for a, b in zip(times, times[1:]))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        'labels', 'edges', 'cap']
    assert ax.get_title() == "Spending of 'some $ and $'"
    ax.figure.savefig(tmp_path / 'figure.png')


def test_spending_of_a_long_life_is_thinned_out(monkeypatch):
    monkeypatch.setattr(plot, '_POINTS', 3)
    budget = PrivacyBudget(labels=20.0)
    for i in range(10):
        budget.bind(str(i), b'c' * 32, b'n' * 32, [release(str(i), 1.0)])
    spent = plot.spending(budget).lines[0].get_ydata().tolist()
    assert spent == [0.0, 4.0, 8.0, 10.0, 10.0]


def test_what_is_infinite_is_not_drawn():
    budget = PrivacyBudget(epsilon=float('inf'))
    ax = plot.spending(budget)
    assert all(np.isnan(ax.lines[1].get_ydata()))
    assert ax.get_title() == 'Spending'
