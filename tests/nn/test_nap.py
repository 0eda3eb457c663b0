import copy
import io
import math
import pickle
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphSAGE

from benchmarks.papers.nap import sums
from tests.conftest import FALSE_ALARM
from tests.nn.forms import FORMS, ring
from torch_geometric_dp import (
    ContentChanged,
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.nn import NAP, NAPConv
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms import BoundDegree, FeatureRR


@pytest.fixture
def x():
    return torch.randn(12, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize('delta, order', [(None, 1), (1e-5, 2)])
@pytest.mark.parametrize('clip', [0.5, 1.0, 3.0])
def test_sums(x, delta, order, clip):
    # With an all but infinite epsilon, the sums themselves.
    layer = NAP(1e9, 2, delta=delta, clip=clip)
    out = layer(x, ring(12))
    assert out.dtype == torch.float and out.shape == (12, 3)
    room = 1e-4 + 9 * float(layer.mechanism.variance(3))**0.5
    assert torch.allclose(out, sums(x, ring(12), order, clip), atol=room)
    # Directions count, and so do self-loops.
    edges = torch.tensor([[0, 1, 5, 5], [1, 2, 5, 6]])
    out = NAP(1e9, 2, delta=delta, clip=clip)(x, edges)
    assert torch.allclose(out, sums(x, edges, order, clip), atol=room)


def test_hops(x):
    out = NAP(1e9, 2, hops=3)(x, ring(12))
    assert out.shape == (12, 9)
    h = x
    for hop in range(3):  # Clipped again before each hop.
        h = sums(h, ring(12))
        assert torch.allclose(out[:, 3 * hop:3 * hop + 3], h, atol=1e-4)


def test_each_hop_has_noise_of_its_own():
    # Without edges, all that comes out is noise.
    n, none = 20000, torch.empty(2, 0, dtype=torch.long)
    one, two = NAP(1.0, 2, hops=2, seed=0)(torch.zeros(n, 1), none).t()
    limit = stats.norm.isf(FALSE_ALARM / 2) / math.sqrt(n)
    assert abs(torch.corrcoef(torch.stack([one, two]))[0, 1]) < limit


@FORMS
def test_forms_of_edges(x, form):
    edge_index = ring(12)
    expected = NAP(1.0, 2, seed=0)(x, edge_index)
    assert torch.equal(NAP(1.0, 2, seed=0)(x, form(edge_index, 12)), expected)
    one_way = torch.tensor([[0, 0, 3], [1, 2, 4]])
    expected = NAP(1.0, 2, seed=0)(x, one_way)
    assert torch.equal(NAP(1.0, 2, seed=0)(x, form(one_way, 12)), expected)


def test_repeated_edges_count_once(x):
    edge_index = ring(12)
    expected = NAP(1.0, 2, seed=0)(x, edge_index)
    again = torch.cat([edge_index] * 3, dim=1)
    adj = torch.sparse_coo_tensor(again.flip(0), torch.ones(72), (12, 12))
    for form in (again, edge_index[:, torch.randperm(24)], adj,
                 EdgeIndex(edge_index, sparse_size=(12, 12))):
        assert torch.equal(NAP(1.0, 2, seed=0)(x, form), expected)
    assert not adj.is_coalesced()  # The input is not touched.


def test_unbiased_with_the_stated_variance():
    # 10^4 separate pairs of nodes, with all rows the same.
    n, row = 20000, torch.tensor([0.3, -0.2, 0.4])
    node = torch.arange(n)
    edge_index = torch.stack([node, node ^ 1])
    limit = stats.norm.isf(FALSE_ALARM / 4)
    for delta, fourth in ((None, 6), (1e-5, 3)):
        layer = NAP(2.0, 1, delta=delta, seed=0)
        error = layer(row.repeat(n, 1), edge_index) - row
        variance = float(layer.mechanism.variance(3))
        deviation = math.sqrt(variance / error.numel())
        assert abs(error.mean()) < limit * deviation
        assert abs(error.double().var() / variance - 1) < (
            limit * math.sqrt((fourth - 1) / error.numel()))


def test_one_release(x):
    budget = PrivacyBudget(node=4.0, max_degree=2)
    layer = NAP(2.0, 2, budget=budget)
    out = layer(x, ring(12))
    expected = out.clone()
    out.zero_()  # What somebody does to it stays with them.
    layer.eval()
    again = layer(x.clone(), ring(12))
    assert torch.equal(again, expected)
    again.add_(1)
    assert torch.equal(layer(x, ring(12)), expected)
    assert len(layer.privacy.releases) == 1
    assert layer.privacy.epsilon('node') == 2.0
    assert budget.remaining('node') == 2.0
    # Another layer under this budget has the same release, free of charge.
    other = NAP(2.0, 2, budget=budget)
    assert torch.equal(other(x, ring(12)), expected)
    assert other.privacy == layer.privacy
    assert budget.remaining('node') == 2.0
    release, = layer.privacy.releases
    assert release.graph == budget.identity
    assert release.fields == ('x', 'edge_index')
    assert release.guarantee == layer.guarantee
    assert release.call == 'NAP(epsilon=2.0, max_degree=2)'
    assert PrivacyAccountant.from_json(layer.privacy.to_json())


@pytest.mark.parametrize('budget', [None, PrivacyBudget(node=5.0,
                                                        max_degree=2)])
def test_another_input_is_refused_or_renewed(x, budget):
    layer = NAP(2.0, 2, budget=budget)
    first = layer(x, ring(12))
    for other in ((x + 1e-3, ring(12)), (x, ring(12)[:, :-1]),
                  (x[:6], ring(6))):
        with pytest.raises(ContentChanged, match='renew'):
            layer(*other)
    assert layer.privacy.epsilon('node') == 2.0
    assert torch.equal(layer(x, ring(12)), first)
    other = layer.renew()(x + 1e-3, ring(12))
    assert layer.privacy.epsilon('node') == 4.0
    assert (other != first).all()
    assert torch.equal(layer(x + 1e-3, ring(12)), other)
    with pytest.raises(ContentChanged):  # It is bound to the new one now.
        layer(x, ring(12))
    if budget is not None:
        with pytest.raises(PrivacyBudgetExceeded):
            layer.renew()(x, ring(12))


def test_equal_values_are_the_same_input(x):
    # Of any type: two sums with the same noise would tell what they differ in.
    layer, x = NAP(1.0, 2, hops=3), x.half()
    out = layer(x, ring(12))
    for kind in (torch.float, torch.double):
        other = layer(x.to(kind), ring(12).int())
        assert other.dtype == kind and torch.equal(other.half(), out)
    exact = layer(x.double(), ring(12))
    assert torch.equal(layer(x.float(), ring(12)), exact.float())
    assert len(layer.privacy.releases) == 1


def test_graph_with_a_budget(graph):
    # Row 10 of the review: a layer is given tensors, and knows whose they are.
    graph.privacy_budget = PrivacyBudget(edges=1.0)
    conv = NAPConv(3, 4, epsilon=8.0, unit='edge')
    for data in (graph, copy.copy(graph), graph.clone()):
        with pytest.raises(PrivacyBudgetExceeded):
            conv(data.x, data.edge_index)
    assert conv.privacy.releases == ()
    conv = NAPConv(3, 4, epsilon=0.75, unit='edge')
    conv(graph.x, graph.edge_index), conv(graph.x, graph.edge_index)
    assert graph.privacy_budget.remaining('edges') == 0.25
    assert conv.privacy.releases[0].graph == graph.privacy_budget.identity
    with pytest.raises(PrivacyBudgetExceeded):
        NAPConv(3, 4, 0.5, unit='edge')(graph.x, graph.edge_index)
    # Features have a cap here, and the layer takes them as public.
    graph.privacy_budget = PrivacyBudget(epsilon=1.0)
    with pytest.raises(PrivacyBudgetExceeded, match="'features' as public"):
        conv(graph.x, graph.edge_index)


def test_two_graphs_at_once(graph):
    other = graph.clone()
    for data in (graph, other):
        data.privacy_budget = PrivacyBudget(edges=1.0)
    with pytest.raises(ValueError, match='must belong to one graph'):
        NAP(1.0, unit='edge')(graph.x, other.edge_index)


def test_rows_that_are_read_raw(graph):
    # Row 4: a sum over private edges has nothing for the rows that it sums.
    layer = NAP(1.0, unit='edge')
    layer(graph.x, graph.edge_index)
    assert layer.privacy.epsilon('edges') == 1.0
    assert layer.privacy.epsilon('features') == math.inf
    assert layer.privacy.epsilon('node', max_degree=2) == math.inf
    assert 'features: taken as public by NAP' in str(layer.privacy)
    # Rows that were released are public indeed, and a node has its own.
    private = FeatureRR(4.0, (0.0, 1.0))(graph)
    layer = NAP(1.0, unit='edge')
    layer(private.x, private.edge_index)
    assert layer.privacy.epsilon('features') == 0
    assert layer.privacy.releases[0].public == ()
    layer = NAP(1.0, 2)
    layer(graph.x, graph.edge_index)
    assert layer.privacy.epsilon('features') == 1.0


def test_edges_that_were_cut_before(graph):
    # One raw edge changes three of those that are left.
    data = BoundDegree(1)(graph)
    layer = NAP(1.0, unit='edge')
    layer(data.x, data.edge_index)
    assert layer.privacy.releases[0].stability == 3
    assert layer.privacy.epsilon('edges') == 3.0
    # A promise to nodes is no better for it: with rows of 1 and -1, these
    # three edges change sums by 6, and a node with two edges by 4.
    data = BoundDegree(2)(graph)
    layer = NAP(1.0, 2)
    layer(data.x, data.edge_index)
    assert layer.mechanism.sensitivity() == 4.0
    assert layer.privacy.epsilon('edges') == 3.0
    assert layer.privacy.epsilon('features') == 1.0
    assert layer.privacy.epsilon('node') == 1.0


def test_renew(x):
    for seed in (None, 0):
        layer = NAP(2.0, 2, seed=seed)
        first = layer(x, ring(12))
        layer.renew()
        assert (layer(x, ring(12)) != first).all()
        assert layer.privacy.epsilon('node') == 4.0


def test_nothing_is_drawn_before_it_is_paid(x, monkeypatch):
    def draw(*args):
        raise AssertionError('noise was drawn')

    monkeypatch.setattr(NoiseSource, 'blocks', draw)
    layer = NAP(2.0, 2, budget=PrivacyBudget(node=1.0, max_degree=2))
    with pytest.raises(PrivacyBudgetExceeded):
        layer(x, ring(12))
    assert layer.privacy.releases == ()
    layer = NAP(2.0, 2)
    with pytest.raises(AssertionError, match='noise was drawn'):
        layer(x, ring(12))
    assert layer.privacy.epsilon('node') == 2.0


def test_copies_hold_no_secret(x):
    # Row 14: nothing that can be saved takes the noise off.
    layer = NAPConv(3, 4, 2.0, 2)
    out = layer(x, ring(12))
    file = io.BytesIO()
    torch.save(layer, file)
    state = io.BytesIO()
    torch.save(layer.state_dict(), state)
    key = layer.nap._own.key()
    for saved in (file.getvalue(), state.getvalue(), pickle.dumps(layer)):
        assert key not in saved and key.hex().encode() not in saved
    assert not any(isinstance(value, (bytes, NoiseSource))
                   for value in vars(layer.nap).values())
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)),
                  copy.copy(layer)):
        assert other.privacy == layer.privacy
        assert torch.equal(other(x, ring(12)), out)
        assert other.privacy == layer.privacy  # The same release, once more.
    assert pickle.loads(pickle.dumps(layer)).nap._cache is None


