"""What all releases of edges share, tried on both of them."""
import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import (
    SIGN,
    AddLaplacianEigenvectorPE,
    AddRandomWalkPE,
    Compose,
    ToDense,
    ToSparseTensor,
)
from torch_geometric.utils import is_undirected

from torch_geometric_dp import (
    ContentChanged,
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.graph.pairs import from_pairs
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.release import trials
from torch_geometric_dp.transforms import (
    DegreePreservingRR,
    EdgeRand,
    EdgeRR,
    LapGraph,
)

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
    assert release.guarantee.relation == 'add-remove'
    assert release.guarantee.sentence == "one private edge is added or removed"
    assert release.guarantee.assumptions == ()
    assert release.public == tuple((what, None) for what in (
        'num_nodes', "the edges that 'edge_private' does not select",
        "'label', left as it is"))
    assert out.privacy.epsilon('node', max_degree=3) == 6.0


@BOTH
def test_without_the_field_all_edges_are_private(graph, kind):
    out = kind(2.0)(graph)
    assert out.edge_private.all() and out.edge_private.dtype == torch.bool
    assert out.privacy.releases[0].public == (('num_nodes', None), )
    graph.edge_private = torch.ones(24, dtype=torch.bool)
    one, two = kind(2.0, seed=0)(graph), kind(2.0, 'other', seed=0)(graph)
    assert 'edge_private' not in two and two.other.all()
    assert one.edge_private.all()


@BOTH
def test_an_all_but_infinite_epsilon_returns_the_graph(mixed, kind):
    out = kind(1e5)(mixed)
    assert sorted(columns(out.edge_index)) == sorted(columns(mixed.edge_index))


@pytest.mark.parametrize('kind', [EdgeRand, LapGraph, EdgeRR])
def test_changed_arguments_are_seen(graph, kind):
    # By the noise as well as by the ledger.
    transform = kind(1.0)
    transform.epsilon = 25.0
    assert transform.mechanism.epsilon == 25.0
    assert transform(graph).privacy.epsilon('edges') == 25.0
    transform = EdgeRand(1.0)
    transform.epsilon = 1e5
    assert transform(graph).num_edges == 24


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
    assert columns(from_pairs(private)) == [(2, 3)]
    assert columns(from_pairs(public)) == [(0, 1)]
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
    # So is another instance, and the same edges in another order, or type.
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    same = copy.copy(mixed)
    same.edge_index = mixed.edge_index[:, order].int()
    same.edge_private = mixed.edge_private[order]
    again = kind(1.0)(same)
    drawn = out.edge_index[:, out.edge_private]
    assert torch.equal(again.edge_index[:, again.edge_private], drawn)
    # Other edges are other content, and so is another mask, or another number
    # of nodes with the same edges.
    for change in (dict(edge_private=~mixed.edge_private), dict(num_nodes=13),
                   dict(edge_index=(mixed.edge_index + 1) % 12)):
        changed = copy.copy(mixed).update(change)
        with pytest.raises(ContentChanged):
            transform(changed)
    assert mixed.privacy_budget.remaining('edges') == 2.0
    transform.renew()(changed)
    assert mixed.privacy_budget.remaining('edges') == 1.0
    with pytest.raises(PrivacyBudgetExceeded):
        kind(1.5)(mixed)


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
    # Raw edges that come in again are refused.
    out.edge_index, out.edge_private = mixed.edge_index, mixed.edge_private
    with pytest.raises(ValueError, match="'edge_index' must be as it was "
                       "released"):
        kind(1.0)(out)


def test_too_many_edges_are_refused_before_they_cost(graph):
    graph.num_nodes = 10**6
    del graph.x
    graph.privacy_budget = PrivacyBudget(edges=1.0)
    with pytest.raises(ValueError) as info:
        EdgeRand(1.0)(graph)
    assert str(info.value) == (
        "'max_edges' must be at least 268941152429, the number of edges that "
        "this epsilon makes of nothing (got 10000000); a larger epsilon needs "
        "less")
    assert graph.privacy_budget.spent.releases == ()
    with pytest.raises(ValueError, match="'max_edges' must be at least 100"):
        LapGraph(1.0, max_edges=20)(graph)
    assert graph.privacy_budget.spent.releases == ()
    LapGraph(1.0)(graph)


@pytest.mark.filterwarnings('ignore:.*have a direction')
@settings(max_examples=50)
@given(st.integers(0, 60), st.sampled_from([EdgeRand, LapGraph, EdgeRR,
                                            DegreePreservingRR]),
       st.floats(0.05, 8.0), st.integers(0, 400))
def test_a_refusal_tells_nothing_of_the_edges(count, kind, epsilon, most):
    def refuses(edges):
        data = Data(num_nodes=40, edge_index=torch.combinations(
            torch.arange(40)).t()[:, :edges])
        try:
            kind(epsilon, max_edges=most)(data)
        except ValueError as error:
            return str(error)

    with trials():
        assert refuses(count) == refuses(0) == refuses(780)


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
     "'edge_index' must hold nodes from 0 to 11 (got others in column 0)"),
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
     "'edge_label_index' may hold private edges as they are, or was computed "
     "from them: remove it before the edges are released, or name it in 'keep' "
     "if it is public"),
    (dict(adj_t=torch.eye(12).to_sparse()), ValueError, "'adj_t' may hold "
     "private edges as they are, or was computed from them: remove it before "
     "the edges are released, or name it in 'keep' if it is public"),
    (dict(n_id=torch.arange(12)), ValueError, "'n_id' tells that the graph is "
     "a batch of a larger one, of which a loader shows other rows every time, "
     "so that {kind} would be paid for again and again: release the whole "
     "graph first, and sample batches from the release, which is free"),
])
@BOTH
def test_bad_input_is_refused_by_name(graph, kind, change, error, message):
    budget = PrivacyBudget(edges=1.0)
    for key, value in change.items():
        graph[key] = value
    with pytest.raises(error) as info:
        kind(1.0)(graph)
    assert str(info.value) == message.format(kind=kind.__name__)
    graph.privacy_budget = budget
    with pytest.raises(error):
        kind(1.0)(graph)
    assert budget.spent.releases == ()


