import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GraphSAGE

from torch_geometric_dp import PrivacyAccountant
from torch_geometric_dp.nn.models import RGNN
from torch_geometric_dp.release import written
from torch_geometric_dp.transforms import GRRFS, LabelRR


def two_rings(n=120):
    """Two rings of different classes, with features that tell them apart."""
    node = torch.arange(n)
    half = n // 2
    edge = torch.stack([node, (node + 1) % half + node // half * half])
    y = (node >= half).long()
    x = torch.stack([y, 1 - y, y, 1 - y], dim=1).float()
    return Data(x=x, y=y, edge_index=torch.cat([edge, edge.flip(0)], dim=1),
                train_mask=node % 4 < 2, val_mask=node % 4 == 2,
                test_mask=node % 4 == 3, released=node % 4 < 3)


def release(data, epsilon_y=2.0):
    private = GRRFS(8.0, num_sampled=2, domain_sizes=2, seed=0)(data)
    return LabelRR(epsilon_y, 2, mask='released', seed=0)(private)


def with_y(private, y):
    """The same graph, as if other labels had been released."""
    other = private.clone()
    other.y = y
    other.privacy = PrivacyAccountant(tuple(
        written([r], {'y': y})[0] if 'y' in r.fields else r
        for r in private.privacy.releases))
    return other


def fit(private, seed=0, gnn=GraphSAGE, **kwargs):
    torch.manual_seed(seed)
    model = RGNN(gnn(4, 8, 2, 2), hops_x=4, hops_y=4, num_bags=4, epochs=40,
                 **kwargs)
    return model.fit(private)


@pytest.mark.parametrize('gnn', [GraphSAGE, GCN, GAT])
def test_learns_from_a_release(gnn):
    data = two_rings()
    private = release(data)
    prediction = fit(private, gnn=gnn).predict(private)
    assert (prediction == data.y)[data.test_mask].float().mean() > 0.9


def test_ledger_and_input_stay():
    private = release(two_rings())
    before = private.clone()
    fit(private)
    assert private.privacy == before.privacy
    assert torch.equal(private.y, before.y)
    assert torch.equal(private.x, before.x)
    assert set(private.keys()) == set(before.keys())


def test_unreleased_labels_are_not_read():
    data = two_rings()
    private = LabelRR(2.0, 2, mask='released', keep_unmasked=True, seed=0)(
        GRRFS(8.0, num_sampled=2, domain_sizes=2, seed=0)(data))
    poisoned = with_y(private, torch.where(data.released, private.y,
                                           1 - private.y))
    hidden = with_y(private, torch.where(data.released, private.y, -1))
    out = [fit(graph)(graph) for graph in (private, poisoned, hidden)]
    assert torch.equal(out[0], out[1]) and torch.equal(out[0], out[2])


def test_held_out_labels_have_no_part_in_training():
    private = release(two_rings())
    other = with_y(private, torch.where(private.val_mask, 1 - private.y,
                                        private.y))
    model = RGNN(GraphSAGE(4, 8, 2, 2))
    seen = []
    for graph in (private, other):
        hidden = graph.y.masked_fill(graph.val_mask, -1)
        seen.append(model.targets(graph, hidden))
    assert torch.equal(*seen)
    # The epoch to stop at is all that they decide: without any training, all
    # is the same.
    states = []
    for graph in (private, other):
        torch.manual_seed(0)
        model = RGNN(GraphSAGE(4, 8, 2, 2), hops_x=4, epochs=1, num_bags=4)
        states.append(model.fit(graph)(graph))
    assert torch.equal(*states)


def test_parts_can_be_left_out():
    private = release(two_rings())
    plain = RGNN(GraphSAGE(4, 8, 2, 2), hops_x=None, hops_y=None, alpha=0.0)
    assert torch.equal(plain.targets(private, private.y), private.y)
    x = plain.features(private)
    assert torch.allclose(x.mean(dim=0), torch.zeros(4), atol=1e-5)
    assert torch.equal(x[:, 0] > 0, private.x[:, 0] > 0.5)
    smooth = RGNN(GraphSAGE(4, 8, 2, 2), hops_x=4).features(private)
    assert not torch.equal(smooth, x)
    torch.manual_seed(0)
    one = fit(private, alpha=0.0)(private)
    assert not torch.equal(one, fit(private, alpha=10.0)(private))


def test_repr():
    model = RGNN(torch.nn.Identity(), hops_x=None, alpha=2)
    assert repr(model) == 'RGNN(gnn=<Identity()>, hops_x=None, alpha=2.0)'


def test_bad_input():
    data = two_rings()
    with pytest.raises(ValueError, match="'privacy' must hold a release"):
        fit(data)
    private = release(data)
    bare = private.clone()
    del bare.val_mask
    with pytest.raises(ValueError, match="'val_mask' is missing"):
        fit(bare)
    bare.val_mask = torch.ones(120, dtype=torch.bool)
    with pytest.raises(ValueError, match="outside 'val_mask'"):
        fit(bare)
    bare.val_mask = data.test_mask
    with pytest.raises(ValueError, match="inside 'val_mask'"):
        fit(bare)
    with pytest.raises(ValueError, match='unlabelled nodes only'):
        fit(with_y(bare, torch.full_like(bare.y, -1)))
    with pytest.raises(ValueError, match="'y' must hold integers from 0 to 1"):
        fit(with_y(bare, torch.full_like(bare.y, 2)))
    with pytest.raises(RuntimeError, match='Call fit'):
        RGNN(GraphSAGE(4, 8, 2, 2)).predict(private)
    with pytest.raises(ValueError, match="release of 'x' by 'GRRFS'"):
        fit(LabelRR(1.0, 2)(data))
    with pytest.raises(ValueError, match="'alpha' must be zero or more"):
        RGNN(torch.nn.Identity(), alpha=-1.0)
    with pytest.raises(ValueError, match="'num_bags'"):
        RGNN(torch.nn.Identity(), num_bags=0)


@pytest.mark.parametrize('mask', [None, 'released'])
def test_raw_labels_under_a_ledger_are_refused(mask):
    # Row 21: the digest tells.
    data = two_rings()
    private = LabelRR(2.0, 2, mask=mask, seed=0)(
        GRRFS(8.0, num_sampled=2, domain_sizes=2, seed=0)(data))
    private.y = data.y
    with pytest.raises(ValueError, match=r"'y' must be what LabelRR\(epsilon="
                       r"2.0.*raw"):
        fit(private)


def test_saved_and_loaded(tmp_path):
    private = release(two_rings())
    model = fit(private)
    torch.save(model.state_dict(), tmp_path / 'model.pt')
    other = RGNN(GraphSAGE(4, 8, 2, 2), hops_x=4, hops_y=4)
    other.load_state_dict(torch.load(tmp_path / 'model.pt'))
    assert torch.equal(other.predict(private), model.predict(private))
    other.reset_parameters()
    with pytest.raises(RuntimeError, match='Call fit'):
        other.predict(private)