def test_state_dict(x):
    # Row 12: the ledger goes along, and the release comes again.
    one, two = NAPConv(3, 4, 2.0, 2), NAPConv(3, 4, 2.0, 2)
    out = one(x, ring(12))
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    two.load_state_dict(torch.load(file, weights_only=True))
    assert two.privacy == one.privacy
    assert torch.equal(two(x, ring(12)), out)
    assert two.privacy.epsilon('node') == 2.0
    # What was spent is never lowered by what is loaded.
    empty = NAPConv(3, 4, 2.0, 2).state_dict()
    two.load_state_dict(empty)
    assert two.privacy == one.privacy
    three = NAPConv(3, 4, 2.0, 2)
    three(x, ring(12))
    three.load_state_dict(one.state_dict())
    assert three.privacy.epsilon('node') == 4.0
    assert torch.equal(three(x, ring(12)), out)


def test_state_of_another_process(x, tmp_path):
    layer = NAPConv(3, 4, 2.0, 2)
    layer(x, ring(12))
    state = layer.state_dict()
    # Whoever names a vault in a file may know its key.
    state['nap._extra_state']['address'] = str(tmp_path / 'vault')
    other = NAPConv(3, 4, 2.0, 2)
    other.load_state_dict(state)
    assert other.privacy == layer.privacy
    with pytest.raises(RuntimeError, match='another process.*renew'):
        other(x, ring(12))
    other.renew()(x, ring(12))
    assert other.privacy.epsilon('node') == 4.0
    # Likewise for a whole layer.
    pickled = pickle.dumps(layer).replace(
        layer.nap._own.identity.encode(), 32 * b'0')
    other = pickle.loads(pickled)
    with pytest.raises(RuntimeError, match='another process.*renew'):
        other(x, ring(12))
    other.renew()(x, ring(12))
    assert other.privacy.epsilon('node') == 4.0


