import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData

from tests.conftest import FALSE_ALARM
from torch_geometric_dp import (
    ContentChanged,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.graph.first_edges import order_of
from torch_geometric_dp.nn import NAP
from torch_geometric_dp.pyg import origin
from torch_geometric_dp.release import Releaser
from torch_geometric_dp.transforms import BoundDegree, EdgeRand, LabelRR


def pairs(edge_index):
    return {frozenset(edge) for edge in edge_index.t().tolist()}


def degrees(edges, n):
    return [sum(node in edge for edge in edges) for node in range(n)]


def build(n, edges):
    edge_index = torch.tensor(sorted(map(sorted, edges)),
                              dtype=torch.long).view(-1, 2).t()
    return Data(num_nodes=n, edge_index=edge_index)


def all_graphs(n):
    cells = list(itertools.combinations(range(n), 2))
    for bits in itertools.product((0, 1), repeat=len(cells)):
        yield frozenset(frozenset(c) for bit, c in zip(bits, cells) if bit)


@pytest.fixture
def one_order(monkeypatch):
    """The same random order for all graphs, which couples their choices."""
    monkeypatch.setattr(Releaser, '_nonce', lambda *args: b'one order')


@pytest.mark.parametrize('cap', [1, 2, 3])
def test_the_lemma_on_all_small_graphs(cap, one_order):
    n, transform = 5, BoundDegree(cap, seed=1)
    left = {graph: frozenset(pairs(transform(build(n, graph)).edge_index))
            for graph in all_graphs(n)}
    worst_edge = 0
    for graph, stays in left.items():
        assert stays <= graph and max(degrees(stays, n)) <= cap
        if max(degrees(graph, n)) <= cap:
            assert stays == graph
        for u, v in itertools.combinations(range(n), 2):
            more = graph | {frozenset((u, v))}
            if more == graph:
                continue
            # It comes in itself, and pushes out one at each end.
            assert left[more] - stays <= {frozenset((u, v))}
            for end in (u, v):
                assert sum(end in edge for edge in stays - left[more]) <= 1
            assert all(edge & {u, v} for edge in stays - left[more])
            worst_edge = max(worst_edge, len(stays ^ left[more]))
        # A node: one at each neighbour, and at most the cap of its own.
        for k in range(n):
            less = frozenset(edge for edge in graph if k not in edge)
            size = len(graph) - len(less)
            new, out = stays - left[less], left[less] - stays
            assert all(k in edge for edge in new) and len(new) <= min(size, cap)
            assert len(out) <= size
    assert worst_edge == 3


def test_the_order_is_the_source_s_alone(one_order):
    # Two edges at a node, whatever else is in the graph: the same one stays.
    transform = BoundDegree(1, seed=0)
    first = pairs(transform(build(9, [(0, 1), (0, 2)])).edge_index)
    again = pairs(transform(build(5000, [(0, 1), (0, 2),
                                         (7, 8)])).edge_index)
    assert again == first | {frozenset((7, 8))}
    # Another one, another order: all choices are equally likely.
    counts = np.zeros(4)
    for seed in range(800):
        out = BoundDegree(1, seed=seed)(build(5, [(0, i) for i in range(1, 5)]))
        counts[int(out.edge_index.max()) - 1] += 1
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


def test_one_budget_one_order():
    star = build(60, [(0, i) for i in range(1, 60)])
    # Without a budget, the choice is made again; 1 / 59 each time.
    assert len({frozenset(pairs(BoundDegree(1)(star).edge_index))
                for _ in range(20)}) > 1
    star.privacy_budget = PrivacyBudget(edges=1.0)
    transform = BoundDegree(1)
    first = pairs(transform(star).edge_index)
    for again in (transform, BoundDegree(1),
                  pickle.loads(pickle.dumps(transform))):
        assert pairs(again(star.clone()).edge_index) == first
    assert star.privacy_budget.spent.releases == ()
    # Another graph would be compared with this one.
    other = build(60, [(0, i) for i in range(1, 59)])
    other.privacy_budget = star.privacy_budget
    with pytest.raises(ContentChanged, match='A projection was applied'):
        transform(other)
    other.n_id = torch.arange(60)
    with pytest.raises(ValueError, match="'n_id' tells"):
        transform(other)


def test_fields_and_directions():
    edge_index = torch.tensor([[0, 1, 0, 2, 0, 0, 3, 3],
                               [1, 0, 2, 0, 3, 3, 3, 3]])
    data = Data(x=torch.zeros(4, 1), edge_index=edge_index,
                edge_attr=torch.arange(16.0).view(8, 2),
                edge_private=torch.arange(8) % 2 == 0, label='kept')
    before = copy.copy(data)
    out = BoundDegree(1, seed=0)(data)
    assert data.edge_index is before.edge_index and 'privacy' not in data
    # All columns of a pair go together, with what belongs to them.
    stay = [i for i in range(8)
            if frozenset(edge_index[:, i].tolist()) in pairs(out.edge_index)]
    assert torch.equal(out.edge_index, edge_index[:, stay])
    assert torch.equal(out.edge_attr, data.edge_attr[stay])
    assert torch.equal(out.edge_private, data.edge_private[stay])
    assert out.x is data.x and out.label == 'kept' and out.validate()
    # A self-loop is one edge at its node.
    assert max(degrees(pairs(out.edge_index), 4)) == 1
    assert len(pairs(BoundDegree(2, seed=0)(build(
        3, [(0, 1), (1, 2)])).edge_index)) == 2


def test_the_ledger(graph):
    out = BoundDegree(1)(graph)
    projection, = out.privacy.projections
    assert out.privacy.releases == () and 'privacy' not in graph
    assert projection.stability == 3
    assert projection.fields == ('edge_index', )
    assert projection.arguments == (('max_degree', 1), )
    assert projection.assumptions == (
        "neighbouring graphs are compared after their degrees were cut to 1", )
    text = str(out.privacy)
    assert '= edges: not released, 0 spent' in text
    assert 'one raw edge changes up to 3 of the edges that are left' in text
    assert 'assumes that neighbouring graphs are compared after' in text
    # It is no release: what reads the edges pays for them, three times.
    later = LabelRR(1.0, 3)(EdgeRand(2.0)(out))
    assert later.privacy.epsilon('edges') == 6.0
    assert '3 x 2' in str(later.privacy)
    assert later.privacy.epsilon('labels') == 1.0
    assert later.privacy.epsilon('node', max_degree=1) == 7.0
    # Twice is nine times.
    assert BoundDegree(1)(out).privacy.stability('edge_index') == 3
    twice = EdgeRand(1.0)(BoundDegree(1)(BoundDegree(2)(graph)))
    assert twice.privacy.epsilon('edges') == 9.0
    # Nothing to say where nothing is ever dropped.
    assert 'privacy' not in BoundDegree(2, 'refuse')(graph)


def test_the_budget_is_charged_for_what_a_raw_edge_changes(graph):
    budget = graph.privacy_budget = PrivacyBudget(edges=3.5)
    out = EdgeRand(1.0)(BoundDegree(1)(graph))
    assert out.privacy.epsilon('edges') == budget.spent.epsilon('edges') == 3.0
    assert budget.remaining('edges') == 0.5
    with pytest.raises(PrivacyBudgetExceeded) as info:
        EdgeRand(0.2)(BoundDegree(1)(graph))
    assert info.value.requested == pytest.approx(0.6)
    # Without it, one edge is one edge.
    EdgeRand(0.2)(graph)


def test_the_stability_is_reached():
    # Exactly, for randomised response on the pairs: one edge more changes
    # three of them, by epsilon each.
    edges = [(0, 2), (1, 3)]
    for seed in range(200):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Releaser, '_nonce', lambda *args: b'one order')
            left, more = (pairs(BoundDegree(1, seed=seed)(build(4, e))
                                .edge_index)
                          for e in (edges, [*edges, (0, 1)]))
        if len(left ^ more) == 3:
            return
    raise AssertionError('never three')


