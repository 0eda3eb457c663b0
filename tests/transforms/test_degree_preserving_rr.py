import copy

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.utils import is_undirected

from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.graph.pairs import to_pairs
from torch_geometric_dp.transforms import BoundDegree, DegreePreservingRR


def test_release(graph):
    graph.edge_private = torch.arange(24) % 12 < 6
    graph.edge_attr = torch.rand(24)
    graph.privacy_budget = PrivacyBudget(edges=3.0)
    before = copy.copy(graph)
    transform = DegreePreservingRR(2.0)
    out = transform(graph)
    assert graph.keys() == before.keys()
    public = graph.edge_index[:, ~graph.edge_private]
    assert torch.equal(out.edge_index[:, :12], public)
    assert is_undirected(out.edge_index) and 'edge_attr' not in out
    release, = out.privacy.releases
    assert release.guarantee.sentence == "one private edge is added or removed"
    assert release.parameter('flip') == transform.mechanism.flip
    assert out.privacy.epsilon('edges') == 2.0
    # The same again, for nothing.
    assert torch.equal(transform(graph).edge_index, out.edge_index)
    assert graph.privacy_budget.remaining('edges') == 1.0


def test_a_large_epsilon_returns_the_graph(graph):
    out = DegreePreservingRR(1e4)(graph)
    assert to_pairs(out.edge_index).tolist() == to_pairs(
        graph.edge_index).tolist()


def test_nodes(graph):
    transform = DegreePreservingRR(2.0, 'node', 2, 'replace')
    out = transform(graph)
    promise = out.privacy.releases[0].guarantee
    assert promise == transform.guarantee and promise.unit == 'node'
    assert out.privacy.epsilon('node') == 2.0
    assert out.privacy.epsilon('node', relation='replace') == 2.0
    come = DegreePreservingRR(2.0, 'node', 2)(graph).privacy
    assert come.epsilon('node', relation='replace') == 4.0
    with pytest.raises(ValueError, match="'max_degree' is too small for this "
                       "graph: some node has more edges .got 1.. BoundDegree"):
        DegreePreservingRR(2.0, 'node', 1)(graph)
    cut = BoundDegree(1)(graph)
    out = DegreePreservingRR(2.0, 'node', 1)(cut)
    assert "assumes that neighbouring graphs are compared after their" in str(
        out.privacy)
    assert out.privacy.epsilon('node') == 2.0


def test_several_types_of_edges():
    ring = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])
    data = HeteroData()
    data['user'].num_nodes = 8
    data['user', 'knows', 'user'].edge_index = torch.cat(
        [ring, ring.flip(0)], dim=1)
    data['user', 'likes', 'user'].edge_index = torch.cat(
        [ring, ring.flip(0)], dim=1)
    assert len(DegreePreservingRR(2.0)(data).privacy.releases) == 1
    with pytest.raises(ValueError, match="unit='node' needs a graph with one "
                       "type of private edges.*got 2"):
        DegreePreservingRR(2.0, 'node', 2)(data)


def test_too_many_edges_are_refused(graph):
    graph.privacy_budget = PrivacyBudget(edges=99.0)
    with pytest.raises(ValueError, match="'max_edges' must be at least .* that "
                       "this epsilon makes of nothing .got 20"):
        DegreePreservingRR(0.01, max_edges=20)(graph)
    assert graph.privacy_budget.spent.releases == ()
    # Noise alone decides, and not how many edges there are.
    assert DegreePreservingRR(99.0, max_edges=20)(graph).num_edges > 20


def test_repr():
    assert repr(DegreePreservingRR(5)) == 'DegreePreservingRR(epsilon=5.0)'
    assert repr(DegreePreservingRR(5, 'node', 3, share=0.2, private='secret',
                                   seed=3)) == (
        "DegreePreservingRR(epsilon=5.0, unit='node', max_degree=3, share=0.2, "
        "private='secret', seed=3)")
