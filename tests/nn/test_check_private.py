import copy

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import (
    GCN,
    MLP,
    GCNConv,
    GraphSAGE,
    HeteroConv,
    SAGEConv,
)
from torch_geometric.transforms import ToSparseTensor

from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.nn import NAPConv, check_private
from torch_geometric_dp.transforms import EdgeRand, FeatureRR


class TwoLayers(torch.nn.Module):
    """A private layer, and one that is given edges of its own."""
    def __init__(self, second, **kwargs):
        super().__init__()
        self.first, self.second = NAPConv(3, 8, 4.0, **kwargs), second

    def forward(self, x, edge_index, released):
        h = self.first(x, edge_index).relu()
        return self.second(h, released)


def gcn(num_layers, **kwargs):
    model = GCN(3, 16, num_layers=num_layers, out_channels=3)
    model.convs[0] = NAPConv(3, model.convs[0].out_channels, epsilon=8.0,
                             **{'unit': 'edge', **kwargs})
    return model


def test_the_drop_in_leaks(graph):
    # Row 11 of the review.
    model = gcn(2)
    with pytest.raises(ValueError, match=r"'convs.1' \(GCNConv\) reads raw "
                       r"edges: .* the output moves"):
        check_private(model, graph)
    with pytest.raises(ValueError, match=r"'convs.1' .*, 'convs.2' .* reads"):
        check_private(gcn(3), graph)
    # Without any release, and the model stays as it was.
    assert model.convs[0].privacy.releases == ()
    assert model.training and not model.convs[1]._forward_pre_hooks
    check_private(gcn(1), graph)


def test_nothing_is_spent(graph):
    graph.privacy_budget = PrivacyBudget(edges=1.0)
    model = gcn(1)  # At an epsilon that the graph could not pay.
    check_private(model, graph)
    assert graph.privacy_budget.remaining('edges') == 1.0
    assert model.convs[0].privacy.releases == ()


def test_later_layers_with_released_edges(graph):
    released = EdgeRand(2.0)(copy.copy(graph))
    for second in (GCNConv(8, 3), GCNConv(8, 3, cached=True)):
        model = TwoLayers(second, unit='edge')
        check_private(model, graph, lambda model, data: model(
            data.x, data.edge_index, released.edge_index))
        with pytest.raises(ValueError, match=r"'second' \(GCNConv\) reads"):
            check_private(model, graph, lambda model, data: model(
                data.x, data.edge_index, data.edge_index))
    # On a graph whose edges were released, whoever likes may read them.
    check_private(GCN(3, 8, num_layers=2), released)
    # Or none of them.
    model = TwoLayers(MLP([8, 8, 3], norm=None), unit='edge')
    check_private(model, graph, lambda model, data: model(
        data.x, data.edge_index, None))


def test_edges_that_a_layer_has_kept(graph):
    # What it remembers of the raw graph would hide that it reads it.
    model = TwoLayers(GCNConv(8, 3, cached=True), unit='edge')
    model(graph.x, graph.edge_index, graph.edge_index)
    assert model.second._cached_edge_index is not None
    with pytest.raises(ValueError, match=r"'second' \(GCNConv\) reads"):
        check_private(model, graph, lambda model, data: model(
            data.x, data.edge_index, data.edge_index))
    assert model.second._cached_edge_index is not None


def test_edges_that_were_changed_since(graph):
    released = EdgeRand(2.0)(copy.copy(graph))
    released.edge_index = graph.edge_index
    with pytest.raises(ValueError, match='reads raw edges'):
        check_private(GCN(3, 8, num_layers=1), released)


def test_without_a_private_layer(graph):
    with pytest.raises(ValueError, match='there is no private layer'):
        check_private(GraphSAGE(3, 8, num_layers=2), graph)
    check_private(MLP([3, 8, 2], norm=None), graph,
                  lambda model, data: model(data.x))


def test_the_model_itself(graph):
    class Degrees(torch.nn.Module):
        def forward(self, x, edge_index):
            return x.sum() * edge_index.size(1)

    with pytest.raises(ValueError, match=r'the model itself \(Degrees\)'):
        check_private(Degrees(), graph)


def test_features(graph):
    class Skip(torch.nn.Module):
        def __init__(self, **kwargs):
            super().__init__()
            self.conv = NAPConv(3, 3, 4.0, **kwargs)
            self.lin = torch.nn.Linear(3, 3)

        def forward(self, x, edge_index):
            return {'out': (self.conv(x, edge_index) + self.lin(x), )}

    # Who protects nodes protects their rows.
    with pytest.raises(ValueError, match=r"'lin' \(Linear\) reads raw "
                       r"features"):
        check_private(Skip(max_degree=2), graph)
    check_private(Skip(unit='edge'), graph)
    check_private(Skip(max_degree=2), FeatureRR(4.0, (0.0, 1.0))(graph))
    check_private(gcn(1, unit='node', max_degree=2), graph)


@pytest.mark.parametrize('change', [
    lambda data: ToSparseTensor(layout=torch.sparse_csr)(data),
    lambda data: ToSparseTensor(layout=torch.sparse_coo)(data),
    pytest.param(lambda data: ToSparseTensor()(data),
                 marks=pytest.mark.sparse)])
def test_sparse_matrices(graph, change):
    data = change(graph)
    one, two = (GraphSAGE(3, 8, num_layers=count) for count in (1, 2))
    for model in (one, two):
        model.convs[0] = NAPConv(3, 8, 4.0, unit='edge')
    with pytest.raises(ValueError, match=r"'convs.1' \(SAGEConv\) reads"):
        check_private(two, data)
    check_private(one, data)


def test_lazy_layers_and_dropout(graph):
    model = GCN(3, 8, num_layers=1, dropout=0.5, norm='batch_norm')
    model.convs[0] = NAPConv(-1, 8, 4.0, unit='edge')
    check_private(torch.nn.ModuleList([model]), graph, lambda models, data:
                  models[0](data.x, data.edge_index).softmax(dim=1))
    assert model.convs[0].lin.in_channels == -1


def test_hetero(graph):
    data = HeteroData()
    data['a'].x = graph.x
    data['a', 'to', 'a'].edge_index = graph.edge_index
    model = HeteroConv({('a', 'to', 'a'): SAGEConv(3, 2)})
    with pytest.raises(ValueError, match='SAGEConv. reads raw edges'):
        check_private(model, data, lambda model, data: model(
            data.x_dict, data.edge_index_dict))
