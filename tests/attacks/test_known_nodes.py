import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.transforms import ToSparseTensor

from torch_geometric_dp.attacks.known_nodes import (
    Neighbourhood,
    known_nodes,
    rows,
    same_nodes,
)


@given(st.data())
def test_means_over_neighbours_by_counting(draw):
    n = draw.draw(st.integers(1, 7))
    node = st.integers(0, n - 1)
    edges = draw.draw(st.lists(st.tuples(node, node), max_size=15))
    mask = draw.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    mask[0] = True
    generator = torch.Generator().manual_seed(n)
    x = torch.rand(n, 2, generator=generator, dtype=torch.double)
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t()
    near = Neighbourhood(Data(edge_index=edge_index), n)
    mean, (known_mean, count) = near.mean(x), near.known_mean(
        x, torch.tensor(mask))
    everybody = x[torch.tensor(mask)].mean(dim=0)
    for v in range(n):
        next_to = {b for a, b in edges if a == v} | {
            a for a, b in edges if b == v}
        next_to -= {v}  # Or a known node would be told its own row.
        known = sorted(u for u in next_to if mask[u])
        wanted = x[sorted(next_to)].mean(dim=0) if next_to else x.mean(dim=0)
        assert mean[v].tolist() == pytest.approx(wanted.tolist())
        wanted = x[known].mean(dim=0) if known else everybody
        assert known_mean[v].tolist() == pytest.approx(wanted.tolist())
        assert count[v].tolist() == [len(known)]


def test_no_edges_at_all():
    x = torch.rand(3, 2, dtype=torch.double)
    near = Neighbourhood(Data(x=x), 3)
    assert torch.equal(near.mean(x), x.mean(dim=0).expand(3, 2))


def test_edges_as_a_sparse_matrix(graph):
    # They must not pass for a graph without edges.
    x = graph.x.double()
    sparse = ToSparseTensor(layout=torch.sparse_coo)(graph.clone())
    assert 'edge_index' not in sparse
    assert torch.equal(Neighbourhood(sparse, 12).mean(x),
                       Neighbourhood(graph, 12).mean(x))


@pytest.mark.parametrize('mask, error, message', [
    (None, TypeError, r"'train_mask' must be a boolean tensor .*NoneType"),
    (torch.ones(12), TypeError, r"'train_mask' must be .*torch.float32"),
    (torch.ones(11).bool(), ValueError, r"'train_mask' must have shape \[12\]"
     r".* \(got \[11\]\)"),
    (torch.ones(12, 1).bool(), ValueError, r"\(got \[12, 1\]\)"),
    (torch.zeros(12).bool(), ValueError, r"at least 5 nodes .* \(got 0\)"),
    (torch.arange(12) < 4, ValueError, r"at least 5 nodes .* \(got 4\)"),
    (torch.ones(12).bool(), ValueError, r"'train_mask' must leave nodes to "
     r"attack \(got all 12 of them\)"),
])
def test_wrong_masks_are_refused(graph, mask, error, message):
    graph.train_mask = mask
    with pytest.raises(error, match=message):
        known_nodes(graph, 'train_mask')


def test_wrong_rows_are_refused(graph):
    with pytest.raises(TypeError, match=r"'target' must be a graph.*'Tensor'"):
        rows(graph.x, 'target')
    with pytest.raises(TypeError, match=r"'data' must have a dense tensor 'z' "
                       r"\(got 'NoneType'\)"):
        rows(graph, 'data', 'z')
    for sparse in (graph.x.to_sparse(), graph.x.to_sparse_csr()):
        with pytest.raises(TypeError, match=r"dense tensor 'x' \(got "
                           r"'torch.sparse_"):
            rows(Data(x=sparse), 'target')
    with pytest.raises(ValueError, match=r"'x' of 'data' must have shape.*"
                       r"\(got \[12, 0\]\)"):
        rows(Data(x=graph.x[:, :0]), 'data')
    graph.x[3, 1] = float('nan')
    with pytest.raises(ValueError, match=r"'x' of 'data' must be finite .* in "
                       r"row 3\)"):
        rows(graph, 'data')
    with pytest.raises(ValueError, match=r"'target' must have the nodes of "
                       r"'data', 4 rows in 'x' \(got 3\)"):
        same_nodes(torch.ones(3, 2), torch.ones(4, 2))
