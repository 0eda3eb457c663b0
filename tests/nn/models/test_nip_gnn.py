import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import Linear, Sequential, Softmax
from torch_geometric.data import Data, HeteroData

from benchmarks.papers.nap import sums
from tests.nn.forms import ring
from torch_geometric_dp import (
    ContentChanged,
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.audit import verify_exactly
from torch_geometric_dp.mechanisms import NeighbourSum
from torch_geometric_dp.nn import NAP, model_ledger
from torch_geometric_dp.nn.models import NIPGNN, ClassSumClassifier, nip_gnn
from torch_geometric_dp.nn.models.nip_gnn import public_and_private
from torch_geometric_dp.transforms import BoundDegree, LabelRR


@pytest.fixture(scope='module')
def rings():
    """Two rings of 30 nodes, one for each class, with noisy features."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) // 30
    x = torch.rand(60, 8, generator=generator) * 0.5
    x[:, :4] += y.view(-1, 1)
    x[:, 4:] += 1 - y.view(-1, 1)
    return Data(x=x, y=y, train_mask=torch.arange(60) % 2 == 0,
                edge_index=torch.cat([ring(30), ring(30) + 30], dim=1))


def accuracy(model, data):
    right = model.predict(data) == data.y
    return float(right[~data.train_mask].float().mean())


@pytest.mark.parametrize('options', [
    {}, {'allocation': 'uniform'}, {'aggregation': 'sage'},
    {'sampling': False}, {'calibration': 'paper'}, {'projection': 16},
    {'hops': 4, 'split': (0.5, 0.25, 0.25)},
], ids=str)
def test_all_ablations_learn_without_noise(rings, options):
    torch.manual_seed(0)
    model = NIPGNN(8, 2, 3e4, 2, epochs=30, seed=0, **options).fit(rings)
    assert accuracy(model, rings) > 0.9
    # And nothing with it.
    model = NIPGNN(8, 2, 0.3, 2, epochs=3, seed=0, **options).fit(rings)
    assert accuracy(model, rings) < 0.9


def test_ledger(rings):
    model = NIPGNN(8, 2, 4.0, 2, epochs=1).fit(rings)
    assert model.privacy.epsilon('node') == 4.0
    assert [r.fields for r in model.privacy.releases] == [
        ('x', 'edge_index'), ('edge_index', ), ('y', )]
    assert math.fsum(model.epsilons) == pytest.approx(4.0)
    text = str(model.privacy)
    assert "no node has more than 2 edges" in text
    assert 'takes as public: train_mask' in text
    # Another fit is another release.
    assert model.fit(rings).privacy.epsilon('node') == 8.0
    split = (0.5, 0.3, 0.2)
    model = NIPGNN(8, 2, 1.0, 2, split, epochs=1).fit(rings)
    assert model.epsilons == (0.5, 0.3, 0.2)
    # What was cut before goes with the graph.
    model.fit(BoundDegree(2)(rings.clone()))
    assert 'after their degrees were cut to 2' in str(model.privacy)


def test_the_layer_counts_once(rings):
    # Row 22: the model's ledger and its layer's tell of one release once.
    model = NIPGNN(8, 2, 4.0, 2, epochs=1).fit(rings)
    assert model_ledger(model, rings).epsilon('node') == 4.0
    assert PrivacyAccountant.merge(
        [model.privacy, model.nap.privacy]).epsilon('node') == 4.0


def test_paper_is_a_claim(rings):
    model = NIPGNN(8, 2, 4.0, 2, calibration='paper', epochs=1).fit(rings)
    assert model.privacy.epsilon('node') == math.inf
    assert model.privacy.claimed_epsilon('node') == 4.0
    # Uniform noise reads no degrees: what is claimed is true.
    model = NIPGNN(8, 2, 4.0, 2, calibration='paper', allocation='uniform',
                   epochs=1).fit(rings)
    assert model.privacy.epsilon('node') == 4.0


def test_budget(rings):
    data = rings.clone()
    data.privacy_budget = PrivacyBudget(float('inf'), node=4.0, max_degree=2)
    model = NIPGNN(8, 2, 4.0, 2, epochs=1).fit(data)
    assert data.privacy_budget.remaining('node') == 0
    # The same release, for free: in all three parts, with the same weights.
    for again in (model, NIPGNN(8, 2, 4.0, 2, epochs=1)):
        before = model._released
        torch.rand(3)  # Where torch's own generator stands does not matter.
        after = again.fit(data)._released
        assert torch.equal(after[0], before[0])
        assert torch.equal(after[1].to_dense(), before[1].to_dense())
        assert again.privacy.epsilon('node') == 4.0
    with pytest.raises(PrivacyBudgetExceeded):
        model.renew().fit(data)
    with pytest.raises(ContentChanged):
        other = data.clone()
        other.y = 1 - other.y
        model.fit(other)


def test_all_parts_or_none(rings):
    # Row 22: the edges do not fit into this budget, so nothing is charged.
    data = rings.clone()
    data.privacy_budget = PrivacyBudget(labels=0.5, node=8.0, max_degree=2)
    model = NIPGNN(8, 2, 4.0, 2, epochs=1)
    with pytest.raises(PrivacyBudgetExceeded):
        model.fit(data)
    assert model.privacy.releases == ()
    assert data.privacy_budget.spent.releases == ()
    assert data.privacy_budget.remaining('node') == 8.0


def test_weights_that_differ_are_refused(rings, monkeypatch):
    # Noise of another scale would be a second release.
    data = rings.clone()
    data.privacy_budget = PrivacyBudget(float('inf'))
    model = NIPGNN(8, 2, 4.0, 2, epochs=1).fit(data)
    monkeypatch.setattr(NIPGNN, '_influence',
                        lambda *args: torch.arange(1.0, 61.0))
    with pytest.raises(ContentChanged):
        model.fit(data)
    model.renew().fit(data)


def test_predictions_come_from_the_release(rings):
    model = NIPGNN(8, 2, 4.0, 2, epochs=2).fit(rings)
    classes = model.predict(rings)
    other = rings.clone()
    other.x, other.y = torch.rand(60, 8), 1 - rings.y
    other.edge_index = ring(60)
    assert torch.equal(model.predict(other), classes)
    # The influence that weights the noise is found in released edges.
    assert model.influence.in_channels == 2
    seeded = [NIPGNN(8, 2, 4.0, 2, epochs=2, seed=0) for _ in range(2)]
    for one in seeded:
        torch.manual_seed(0)
        one.reset_parameters()
        one.fit(rings)
    assert torch.equal(seeded[0].predict(rings), seeded[1].predict(rings))


def test_training_sees_what_was_released(rings, monkeypatch):
    seen = []
    monkeypatch.setattr(
        NIPGNN, '_train',
        lambda self, labels, mask: seen.append((labels, *self._released)))
    model = NIPGNN(8, 2, 0.3, 2, seed=0)
    for _ in range(3):
        model.fit(rings)
    raw = rings.edge_index
    adjacency = torch.zeros(60, 60).index_put_((raw[1], raw[0]),
                                               torch.ones(raw.size(1)))
    for labels, _, edges in seen:
        # Noise at a tenth leaves half of the labels, and no edge to speak of.
        assert (labels[~rings.train_mask] == -1).all()
        assert 3 <= (labels != rings.y)[rings.train_mask].sum() <= 27
        assert not torch.equal(edges.to_dense(), adjacency)
        assert torch.equal(edges.to_dense(), edges.to_dense().t())
    # Each fit is a release of its own, in all three parts.
    for one, two in ((0, 1), (1, 2)):
        assert not torch.equal(seen[one][0], seen[two][0])
        assert not torch.equal(seen[one][1], seen[two][1])


def test_labels_outside_the_mask_are_never_read(rings):
    outputs = []
    for labels in (rings.y, torch.where(rings.train_mask, rings.y, 99)):
        data = rings.clone()
        data.y = labels
        torch.manual_seed(0)
        model = NIPGNN(8, 2, 4.0, 2, epochs=3, seed=0)
        outputs.append(model.fit(data)())
    assert torch.equal(*outputs)


def test_repr():
    assert repr(NIPGNN(8, 2, 4, 10)) == (
        'NIPGNN(in_channels=8, num_classes=2, epsilon=4.0, max_degree=10)')
    assert repr(NIPGNN(8, 2, 4, 10, (0.5, 0.25, 0.25), 32, 3, 16, 'uniform',
                       False, 'sage', 'paper', 5, 0.1, 'm', 1)) == (
        "NIPGNN(in_channels=8, num_classes=2, epsilon=4.0, max_degree=10, "
        "split=(0.5, 0.25, 0.25), hidden_channels=32, hops=3, "
        "projection=16, allocation='uniform', sampling=False, "
        "aggregation='sage', calibration='paper', epochs=5, "
        "lr=0.1, mask='m', seed=1)")


@pytest.mark.parametrize('options, message', [
    (dict(split=(0.5, 0.5, 0.5)), "'split' must be three positive shares"),
    (dict(split=(0.5, 0.5)), "'split' must be three positive shares"),
    (dict(split=(1.2, -0.1, -0.1)), "'split' must be three positive shares"),
    (dict(epsilon=math.inf), "'epsilon' must be a positive"),
    (dict(max_degree=0), "'max_degree' must be an integer of at least 1"),
    (dict(allocation='best'), "'allocation' must be one of"),
    (dict(aggregation='gat'), "'aggregation' must be one of"),
    (dict(calibration='none'), "'calibration' must be one of"),
])
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        NIPGNN(**{'in_channels': 8, 'num_classes': 2, 'epsilon': 4.0,
                  'max_degree': 2, **options})


@pytest.mark.parametrize('edges, message', [
    ([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]], "'max_degree' is too small for "
     "this graph: some node has more edges .got 2"),
    ([[0], [1]], "'edge_index' must be undirected"),
    ([[4], [4]], "'edge_index' must not have self-loops"),
    ([[0, 60], [60, 0]], "0 to 59"),
])
def test_wrong_edges(rings, edges, message):
    data = rings.clone()
    data.edge_index = torch.tensor(edges)
    model = NIPGNN(8, 2, 4.0, 2)
    with pytest.raises(ValueError, match=message):
        model.fit(data)
    assert model.privacy.releases == ()


def test_too_many_edges():
    data = Data(x=torch.rand(20000, 2), y=torch.arange(20000) % 2,
                edge_index=torch.empty(2, 0, dtype=torch.long),
                train_mask=torch.ones(20000, dtype=torch.bool))
    with pytest.raises(ValueError, match="'sampling' must be True"):
        NIPGNN(2, 2, 4.0, 10, sampling=False).fit(data)


def test_predict_before_fit(rings):
    with pytest.raises(RuntimeError, match='Call fit'):
        NIPGNN(8, 2, 4.0, 2).predict(rings)
    model = NIPGNN(8, 2, 4.0, 2, epochs=1).fit(rings)
    with pytest.raises(ValueError, match="'data' must be the graph"):
        model.predict(Data(num_nodes=3))


# An encoder for nodes.


def test_an_encoder_that_is_public(rings):
    torch.manual_seed(0)
    encoder = Sequential(Linear(8, 3), Softmax(dim=1))
    model = NIPGNN(8, 2, 3e4, 2, epochs=60, seed=0, encoder=encoder)
    before = [p.clone() for p in encoder.parameters()]
    assert accuracy(model.fit(rings), rings) > 0.9
    assert model._released[0].shape == (60, 3)
    assert 'takes as public: encoder' in str(model.privacy)
    assert model.privacy.epsilon('node') == 3e4
    # It is neither trained nor forgotten here.
    model.reset_parameters()
    assert all(map(torch.equal, before, encoder.parameters()))


def test_an_encoder_that_was_paid_for(rings):
    classifier = ClassSumClassifier(8, 2, 1.0).fit(rings)
    encoder = Sequential(classifier, Softmax(dim=1))
    model = NIPGNN(8, 2, 4.0, 2, epochs=1, encoder=encoder).fit(rings)
    assert model.privacy.epsilon('node') == 5.0
    assert model_ledger(model, rings).epsilon('node') == 5.0
    assert 'encoder' not in str(model.privacy.releases[-1].public)
    with pytest.raises(RuntimeError, match='Call fit'):
        NIPGNN(8, 2, 4.0, 2, encoder=ClassSumClassifier(8, 2, 1.0))


def test_encoders_that_look_alike_do_not_share_noise(rings):
    data = rings.clone()
    data.privacy_budget = PrivacyBudget(float('inf'))
    NIPGNN(8, 2, 4.0, 2, epochs=1, encoder=Linear(8, 2)).fit(data)
    with pytest.raises(ContentChanged):
        NIPGNN(8, 2, 4.0, 2, epochs=1, encoder=Linear(8, 2)).fit(data)


class Centred(torch.nn.Module):
    def forward(self, x):
        return x - x.mean(dim=0)


@pytest.mark.parametrize('options, error, message', [
    (dict(encoder=Centred()), ValueError, "'encoder' must map each row on its"),
    (dict(encoder=torch.nn.Flatten(0)), ValueError,
     "'encoder' must map rows to rows of finite"),
    (dict(encoder=3), TypeError, "'encoder' must be a 'torch.nn.Module'"),
    (dict(encoder=Linear(8, 2), projection=4), ValueError,
     "'projection' must be None with an 'encoder'"),
])
def test_wrong_encoders(options, error, message):
    with pytest.raises(error, match=message):
        NIPGNN(8, 2, 4.0, 2, **options)


# Private edges.


@pytest.fixture
def known(monkeypatch):
    """An encoder that does not have to be trained."""
    def beliefs(base, x, known, edge_index):
        return x.log_softmax(dim=1)[:, :2].log_softmax(dim=1)

    monkeypatch.setattr(nip_gnn, 'public_beliefs', beliefs)


def marked(data, seed=0):
    """Every second edge is public, by chance."""
    data = data.clone()
    u, v = data.edge_index
    coin = torch.rand(60, 60, generator=torch.Generator().manual_seed(seed))
    data.edge_private = coin[torch.minimum(u, v), torch.maximum(u, v)] < 0.5
    return data


@pytest.mark.parametrize('options', [
    {}, {'aggregation': 'sage'}, {'allocation': 'adaptive'}, {'hops': 1},
    {'encoder': Linear(8, 2)}], ids=str)
@pytest.mark.parametrize('some', [False, True])
def test_edges_learn(rings, options, some):
    data = marked(rings) if some else rings.clone()
    data.x = torch.rand(60, 8, generator=torch.Generator().manual_seed(0))
    data.train_mask = torch.arange(60) % 3 > 0  # Which hear each other.
    torch.manual_seed(0)
    model = NIPGNN(8, 2, 1e4, unit='edge', seed=0, **options).fit(data)
    # Rows tell nothing, neighbours all.
    assert accuracy(model, data) > 0.9


def test_edge_ledger(rings, known):
    model = NIPGNN(8, 2, 1.5, unit='edge', epochs=1).fit(rings)
    assert model.privacy.epsilon('edges') == 1.5
    assert model.privacy.epsilon('features') == math.inf
    assert model.privacy.epsilon('labels') == math.inf
    release, = model.privacy.releases
    assert release.fields == ('edge_index', )
    assert [name for name, _ in release.public] == ['x', 'y', 'train_mask']
    assert release.guarantee == model.nap.guarantee
    assert model.fit(marked(rings)).privacy.epsilon('edges') == 3.0
    assert model.privacy.releases[1].public[-1] == ('edge_private', None)
    # Labels that were released are not public, and cost what they cost.
    noisy = LabelRR(1.0, num_classes=2)(rings.clone())
    model = NIPGNN(8, 2, 1.5, unit='edge', epochs=1).fit(noisy)
    assert model.privacy.epsilon('labels') == 1.0
    assert 'y' not in dict(model.privacy.releases[-1].public)


def test_edge_budget(rings, known):
    data = marked(rings)
    data.privacy_budget = PrivacyBudget(edges=2.0)
    options = dict(unit='edge', epochs=1, allocation='adaptive')
    model = NIPGNN(8, 2, 2.0, **options).fit(data)
    assert data.privacy_budget.remaining('edges') == 0
    for again in (model, NIPGNN(8, 2, 2.0, **options)):
        before = model._heard
        torch.rand(3)
        after = again.fit(data)._heard
        assert all(map(torch.equal, before, after))
        assert again.privacy.epsilon('edges') == 2.0
    with pytest.raises(PrivacyBudgetExceeded):
        model.renew().fit(data)
    for name, value in (('y', 1 - data.y), ('x', data.x + 1e-2 * data.x**2),
                        ('edge_index', data.edge_index.roll(1, dims=1))):
        other = data.clone()
        other[name] = value
        with pytest.raises(ContentChanged):
            NIPGNN(8, 2, 2.0, **options).fit(other)


def test_edges_are_charged_before_noise_is_drawn(rings, known, monkeypatch):
    data = rings.clone()
    data.privacy_budget = PrivacyBudget(edges=3.0)
    left = []
    draw = NAP.draw
    monkeypatch.setattr(NAP, 'draw', lambda self, *args: left.append(
        data.privacy_budget.remaining('edges')) or draw(self, *args))
    NIPGNN(8, 2, 2.0, unit='edge', epochs=1).fit(data)
    model = NIPGNN(8, 2, 2.5, unit='edge', epochs=1)
    with pytest.raises(PrivacyBudgetExceeded):
        model.fit(data)
    assert left == [1.0] and model.privacy.releases == ()


@pytest.mark.parametrize('epsilon', [1.0, 1e9])
@pytest.mark.parametrize('hops', [1, 3])
def test_what_the_layers_read(rings, known, epsilon, hops):
    # Node by node, from rows, labels and released sums.
    data = marked(rings)
    model = NIPGNN(8, 2, epsilon, unit='edge', hops=hops, seed=0).fit(data)
    start = data.x.log_softmax(dim=1)[:, :2].softmax(dim=1)
    label = torch.eye(2)[data.y]
    told = torch.where(data.train_mask[:, None], label, start)
    noisy = model._heard.sums
    exact = sums(told, data.edge_index[:, data.edge_private])
    if epsilon > 1e3:
        assert torch.allclose(noisy, exact, atol=1e-4)
    else:
        assert (noisy - exact).abs().mean() > 1.0
    near = [set() for _ in range(60)]
    for u, v in data.edge_index[:, ~data.edge_private].t().tolist():
        near[v].add(u)
    deviation = math.sqrt(float(model.nap.mechanism.variance(2)))
    own, tau = 1 + math.sqrt(2) * deviation, float(model.aca.tau)
    h = start
    for _ in range(hops):
        new = []
        for u in range(60):
            heard = [label[v] if data.train_mask[v] else h[v] for v in near[u]]
            mean = (own * start[u] + sum(heard) + noisy[u]) / (
                own + len(heard) + max(float(noisy[u].sum()), 0.0))
            distance = float((mean - start[u]).norm())
            gamma = max(1 - tau / distance, 0.0)
            new.append(start[u] + gamma * (mean - start[u]))
        h = torch.stack(new)
    free = torch.stack([sum([told[v] for v in near[u]], torch.zeros(2))
                        for u in range(60)])
    columns = torch.cat([start.log(), noisy / max(deviation, 1.0), free, h],
                        dim=1)
    assert torch.allclose(model(), model.head(columns), rtol=1e-3, atol=1e-3)
    plain = NIPGNN(8, 2, epsilon, unit='edge', aggregation='sage').fit(data)
    assert plain._released[0].shape == (60, 6)


@pytest.mark.parametrize('allocation', ['uniform', 'adaptive'])
@pytest.mark.parametrize('some', [False, True])
def test_all_small_graphs(monkeypatch, allocation, some):
    # The whole way from a graph to sums and scales, for each graph of four
    # nodes, and each edge that comes or goes.
    seen = []
    monkeypatch.setattr(nip_gnn, 'public_beliefs', lambda base, x, *args: x)
    release = NeighbourSum.release
    monkeypatch.setattr(NeighbourSum, 'release', lambda self, sums, scale, s: (
        seen.append((sums, scale)) or release(self, sums, scale, s)))
    pairs = np.array(list(itertools.combinations(range(4), 2)))
    if some:  # Two of the pairs have public edges.
        public, pairs = pairs[:2], pairs[2:]
    out = {}
    for chosen in itertools.product([False, True], repeat=len(pairs)):
        edges = pairs[np.array(chosen)]
        private = [True] * len(edges)
        if some:
            edges, private = np.concatenate([edges, public]), [
                *private, False, False]
        data = Data(x=torch.tensor([[9.0, 0.0], [0.0, 1.0], [2.0, 0.0],
                                    [0.0, 0.0]]), num_nodes=4,
                    y=torch.tensor([0, 1, 0, 1]),
                    edge_index=torch.from_numpy(edges.T.copy()),
                    train_mask=torch.tensor([True, True, False, False]),
                    edge_private=torch.tensor(private, dtype=torch.bool))
        NIPGNN(2, 2, 0.7, unit='edge', allocation=allocation,
               epochs=0).fit(data)
        out[chosen] = seen.pop()
    worst = 0.0
    for chosen, (sums_, scale) in out.items():
        for i in range(len(pairs)):
            other, second = out[(*chosen[:i], not chosen[i],
                                 *chosen[i + 1:])]
            assert torch.equal(scale, second)  # It tells nothing.
            loss = ((sums_ - other).abs().sum(dim=1) / scale.view(-1)).sum()
            worst = max(worst, float(loss))
    assert worst <= 0.7
    if allocation == 'uniform':
        assert worst == pytest.approx(0.7, rel=1e-4)


def test_edge_sums_exactly():
    model = NIPGNN(8, 2, 1.3, unit='edge')
    result = verify_exactly(model.nap).check()
    assert result.exact == pytest.approx(1.3, rel=1e-4)
    # Half of the noise is found out.
    model.nap.mechanism.scale = lambda *args: NeighbourSum(
        2.6, unit='edge').scale(*args)
    assert not verify_exactly(model.nap).holds


def test_influence_cannot_help_edges():
    mechanism = NIPGNN(8, 2, 1.0, unit='edge').nap.mechanism
    generator = torch.Generator().manual_seed(0)
    equal = mechanism.variance(2)
    for _ in range(20):
        weight = torch.rand(30, generator=generator)**4 + 1e-3
        less = mechanism.variance(2, weight) < equal * (1 - 1e-6)
        assert less.sum() <= 1


def test_edges_count_by_their_sums_only(rings, known, monkeypatch):
    monkeypatch.setattr(NAP, 'draw', lambda self, x, *args: x + 1)
    outputs = []
    for edge_index in (rings.edge_index, ring(60)):
        data = rings.clone()
        data.edge_index = edge_index
        data.y = torch.where(data.train_mask, data.y, 99)
        torch.manual_seed(0)
        outputs.append(NIPGNN(8, 2, 1.0, unit='edge').fit(data)())
    assert torch.equal(*outputs)


def test_public_and_private():
    data = Data(num_nodes=5, edge_index=torch.tensor(
        [[0, 1, 1, 2, 3, 3, 3], [1, 0, 2, 3, 2, 3, 4]]),
        edge_private=torch.tensor([True, True, False, True, False, True,
                                   True]))
    public, private = public_and_private(data, 'edge_private')
    # Directions, repetitions and self-loops do not count; and 2-3 is public.
    assert public.tolist() == [[2, 1, 3, 2], [1, 2, 2, 3]]
    assert private.tolist() == [[1, 0, 4, 3], [0, 1, 3, 4]]
    public, private = public_and_private(data, 'secret')
    assert public.shape == (2, 0) and private.shape == (2, 8)


def test_isolated_nodes_and_a_missing_class(rings, known):
    data = rings.clone()
    data.edge_index = torch.empty(2, 0, dtype=torch.long)
    data.y = torch.zeros_like(data.y)
    out = NIPGNN(8, 2, 1.0, unit='edge', epochs=5).fit(data).predict(data)
    assert out.shape == (60, )


@pytest.mark.parametrize('options, message', [
    (dict(max_degree=5), "'max_degree' must be None for unit='edge'"),
    (dict(split=(0.5, 0.3, 0.2)), "'split' must be .* for unit='edge'"),
    (dict(projection=4), "'projection' must be None for unit='edge'"),
    (dict(sampling=False), "'sampling' must be True for unit='edge'"),
    (dict(calibration='paper'), "'calibration' must be 'proven' for unit="),
    (dict(encoder=Linear(8, 5)), "'encoder' must map rows to scores of 2"),
    (dict(unit='graph'), "'unit' must be one of"),
])
def test_wrong_arguments_for_edges(options, message):
    with pytest.raises(ValueError, match=message):
        NIPGNN(**{'in_channels': 8, 'num_classes': 2, 'epsilon': 4.0,
                  'unit': 'edge', **options})


@pytest.mark.parametrize('name, value, message', [
    ('edge_weight', torch.ones(120), "'edge_weight' must not be there"),
    ('edge_attr', torch.ones(120, 1), "'edge_attr' must not be there"),
    ('edge_private', torch.ones(120), "'edge_private' must be a boolean"),
    ('edge_private', torch.ones(3) > 0, "'edge_private' must be a boolean"),
    ('train_mask', torch.zeros(60) > 0, "'train_mask' must select at least"),
    ('edge_index', torch.tensor([[0], [60]]), '0 to 59'),
])
def test_wrong_graphs_for_edges(rings, known, name, value, message):
    data = rings.clone()
    data[name] = value
    model = NIPGNN(8, 2, 4.0, unit='edge')
    with pytest.raises(ValueError, match=message):
        model.fit(data)
    assert model.privacy.releases == ()


def test_one_kind_of_nodes():
    with pytest.raises(TypeError, match="'data' must be 'Data', with nodes"):
        public_and_private(HeteroData(), 'edge_private')


def test_repr_for_edges():
    assert repr(NIPGNN(8, 2, 1, unit='edge')) == (
        "NIPGNN(in_channels=8, num_classes=2, epsilon=1.0, unit='edges')")
