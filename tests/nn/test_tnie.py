
import pytest
import torch

from benchmarks.papers.tnie import influence
from tests.nn.forms import FORMS, ring
from torch_geometric_dp.nn import TNIE
from torch_geometric_dp.nn.tnie import pagerank


def graph():
    # Two hubs, a tail, and a node without edges.
    edges = torch.tensor([[0, 0, 0, 0, 4, 5, 5, 5], [1, 2, 3, 4, 5, 6, 7, 8]])
    return torch.cat([edges, edges.flip(0)], dim=1)


@pytest.mark.parametrize('hops', [0, 1, 2, 4])
def test_a_loop_over_nodes(hops):
    x, layer = torch.randn(10, 3), TNIE(3, 8, hops)
    layer.slope.data.fill_(0.7)
    layer.shift.data.fill_(-0.2)
    out = layer(x, graph())
    assert out.shape == (10, )
    assert torch.allclose(out, influence(layer, x, graph()), atol=1e-5)
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@FORMS
def test_forms_of_edges(form):
    x, layer = torch.randn(10, 3), TNIE(3, 8)
    expected = layer(x, graph())
    assert torch.allclose(layer(x, form(graph(), 10)), expected)
    again = torch.cat([graph(), graph()], dim=1)
    assert torch.equal(layer(x, again), expected)


def test_pagerank():
    networkx = pytest.importorskip('networkx')
    edges = torch.tensor([[0, 0, 1, 2, 2, 3], [1, 2, 2, 0, 3, 4]])
    expected = networkx.pagerank(networkx.DiGraph(edges.t().tolist()),
                                 tol=1e-12)
    out = pagerank(edges, 5)
    assert out.tolist() == pytest.approx([expected[i] for i in range(5)])
    assert pagerank(ring(6), 6).tolist() == pytest.approx([1 / 6] * 6)
    assert pagerank(edges[:, :0], 4).tolist() == pytest.approx([0.25] * 4)


def test_fit_to_pagerank():
    torch.manual_seed(0)
    x = torch.eye(10)
    layer = TNIE(10, 16)
    target = (pagerank(graph(), 10) * 10).log1p().float()
    before = (layer(x, graph()) - target).square().mean()
    assert layer.fit(x, graph()) is layer
    after = (layer(x, graph()) - target).square().mean()
    assert after < 0.5 * before
    # The hubs come first.
    rank = layer.rank(x, graph())
    assert set(rank.argsort(descending=True)[:2].tolist()) == {0, 5}
    assert not rank.requires_grad


def test_fit_to_a_given_target():
    torch.manual_seed(0)
    x = torch.eye(12)
    target = TNIE(12, 32)(x, ring(12)).detach()
    layer = TNIE(12, 32).fit(x, ring(12), target)
    assert (layer(x, ring(12)) - target).abs().max() < 0.02
    with pytest.raises(ValueError, match=r"'target' must have shape \[12\]"):
        layer.fit(x, ring(12), target[1:])


def test_rank():
    layer = TNIE(1, 4, hops=0)
    score = torch.tensor([0.3, -1.0, 0.3, 2.0])
    layer.forward = lambda x, edge_index: score
    assert layer.rank(None, None).tolist() == [3.0, 1.0, 3.0, 4.0]


@pytest.mark.parametrize('n', [0, 1, 3])
def test_graphs_without_edges(n):
    x, none = torch.randn(n, 2), torch.empty(2, 0, dtype=torch.long)
    layer = TNIE(2, 4)
    assert torch.equal(layer(x, none), torch.zeros(n))
    assert layer.fit(x, none, epochs=2).rank(x, none).shape == (n, )


def test_repr_and_reset():
    layer = TNIE(3, 8, hops=3)
    assert repr(layer) == 'TNIE(in_channels=3, hidden_channels=8, hops=3)'
    layer.slope.data.fill_(5.0)
    layer.reset_parameters()
    assert layer.slope.item() == 1.0 and layer.shift.item() == 0.0