def test_compiled(x):
    conv = NAPConv(3, 4, 2.0, 2)
    expected = conv(x, ring(12))
    compiled = torch.compile(conv, backend='eager')
    assert torch.equal(compiled(x, ring(12)), expected)
    graph = Data(x=x, edge_index=ring(12))
    graph.privacy_budget = PrivacyBudget(node=1.0, max_degree=2)
    with pytest.raises(PrivacyBudgetExceeded):
        compiled(graph.x, graph.edge_index)


def test_a_second_layer_without_a_budget_warns(x):
    x = x + 0.25  # What no other test has released.
    layer = NAP(1.0, 2)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        layer(x, ring(12)), layer(x, ring(12))
        layer.renew()(x, ring(12))
    with pytest.warns(UserWarning, match='releases again'):
        NAP(1.0, 2)(x, ring(12))


def test_seeds(x):
    one, two = NAP(1.0, 2, seed=3), NAP(1.0, 2, seed=3)
    assert torch.equal(one(x, ring(12)), two(x, ring(12)))
    assert 'seeded with 3' in str(one.privacy)
    # The same bits under other arguments would be the same noise, scaled.
    a = NAP(1.0, 2, seed=3)(x, ring(12))
    b = NAP(2.0, 2, seed=3)(x, ring(12))
    exact = sums(x, ring(12))
    assert not torch.allclose((a - exact) / (b - exact), torch.tensor(2.0),
                              atol=1e-2)


