import itertools
import math
import shutil

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.datasets import Planetoid
from torch_geometric.utils import homophily, to_undirected

from torch_geometric_dp import (
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms import EdgeRR


def communities(groups=8, size=8, share=0.5, seed=0):
    """Dense groups on a ring; some of the edges are private."""
    rng = np.random.default_rng(seed)
    n = groups * size
    u, v = np.triu_indices(n, 1)
    inside = u // size == v // size
    keep = rng.random(len(u)) < np.where(inside, 0.6, 0.005)
    # Numbers that tell nothing, but the same for every seed.
    name = np.random.default_rng(99).permutation(n)
    edge = torch.from_numpy(np.stack([name[u[keep]], name[v[keep]]]))
    private = torch.from_numpy(rng.random(edge.size(1)) < share)
    return Data(num_nodes=n, edge_index=torch.cat([edge, edge.flip(0)], 1),
                edge_private=torch.cat([private, private]),
                group=torch.from_numpy(name.argsort() // size))


def undirected(data, mask):
    edges = data.edge_index[:, mask]
    return set(map(tuple, edges.sort(dim=0).values.t().tolist()))


def test_edge_rr():
    data = communities()
    transform = EdgeRR(epsilon=1.0, steps=20)
    assert repr(transform) == 'EdgeRR(epsilon=1.0, steps=20)'
    out = transform(data)
    # Public edges are untouched, and stand in front.
    public = data.edge_index[:, ~data.edge_private]
    assert torch.equal(out.edge_index[:, :public.size(1)], public)
    assert not out.edge_private[:public.size(1)].any()
    assert out.edge_private[public.size(1):].all()
    assert out.is_undirected() and not out.has_self_loops()
    drawn = undirected(out, out.edge_private)
    assert not drawn & undirected(out, ~out.edge_private)
    assert 2 * len(drawn) == int(out.edge_private.sum())
    assert out.privacy.epsilon('edges') == 1.0
    assert out.privacy.releases[0].guarantee.model == 'central'
    assert out.privacy.releases[0].public == tuple((what, None) for what in (
        'num_nodes', "the edges that 'edge_private' does not select",
        "'group', left as it is"))
    assert "the edges that 'edge_private' does not select" in str(out.privacy)
    assert torch.equal(data.edge_private, communities().edge_private)


def test_released_edges_join_those_who_know_each_other():
    # 60% of the pairs within groups are edges, and 0.5% of the others. Chance
    # alone would put a ninth of the edges within groups.
    data = communities()
    within = [0, 0]
    for seed in range(5):
        out = EdgeRR(1.0, seed=seed)(data)
        u, v = out.edge_index[:, out.edge_private]
        within[0] += int((out.group[u] == out.group[v]).sum())
        within[1] += u.numel()
    assert within[1] > 300 and within[0] > 0.6 * within[1]


def test_cora(real_data, tmp_path):
    shutil.copytree(f'{real_data}/Planetoid/Cora/raw', tmp_path / 'Cora/raw')
    data = Planetoid(str(tmp_path), 'Cora')[0]
    edge = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    hidden = torch.rand(edge.size(1),
                        generator=torch.Generator().manual_seed(0)) < 0.3
    data.edge_index = torch.cat([edge, edge.flip(0)], dim=1)
    data.edge_private = torch.cat([hidden, hidden])
    out = EdgeRR(1.0, seed=0)(data)
    released = out.edge_index[:, out.edge_private]
    # By chance, 0.18 of the pairs are of one class.
    assert released.size(1) > 200 and homophily(released, out.y) > 0.6


def test_weights():
    out = EdgeRR(1.0, steps=20, edge_weight=True)(communities())
    assert out.edge_weight.shape == out.edge_private.shape
    assert (out.edge_weight[~out.edge_private] == 1).all()
    drawn = out.edge_weight[out.edge_private]
    assert ((drawn >= 0.05) & (drawn <= 1)).all()
    # Both directions have one weight.
    half = drawn.numel() // 2
    assert torch.equal(drawn[:half], drawn[half:])


def test_what_is_left_out():
    data = communities()
    everything = EdgeRR(1.0, steps=5, min_probability=0.0, min_signal=0.0,
                        seed=0)(data)
    some = EdgeRR(1.0, steps=5, seed=0)(data)
    nothing = EdgeRR(1.0, steps=5, min_signal=1e6, seed=0)(data)
    assert everything.num_edges > some.num_edges > nothing.num_edges
    assert not nothing.edge_private.any()


def random_graph(n, density, seed=0):
    """All edges are private, and no pair is likelier than another."""
    rng = np.random.default_rng(seed)
    u, v = np.triu_indices(n, 1)
    keep = rng.random(len(u)) < density
    edge = torch.from_numpy(np.stack([u[keep], v[keep]]))
    return Data(num_nodes=n, edge_index=torch.cat([edge, edge.flip(0)], 1))


def test_single_pairs_in_a_dense_graph():
    # Nothing is known of the graph, but at this epsilon, pairs speak for
    # themselves: 2% of noise among 10% of edges.
    data = random_graph(200, 0.1)
    edges = undirected(data, slice(None))
    out = EdgeRR(4.0, edge_weight=True, seed=0)(data)
    drawn = undirected(out, slice(None))
    assert len(drawn & edges) > 0.9 * len(edges)
    true = len(drawn & edges) / len(drawn)
    assert 0.75 < true < 0.95
    # Weights say how likely an edge is true.
    assert float(out.edge_weight.mean()) == pytest.approx(true, abs=0.05)
    # Blocks of many pairs tell nothing here.
    before = EdgeRR(4.0, largest_merged=8, seed=0)(data)
    merged = undirected(before, slice(None))
    assert len(merged & edges) < 0.2 * len(edges)


def test_single_pairs_that_are_noise_are_left_out():
    # 2% of noise among 0.2% of edges: nine in ten would be false.
    data = random_graph(400, 0.002)
    out = EdgeRR(4.0, seed=0)(data)
    assert out.num_edges / 2 < 20
    everything = EdgeRR(8.0, seed=0)(data)  # Here, one in seven.
    edges = undirected(data, slice(None))
    assert len(undirected(everything, slice(None)) & edges) > 0.8 * len(edges)


def test_single_pairs_where_the_public_edges_point():
    # Noise is as common as edges between the groups, but not within them.
    data = communities(groups=40)
    out = EdgeRR(4.0, seed=0)(data)
    u, v = out.edge_index[:, out.edge_private]
    assert u.numel() > 300
    assert float((out.group[u] == out.group[v]).float().mean()) > 0.8
    drawn, hidden = (undirected(d, d.edge_private) for d in (out, data))
    assert len(drawn & hidden) > 0.7 * len(drawn)
    assert not drawn & undirected(out, ~out.edge_private)


@pytest.mark.parametrize('epsilon', [0.5, 3.0, 8.0, 50.0])
def test_single_pairs_are_thresholded_counts(epsilon):
    # With discrete Laplace noise of ratio a, a count of 0 becomes positive with
    # probability a / (1 + a), and one of 1 stays so with 1 / (1 + a).
    transform = EdgeRR(epsilon)
    counts, pairs = transform.mechanism, transform._of_pairs
    a = math.exp(-counts.worst_case().epsilon)
    if epsilon < 36:  # Beyond, there is more noise.
        assert pairs.flip == pytest.approx(a / (1 + a), rel=1e-9)
    loss, most = pairs.worst_case().epsilon, counts.worst_case().epsilon
    assert loss <= most * (1 + 1e-15) and most <= epsilon


@pytest.mark.parametrize('public', [(), (0, 4)])
def test_exact_epsilon_of_single_pairs(monkeypatch, public):
    # All graphs with four nodes. Given which pairs look like edges, the output
    # is a function of them and of public edges, so that its law is a sum over
    # them of the law of randomised response.
    transform, public = EdgeRR(4.0), np.array(public, np.int64)
    kinds = type(transform._of_pairs)
    rest = [pair for pair in range(6) if pair not in public]
    graphs = [np.array(some, np.int64) for k in range(len(rest) + 1)
              for some in itertools.combinations(rest, k)]
    subsets = [np.flatnonzero(bits) for bits in
               itertools.product((0, 1), repeat=6)]
    outputs = {}
    for i, found in enumerate(subsets):
        monkeypatch.setattr(kinds, 'release', lambda *_, found=found: found)
        drawn = {tuple(transform.draw(Data()._store, private, public, 4,
                                      NoiseSource.from_seed(0))[0].tolist())
                 for private in (graphs[0], graphs[3], graphs[-1])}
        assert len(drawn) == 1
        outputs.setdefault(drawn.pop(), []).append(i)
    assert len(outputs) > 4
    q = transform._of_pairs.flip
    flips = np.array([[len(np.setxor1d(graph, found)) for found in subsets]
                      for graph in graphs])
    law = q**flips * (1 - q)**(6 - flips)
    law = np.log(np.stack([law[:, i].sum(1) for i in outputs.values()], 1))
    losses = [np.abs(law[i] - law[j]).max() for i in range(len(graphs))
              for j in range(i)
              if len(np.setxor1d(graphs[i], graphs[j])) == 1]
    assert 3.9 < max(losses) <= 4.0


def test_public_numbers_choose_the_blocks():
    few, many = EdgeRR(2.9), EdgeRR(3.0)
    assert not few._by_pairs(100) and many._by_pairs(100)
    assert EdgeRR(2.9, min_probability=0.1)._by_pairs(100)
    # The counts are what is left after the dendrogram.
    assert not EdgeRR(5.0, dendrogram='joint')._by_pairs(100)
    # Noise alone would make more edges than wanted: no error, but blocks.
    assert not EdgeRR(3.0, max_edges=400)._by_pairs(100)
    assert EdgeRR(3.0, max_edges=400)(random_graph(100, 0.1)).num_edges < 4000
    assert many.expected_edges(100, 0) < 250 < many.expected_edges(100, 50)
    for largest in (1, 8):
        assert not EdgeRR(8.0, largest_merged=largest)._by_pairs(100)


def test_a_guide_shapes_the_dendrogram():
    data = communities(share=1.0)  # No public edges.
    data.knn_index = to_undirected(communities(seed=1).edge_index)
    within = {}
    for guide in (None, 'knn_index'):
        out = EdgeRR(1.0, guide=guide, seed=0)(data)
        u, v = out.edge_index
        within[guide] = float((out.group[u] == out.group[v]).float().mean())
    assert within['knn_index'] > 0.7
    assert not within[None] > 0.6  # Or NaN: nothing stands out.
    assert ('knn_index', None) in out.privacy.releases[0].public
    assert 'knn_index' in out
    assert undirected(out, out.edge_private) != undirected(
        Data(edge_index=data.knn_index),
        torch.ones(data.knn_index.size(1)).bool())


def test_a_raw_guide_of_released_edges_is_on_record():
    # What was released is free, but not what else is read on the way.
    data = communities()
    data.knn_index = to_undirected(communities(seed=1).edge_index)
    once = EdgeRR(1.0, keep=['knn_index'])(data)
    twice = EdgeRR(2.0, guide='knn_index')(once)
    assert twice.privacy.epsilon('edges') == 1.0
    assert ('knn_index', None) in twice.privacy.releases[0].public
    # The two ledgers still tell of one release.
    both = PrivacyAccountant.merge([once.privacy, twice.privacy])
    assert both.epsilon('edges') == 1.0 and len(both.releases) == 1


def test_joint_and_paper():
    data = communities(3, 4)
    with pytest.warns(UserWarning, match='have not converged'):
        out = EdgeRR(2.0, dendrogram='joint', steps=1)(data)
    assert out.privacy.epsilon('edges') == 2.0
    assert 'the Markov chain over dendrograms has converged' in str(out.privacy)
    transform = EdgeRR(2.0, dendrogram='paper', steps=3000, share=0.25)
    assert transform._split() == (0.5, 1.5)
    out = transform(data)
    assert out.privacy.epsilon('edges') == math.inf
    assert out.privacy.claimed_epsilon('edges') == 2.0
    assert 'which is a claim; inf is proven' in str(out.privacy)


def test_permanence_and_budget():
    data = communities()
    data.privacy_budget = PrivacyBudget(edges=1.5)
    transform = EdgeRR(1.0, steps=2)
    one, two = transform(data), transform(data)
    assert torch.equal(one.edge_index, two.edge_index)
    assert data.privacy_budget.remaining('edges') == 0.5
    assert torch.equal(EdgeRR(1.0, steps=2)(data).edge_index, one.edge_index)
    with pytest.raises(PrivacyBudgetExceeded):
        EdgeRR(1.0, steps=3)(data)
    batch = transform(Batch.from_data_list([data, data]))
    assert torch.equal(batch[1].edge_index, one.edge_index)


@pytest.mark.parametrize('n', [0, 1, 2, 3])
def test_small_graphs(n):
    data = Data(num_nodes=n, edge_index=torch.zeros(2, 0, dtype=torch.long))
    out = EdgeRR(1.0)(data)
    assert out.num_nodes == n and out.edge_index.size(0) == 2


@pytest.mark.parametrize('arguments, message', [
    (dict(epsilon=0.0), "'epsilon' must be a positive"),
    (dict(epsilon=1e-12), "'epsilon' must leave at least 2**-30"),
    (dict(dendrogram='best'), "'dendrogram' must be one of"),
    (dict(share=1.0), "'share' must lie between 0 and 1"),
    (dict(min_probability=2.0), "'min_probability' must lie in"),
    (dict(min_signal=-1.0), "'min_signal' must be zero or more"),
    (dict(steps=-1), "'steps' must be an integer of at least 0"),
    (dict(largest_merged=0), "'largest_merged' must be an integer"),
])
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError) as info:
        EdgeRR(**{'epsilon': 1.0, **arguments})
    assert message in str(info.value)


def test_bad_input_costs_nothing():
    data = communities()
    data.privacy_budget = PrivacyBudget(epsilon=1.0)
    with pytest.raises(ValueError, match="'max_edges' must be at least"):
        EdgeRR(0.1, max_edges=10)(data)
    with pytest.raises(ValueError, match="'knn' is missing"):
        EdgeRR(1.0, guide='knn')(data)
    data.knn = torch.tensor([[0], [99]])
    with pytest.raises(ValueError, match="'knn' must hold nodes from 0 to 63"):
        EdgeRR(1.0, guide='knn')(data)
    data.edge_private = data.edge_private[:5]
    with pytest.raises(ValueError, match="'edge_private' must have shape"):
        EdgeRR(1.0)(data)
    assert data.privacy_budget.spent.releases == ()
