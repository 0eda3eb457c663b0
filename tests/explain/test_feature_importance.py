import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from torch_geometric_dp.explain import feature_importance

METHODS = ['gradient_shap', 'shapley', 'deep_lift_shap']


class GNN(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.conv = GCNConv(4, 2, bias=False)
        self.conv.lin.weight.data = weight

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


@pytest.fixture
def data():
    x = torch.rand(40, 4, generator=torch.Generator().manual_seed(0))
    node = torch.arange(40)
    return Data(x=x, y=(x[:, 0] > 0.5).long(), train_mask=node < 30,
                edge_index=torch.stack([node, (node + 1) % 40]))


WEIGHT = torch.tensor([[-4.0, -1.0, 0.0, 0.0], [4.0, 1.0, 0.0, 0.0]])


def head():
    model = torch.nn.Sequential(torch.nn.Linear(4, 2, bias=False))
    model[0].weight.data = WEIGHT.clone()
    return model


@pytest.mark.parametrize('method', METHODS)
def test_the_columns_that_matter(data, method):
    torch.manual_seed(0)
    model = head().train()
    alpha = feature_importance(model, data, method)
    assert alpha.shape == (4, ) and alpha.sum() == pytest.approx(1.0)
    assert alpha[0] > 2 * alpha[1] > 0 and (alpha[2:] == 0).all()
    assert model.training and not alpha.requires_grad


@pytest.mark.parametrize('method', METHODS[:2])
def test_a_gnn(data, method):
    torch.manual_seed(0)
    alpha = feature_importance(GNN(WEIGHT.clone()), data, method)
    assert alpha[0] > alpha[1] > 0 and (alpha[2:] == 0).all()


def test_shapley_values_of_columns_are_exact_for_two_players(data):
    # Two columns matter: both orders, written out.
    torch.manual_seed(0)
    model, x = head(), data.x
    absent = x.mean(dim=0)
    nodes = data.train_mask.nonzero().view(-1)

    def score(present):
        z = torch.where(torch.tensor(present), x, absent)
        out = model(z).log_softmax(dim=-1)
        return out[nodes, data.y[nodes]].mean()

    with torch.no_grad():
        none, both = score([False] * 4), score([True] * 4)
        one, two = (score([True, False, True, True]),
                    score([False, True, True, True]))
    first = ((one - none) + (both - two)) / 2
    second = ((two - none) + (both - one)) / 2
    alpha = feature_importance(model, data, 'shapley', num_samples=600)
    share = float(first.abs() / (first.abs() + second.abs()))
    assert float(alpha[0]) == pytest.approx(share, abs=0.03)


def test_without_labels_the_predicted_class_counts(data):
    torch.manual_seed(0)
    del data.y, data.train_mask
    alpha = feature_importance(head(), data)
    assert alpha[0] > alpha[1] > 0


def test_bad_arguments(data):
    with pytest.raises(ValueError, match="'method' must be one of"):
        feature_importance(head(), data, 'guess')
    with pytest.raises(ValueError, match="needs a head"):
        feature_importance(GNN(WEIGHT.clone()), data, 'deep_lift_shap')
    with pytest.raises(ValueError, match='gives no finite importances'):
        feature_importance(GNN(torch.zeros(2, 4)), data)