def test_input_that_is_trained(x):
    encoder = torch.nn.Linear(3, 3)
    with pytest.raises(ValueError, match="'x' must not require a gradient: "
                       ".*trainable_input=True"):
        NAP(1.0, 2)(encoder(x), ring(12))
    layer = NAP(1.0, 2, trainable_input=True)
    first = layer(encoder(x), ring(12))
    second = layer(encoder(x), ring(12))
    assert (first != second).all()  # The same input, and charged again.
    assert layer.privacy.epsilon('node') == 2.0
    assert "gradients that flow back through the layer" in str(layer.privacy)
    # Input that is not trained is a release like any other.
    layer(x, ring(12)), layer(x, ring(12))
    assert layer.privacy.epsilon('node') == 3.0


@pytest.mark.parametrize('delta, order', [(None, 1), (1e-5, 2)])
def test_gradients(x, delta, order):
    # Those of the clipped sum, whatever the noise.
    adj = torch.zeros(12, 12, dtype=torch.double)
    adj[ring(12)[1], ring(12)[0]] = 1
    x = x.double().requires_grad_()
    out = NAP(1.0, 2, delta=delta, trainable_input=True)(x, ring(12))
    direction = torch.randn(out.shape, dtype=torch.double)
    (out * direction).sum().backward()
    y = x.detach().clone().requires_grad_()
    norm = y.norm(order, dim=1, keepdim=True)
    ((adj @ (y * (1 / norm).clamp(max=1))) * direction).sum().backward()
    assert torch.allclose(x.grad, y.grad)
    zero = torch.zeros(12, 3, requires_grad=True)
    NAP(1.0, 2, delta=delta, trainable_input=True)(zero, ring(12)).sum(
    ).backward()
    assert zero.grad.isfinite().all()


