"""What all releases of edges share, tried on both of them."""
import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import Compose
from torch_geometric.utils import is_undirected

from torch_geometric_dp import (
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms import EdgeRand, LapGraph

BOTH = pytest.mark.parametrize('kind', [EdgeRand, LapGraph])


def columns(edge_index):
    return list(zip(*edge_index.tolist()))


@pytest.fixture
def mixed(graph):
    """The ring, with every third edge private, and some edge fields."""
    private = torch.arange(12) % 3 == 0
    graph.edge_private = torch.cat([private, private])
    graph.edge_attr = torch.randn(24, 2)
    graph.edge_weight = torch.rand(24)
    graph.label = 'kept'
    return graph


@BOTH
def test_release(mixed, kind):
    before = copy.copy(mixed)
    out = kind(2.0, seed=0)(mixed)
    # The input stays as it was.
    assert mixed.keys() == before.keys() and 'privacy' not in mixed
    assert mixed.edge_index is before.edge_index
    # Public edges stand in front, as they were, and stay public.
    public = mixed.edge_index[:, ~mixed.edge_private]
    assert torch.equal(out.edge_index[:, :16], public)
    assert out.edge_private.tolist() == [False] * 16 + [True] * (
        out.num_edges - 16)
    # The rest is undirected, without loops and repetitions.
    assert is_undirected(out.edge_index) and not out.has_self_loops()
    assert len(set(columns(out.edge_index))) == out.num_edges
    # Edge fields are gone, the others are there.
    assert 'edge_attr' not in out and 'edge_weight' not in out
    assert out.x is mixed.x and out.y is mixed.y and out.label == 'kept'
    assert out.num_nodes == 12
    release, = out.privacy.releases
    assert release.fields == ('edge_index', )
    assert release.guarantee.epsilon == out.privacy.epsilon('edges') == 2.0
    assert release.guarantee.model == 'central'
    assert release.guarantee.neighbours == (
        "one private edge is added or removed")
    assert release.guarantee.assumptions == (
        "the number of nodes is public",
        "the edges that 'edge_private' does not select are public")
    assert out.privacy.epsilon('node', max_degree=3) == 6.0


@BOTH
def test_without_the_field_all_edges_are_private(graph, kind):
    out = kind(2.0)(graph)
    assert out.edge_private.all() and out.edge_private.dtype == torch.bool
    assert out.privacy.releases[0].guarantee.assumptions == (
        "the number of nodes is public", )
    graph.edge_private = torch.ones(24, dtype=torch.bool)
    one, two = kind(2.0, seed=0)(graph), kind(2.0, 'other', seed=0)(graph)
    assert 'edge_private' not in two and two.other.all()
    assert one.edge_private.all()


@BOTH
def test_an_all_but_infinite_epsilon_returns_the_graph(mixed, kind):
    out = kind(1e5)(mixed)
    assert sorted(columns(out.edge_index)) == sorted(columns(mixed.edge_index))


@BOTH
def test_drawn_pairs_that_are_public_are_left_out(kind):
    # All pairs but one are public: nothing else can be drawn.
    n = 5
    full = torch.combinations(torch.arange(n)).t()
    public = torch.arange(full.size(1)) != 3
    data = Data(num_nodes=n, edge_index=torch.cat([full, full.flip(0)], 1),
                edge_private=~torch.cat([public, public]))
    sizes = set()
    for seed in range(30):
        out = kind(0.5, seed=seed)(data)
        drawn = out.edge_index[:, out.edge_private]
        assert set(columns(drawn)) in (set(), {(0, 4), (4, 0)})
        sizes.add(drawn.size(1))
    assert sizes == {0, 2}


def test_a_pair_with_a_public_edge_is_public(monkeypatch):
    # The way back is private, but tells nothing that is not known.
    data = Data(num_nodes=4, edge_index=torch.tensor(
        [[0, 1, 3, 2, 2, 2], [1, 0, 2, 3, 2, 2]]))
    data.edge_private = torch.tensor([False, True, True, True, False, True])
    given = []
    draw = EdgeRand.draw
    monkeypatch.setattr(EdgeRand, 'draw', lambda self, store, *args: (
        given.append(args[:3]), draw(self, store, *args))[1])
    with pytest.warns(UserWarning, match='have a direction'):
        out = EdgeRand(1e5)(data)
    assert columns(out.edge_index) == [(0, 1), (2, 2), (2, 3), (3, 2)]
    (private, public, num_nodes), = given
    assert columns(private) == [(2, 3)] and columns(public) == [(0, 1)]
    assert num_nodes == 4


@BOTH
def test_directions_repetitions_and_loops(kind):
    data = Data(num_nodes=5, edge_index=torch.tensor(
        [[0, 0, 3, 2, 2, 4], [1, 1, 2, 3, 2, 4]]))
    with pytest.warns(UserWarning, match="'edge_index' holds private edges "
                      "that have a direction, which .* does not release: its"):
        out = kind(1e5)(data)
    assert sorted(columns(out.edge_index)) == [(0, 1), (1, 0), (2, 3), (3, 2)]
    # What is public may have all of that.
    data.edge_private = torch.zeros(6, dtype=torch.bool)
    assert torch.equal(kind(1e5)(data).edge_index, data.edge_index)


def graphs():
    def build(n, edges, private, known):
        edges = [(u % n, v % n) for u, v in edges] if n else []
        edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t()
        data = Data(edge_index=edge_index, edge_attr=torch.ones(len(edges), 2))
        if private is not None:
            data.edge_private = torch.tensor(
                [private >> i & 1 == 1 for i in range(len(edges))],
                dtype=torch.bool)
        if known:
            data.num_nodes = n
        else:
            data.x = torch.zeros(n, 1)
        return data

    node = st.integers(0, 30)
    return st.builds(build, st.integers(0, 9),
                     st.lists(st.tuples(node, node), max_size=12),
                     st.none() | st.integers(0, 2**12 - 1), st.booleans())


@pytest.mark.filterwarnings('ignore:.*have a direction')
@settings(deadline=None, max_examples=100)
@given(graphs(), st.floats(0.01, 60), st.sampled_from([EdgeRand, LapGraph]))
def test_any_graph(data, epsilon, kind):
    public = (data.edge_index[:, ~data.edge_private] if 'edge_private' in data
              else data.edge_index[:, :0])
    data.privacy_budget = PrivacyBudget(edges=epsilon)
    transform = kind(epsilon)
    out = transform(data)
    n = public.size(1)
    assert torch.equal(out.edge_index[:, :n], public)
    drawn = out.edge_index[:, n:]
    assert is_undirected(drawn, num_nodes=data.num_nodes)
    assert (drawn[0] != drawn[1]).all()
    seen = {frozenset(edge) for edge in columns(public)}
    assert not seen & {frozenset(edge) for edge in columns(drawn)}
    assert len(set(columns(drawn))) == drawn.size(1)
    assert out.edge_private.tolist() == [False] * n + [True] * drawn.size(1)
    assert out.num_nodes == data.num_nodes and 'edge_attr' not in out
    assert out.validate()
    assert torch.equal(transform(data).edge_index, out.edge_index)
    assert data.privacy_budget.remaining('edges') == 0


@BOTH
def test_a_release_is_permanent(mixed, kind):
    mixed.privacy_budget = PrivacyBudget(edges=3.0)
    transform = kind(1.0)
    out = transform(mixed)
    again = pickle.loads(pickle.dumps(transform))(mixed.clone())
    assert torch.equal(again.edge_index, out.edge_index)
    assert again.privacy == out.privacy
    assert mixed.privacy_budget.remaining('edges') == 2.0
    # Other edges are another release, and so is another mask.
    changed = copy.copy(mixed)
    changed.edge_private = ~mixed.edge_private
    transform(changed)
    assert mixed.privacy_budget.remaining('edges') == 1.0
    # And another number of nodes, with the same edges.
    changed = copy.copy(mixed)
    changed.num_nodes = 13
    transform(changed)
    assert mixed.privacy_budget.remaining('edges') == 0.0
    assert torch.equal(transform(mixed).edge_index, out.edge_index)
    with pytest.raises(PrivacyBudgetExceeded):
        kind(1.0)(mixed)


@BOTH
def test_nothing_is_drawn_before_it_is_paid(mixed, kind, monkeypatch):
    mixed.privacy_budget = PrivacyBudget(edges=1.0)

    def draw(*args):
        raise AssertionError('noise was drawn')

    monkeypatch.setattr(NoiseSource, 'blocks', draw)
    monkeypatch.setattr(NoiseSource, 'gather', draw)
    with pytest.raises(PrivacyBudgetExceeded):
        kind(1.5)(mixed)
    assert mixed.privacy_budget.spent.releases == ()
    with pytest.raises(AssertionError, match='noise was drawn'):
        kind(1.0)(mixed)
    assert mixed.privacy_budget.remaining('edges') == 0.0


@BOTH
def test_released_edges_cost_nothing_more(mixed, kind):
    budget = mixed.privacy_budget = PrivacyBudget(edges=1.0)
    out = Compose([kind(1.0), EdgeRand(3.0), LapGraph(2.0)])(mixed)
    assert out.privacy.epsilon('edges') == 1.0
    assert budget.remaining('edges') == 0.0
    # Raw edges that come in again do.
    out.edge_index, out.edge_private = mixed.edge_index, mixed.edge_private
    with pytest.raises(PrivacyBudgetExceeded):
        kind(1.0)(out)


def test_too_many_edges_are_refused_before_they_cost(graph):
    graph.num_nodes = 10**6
    del graph.x
    graph.privacy_budget = PrivacyBudget(edges=1.0)
    with pytest.raises(ValueError) as info:
        EdgeRand(1.0)(graph)
    assert str(info.value) == (
        "'max_edges' must be at least 268941152440, the expected number of "
        "edges of this release (got 10000000); a larger epsilon needs less")
    assert graph.privacy_budget.spent.releases == ()
    with pytest.raises(ValueError, match="'max_edges' must be at least 113"):
        LapGraph(1.0, max_edges=20)(graph)
    assert graph.privacy_budget.spent.releases == ()
    LapGraph(1.0)(graph)


def test_batch(mixed, graph):
    graph.edge_private = torch.ones(24, dtype=torch.bool)
    graph.edge_attr, graph.edge_weight = mixed.edge_attr, mixed.edge_weight
    graph.label = 'kept'
    one, two = mixed.clone(), graph.clone()
    one.privacy_budget = PrivacyBudget(epsilon=2.0)
    two.privacy_budget = PrivacyBudget(epsilon=3.0)
    transform = EdgeRand(2.0)
    batch = Batch.from_data_list([one, two],
                                 follow_batch=['edge_attr', 'edge_index', 'y'])
    batch.note = 'added to the batch'
    out = transform(batch)
    assert out.num_graphs == 2 and out.note == 'added to the batch'
    for data, released in zip((one, two), out.to_data_list()):
        alone = transform(data)
        assert torch.equal(released.edge_index, alone.edge_index)
        assert torch.equal(released.edge_private, alone.edge_private)
        assert released.privacy == alone.privacy
        assert data.privacy_budget.spent.epsilon('edges') == 2.0
    # What was removed does not come back, nor does its length.
    assert not {'edge_attr', 'edge_weight', 'edge_attr_batch'} & set(out.keys())
    sizes = [transform(data).num_edges for data in (one, two)]
    assert out.edge_index_batch.bincount().tolist() == sizes
    assert torch.equal(out.y_batch, batch.y_batch)
    assert PrivacyAccountant.of(out).epsilon('edges') == 2.0


def test_hetero_data():
    ring = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])
    ring = torch.cat([ring, ring.flip(0)], dim=1)
    data = HeteroData()
    data['user'].x = torch.zeros(8, 1)
    data['item'].num_nodes = 3
    data['user', 'knows', 'user'].edge_index = ring
    data['user', 'knows', 'user'].time = torch.arange(16)
    data['user', 'likes', 'user'].edge_index = ring
    data['user', 'buys', 'item'].edge_index = torch.tensor([[7], [2]])
    with pytest.raises(ValueError) as info:
        EdgeRand(1.0)(data)
    assert str(info.value) == (
        "'edge_index' of ('user', 'buys', 'item') must join nodes of one type, "
        "or have public edges only, none of which 'edge_private' selects (got "
        "two types of nodes)")
    data['user', 'buys', 'item'].edge_private = torch.tensor([False])
    out = EdgeRand(1.0, seed=0)(data)
    assert torch.equal(out['buys'].edge_index, data['buys'].edge_index)
    assert not torch.equal(out['knows'].edge_index, out['likes'].edge_index)
    assert 'time' not in out['knows'] and out['knows'].edge_private.all()
    release, = out.privacy.releases
    assert release.fields == ('user__knows__user.edge_index',
                              'user__likes__user.edge_index')
    assert release.guarantee.assumptions[-1] == (
        "no private edge stands in more than one edge type")
    del data['user', 'knows', 'user'], data['user', 'likes', 'user']
    with pytest.raises(ValueError, match="'edge_index' is missing"):
        EdgeRand(1.0)(data)
    data['item', 'is like', 'item'].edge_index = torch.tensor([[0], [2]])
    del data['item'].num_nodes
    with pytest.raises(ValueError, match="'num_nodes' of 'item' is missing"):
        EdgeRand(1.0)(data)


