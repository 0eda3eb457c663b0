import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_dp.graph.propagation import (
    mean_adjacency,
    propagate,
)


def plain(edge_index, x, hops):
    """The mean over a node and its neighbours, as sets."""
    for _ in range(hops):
        new = x.clone()
        for v in range(len(x)):
            near = {v} | {u for u, w in edge_index.t().tolist() if w == v}
            new[v] = x[sorted(near)].mean(dim=0)
        x = new
    return x


@given(st.integers(1, 9), st.integers(0, 30), st.integers(0, 4),
       st.integers(0, 2**20))
def test_any_graph(nodes, edges, hops, seed):
    # Among them graphs with directions, duplicates, self-loops and lonely
    # nodes, and with none but these.
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    x = torch.rand(nodes, 3, generator=generator)
    out = propagate(mean_adjacency(edge_index, nodes), x, hops)
    assert torch.allclose(out, plain(edge_index, x, hops), atol=1e-6)


def test_no_nodes():
    adjacency = mean_adjacency(torch.empty(2, 0).long(), 0)
    assert propagate(adjacency, torch.empty(0, 3), 2).shape == (0, 3)


def test_each_neighbour_once():
    edge_index = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]], dtype=torch.int)
    adjacency = mean_adjacency(edge_index, 3).to_dense()
    assert torch.equal(adjacency, torch.tensor(
        [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
