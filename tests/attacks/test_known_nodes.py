import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

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
    near = Neighbourhood(Data(x=x, edge_index=edge_index, num_nodes=n))
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
    near = Neighbourhood(Data(x=x))
    assert torch.equal(near.mean(x), x.mean(dim=0).expand(3, 2))


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
    with pytest.raises(TypeError, match=r"'data' must have a tensor 'z' \(got "
                       r"'NoneType'\)"):
        rows(graph, 'data', 'z')
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
