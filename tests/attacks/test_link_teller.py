import itertools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN, GCNConv

from tests.conftest import FALSE_ALARM
from torch_geometric_dp.attacks import LinkTeller
from torch_geometric_dp.attacks.link_teller import _numbers, similarities
from torch_geometric_dp.attacks.report import scored_numbers
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.graph.pairs import to_pairs

pytest.importorskip('sklearn')


def random_graph(n, edges, seed=0, columns=5):
    """Pairs at random, in both directions, and features in [0, 1]."""
    rng = np.random.RandomState(seed)
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    chosen = torch.from_numpy(pairs[rng.permutation(len(pairs))[:edges]].T)
    return Data(x=torch.from_numpy(rng.rand(n, columns)),
                edge_index=torch.cat([chosen, chosen.flip(0)], dim=1))


def gcn_matrix(data):
    """The normalised adjacency with self-loops, as a matrix."""
    a = torch.eye(data.num_nodes, dtype=torch.double)
    for u, v in data.edge_index.t().tolist():
        a[v, u] = 1.0
    degree = a.sum(dim=1)
    return a / (degree[:, None] * degree[None, :]).sqrt()


def test_linear_layer_gives_away_its_adjacency():
    data = random_graph(15, 30)
    torch.manual_seed(0)
    layer = GCNConv(5, 3).double()
    attack = LinkTeller()
    report = attack.run(lambda x: layer(x, data.edge_index), data)
    # One node more of x_u at v is a_vu W x_u, whatever delta is.
    size = (data.x @ layer.lin.weight.detach().t()).norm(dim=1)
    a = gcn_matrix(data)
    pairs, truth = attack.candidates(data)
    expected = [(a[v, u] * size[u] + a[u, v] * size[v]) / 2
                for u, v in pairs.t().tolist()]
    np.testing.assert_allclose(report.scores, expected, rtol=1e-9, atol=1e-12)
    assert np.array_equal(report.truth, truth) and truth.sum() == 30
    # One layer reaches neighbours alone.
    assert report.numbers == {'AUC': 1.0, 'TPR at 1% FPR': 1.0,
                              'precision at the true density': 1.0}


@pytest.mark.parametrize('delta', [1e-3, 0.5])
def test_influence_as_defined(delta):
    data = random_graph(20, 30, seed=1)
    torch.manual_seed(1)
    model = GCN(5, 8, 2, 4).double().eval()

    def target(x):
        return model(x, data.edge_index).softmax(dim=1)

    attack = LinkTeller(num_nodes=9, delta=delta, seed=3)
    report = attack.run(target, data)
    pairs, _ = attack.candidates(data)
    with torch.no_grad():
        for (u, v), score in zip(pairs.t().tolist(), report.scores):
            both = 0.0
            for a, b in ((u, v), (v, u)):
                x = data.x.clone()
                x[a] = x[a] + delta * x[a]
                change = target(x)[b] - target(data.x)[b]
                both += float(change.pow(2).sum().sqrt()) / delta
            assert score == pytest.approx(both / 2, rel=1e-6, abs=1e-12)


def test_relative_influence_is_one_for_each_edge():
    # Whatever the features, the degrees, and how loud the answers are.
    data = random_graph(15, 30)
    torch.manual_seed(0)
    layer = GCNConv(5, 3).double()
    loud = torch.rand(15, 1, dtype=torch.double) + 0.01
    report = LinkTeller(relative=True).run(
        lambda x: loud * layer(x, data.edge_index), data)
    np.testing.assert_allclose(report.scores, report.truth, rtol=1e-9)
    # A row of zeros has no influence, on itself or on others.
    data.x[4] = 0
    attack = LinkTeller(relative=True)
    report = attack.run(lambda x: layer(x, data.edge_index), data)
    hidden = (attack.candidates(data)[0] == 4).any(dim=0).numpy()
    assert not report.scores[hidden].any() and hidden.any()