def test_edge_index_of_pyg(graph):
    expected = EdgeRand(1.0, seed=0)(graph)
    graph.edge_index = EdgeIndex(graph.edge_index, sparse_size=(12, 12))
    out = EdgeRand(1.0, seed=0)(graph)
    assert type(out.edge_index) is torch.Tensor
    assert torch.equal(out.edge_index, expected.edge_index)
    graph.edge_index = graph.edge_index.as_tensor().to(torch.uint8)
    graph.num_nodes = 1000
    del graph.x
    out = EdgeRand(5.0)(graph)
    assert out.edge_index.dtype == torch.long and out.edge_index.max() > 255


@pytest.mark.parametrize('change, error, message', [
    (dict(edge_index=None), ValueError, "'edge_index' is missing: the graph "
     "has no edges to release (got the fields ['train_mask', 'x', 'y'])"),
    (dict(edge_index=[[0], [1]]), TypeError, "'edge_index' must be a dense "
     "tensor of shape [2, num_edges] (got list)"),
    (dict(edge_index=torch.zeros(2, 3)), ValueError,
     "'edge_index' must hold integers (got torch.float32)"),
    (dict(edge_index=torch.tensor([[0], [12]])), ValueError,
     "'edge_index' must hold nodes from 0 to 11 (got [0, 12] in column 0)"),
    (dict(edge_private=torch.ones(24)), TypeError,
     "'edge_private' must be a boolean tensor (got torch.float32)"),
    (dict(edge_private=[True] * 24), TypeError,
     "'edge_private' must be a boolean tensor (got <class 'list'>)"),
    (dict(edge_private=torch.ones(23).bool()), ValueError,
     "'edge_private' must have shape [24], one entry for each column of "
     "'edge_index' (got [23])"),
    (dict(edge_private=torch.ones(24, 1).bool()), ValueError,
     "'edge_private' must have shape [24], one entry for each column of "
     "'edge_index' (got [24, 1])"),
    (dict(x=None), ValueError, "'num_nodes' is missing: the number of nodes is "
     "public, and may not be guessed from private edges"),
    (dict(edge_label_index=torch.tensor([[0], [1]])), ValueError,
     "'edge_label_index' may hold private edges as they are: remove it from "
     "the graph before the edges are released"),
    (dict(adj_t=torch.eye(12).to_sparse()), ValueError, "'adj_t' may hold "
     "private edges as they are: remove it from the graph before the edges "
     "are released"),
    (dict(n_id=torch.arange(12)), ValueError, "'n_id' tells that the graph is "
     "a batch of a larger one, whose edges come in other parts every time: "
     "release the edges of the whole graph, and sample batches from the "
     "release"),
])
@BOTH
def test_bad_input_is_refused_by_name(graph, kind, change, error, message):
    budget = PrivacyBudget(edges=1.0)
    for key, value in change.items():
        graph[key] = value
    with pytest.raises(error) as info:
        kind(1.0)(graph)
    assert str(info.value) == message
    graph.privacy_budget = budget
    with pytest.raises(error):
        kind(1.0)(graph)
    assert budget.spent.releases == ()