def test_released_edges_are_public(graph):
    out = EdgeRand(0.5, private='secret', seed=0)(graph)
    cut = BoundDegree(1)(out)
    assert cut.secret.numel() == cut.num_edges < out.num_edges
    assert cut.privacy.projections == ()
    assert cut.privacy.epsilon('edges') == 0.5
    assert cut.privacy.releases[0].processed == 'BoundDegree(max_degree=1)'
    known = cut.privacy.verify(cut)
    assert known['edge_index'] == known['secret'] == 'covered'
    assert EdgeRand(1.0)(cut).privacy.epsilon('edges') == 0.5
    # Raw edges under that ledger are not.
    out.edge_index = graph.edge_index
    with pytest.raises(ValueError, match="'edge_index' must be as it was "
                       "released"):
        BoundDegree(1)(out)


def test_fields_do_not_go_by_size(graph):
    graph.notes = torch.arange(24)  # As many as there are edges.
    graph.edge_time = torch.arange(24)
    graph.weight = torch.arange(24)
    out = BoundDegree(1, edge_fields=['weight'])(graph)
    assert torch.equal(out.notes, graph.notes)
    assert out.edge_time.numel() == out.weight.numel() == out.num_edges < 24


def test_the_raw_graph_is_not_marked(graph):
    # Also where nothing is cut.
    for _ in range(2):
        out = BoundDegree(2)(graph)
        assert origin(out.edge_index).stability == 3
        assert origin(graph.edge_index).stability == 1