def test_relative_influence_sees_through_probabilities():
    # Answers that are beyond doubt hardly change, for friends or for others.
    data = DigitsGraph()[0]
    del data.edge_private
    torch.manual_seed(0)
    model = GCN(64, 16, 2, 10).double().eval()
    data.x = data.x.double()

    def target(x):
        return (20 * model(x, data.edge_index)).softmax(dim=1)

    plain, relative = (LinkTeller(100, relative=relative).run(target, data)[
        'precision at the true density'] for relative in (False, True))
    assert relative > plain + 0.2


def test_one_query_for_each_node():
    data, asked = random_graph(20, 60), []

    def target(x):
        asked.append(x.clone())
        return x.mul_(2)  # It may do with its input what it likes.

    attack, before = LinkTeller(num_nodes=7, delta=0.25), data.clone()
    attack.run(target, data)
    assert torch.equal(asked[0], data.x) and torch.equal(asked[1], data.x)
    probed = []
    for x in asked[2:]:
        changed = (x != data.x).any(dim=1).nonzero().view(-1)
        assert len(changed) == 1
        torch.testing.assert_close(x[changed], 1.25 * data.x[changed])
        probed.append(int(changed))
    assert len(set(probed)) == 7
    assert probed == attack.candidates(data)[0].unique().tolist()
    for key, value in before:
        assert torch.equal(value, data[key])


@pytest.mark.parametrize('train', [True, False])
def test_leaves_the_model_as_it_is(train):
    data = random_graph(12, 20)
    model = GCN(5, 8, 2, 4).double().train(train)
    before = {key: p.clone() for key, p in model.state_dict().items()}
    data.x.requires_grad_()
    LinkTeller().run(lambda x: model(x, data.edge_index), data)
    assert model.training == train and data.x.grad is None
    for key, p in model.state_dict().items():
        assert torch.equal(p, before[key])
    assert all(p.grad is None for p in model.parameters())


def test_no_edges_served_no_influence():
    data = random_graph(15, 30)
    layer = GCNConv(5, 3).double()
    report = LinkTeller().run(lambda x: layer(x, data.edge_index[:, :0]), data)
    assert not report.scores.any()
    assert report['AUC'] == 0.5
    assert report['TPR at 1% FPR'] == pytest.approx(0.01)
    # As good as guessing.
    assert report['precision at the true density'] == pytest.approx(30 / 105)


def test_served_edges_that_have_nothing_to_do_with_the_private_ones():
    data, other = random_graph(80, 400), random_graph(80, 400, seed=1)
    torch.manual_seed(0)
    model = GCN(5, 8, 2, 4).double().eval()
    report = LinkTeller().run(lambda x: model(x, other.edge_index), data)
    assert report.scores.std() > 0
    # The private pairs are drawn at random, whatever the scores are; ties
    # make the spread smaller.
    yes, no = report.truth.sum(), (~report.truth).sum()
    spread = np.sqrt((yes + no + 1) / (12 * yes * no))
    assert abs(report['AUC'] - 0.5) < stats.norm.isf(FALSE_ALARM / 2) * spread


def test_rounding():
    # Single precision is enough, and pairs out of reach have no score at all.
    data = random_graph(30, 30)
    torch.manual_seed(0)
    model = GCN(5, 16, 2, 4).double().eval()
    exact = LinkTeller().run(lambda x: model(x, data.edge_index), data).scores
    model, single = model.float(), data.clone()
    single.x = data.x.float()
    rough = LinkTeller().run(lambda x: model(x, data.edge_index), single).scores
    assert ((exact == 0) == (rough == 0)).all() and (exact == 0).any()
    np.testing.assert_allclose(rough, exact, atol=1e-3 * exact.max())