class Weighted(EdgeRand):
    """Draws with a weight, and knows another field of public edges."""
    public_fields = 'guide_edge_index',

    def draw(self, *args):
        pairs, _ = super().draw(*args)
        return pairs, from_pairs(pairs).sum(dim=0) / 100


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


# What stays: by name, by place, or as declared; never by size #

ALL = [EdgeRand, LapGraph, EdgeRR, DegreePreservingRR]
PLAIN = ['weight', 'time', 'capacity', 'speed', 'w', 'note', 'pos',
         'train_mask']


@pytest.mark.filterwarnings('ignore:.*have a direction')
@settings(max_examples=60)
@given(st.sampled_from(ALL), st.integers(1, 12), st.integers(1, 12),
       st.integers(0, 12), st.sets(st.sampled_from(PLAIN)),
       st.sets(st.sampled_from(PLAIN)))
def test_fields_never_go_by_size(kind, num_nodes, num_edges, size, fields,
                                 drop):
    # One edge more or less, or as many edges as nodes, or entries: the same
    # fields are left, and the ledger lists the same ones.
    left, told = [], []
    for edges in (num_edges, num_edges - 1, size, num_nodes):
        data = Data(num_nodes=num_nodes, edge_index=torch.randint(
            num_nodes, (2, edges)), edge_attr=torch.rand(edges, 2))
        for name in fields:
            data[name] = torch.zeros(size)
        with trials():
            out = kind(4.0, drop=sorted(drop))(data)
        left.append(set(out.keys()))
        told.append(out.privacy.releases[0].public)
    assert left[0] == fields - drop | {'num_nodes', 'edge_index',
                                       'edge_private', 'privacy'}
    assert left.count(left[0]) == 4 and told.count(told[0]) == 4
    listed = {what.split("'")[1] for what, _ in told[0] if 'left' in what}
    assert listed == fields - drop - {'pos', 'train_mask'}


@pytest.mark.parametrize('kind', ALL)
def test_fields_of_edges_go_by_name(mixed, kind):
    mixed.edge_type = torch.zeros(24).long()
    mixed.edge_names = ['no tensor']
    mixed.edge_count = torch.tensor(24)  # Of no length of edges.
    mixed.weight, mixed.num_edges = torch.rand(24), 24
    out = kind(8.0, drop=['weight', 'nobody has it'])(mixed)
    assert set(out.keys()) == {'x', 'y', 'train_mask', 'label', 'edge_index',
                               'edge_private', 'privacy'}
    out = kind(8.0, keep=['edge_type'])(mixed)
    assert out.edge_type is mixed.edge_type and 'weight' in out
    public = [what for what, _ in out.privacy.releases[0].public]
    assert 'edge_type' in public and "'weight', left as it is" in public


