import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    ChebConv,
    GCNConv,
    GraphNorm,
    GraphSAGE,
    LayerNorm,
    PairNorm,
)

from torch_geometric_dp.graph.ego import EgoGraph
from torch_geometric_dp.mechanisms import DPSGD
from torch_geometric_dp.nn.training.example_gradients import (
    ExampleGradients,
    dense_layers,
)


def call(model, x, edge_index):
    return model(x, edge_index)


def gradients(model, method='auto'):
    return ExampleGradients(model, 3, call, F.cross_entropy, torch.tensor(0),
                            method)


@pytest.mark.parametrize('build', [GraphSAGE, GCN, GAT, GIN])
def test_each_example_by_itself(build):
    torch.manual_seed(0)
    model = build(3, 4, num_layers=2, out_channels=2)
    edges = torch.randint(0, 20, (2, 40))
    parts = EgoGraph(edges, 20, 2).subgraphs(torch.arange(12))
    x, y = torch.randn(20, 3), torch.arange(12) % 2
    found = gradients(model)
    assert found.method == 'vmap'
    found.together = 5
    chunks = list(found(parts, x, y))
    assert [len(chunk[0]) for chunk in chunks] == [5, 5, 2]
    order = parts.first_node.diff().argsort()
    got = [torch.cat(column) for column in zip(*chunks)]
    for place, i in enumerate(order.tolist()):
        node = parts.nodes[parts.first_node[i]:parts.first_node[i + 1]]
        edge = parts.edges[:, parts.first_edge[i]:parts.first_edge[i + 1]]
        model.zero_grad()
        F.cross_entropy(model(x[node], edge)[:1], y[i:i + 1]).backward()
        for column, parameter in zip(got, model.parameters()):
            assert torch.allclose(column[place], parameter.grad, atol=1e-5)
    # The layers are as they were.
    assert all(getattr(m, 'add_self_loops', None) is not False
               and not m._forward_pre_hooks for m in model.modules())


class One(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index):
        return self.layer(x, edge_index)


@pytest.mark.parametrize('layer', [
    ChebConv(3, 2, 2), GCNConv(3, 2, improved=True)])
def test_what_cannot_be_put_together_is_run_one_by_one(layer):
    found = gradients(One(layer))
    assert found.method == 'loop'
    parts = EgoGraph(torch.tensor([[0, 1], [1, 0]]), 3, 1).subgraphs(
        torch.arange(3))
    chunk, = found(parts, torch.randn(3, 3), torch.tensor([0, 1, 0]))
    assert all(len(column) == 3 for column in chunk)
    with pytest.raises((RuntimeError, ValueError)):
        gradients(One(layer), method='vmap')


@pytest.mark.parametrize('norm', [
    torch.nn.BatchNorm1d(4), torch.nn.InstanceNorm1d(4), GraphNorm(4),
    PairNorm(), LayerNorm(4, mode='graph')])
def test_layers_that_mix_examples_are_refused_by_name(norm):
    model = GraphSAGE(3, 4, num_layers=2, out_channels=2, norm=norm)
    with pytest.raises(ValueError, match=r"'norms.0' \(.*Norm.*\) mixes"):
        gradients(model)
    model = GraphSAGE(3, 4, num_layers=2, out_channels=2,
                      norm=LayerNorm(4, mode='node'))
    assert gradients(model).method == 'vmap'


def chain():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Sequential(
            torch.nn.ReLU(), torch.nn.Linear(4, 4, bias=False)),
        torch.nn.Tanh(), torch.nn.Linear(4, 2))


def test_dense_layers_need_no_gradients_written_out():
    mechanism = DPSGD(2.0, 1e-5, 0.1, 20, num_parameters=42, max_grad_norm=0.1)
    parts = EgoGraph(torch.empty(2, 0).long(), 9, 0).subgraphs(torch.arange(9))
    x, y = torch.randn(9, 3), torch.arange(9) % 2
    totals = []
    for method in ('factors', 'vmap', 'loop'):
        found = ExampleGradients(
            chain(), 3, lambda model, x, edge_index: model(x),
            F.cross_entropy, torch.tensor(0), method, rows=True)
        assert found.method == method
        totals.append([part * 0.1 / mechanism.grid_steps for part in
                       found.total(mechanism, parts, x, y)])
    for one, two, three in zip(*totals):
        assert torch.allclose(one, two, atol=2e-3) and (one != 0).any()
        assert torch.allclose(two, three, atol=1e-5)


@pytest.mark.parametrize('model', [
    GraphSAGE(3, 4, 1, 2), torch.nn.Sequential(chain(), torch.nn.PReLU()),
    torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Softmax(dim=0)),
    type('Chain', (torch.nn.Sequential, ), {})(torch.nn.Linear(3, 2)),
    torch.nn.Sequential(*[torch.nn.Linear(3, 3)] * 2),
    torch.nn.Sequential(chain(), torch.nn.Linear(2, 2).requires_grad_(False)),
    torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))])
def test_what_is_no_chain_of_dense_layers(model):
    assert dense_layers(model) == []
    assert len(dense_layers(chain())) == 3


class Remembers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, 2))
        self.register_buffer('mean', torch.zeros(3))

    def forward(self, x, edge_index):
        self.mean += x.detach().mean(dim=0)
        return (x - self.mean) @ self.weight


def test_what_remembers_raw_data_is_refused():
    with pytest.raises(ValueError, match="cached=False"):
        gradients(GCN(3, 4, 2, 2, cached=True))
    with pytest.raises((RuntimeError, ValueError), match='mean|buffer|func'):
        gradients(Remembers())


def test_parameters_that_cannot_be_trained_are_refused():
    with pytest.raises(ValueError, match='must have a shape'):
        gradients(GraphSAGE(-1, 4, 2, 2))
    with pytest.raises(ValueError, match='must hold floats or doubles'):
        gradients(GraphSAGE(3, 4, 2, 2).half())
    with pytest.raises(ValueError, match='must have parameters'):
        gradients(GraphSAGE(3, 4, 2, 2).requires_grad_(False))
