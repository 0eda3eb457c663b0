import math

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN
from torch_geometric.utils import to_undirected

from tests.nn.models.test_label_diffusion import blocks, release
from tests.nn.models.test_rgnn import with_y
from torch_geometric_dp.nn import ForwardCorrectedLoss
from torch_geometric_dp.nn.models import LabelDiffusion, LabelEnsemble
from torch_geometric_dp.nn.models.label_diffusion import ReleasedLabels
from torch_geometric_dp.nn.models.label_ensemble import (
    SparseNetwork,
    _folds,
    _Likelihood,
    sparse_inputs,
)
from torch_geometric_dp.transforms import LabelRR

QUICK = {'hidden_channels': 8, 'folds': 3, 'epochs': 12, 'lr': 0.1}


def rows(y, told=1.0, width=8, seed=0):
    """Features that tell the class, some more than noise does."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(y), width, generator=generator)
    x[torch.arange(len(y)), y] += told
    return x


def graph(told=1.0, n=300, edges=True):
    data = blocks(n)
    data.x = rows(data.y, told)
    if not edges:
        data.edge_index = data.edge_index[:, :0]
    return data


def fitted(data, epsilon=2.0, seed=0, **kwargs):
    private = release(data, epsilon, seed)
    model = LabelEnsemble(8, 3, **{**QUICK, **kwargs})
    return model.fit(private), private


def right(model, private, data):
    hit = (model.predict(private) == data.y)[~data.released]
    return float(hit.float().mean())


def test_edges_alone_rows_alone_and_both():
    assert repr(LabelEnsemble(8, 3, folds=3)) == (
        'LabelEnsemble(in_channels=8, num_classes=3, folds=3)')
    for told, edges, least in ((0.0, True, 0.85), (4.0, False, 0.8),
                               (4.0, True, 0.95)):
        data = graph(told, edges=edges)
        model, private = fitted(data)
        assert not model.safe
        assert right(model, private, data) > least
        out = model(private)
        assert torch.allclose(out.exp().sum(dim=1), torch.ones(300),
                              atol=1e-5)
    assert (model.weight >= 0).all()


def test_noise_alone_gives_the_class_of_most_released_labels():
    # Neither rows nor edges tell anything, which the labels show.
    data = graph(0.0, edges=False)
    data.y[::5] = 1
    for epsilon in (0.1, 1.0):
        model, private = fitted(data, epsilon, epochs=5)
        most = private.y[private.y >= 0].bincount().argmax()
        assert model.safe
        assert (model.predict(private) == most).all()


def test_gain_is_the_likelihood_ratio_of_held_out_labels():
    private = release(graph())
    labels = ReleasedLabels(private)
    fold = _folds(labels, 3)
    assert fold[labels.released].bincount().tolist() == [75, 75, 75]
    likelihood = _Likelihood(labels, fold)
    scores = torch.randn(300, 3).log_softmax(dim=1)
    p = math.e / (math.e + 2)
    matrix = torch.full((3, 3), (1 - p) / 2)
    matrix.fill_diagonal_(p)
    expected = 0.0
    for v in range(300):
        if private.y[v] >= 0:
            noisy = matrix[:, private.y[v]]
            expected += math.log(scores[v].exp() @ noisy)
            expected -= math.log(labels.prior @ noisy)
    assert math.isclose(likelihood.gain(scores), expected, abs_tol=1e-3)
    # What is trained on is all but one fold.
    y = private.y.masked_fill(fold == 1, -1)
    assert torch.isclose(likelihood.loss(scores, 1),
                         ForwardCorrectedLoss(1.0, 3)(scores, y))
    worlds = torch.randn(300, 3, 3)
    assert torch.equal(likelihood.own(worlds)[7], worlds[7, fold[7]])


def test_network_is_a_gcn():
    data = graph(n=60)
    data.x = data.x * (data.x > 1.2)  # Sparse.
    given = sparse_inputs(data)
    assert given[0].layout == torch.sparse_csr
    network = SparseNetwork(8, 4, 3).eval()
    gcn = GCN(8, 4, 2, 3).eval()
    for conv, weight, bias in zip(gcn.convs, network.weights, network.biases):
        conv.lin.weight.data = weight.detach().t().clone()
        conv.bias.data = torch.rand(len(bias))
        bias.data = conv.bias.data.clone()
    edges = to_undirected(data.edge_index)
    x = torch.nn.functional.normalize(data.x, dim=1)
    out, expected = network(*given), gcn(x, edges)
    assert torch.allclose(out, expected, atol=1e-5)
    for loss in (out, expected):
        loss.square().sum().backward()
    assert torch.allclose(network.weights[0].grad,
                          gcn.convs[0].lin.weight.grad.t(), atol=1e-4)
    alone = network(*given[:2])
    (first, second), (one, two) = network.weights, network.biases
    assert torch.allclose(alone, (x @ first + one).relu() @ second + two,
                          atol=1e-5)


def test_worlds_of_the_diffusion_lack_their_fold():
    private = release(graph())
    labels = ReleasedLabels(private)
    fold = _folds(labels, 3)
    model = LabelDiffusion().fit(private)
    out = model.held_out(private, fold)
    assert out.shape == (300, 3, 3)
    # Without the labels of a fold at all, but for the shares of the classes.
    expected = model.held_out(private, torch.where(fold == 1, 1, 0))[:, 1]
    assert torch.allclose(out[:, 1], expected, atol=1e-5)
    assert not torch.allclose(out[:, 0], expected, atol=1e-2)


def test_unreleased_labels_are_not_read():
    data = graph(n=120)
    private = LabelRR(1.0, 3, mask='released', keep_unmasked=True,
                      seed=0)(data)
    poisoned = with_y(private, torch.where(data.released, private.y,
                                           (private.y + 1) % 3))
    model = LabelEnsemble(8, 3, **{**QUICK, 'epochs': 3, 'caution': 1.0})
    out = [model.fit(graph)(graph) for graph in (private, poisoned)]
    assert torch.equal(*out)


def test_repeatable_stored_and_ledger():
    data = graph(n=120)
    model, private = fitted(data, epochs=4)
    again = LabelEnsemble(8, 3, **{**QUICK, 'epochs': 4})
    before = torch.get_rng_state()
    again.fit(private)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(model(private), again(private))
    copy = LabelEnsemble(8, 3, **QUICK)
    copy.load_state_dict(model.state_dict())
    assert torch.equal(model(private), copy(private))
    # Nothing is spent, and what was read raw is named.
    assert model.privacy.epsilon('labels') == 2.0
    assert 'x' in str(model.privacy.releases[0].public)
    assert len(model.privacy.public('features')) == 1
    assert private.privacy.public('features') == []
    model.reset_parameters()
    with pytest.raises(RuntimeError, match='Call fit'):
        model.predict(private)


def test_own_gnn_and_few_labels():
    data = graph(n=60)
    model, private = fitted(data, gnn=GCN(8, 4, 2, 3), epochs=3)
    assert model.predict(private).shape == (60, )
    data.released = torch.arange(60) == 7
    model, private = fitted(data, epochs=3, caution=1.0)
    assert torch.isfinite(model(private)).all()


def test_bad_input():
    private = release(graph(n=30))
    model = LabelEnsemble(8, 4, **QUICK)
    with pytest.raises(ValueError, match="labels of 4 classes"):
        model.fit(private)
    model = LabelEnsemble(9, 3, **QUICK)
    with pytest.raises(ValueError, match=r"'x' must have 9 columns.*30, 8"):
        model.fit(private)
    with pytest.raises(ValueError, match="'privacy' must hold a release"):
        model.fit(Data(x=private.x, y=graph(n=30).y))
    with pytest.raises(ValueError, match="'caution' must be one or more"):
        LabelEnsemble(8, 3, caution=0.5)
    with pytest.raises(ValueError, match="'folds'"):
        LabelEnsemble(8, 3, folds=1)