@given(st.integers(3, 9), st.data())
def test_candidates_by_brute_force(n, draw):
    # Directions, repetitions and self-loops; private, public and both.
    node = st.integers(0, n - 1)
    edges = draw.draw(st.lists(st.tuples(node, node, st.booleans()),
                               max_size=20))
    data = Data(x=torch.rand(n, 2), edge_index=torch.tensor(
        [edge[:2] for edge in edges], dtype=torch.long).view(-1, 2).t(),
                edge_private=torch.tensor([edge[2] for edge in edges],
                                          dtype=torch.bool))
    public = {frozenset(edge[:2]) for edge in edges if not edge[2]}
    private = {frozenset(edge[:2]) for edge in edges if edge[2]} - public
    expected = {frozenset(pair): frozenset(pair) in private
                for pair in itertools.combinations(range(n), 2)
                if frozenset(pair) not in public}
    attack = LinkTeller()
    if len(set(expected.values())) < 2:
        with pytest.raises(ValueError, match="'edge_index' must hold private"):
            attack.candidates(data)
        return
    pairs, truth = attack.candidates(data)
    assert len(truth) == len(expected)
    assert {frozenset(pair): is_edge for pair, is_edge
            in zip(pairs.t().tolist(), truth.tolist())} == expected


def test_public_edges_are_no_finds():
    data = random_graph(15, 30)
    data.edge_private = (torch.arange(60) % 30) < 10
    layer = GCNConv(5, 3).double()

    def target(x):  # Serves public edges alone.
        return layer(x, data.edge_index[:, ~data.edge_private])

    report = LinkTeller().run(target, data)
    assert report.truth.sum() == 10 and len(report.truth) == 105 - 20
    assert not report.scores.any()
    assert report.knew == ('the features of all nodes',
                           'that 10 of 85 pairs have a private edge',
                           'the public edges')
    # Under another name, all edges are private.
    report = LinkTeller(private='secret').run(target, data)
    assert report.truth.sum() == 30 and report['AUC'] > 0.7
    assert report.knew == ('the features of all nodes',
                           'that 30 of 105 pairs have a private edge')


def test_one_direction_is_enough():
    data = random_graph(10, 12)
    one_way = data.edge_index[:, :12]
    both = torch.cat([data.edge_index, data.edge_index[:, :5]], dim=1)
    layer = GCNConv(5, 3).double()
    for edges in (one_way, both):
        data.edge_index = edges
        report = LinkTeller().run(lambda x: layer(x, one_way), data)
        assert report.truth.sum() == 12 and report['AUC'] == 1.0


def test_sample():
    data = random_graph(40, 300)
    seen = set()
    for seed in range(3):
        attack = LinkTeller(num_nodes=10, seed=seed)
        pairs, truth = attack.candidates(data)
        again, _ = attack.candidates(data)
        assert torch.equal(pairs, again) and pairs.shape == (2, 45)
        assert len(pairs.unique()) == 10
        edges = set(map(tuple, data.edge_index.t().tolist()))
        assert truth.tolist() == [tuple(pair) in edges
                                  for pair in pairs.t().tolist()]
        seen.add(tuple(pairs.unique().tolist()))
    assert len(seen) == 3


@pytest.mark.parametrize('shown', [0, 12])
def test_baseline_as_defined(shown):
    # The mean of three cosines of centred features, after 0, 1 and 2 hops.
    data = random_graph(12, 24, seed=2)
    data.edge_private = (torch.arange(48) % 24) >= shown
    rows = (data.x - data.x.mean(dim=0)).numpy()
    friends = [{v} for v in range(12)]
    for (u, v), private in zip(data.edge_index.t().tolist(),
                               data.edge_private):
        if not private:
            friends[v].add(u)
    expected = np.zeros((12, 12))
    for _ in range(3):
        for u, v in itertools.product(range(12), repeat=2):
            expected[u, v] += (rows[u] @ rows[v] / np.linalg.norm(rows[u]) /
                               np.linalg.norm(rows[v])) / 3
        rows = np.stack([np.mean([rows[u] for u in friends[v]], axis=0)
                         for v in range(12)])
    nodes = torch.tensor([0, 3, 4, 11])
    public = to_pairs(data.edge_index[:, ~data.edge_private])
    alike = similarities(data.x, public, nodes)
    found = [expected[u, v] for v, u in ((3, 0), (4, 0), (4, 3), (11, 0),
                                         (11, 3), (11, 4))]
    np.testing.assert_allclose(alike, found, atol=1e-5)
    # Whatever the target is.
    attack = LinkTeller()
    pairs, truth = attack.candidates(data)
    scores = np.array([expected[u, v] for u, v in pairs.t().tolist()])
    for target in (lambda x: x, lambda x: x.sum(dim=0).expand_as(x)):
        baseline = attack.run(target, data).baseline
        assert baseline == pytest.approx(_numbers(truth, scores))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=2,
                max_size=6))
