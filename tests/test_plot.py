import pytest
import torch

from torch_geometric_dp import plot
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