def test_weights(x):
    weight = torch.arange(1.0, 13.0)
    layer = NAP(1.0, 2, seed=0)
    out = layer(x, ring(12), weight)
    with pytest.raises(ContentChanged):
        layer(x, ring(12))
    assert not torch.equal(out, layer.renew()(x, ring(12)))
    assert layer.privacy.releases[0].public == (('weight', None), )
    assert 'takes as public: weight' in str(layer.privacy)
    assert layer.privacy.epsilon('node') == 2.0
    for wrong in (0.0, -1.0, math.inf, math.nan):
        bad = weight.clone()
        bad[4] = wrong
        with pytest.raises(ValueError, match=f"'weight' must be positive and "
                           f"finite.*got {wrong} for node 4"):
            layer(x, ring(12), bad)
    with pytest.raises(ValueError, match=r"'weight' must have shape \[12\]"):
        layer(x, ring(12), weight[1:])


def test_paper(x):
    layer = NAP(2.0, 3, calibration='paper')
    layer(x, ring(12))
    assert layer.guarantee.epsilon == math.inf
    assert layer.guarantee.claimed_epsilon == 2.0
    assert layer.privacy.epsilon('node') == math.inf
    assert layer.privacy.claimed_epsilon('node') == 2.0
    # On a ring under a cap of 3: 1/2 * (3 - 2) + 1 for each node.
    n = 30000
    out = NAP(2.0, 3, calibration='paper', seed=0)(torch.zeros(n, 1), ring(n))
    variance = 2 * (2 * 3 / (2.0 * 1.5))**2
    limit = stats.norm.isf(FALSE_ALARM / 2) * math.sqrt(5 / n)
    assert abs(out.double().var() / variance - 1) < limit
    # Influence moves noise from one node to another.
    rank = torch.ones(n)
    rank[::2] = 9.0
    out = NAP(2.0, 3, calibration='paper', seed=0)(torch.zeros(n, 1), ring(n),
                                                   rank)
    for part, share in ((0, 1 / 2), (1, 1 / 2)):
        assert abs(out[part::2].double().var() / (2 * (3 / (share + 1))**2) -
                   1) < limit * 2
    with pytest.raises(ValueError, match="calibration='paper' is published "
                       "for unit='node'.*got 'edge'"):
        NAP(2.0, 3, 'edge', calibration='paper')
    with pytest.raises(ValueError, match="'calibration' must be one of"):
        NAP(2.0, 3, calibration='best')