def test_precision_by_all_orders(rows):
    truth = np.array([row[0] for row in rows])
    scores = np.array([row[1] for row in rows], float)
    if truth.all() or not truth.any():
        return
    found = []
    for order in itertools.permutations(range(len(rows))):
        best = sorted(order, key=lambda i: -scores[i])[:truth.sum()]
        found.append(truth[best].mean())
    numbers = _numbers(truth, scores)
    assert numbers.pop('precision at the true density') == pytest.approx(
        np.mean(found))
    assert numbers == scored_numbers(truth, scores)


def test_says_that_a_target_is_noisy():
    data = random_graph(12, 20)
    model = GCN(5, 8, 2, 4, dropout=0.5).double()
    with pytest.warns(UserWarning, match="'target' answers one question in"):
        LinkTeller().run(lambda x: model(x, data.edge_index), data)
    model.eval()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        LinkTeller().run(lambda x: model(x, data.edge_index), data)


def test_says_that_a_target_feels_nothing():
    # It serves all edges, but the probes do not reach them.
    data = random_graph(12, 20)
    layer = GCNConv(5, 3).double()

    def target(x):
        out = layer(torch.nn.functional.normalize(x, dim=1), data.edge_index)
        return out.round(decimals=6)

    with pytest.warns(UserWarning, match='delta=0.01, so this attack tells'):
        report = LinkTeller().run(target, data)
    assert not report.scores.any()
    with warnings.catch_warnings():  # Nodes that feel themselves are enough.
        warnings.simplefilter('error')
        LinkTeller().run(lambda x: x, data)


def test_progress(capsys):
    data = random_graph(12, 20)
    LinkTeller().run(lambda x: x, data)
    assert capsys.readouterr().err == ''
    LinkTeller(progress=True).run(lambda x: x, data)
    assert 'probes: 100%' in capsys.readouterr().err


def test_repr():
    assert repr(LinkTeller()) == 'LinkTeller()'
    assert repr(LinkTeller(9, 0.5, 'secret', True, 3, True)) == (
        "LinkTeller(num_nodes=9, delta=0.5, private='secret', relative=True, "
        "seed=3)")
    data = random_graph(12, 20)
    assert LinkTeller().run(lambda x: x, data).attack == repr(LinkTeller())


@pytest.mark.parametrize('kwargs, error, message', [
    ({'num_nodes': 1}, ValueError,
     "'num_nodes' must be an integer of at least 2 (got 1)"),
    ({'delta': 0.0}, ValueError,
     "'delta' must be a positive, finite number (got 0.0)"),
    ({'delta': float('nan')}, ValueError,
     "'delta' must be a positive, finite number (got nan)"),
    ({'private': None}, TypeError, "'private' must be the name of a boolean "
     "edge field, such as 'edge_private' (got 'NoneType')"),
    ({'seed': -1}, ValueError,
     "'seed' must be an integer of at least 0 (got -1)"),
])
def test_bad_arguments(kwargs, error, message):
    with pytest.raises(error) as info:
        LinkTeller(**kwargs)
    assert str(info.value) == message


