import math

import pytest
import torch
from torch_geometric.data import Data

from tests.nn.forms import ring
from torch_geometric_dp import (
    ContentChanged,
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.nn import model_ledger
from torch_geometric_dp.nn.models import NIPGNN
from torch_geometric_dp.transforms import BoundDegree


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