class Weighted(EdgeRand):
    """Draws with a weight, and knows another field of public edges."""
    public_fields = 'guide_edge_index',

    def draw(self, *args):
        pairs, _ = super().draw(*args)
        return pairs.flip(1), (pairs.sum(dim=0) / 100).flip(0)


def test_weights_and_other_edges(mixed):
    mixed.guide_edge_index = torch.zeros(2, 24, dtype=torch.long)
    with pytest.raises(ValueError, match="'guide_edge_index' may hold"):
        EdgeRand(1.0)(mixed)
    out = Weighted(1.0)(mixed)
    assert out.guide_edge_index is mixed.guide_edge_index
    expected = torch.where(out.edge_private, out.edge_index.sum(0) / 100, 1.0)
    assert torch.equal(out.edge_weight, expected)
    assert out.edge_private.sum() > 10


@BOTH
def test_bad_arguments(graph, kind):
    with pytest.raises(ValueError, match="'epsilon' must be a positive, finite "
                       "number .got 0"):
        kind(0)
    with pytest.raises(TypeError, match="'private' must be the name of a "
                       "boolean edge field, .* .got 'Tensor'"):
        kind(1.0, private=graph.train_mask)
    with pytest.raises(ValueError, match="'max_edges' must be an integer of at "
                       "least 0 .got 2.5"):
        kind(1.0, max_edges=2.5)
    with pytest.raises(TypeError, match="Expected 'Data' or 'HeteroData'"):
        kind(1.0)(torch.zeros(3))