@pytest.mark.parametrize('name', [
    'train_edge_index', 'pos_edge_label_index', 'face', 'edges', 'edge_list',
    'edgelist', 'A', 'adj', 'adj_t', 'adjacency', 'adj_dict', 'row', 'col',
    'rowptr', 'colptr', 'e_id', 'x_raw', 'x1', 'pe', 'random_walk_pe', 'rwse',
    'laplacian_eigenvector_pe', 'pestat_GPSE', 'degree', 'in_degree', 'deg',
    'neighbours', 'neighbors', 'pagerank', 'metapath_dict'])
def test_what_sounds_like_edges_is_refused(graph, name):
    # By its name, whatever it holds.
    for value in (graph.edge_index, torch.zeros(3), [1], 'text'):
        graph[name] = value
        for transform in (EdgeRand(8.0), EdgeRR(8.0)):
            with pytest.raises(ValueError, match=f"'{name}' may hold private "
                               f"edges as they are, or was computed from"):
                transform(graph)
    assert name not in EdgeRand(8.0, drop=[name])(graph)
    with trials():
        out = EdgeRand(8.0, keep=[name])(graph)
    assert out[name] == 'text'
    assert (name, None) in out.privacy.releases[0].public


@pytest.mark.parametrize('before', [
    AddRandomWalkPE(2), AddLaplacianEigenvectorPE(2), SIGN(2),
    ToSparseTensor(remove_edge_index=False), ToDense()])
def test_what_pyg_leaves_is_refused(graph, before):
    graph.edge_index = graph.edge_index[:, ::3] if isinstance(
        before, ToDense) else graph.edge_index
    left = before(graph.clone())
    left.edge_index = graph.edge_index
    with pytest.raises(ValueError, match='may hold private edges as they are, '
                       'or was computed from them'):
        EdgeRand(8.0)(left)


@pytest.fixture
def social():
    ring = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])
    ring = torch.cat([ring, ring.flip(0)], dim=1)
    data = HeteroData()
    data['user'].x = torch.rand(8, 2)
    data['item'].num_nodes = 3
    data['user', 'knows', 'user'].edge_index = ring
    data['user', 'buys', 'item'].edge_index = torch.tensor([[7], [2]])
    data['user', 'buys', 'item'].edge_private = torch.tensor([False])
    return data


@pytest.mark.parametrize('kind', ALL)
def test_all_stores_of_hetero_data(social, kind):
    knows, buys = social['knows'], social['buys']
    knows.time = torch.arange(16)       # By its place,
    knows.edge_attr = torch.rand(16, 1)
    knows.note = 'said of an edge'
    buys.time = torch.arange(1)         # which is public here.
    social['user'].edge_count = torch.zeros(8)      # By its name,
    social['item'].kind = torch.arange(3)
    social.edge_total, social.edge_index = 16, knows.edge_index
    social.weekdays = torch.arange(7)
    out = kind(8.0, drop=['kind'])(social)          # or as asked for.
    assert set(out['knows'].keys()) == {'edge_index', 'edge_private'}
    assert set(out['buys'].keys()) == {'edge_index', 'edge_private', 'time'}
    assert set(out['user'].keys()) == {'x'}
    assert set(out['item'].keys()) == {'num_nodes'}
    assert set(out._global_store.keys()) == {'weekdays', 'privacy'}
    left = [what for what, _ in out.privacy.releases[0].public
            if 'left as it is' in what]
    assert sorted(left) == [f"'{name}', left as it is" for name in (
        'user__buys__item.edge_index', 'user__buys__item.edge_private',
        'user__buys__item.time', 'weekdays')]
    # What was raw is as it was.
    assert 'time' in knows and 'kind' in social['item']


@pytest.mark.parametrize('name', ['train_edge_index', 'face', 'adj_t', 'edges',
                                  'random_walk_pe', 'metapath_dict'])
def test_structure_in_any_store_is_refused(social, name):
    social['user', 'likes', 'user'].num_likes = 3  # Has no edge_index.
    for place in ('user', 'item', ('user', 'knows', 'user'),
                  ('user', 'buys', 'item'), ('user', 'likes', 'user'), None):
        data = copy.copy(social)
        store = data._global_store if place is None else data[place]
        store[name] = social['knows'].edge_index
        with pytest.raises(ValueError, match=f"'.*{name}' may hold private"):
            EdgeRand(8.0)(data)
        # If it shall go, it goes, wherever it is.
        with trials():
            out = EdgeRand(8.0, drop=[name])(data)
        assert not any(name in store for store in out.stores)
        assert not any(name in what for what, _ in
                       out.privacy.releases[0].public)
