import pytest
import torch

from torch_geometric_dp.explain import feature_sensitivity


def test_eq_5():
    torch.manual_seed(0)
    encoder = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(),
                                  torch.nn.Dropout(0.5)).train()
    x = torch.rand(6, 4)
    beta = feature_sensitivity(encoder, x, sensitive=[1, 3])
    expected = torch.zeros(3)
    encoder.eval()
    for row in x:  # As it stands.
        masked = row.clone()
        masked[[1, 3]] = 0.0
        change = (encoder(row) - encoder(masked)).abs()
        expected += change / change.sum()
    assert torch.allclose(beta, expected / 6)
    mask = torch.tensor([False, True, False, True])
    encoder.train()
    assert torch.equal(feature_sensitivity(encoder, x, mask), beta)
    assert encoder.training and not beta.requires_grad


def test_raw_features():
    beta = feature_sensitivity(torch.nn.Identity(), torch.ones(5, 4), [0])
    assert beta.tolist() == [1.0, 0.0, 0.0, 0.0]
    # Rows that do not change tell nothing.
    x = torch.tensor([[0.0, 1.0], [2.0, 1.0]])
    assert feature_sensitivity(torch.nn.Identity(), x, [0]).tolist() == [1, 0]


@pytest.mark.parametrize('sensitive', [[], [4], [-1], torch.zeros(4).bool()])
def test_bad_columns(sensitive):
    with pytest.raises(ValueError, match="'sensitive' must name some of the 4"):
        feature_sensitivity(torch.nn.Identity(), torch.ones(5, 4), sensitive)


def test_nothing_is_sensitive():
    with pytest.raises(ValueError, match='no feature is sensitive'):
        feature_sensitivity(torch.nn.Identity(), torch.zeros(5, 4), [0])