@pytest.mark.parametrize('model', [GraphSAGE, GCN])
def test_in_a_stock_model(x, model):
    net = model(3, 8, num_layers=2, out_channels=2)
    net.convs[0] = NAPConv(3, 8, epsilon=4.0, max_degree=2)
    for _ in range(3):
        net(x, ring(12)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    assert net.convs[0].privacy.epsilon('node') == 4.0
    net.reset_parameters()
    net(x, ring(12))
    assert net.convs[0].privacy.epsilon('node') == 4.0


def test_nap_conv(x):
    conv = NAPConv(3, 5, 1e9, 2, hops=2)
    expected = conv.lin(NAP(1e9, 2, hops=2)(x, ring(12)))
    assert torch.allclose(conv(x, ring(12)), expected, atol=1e-3)
    assert conv.guarantee == conv.nap.guarantee
    assert NAPConv(-1, 5, 1.0, 2, hops=2)(x, ring(12)).shape == (12, 5)
    assert NAPConv(3, 5, 1.0, 2, bias=False).lin.bias is None
    with pytest.raises(ValueError, match="'edge_weight' must be None"):
        conv(x, ring(12), torch.ones(24))


@settings(max_examples=60)
@given(st.integers(0, 8), st.integers(0, 4), st.data(),
       st.sampled_from([None, 1e-4]), st.sampled_from(['node', 'edge']),
       st.sampled_from([torch.float, torch.double, torch.half]))
def test_any_graph(n, d, data, delta, unit, dtype):
    node = st.integers(0, max(n - 1, 0))
    edges = data.draw(st.lists(st.tuples(node, node),
                               max_size=12 if n else 0))
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t()
    layer = NAP(1.0, 8, unit, delta=delta, hops=2)
    out = layer(torch.ones(n, d, dtype=dtype), edge_index)
    assert out.shape == (n, 2 * d) and out.dtype == dtype
    assert out.isfinite().all()
    assert torch.equal(out, layer(torch.ones(n, d, dtype=dtype), edge_index))


def test_degrees_above_the_cap(x):
    star = torch.tensor([[0, 0, 0, 1], [1, 2, 3, 0]])
    # Row 15: how many, and where, is private.
    with pytest.raises(ValueError) as info:
        NAP(1.0, 2)(x, star)
    assert str(info.value) == (
        "'max_degree' is too small for this graph: more edges go out of some "
        "node (got 2). BoundDegree(max_degree=2) removes some")
    with pytest.raises(ValueError, match="more edges come into some node"):
        NAP(1.0, 2)(x, star.flip(0))
    NAP(1.0, 3)(x, star)
    NAP(1.0, 2)(x, star[:, [0, 0, 1, 3]])  # Repeated edges count once.
    NAP(1.0, unit='edge')(x, star)


@pytest.mark.parametrize('change, error, message', [
    (lambda x, e: (x.fill_(math.nan), e), ValueError,
     "'x' must be finite .got NaN or infinity"),
    (lambda x, e: (torch.where(torch.arange(12).view(-1, 1) == 7, math.inf, x),
                   e), ValueError, "'x' must be finite .got NaN or infinity"),
    (lambda x, e: (x.long(), e), ValueError, "'x' must hold floating point .*"
     "got torch.int64 of shape"),
    (lambda x, e: (x[0], e), ValueError, "'x' must hold floating point"),
    (lambda x, e: (x, e + 1), ValueError, "'edge_index' must hold nodes from "
     "0 to 11"),
    (lambda x, e: (x, e[0]), ValueError, "'edge_index' must have shape"),
    (lambda x, e: (x, torch.eye(13).to_sparse()), ValueError,
     r"'edge_index' must have shape \[12, 12\] as a sparse matrix"),
    (lambda x, e: (x, 2 * torch.eye(12).to_sparse()), ValueError,
     "'edge_index' must hold ones as a sparse matrix.*got others"),
])
def test_bad_input(x, change, error, message):
    layer = NAP(1.0, 2)
    with pytest.raises(error, match=message):
        layer(*change(x, ring(12)))
    assert layer.privacy.releases == ()


def test_bad_budget():
    with pytest.raises(TypeError, match="'budget' must be a 'PrivacyBudget' "
                       ".got 'float'"):
        NAP(1.0, 2, budget=3.0)


def test_repr():
    assert repr(NAP(4, 50)) == 'NAP(epsilon=4.0, max_degree=50)'
    assert repr(NAP(4, unit='edge')) == "NAP(epsilon=4.0, unit='edges')"
    assert repr(NAP(4, 5, 'node', 'replace', 1e-5, 2.0, 3,
                    trainable_input=True, seed=1)) == (
        "NAP(epsilon=4.0, max_degree=5, relation='replace', delta=1e-05, "
        "clip=2.0, hops=3, trainable_input=True, seed=1)")
    assert repr(NAP(4, 5, calibration='paper')) == (
        "NAP(epsilon=4.0, max_degree=5, calibration='paper')")
    assert repr(NAPConv(3, 4, 1, 5, hops=2)) == (
        'NAPConv(in_channels=3, out_channels=4, epsilon=1.0, max_degree=5, '
        'hops=2)')
