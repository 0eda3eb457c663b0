import pytest
import torch

from torch_geometric_dp.explain import HeteroScores


def test_theta():
    alpha, beta = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.1, 0.6, 0.3])
    for gamma in (0.0, 0.3, 1.0):
        scores = HeteroScores(alpha, beta, gamma, public=True)
        theta = gamma * alpha + (1 - gamma) * (0.1 + 0.6 - beta)  # Eq. 7
        expected = (theta / theta.sum()).double()
        assert torch.allclose(scores.theta(), expected, atol=1e-7)
        assert float(scores.theta().sum()) == pytest.approx(1.0, abs=1e-15)
        assert scores.with_gamma(0.3).theta().equal(
            HeteroScores(alpha, beta, 0.3).theta())


def test_without_sensitivity():
    scores = HeteroScores(torch.tensor([3.0, 1.0]), gamma=1.0)
    assert scores.theta().tolist() == [0.75, 0.25]
    assert scores.with_gamma(0.0).theta().tolist() == [0.5, 0.5]
    assert not scores.public


def test_a_share_may_be_zero():
    scores = HeteroScores(torch.tensor([1.0, 0.0]), gamma=1.0)
    assert scores.theta().tolist() == [1.0, 0.0]


def test_save_and_load(tmp_path):
    scores = HeteroScores(torch.rand(5), torch.rand(5), 0.2, public=True)
    scores.save(tmp_path / 'scores.pt')
    again = HeteroScores.load(tmp_path / 'scores.pt')
    assert again == scores and hash(again) == hash(scores)
    assert again.theta().equal(scores.theta()) and again.public
    assert repr(scores).startswith('HeteroScores([5], gamma=0.2, public=True,')
    assert scores != HeteroScores(torch.rand(5), public=True)


@pytest.mark.parametrize('arguments, message', [
    (dict(importance=torch.rand(2, 2)), "'importance' must have shape"),
    (dict(importance=torch.tensor([1.0, -1.0])), 'not negative'),
    (dict(importance=torch.zeros(3)), 'not all zero'),
    (dict(importance=torch.tensor([float('nan')])), 'finite'),
    (dict(sensitivity=torch.ones(2)), 'must have the same length'),
    (dict(gamma=1.5), "'gamma' must lie in"),
])
def test_bad_scores(arguments, message):
    with pytest.raises(ValueError, match=message):
        HeteroScores(**{'importance': torch.ones(3), **arguments})