@pytest.mark.parametrize('change, error, message', [
    ({'x': None}, ValueError, "'x' is missing (got the fields "
     "['edge_index'])"),
    ({'edge_index': None}, ValueError, "'edge_index' is missing (got the "
     "fields ['x'])"),
    ({'x': torch.ones(12, 2).long()}, ValueError, "'x' must be dense "
     "floating-point numbers of shape [num_nodes, num_features] (got "
     "torch.strided torch.int64 of shape [12, 2])"),
    ({'x': torch.ones(12)}, ValueError, "'x' must be dense floating-point "
     "numbers of shape [num_nodes, num_features] (got torch.strided "
     "torch.float32 of shape [12])"),
    ({'x': torch.ones(12, 2).to_sparse()}, ValueError, "'x' must be dense "
     "floating-point numbers of shape [num_nodes, num_features] (got "
     "torch.sparse_coo torch.float32 of shape [12, 2])"),
    ({'edge_index': torch.tensor([[0], [12]])}, ValueError, "'edge_index' must "
     "hold nodes from 0 to 11 (got others in column 0)"),
    ({'x': torch.full((12, 2), torch.inf)}, ValueError, "'x' must be finite "
     "(got [inf, inf] in row 0)"),
    ({'edge_private': torch.ones(40)}, ValueError, "'edge_private' must be a "
     "boolean tensor, one entry for each of the 40 columns of 'edge_index' "
     "(got torch.float32 of shape [40])"),
    ({'edge_private': torch.ones(3).bool()}, ValueError, "'edge_private' must "
     "be a boolean tensor, one entry for each of the 40 columns of "
     "'edge_index' (got torch.bool of shape [3])"),
    ({'edge_private': [True] * 40}, ValueError, "'edge_private' must be a "
     "boolean tensor, one entry for each of the 40 columns of 'edge_index' "
     "(got 'list')"),
    # No private edges: none at all, public ones, self-loops, one node.
    ({'edge_index': torch.empty(2, 0).long()}, ValueError,
     "'edge_index' must hold private edges between some of the 12 probed "
     "nodes, and not between all (got 0 among 66 pairs that are not public)"),
    ({'edge_private': torch.zeros(40).bool()}, ValueError,
     "'edge_index' must hold private edges between some of the 12 probed "
     "nodes, and not between all (got 0 among 46 pairs that are not public)"),
    ({'edge_index': torch.ones(2, 3).long()}, ValueError,
     "'edge_index' must hold private edges between some of the 12 probed "
     "nodes, and not between all (got 0 among 66 pairs that are not public)"),
    ({'x': torch.ones(1, 2), 'edge_index': torch.zeros(2, 1).long()},
     ValueError,
     "'edge_index' must hold private edges between some of the 1 probed "
     "nodes, and not between all (got 0 among 0 pairs that are not public)"),
    ({'x': torch.ones(0, 2), 'edge_index': torch.zeros(2, 0).long()},
     ValueError,
     "'edge_index' must hold private edges between some of the 0 probed "
     "nodes, and not between all (got 0 among 0 pairs that are not public)"),
    ({'x': torch.ones(2, 2), 'edge_index': torch.tensor([[0], [1]])},
     ValueError,
     "'edge_index' must hold private edges between some of the 2 probed "
     "nodes, and not between all (got 1 among 1 pairs that are not public)"),
])
def test_bad_graphs(change, error, message):
    data = random_graph(12, 20)
    for key, value in change.items():
        if value is None:
            del data[key]
        else:
            data[key] = value
    with pytest.raises(error) as info:
        LinkTeller().run(lambda x: x, data)
    assert str(info.value) == message


@pytest.mark.parametrize('target, message', [
    (lambda x: x.tolist(), "'target' must answer with a tensor of shape "
     "[12, num_outputs], one row for each node (got 'list')"),
    (lambda x: x[:, 0], "'target' must answer with a tensor of shape "
     "[12, num_outputs], one row for each node (got [12])"),
    (lambda x: x[:3], "'target' must answer with a tensor of shape "
     "[12, num_outputs], one row for each node (got [3, 5])"),
    (lambda x: x / 0, "'target' must answer with finite numbers (got infinite "
     "ones, or NaN)"),
])
def test_bad_targets(target, message):
    with pytest.raises(ValueError) as info:
        LinkTeller().run(target, random_graph(12, 20))
    assert str(info.value) == message


@pytest.mark.parametrize('target, data, name', [
    (lambda x: x, HeteroData(), "'data' must be a graph.*'HeteroData'"),
    (lambda x: x, torch.ones(3, 2), "'data' must be a graph.*'Tensor'"),
    (torch.ones(3, 2), random_graph(12, 20), "'target' must .*'Tensor'"),
    (random_graph(12, 20), random_graph(12, 20), "'target' must .*'Data'"),
])
def test_what_is_no_graph_or_no_model(target, data, name):
    with pytest.raises(TypeError, match=name):
        LinkTeller().run(target, data)
