
import pytest
import torch
from torch_geometric.explain.algorithm.utils import set_masks

from benchmarks.papers.aca import embeddings
from tests.nn.forms import FORMS, ring
from torch_geometric_dp.nn import ACA


def graph():
    edges = torch.tensor([[0, 0, 1, 2, 2, 4], [1, 2, 2, 3, 4, 5]])
    return torch.cat([edges, edges.flip(0)], dim=1)


@pytest.mark.parametrize('hops', [0, 1, 2, 8])
@pytest.mark.parametrize('tau', [0.0, 0.5, 2.0])
def test_a_loop_over_nodes(hops, tau):
    h0 = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    out = ACA(hops, tau)(h0, graph())
    assert torch.allclose(out, embeddings(h0, graph(), hops, tau), atol=1e-5)


def test_one_step_towards_any_mean():
    h0, mean = torch.zeros(3, 2), torch.tensor([[3.0, 4.0], [0.3, 0.4],
                                                [0.0, 0.0]])
    out = ACA(1, tau=1.0).move(h0, mean)
    expected = torch.tensor([[2.4, 3.2], [0.0, 0.0], [0.0, 0.0]])
    assert torch.allclose(out, expected)


@FORMS
def test_forms_of_edges(form):
    h0 = torch.randn(7, 3)
    layer = ACA(3, 0.3)
    expected = layer(h0, graph())
    assert torch.allclose(layer(h0, form(graph(), 7)), expected, atol=1e-6)


def test_messages_and_products_are_the_same():
    # With repeated edges, and their gradients; explanations need messages.
    torch.manual_seed(0)
    edges = torch.cat([graph(), graph()[:, :3]], dim=1)
    rows, layers = torch.randn(7, 3), (ACA(3, 0.3), ACA(3, 0.3))
    set_masks(layers[1], torch.ones(edges.size(1)), edges, apply_sigmoid=False)
    out = []
    for layer in layers:
        h0 = rows.clone().requires_grad_()
        h = layer(h0, edges)
        (h * torch.arange(3)).sum().backward()
        out.append((h, h0.grad, layer.tau.grad))
    for one, other in zip(*out):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize('dtype', [torch.half, torch.bfloat16, torch.double])
def test_precision(dtype):
    h0 = torch.randn(7, 3)
    layer = ACA(3, 0.3)
    expected = layer(h0, graph())
    out = layer(h0.to(dtype), graph())
    assert out.dtype == dtype
    assert torch.allclose(out.float(), expected, atol=0.05)
    if dtype != torch.double:
        with torch.autocast('cpu', dtype=dtype):
            assert torch.allclose(layer(h0, graph()), expected, atol=0.05)


def test_distance_zero():
    # On a ring, equal embeddings do not move.
    h0 = torch.ones(6, 4, requires_grad=True)
    layer = ACA(hops=4, tau=0.1)
    out = layer(h0, ring(6))
    out.sum().backward()
    assert torch.allclose(out, h0)
    assert h0.grad.isfinite().all() and layer.tau.grad.isfinite()
    # Exactly zero, and all but.
    for size in (0.0, 1e-30, 1e-20, 1e-6):
        h0 = torch.zeros(6, 4).requires_grad_()
        layer = ACA(hops=2, tau=0.1)
        out = layer(h0 + size * torch.arange(6.0).view(-1, 1), ring(6))
        out.sum().backward()
        assert out.isfinite().all() and h0.grad.isfinite().all()
        assert layer.tau.grad.isfinite()
    for tau in (0.0, -1.0):
        layer = ACA(hops=2, tau=tau)
        layer(torch.zeros(6, 4), ring(6)).sum().backward()
        assert layer.tau.grad.isfinite()


def test_tau_learns():
    h0 = torch.randn(7, 3, generator=torch.Generator().manual_seed(1))
    target = ACA(3, tau=0.7)(h0, graph()).detach()
    layer = ACA(3, tau=0.1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        (layer(h0, graph()) - target).square().sum().backward()
        optimizer.step()
    assert layer.tau.item() == pytest.approx(0.7, abs=0.01)


def test_cached():
    h0 = torch.randn(7, 3)
    layer, plain = ACA(2, cached=True), ACA(2)
    expected = layer(h0, graph())
    empty = torch.empty(2, 0, dtype=torch.long)
    assert torch.equal(layer(h0, empty), expected)
    assert not torch.equal(plain(h0, empty), plain(h0, graph()))
    layer.reset_parameters()
    assert torch.equal(layer(h0, empty), plain(h0, empty))


@pytest.mark.parametrize('n', [0, 1, 3])
def test_graphs_without_edges(n):
    h0 = torch.randn(n, 2)
    out = ACA()(h0, torch.empty(2, 0, dtype=torch.long))
    assert torch.allclose(out, h0)


def test_repr_and_bad_arguments():
    assert repr(ACA()) == 'ACA()'
    assert repr(ACA(3, 0.5, True)) == 'ACA(hops=3, tau=0.5, cached=True)'
    with pytest.raises(ValueError, match="'hops' must be an integer of at "):
        ACA(-1)
