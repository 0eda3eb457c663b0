"""What the suite compares; how fast it was is nothing to a test."""
import torch
from torch_geometric.utils import coalesce

from benchmarks import layers
from benchmarks.papers import nap


def test_the_limit_of_private_sums_is_the_same_sums():
    # Of rows that need no clipping, over distinct neighbours, as ours.
    x, edge_index = layers.random_graph(50)
    x = x / 1000
    assert edge_index.size(1) > coalesce(edge_index).size(1)
    expected = nap.sums(x, edge_index)
    torch.testing.assert_close(layers.product((x, edge_index))(), expected)
    torch.testing.assert_close(
        layers.convolution((x, coalesce(edge_index)))(), expected)
