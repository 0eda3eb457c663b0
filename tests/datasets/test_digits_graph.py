import pytest
import torch

from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.transforms import LabelRR


def test_digits_graph():
    dataset = DigitsGraph()
    assert repr(dataset) == 'DigitsGraph()'
    assert len(dataset) == 1
    assert dataset.num_classes == 10 and dataset.num_features == 64
    data = dataset[0]
    data.validate()
    assert data.num_nodes == 1797 and data.num_edges == 19858
    assert data.is_undirected() and not data.has_self_loops()
    assert data.x.min() == 0 and data.x.max() == 1
    assert torch.bincount(data.y).min() > 170
    # The masks are a partition.
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert (masks.sum(dim=0) == 1).all()
    assert masks.sum(dim=1).tolist() == [898, 449, 450]
    # An edge is private in both directions, or in none.
    assert data.edge_private.float().mean() == pytest.approx(0.3, abs=1e-3)
    private = data.edge_index[:, data.edge_private]
    reverse = set(map(tuple, private.flip(0).t().tolist()))
    assert set(map(tuple, private.t().tolist())) == reverse


def test_edges_join_nearest_neighbours():
    data = DigitsGraph(k=3)[0]
    distance = torch.cdist(data.x.double(), data.x.double())
    distance.fill_diagonal_(float('inf'))
    third = distance.kthvalue(3, dim=1).values + 1e-9
    row, col = data.edge_index
    near = distance[row, col] <= torch.maximum(third[row], third[col])
    assert near.all()
    assert torch.bincount(row, minlength=1797).min() >= 3


def test_arguments():
    assert DigitsGraph(private_share=0.0)[0].edge_private.sum() == 0
    assert DigitsGraph(private_share=1.0)[0].edge_private.all()
    out = DigitsGraph(transform=LabelRR(1.0, 10))[0]
    assert out.privacy.epsilon('labels') == 1.0
    with pytest.raises(ValueError, match="'private_share' must lie in"):
        DigitsGraph(private_share=1.5)
    with pytest.raises(ValueError, match="'k' must be an integer"):
        DigitsGraph(k=0)
