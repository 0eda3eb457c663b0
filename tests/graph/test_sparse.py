import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_dp.graph.sparse import by_target, to_csr


def plain(edge_index, n):
    keys = np.unique(edge_index[1].numpy().astype(np.int64) * n +
                     edge_index[0].numpy())
    return torch.from_numpy(np.stack([keys % n, keys // n]))


@given(st.integers(1, 9), st.data())
def test_order_without_repetitions(n, data):
    edges = data.draw(st.lists(st.tuples(*[st.integers(0, n - 1)] * 2),
                               max_size=200))
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t()
    out = by_target(edge_index, n)
    assert out.is_contiguous() and torch.equal(out, plain(edge_index, n))


@pytest.mark.parametrize('dtype', [torch.int32, torch.int64])
@pytest.mark.parametrize('reach', [2, 1000])  # Few targets have many edges.
def test_many_edges(dtype, reach):
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.stack([
        torch.randint(1000, (5000, ), generator=generator),
        torch.randint(reach, (5000, ), generator=generator)]).to(dtype)
    before = edge_index.clone()
    assert torch.equal(by_target(edge_index, 1000), plain(edge_index, 1000))
    assert torch.equal(edge_index, before)


def test_matrix():
    edges = by_target(torch.tensor([[2, 0, 2, 1], [1, 1, 1, 0]]), 3)
    assert edges.tolist() == [[1, 0, 2], [0, 1, 1]]
    matrix = to_csr(edges, 3, torch.tensor([1.0, 2.0, 3.0]))
    assert matrix.to_dense().tolist() == [[0, 1, 0], [2, 0, 3], [0, 0, 0]]