def test_before_nap(graph):
    with pytest.raises(ValueError, match='BoundDegree.max_degree=1. removes'):
        NAP(1.0, 1)(graph.x, graph.edge_index)
    NAP(1.0, 1)(graph.x, BoundDegree(1)(graph).edge_index)


def test_refuse(graph):
    assert torch.equal(BoundDegree(2, 'refuse')(graph).edge_index,
                       graph.edge_index)
    with pytest.raises(ValueError, match="'max_degree' must be larger: some "
                       "nodes have more edges than 1. on_excess='drop'"):
        BoundDegree(1, 'refuse')(graph)


def test_batch(graph):
    graph.privacy_budget = PrivacyBudget(edges=1.0)
    transform = BoundDegree(1)
    batch = transform(Batch.from_data_list([graph, graph]))
    assert batch.num_graphs == 2
    alone = transform(graph)
    for out in batch.to_data_list():
        assert torch.equal(out.edge_index, alone.edge_index)


def test_hetero_data():
    data = HeteroData()
    data['user'].num_nodes = 4
    data['item'].num_nodes = 3
    data['user', 'buys', 'item'].edge_index = torch.tensor(
        [[0, 0, 0, 1, 2], [0, 1, 2, 0, 0]])
    data['user', 'buys', 'item'].time = torch.arange(5)
    data['user', 'knows', 'user'].edge_index = torch.tensor(
        [[0, 1, 0], [1, 0, 2]])
    out = BoundDegree(2)(data)
    bought = out['buys'].edge_index
    assert bought[0].bincount().max() <= 2 and bought[1].bincount().max() <= 2
    assert out['buys'].time.numel() == bought.size(1)
    assert out['knows'].edge_index.size(1) == 3
    assert BoundDegree(1)(data)['knows'].edge_index.size(1) in (1, 2)


@settings(max_examples=60)
@given(st.integers(0, 9), st.data(), st.integers(1, 4))
def test_any_graph(n, data, cap):
    node = st.integers(0, max(n - 1, 0))
    edges = data.draw(st.lists(st.tuples(node, node),
                               max_size=25 if n else 0))
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t()
    raw = Data(num_nodes=n, edge_index=edge_index)
    out = BoundDegree(cap)(raw)
    stays = pairs(out.edge_index)
    assert stays <= pairs(edge_index)
    assert max(degrees(stays, n), default=0) <= cap
    assert out.num_nodes == n and out.validate()
    if n:
        NAP(1.0, cap)(torch.zeros(n, 1), out.edge_index)


def test_bad_input(graph):
    with pytest.raises(ValueError, match="'max_degree' must be an integer of "
                       "at least 1 .got 0"):
        BoundDegree(0)
    with pytest.raises(ValueError, match="'on_excess' must be one of"):
        BoundDegree(1, 'ignore')
    with pytest.raises(TypeError, match="Expected 'Data' or 'HeteroData'"):
        BoundDegree(1)(torch.zeros(3))
    with pytest.raises(ValueError, match="'edge_index' is missing"):
        BoundDegree(1)(Data(x=graph.x))
    graph.edge_index = EdgeIndex(graph.edge_index, sparse_size=(12, 12))
    assert type(BoundDegree(1)(graph).edge_index) is torch.Tensor
    graph.edge_index = graph.edge_index.as_tensor() + 1
    with pytest.raises(ValueError, match="'edge_index' must hold nodes"):
        BoundDegree(1)(graph)


def test_repr():
    assert repr(BoundDegree(5)) == 'BoundDegree(max_degree=5)'
    assert repr(BoundDegree(5, 'refuse', seed=1)) == (
        "BoundDegree(max_degree=5, on_excess='refuse', seed=1)")


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=40))
def test_words_that_are_almost_equal(parts):
    # They differ in their first bits, in their last ones, or not at all.
    words = np.array([first * 2**62 + last for first, last in parts], np.uint64)
    expected = np.lexsort((np.arange(len(words)), words))
    assert order_of(words).tolist() == expected.tolist()


@pytest.mark.parametrize('num_nodes', [8, 9])
def test_declared_fields_are_cut_whatever_their_size(num_nodes):
    # With as many edges as nodes, PyG would take the field for one of nodes.
    data = Data(num_nodes=num_nodes, weight=torch.arange(8.0),
                edge_index=torch.tensor([[0, 0, 0, 0, 1, 2, 3, 4],
                                         [1, 2, 3, 4, 0, 0, 0, 0]]))
    out = BoundDegree(1, edge_fields=['weight'])(data)
    kept = out.weight.long()
    assert torch.equal(data.edge_index[:, kept], out.edge_index)
    data.weight = torch.arange(7.0)
    with pytest.raises(ValueError, match="'weight' must have one entry for "
                       "each column of 'edge_index'"):
        BoundDegree(1, edge_fields=['weight'])(data)
