import math

import pytest
import torch
from torch_geometric.data import Data

from tests.nn.models.test_rgnn import two_rings, with_y
from torch_geometric_dp.nn.models import LabelDiffusion
from torch_geometric_dp.nn.models.label_diffusion import ReleasedLabels
from torch_geometric_dp.transforms import LabelRR, ReconstructLabels


def release(data, epsilon=1.0, seed=0):
    return LabelRR(epsilon, int(data.y.max()) + 1, mask='released',
                   seed=seed)(data)


def blocks(n=600, seed=0):
    """Three communities, which are the classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    ends = torch.randint(0, n, (2, 40 * n), generator=generator)
    same = y[ends[0]] == y[ends[1]]
    kept = torch.rand(ends.size(1), generator=generator) < torch.where(
        same, 0.2, 0.02)
    return Data(y=y, edge_index=ends[:, kept], num_nodes=n,
                released=torch.arange(n) % 4 < 3)


def test_beats_the_labels():
    # At epsilon = 1, a released label is right in 58% of all cases.
    data = blocks()
    private = release(data)
    model = LabelDiffusion().fit(private)
    right = (model.predict(private) == data.y)[~data.released]
    assert right.float().mean() > 0.9
    out = model(private)
    assert torch.allclose(out.exp().sum(dim=1), torch.ones(600), atol=1e-5)
    assert (model.first >= 0).all() and (model.second >= 0).all()


def test_plain_transcription_of_the_evidence():
    data = two_rings(20)
    private = release(data)
    model = LabelDiffusion(hops=(1, 3), smooth_hops=(2, ))
    labels = ReleasedLabels(private)
    visible = labels.released[:, None]
    p = math.e / (math.e + 1)
    q = 1 - p
    n = 20
    dense = torch.eye(n, dtype=torch.double)
    dense[data.edge_index[0], data.edge_index[1]] = 1
    degree = dense.sum(dim=1)
    dense = dense / (degree[:, None] * degree[None]).sqrt()
    one_hot = torch.nn.functional.one_hot(private.y.clamp(min=0), 2).double()
    released = labels.released.double()[:, None]
    share = (one_hot * released).sum(dim=0) / released.sum()
    mean = (share - q) / (p - q)
    z = ((one_hot - q) / (p - q) - mean) * released
    sigma2 = (share * (1 - share)).mean() / (p - q)**2
    unequal = 1 - sigma2 / released.sum() / (mean - 0.5).square().mean()
    prior = 0.5 + (mean - 0.5) * max(float(unequal), 0.0)
    prior = prior.clamp(min=0.05) / prior.clamp(min=0.05).sum()
    assert torch.allclose(labels.prior.double(), prior, atol=1e-5)
    weights = []
    for k in (1, 3):
        power = torch.linalg.matrix_power(dense, k) * released.t()
        weights.append(power / power.sum(dim=1, keepdim=True))
    tau2 = (prior * (1 - prior)).mean() / 2
    signs = torch.randint(0, 2, (n, 8),
                          generator=torch.Generator().manual_seed(0))
    signs = (2 * signs - 1).double()
    evidence = model._evidence(labels, visible)[:, 0]
    for depth, w in enumerate((weights[0] - weights[1], weights[1])):
        nu = sigma2 * (w @ signs).square().mean(dim=1, keepdim=True)
        expected = 2 * (w @ z) * tau2 / (tau2 + nu)
        assert torch.allclose(evidence[..., depth].double(), expected,
                              atol=1e-4)


def test_folds_do_not_see_their_own_labels():
    data = blocks(60)
    private = release(data)
    model = LabelDiffusion()
    node = 5
    y = private.y.clone()
    y[node] = (private.y[node] + 1) % 3
    flipped = with_y(private, y)
    out = []
    for graph in (private, flipped):
        labels = ReleasedLabels(graph)
        labels.prior = torch.full((3, ), 1 / 3)  # Of all labels.
        labels.sigma2 = torch.tensor(1.0)
        labels.z = torch.nn.functional.one_hot(
            labels.y.clamp(min=0), 3).float()
        visible = labels.released[:, None].clone()
        visible[node] = False
        evidence = model._evidence(labels, visible)
        out.append(model._smoothed(evidence, labels, visible))
    assert torch.equal(*out)


def test_unreleased_labels_are_not_read():
    data = blocks(200)
    private = LabelRR(1.0, 3, mask='released', keep_unmasked=True,
                      seed=0)(data)
    poisoned = with_y(private, torch.where(data.released, private.y,
                                           (private.y + 1) % 3))
    out = [LabelDiffusion().fit(graph)(graph) for graph in (private, poisoned)]
    assert torch.equal(*out)


def test_repeatable_and_input_stays():
    private = release(blocks(200))
    before = private.clone()
    model = LabelDiffusion().fit(private)
    assert private.privacy == before.privacy
    assert torch.equal(private.y, before.y)
    assert torch.equal(model(private), LabelDiffusion().fit(private)(private))
    assert torch.equal(model(private), model.fit(private)(private))
    model.reset_parameters()
    fresh = LabelDiffusion()
    assert torch.equal(model.first, fresh.first)
    assert torch.equal(model.second, fresh.second)


@pytest.mark.parametrize('edge_index', [
    torch.empty(2, 0, dtype=torch.long),
    torch.tensor([[0, 0, 1, 1], [0, 1, 0, 0]]),
])
def test_odd_graphs(edge_index):
    y = torch.arange(9) % 3
    data = Data(y=y, edge_index=edge_index, num_nodes=9,
                released=torch.arange(9) < 6)
    private = release(data)
    out = LabelDiffusion().fit(private)(private)
    assert out.shape == (9, 3) and torch.isfinite(out).all()
    # Nothing arrives at these: they get the shares of the classes.
    shares = ReleasedLabels(private).prior.expand(3, 3)
    assert torch.allclose(out[6:].exp(), shares, atol=1e-4)
    one = Data(y=torch.tensor([1]), edge_index=edge_index[:, :0], num_nodes=1,
               released=torch.tensor([True]))
    private = LabelRR(1.0, 3, mask='released')(one)
    assert LabelDiffusion().fit(private).predict(private).shape == (1, )


def test_bad_input():
    model = LabelDiffusion(hops=(1, 4), folds=3)
    assert repr(model) == 'LabelDiffusion(hops=(1, 4), folds=3)'
    with pytest.raises(ValueError, match="'privacy' must hold a release"):
        model.fit(blocks(30))
    private = release(blocks(30))
    with pytest.raises(ValueError, match='as it was released'):
        model.fit(ReconstructLabels(hops=1)(private))
    with pytest.raises(RuntimeError, match='Call fit'):
        model.predict(private)
    with pytest.raises(ValueError, match='unlabelled nodes only'):
        model.fit(with_y(private, torch.full_like(private.y, -1)))
    many = Data(y=torch.ones(4, 3).long(), num_nodes=4,
                edge_index=torch.empty(2, 0, dtype=torch.long))
    with pytest.raises(ValueError, match='one label for each node'):
        model.fit(LabelRR(1.0, 3)(many))
    for hops in ((), (2, 1), (0, 1)):
        with pytest.raises(ValueError, match="'hops' must"):
            LabelDiffusion(hops=hops)
    with pytest.raises(ValueError, match="'folds'"):
        LabelDiffusion(folds=1)
    with pytest.raises(ValueError, match="'ridge' must be positive"):
        LabelDiffusion(ridge=0.0)


class MyLabelRR(LabelRR):
    """Known by what it is a special case of."""


def test_special_cases_of_label_rr():
    # Row 22.
    data = blocks(60)
    private = MyLabelRR(1.0, 3, mask='released', seed=0)(data)
    assert LabelDiffusion().fit(private).predict(private).shape == (60, )


def test_raw_labels_under_a_ledger_are_refused():
    # Row 21: the digest tells.
    data = blocks(60)
    private = release(data)
    model = LabelDiffusion().fit(private)
    private.y = data.y
    for method in (model.fit, model, model.predict):
        with pytest.raises(ValueError, match=r"'y' must be what LabelRR\("
                           r"epsilon=1.0.*raw"):
            method(private)
