import copy
import pickle

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from torch_geometric_dp import (
    ContentChanged,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.accountant.gaussian import gaussian_loss
from torch_geometric_dp.mechanisms import ClassSums
from torch_geometric_dp.nn.models import ClassSumClassifier
from torch_geometric_dp.nn.models.class_sum_classifier import linear_weights


@pytest.fixture(scope='module')
def words():
    """600 texts of three classes: ten words each, six of them about its class,
    out of ten words for each class and thirty that all share.
    """
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 3
    x = torch.zeros(600, 60)
    for row in range(600):
        own = 10 * int(y[row]) + torch.randperm(10, generator=generator)[:6]
        x[row, own] = 1
        x[row, 30 + torch.randperm(30, generator=generator)[:4]] = 1
    return Data(x=x, y=y, train_mask=torch.arange(600) < 450,
                edge_index=torch.tensor([[0, 1], [1, 0]]))


def accuracy(model, data):
    test = ~data.train_mask
    return float((model.predict(data) == data.y)[test].float().mean())


@pytest.mark.parametrize('delta, steps', [(None, 1), (1e-5, 1), (1e-5, None),
                                          (None, 3)])
def test_learns_what_there_is_to_learn(words, delta, steps):
    model = ClassSumClassifier(60, 3, 4.0, delta, steps, seed=0).fit(words)
    assert accuracy(model, words) > 0.95
    # And nothing where noise is all there is.
    model = ClassSumClassifier(60, 3, 0.01, delta, 1, seed=0).fit(words)
    assert accuracy(model, words) < 0.6


def test_weights_are_those_of_a_loop():
    sums = np.random.RandomState(0).rand(8, 3) * 40
    sums[2] = [-1.0, 0.5, 0.2]  # Noise may be negative,
    sums[3] = sums[0].sum() / sums.sum(axis=0).sum() * sums.sum(axis=0)
    weight, bias, expected = linear_weights(torch.from_numpy(sums), 1.3)
    share = sums.sum(axis=0) / sums.sum()
    assert np.allclose(bias, np.log(share))
    for j in range(8):
        e = [share[k] * sums[j].sum() for k in range(3)]
        square = sum((sums[j, k] - e[k])**2 for k in range(3))
        factor = max(1 - 2 * 1.3**2 / (2 * max(square, 1e-30)), 0)
        for k in range(3):
            w = factor * (sums[j, k] - e[k]) / (max(e[k], 0) + 3 * 1.3)
            assert float(weight[j, k]) == pytest.approx(w, abs=1e-9)
            assert float(expected[j, k]) == pytest.approx(max(e[k], 0))


def test_without_noise_the_release_is_the_formula(words):
    model = ClassSumClassifier(60, 3, 1e6, 1e-5, steps=1).fit(words)
    sums = torch.zeros(60, 3, dtype=torch.double)
    for node in words.train_mask.nonzero().view(-1):
        sums[:, words.y[node]] += words.x[node] / words.x[node].norm()
    weight, bias, _ = linear_weights(sums, 0.0014)
    assert torch.allclose(model.weight, weight.float(), atol=0.01)
    assert torch.allclose(model.bias, bias.float(), atol=0.01)
    # A text of ten words counts each of them once.
    expected = words.x @ model.weight + model.bias
    assert torch.allclose(model(words.x), expected, atol=1e-4)


def test_gradients_are_paid_for_and_reduce_the_loss(words):
    data, losses = words.clone(), []
    data.y[::4] = 0  # So that no weights are right for all.
    for steps in (1, 8):
        model = ClassSumClassifier(60, 3, 20.0, 1e-5, steps, seed=1)
        model.fit(data)
        assert model.privacy.epsilon('node') == 20.0
        losses.append(torch.nn.functional.cross_entropy(
            model(data.x)[data.train_mask], data.y[data.train_mask]))
    assert losses[1] < 0.8 * losses[0]


def test_number_of_steps(words, monkeypatch):
    # Eight with two nodes for each column and Gaussian noise, otherwise one.
    drawn = []
    release = ClassSums.release
    monkeypatch.setattr(ClassSums, 'release', lambda self, *args: drawn.append(
        self) or release(self, *args))

    def steps(data, *args):
        drawn.clear()
        ClassSumClassifier(60, 3, 4.0, *args).fit(data)
        assert all(len(m.shares) == len(drawn) for m in drawn)
        return len(drawn)

    assert steps(words, 1e-5, None) == 8
    assert steps(words, None, None) == 1
    assert steps(words, 1e-5, 3) == 3
    assert steps(words.subgraph(torch.arange(600) < 119), 1e-5, None) == 1
    note = 'takes as public: num_nodes'
    for count, told in ((None, True), (8, False)):
        model = ClassSumClassifier(60, 3, 4.0, 1e-5, count).fit(words)
        assert (note in str(model.privacy)) == told


def test_reads_rows_and_labels_of_the_mask_alone(words):
    one = ClassSumClassifier(60, 3, 4.0, 1e-5, seed=0).fit(words).weight
    other = words.clone()
    other.x[~words.train_mask] = torch.rand(150, 60)
    other.y[~words.train_mask] = 0
    other.edge_index = torch.tensor([[5, 6, 7], [6, 7, 5]])
    again = ClassSumClassifier(60, 3, 4.0, 1e-5, seed=0).fit(other).weight
    assert torch.equal(one, again)
    other.x[0] = 0
    assert not torch.equal(one, ClassSumClassifier(
        60, 3, 4.0, 1e-5, seed=0).fit(other).weight)


def test_predicts_from_a_row_of_its_own(words):
    model = ClassSumClassifier(60, 3, 4.0, 1e-5).fit(words)
    classes = model.predict(words)
    other = words.clone()
    other.x[1:] = torch.rand(599, 60)
    other.y[:] = 0
    other.train_mask[:] = False
    assert model.predict(other)[0] == classes[0]
    assert torch.allclose(model(other.x)[0], model(words.x)[0], atol=1e-5)
    assert torch.allclose(model(words.x[:1]), model(words.x)[:1], atol=1e-5)


@pytest.mark.parametrize('form', [torch.Tensor.to_sparse,
                                  torch.Tensor.to_sparse_csr])
def test_sparse_features(words, form):
    sparse = words.clone()
    sparse.x = form(words.x)
    sparse.num_nodes = 600
    for steps in (1, 4):
        dense = ClassSumClassifier(60, 3, 4.0, 1e-5, steps, seed=0).fit(words)
        model = ClassSumClassifier(60, 3, 4.0, 1e-5, steps, seed=0).fit(sparse)
        assert torch.allclose(dense.weight, model.weight, atol=1e-3)
        assert torch.equal(dense.predict(words), dense.predict(sparse))


def test_ledger_and_budget(words):
    data = words.clone()
    data.privacy_budget = PrivacyBudget(float('inf'), node=5.0, max_degree=5,
                                        delta=1e-4)
    model = ClassSumClassifier(60, 3, 4.0, 1e-5)
    model.fit(data)
    assert model.privacy.epsilon('node') == 4.0
    assert model.privacy.delta('node') == 1e-5
    # Who is replaced goes, and comes.
    assert model.privacy.epsilon('node', relation='replace') == 8.0
    left = data.privacy_budget.remaining('node')
    # The budget's larger delta makes the same noise cost less.
    sigma = model.privacy.releases[0].guarantee.event.multiplier
    assert left == pytest.approx(5.0 - gaussian_loss(sigma, 1e-4), rel=1e-6)
    # The same fit again, also by another model, has the same noise for free.
    before = model.weight.clone()
    for again in (model, ClassSumClassifier(60, 3, 4.0, 1e-5)):
        assert torch.equal(again.fit(data).weight, before)
        assert len(again.privacy.releases) == 1
    assert data.privacy_budget.remaining('node') == left
    with pytest.raises(PrivacyBudgetExceeded):
        model.renew().fit(data)
    assert torch.equal(before, model.weight)
    assert len(model.privacy.releases) == 1
    with pytest.raises(ContentChanged):
        model.fit(data.subgraph(torch.arange(600) < 300))
    # Without a budget, every fit is a release, with noise of its own.
    model = ClassSumClassifier(60, 3, 4.0, seed=0).fit(words)
    before = model.weight.clone()
    model.fit(words)
    assert not torch.equal(before, model.weight)
    assert model.privacy.epsilon('node') == 8.0
    assert 'seeded with 0' in str(model.privacy)


def test_replaced_labels_and_rows_cost_twice(words):
    # Row 5: a node that comes or goes is promised, so an exchange is two steps.
    model = ClassSumClassifier(60, 3, 1.0, steps=1).fit(words)
    assert model.privacy.epsilon('node') == 1.0
    assert model.privacy.epsilon('labels') == 2.0
    assert model.privacy.epsilon('features') == 2.0
    assert model.privacy.epsilon('edges') == 0.0
    data = words.clone()
    data.privacy_budget = PrivacyBudget(labels=1.5)
    with pytest.raises(PrivacyBudgetExceeded):
        model.fit(data)
    data.privacy_budget = PrivacyBudget(labels=2.0, features=2.0)
    model.fit(data)
    # The exact loss of one replaced label, from the law of the noise.
    mechanism = model._mechanism(1)
    loss = []
    for y in (0, 1):
        votes = torch.eye(3)[[y]]
        loss.append(mechanism.rows(torch.eye(60)[:1]).to_dense().t()
                    @ mechanism.votes(votes))
    distance = float((loss[0] - loss[1]).abs().sum())
    assert 1.99 < distance / mechanism.scales[0] <= 2.0


@pytest.mark.parametrize('steps', [1, 3])
def test_stored_zeros(words, steps):
    # Row 7. A row of nothing but stored zeros is a row of zeros.
    data = words.clone()
    data.x[3] = 0
    expected = ClassSumClassifier(60, 3, 4.0, 1e-5, steps, seed=0).fit(data)
    index = data.x.nonzero().t()
    more = torch.tensor([[3, 3, 5, 7], [0, 9, 59, 59]])
    more = more[:, data.x[more[0], more[1]] == 0]
    stored = data.clone()
    stored.x = torch.sparse_coo_tensor(
        torch.cat([index, more], dim=1),
        torch.cat([data.x[index[0], index[1]], torch.zeros(more.size(1))]),
        (600, 60))
    stored.num_nodes = 600
    for form in (stored.x, stored.x.coalesce().to_sparse_csr()):
        stored.x = form
        model = ClassSumClassifier(60, 3, 4.0, 1e-5, steps, seed=0).fit(stored)
        assert torch.equal(model.weight, expected.weight)
        assert torch.equal(model.predict(stored), expected.predict(data))


def test_all_forms_are_one_content(words):
    # To the last bit: the noise is the same, too.
    data = words.clone()
    data.privacy_budget = PrivacyBudget(node=4.0, max_degree=5, delta=1e-5)
    weight = ClassSumClassifier(60, 3, 4.0, 1e-5).fit(data).weight
    for x in (words.x.double(), words.x.half(), words.x.to_sparse(),
              words.x.to_sparse_csr()):
        data.x, data.y, data.num_nodes = x, words.y.int(), 600
        again = ClassSumClassifier(60, 3, 4.0, 1e-5).fit(data)
        assert torch.equal(again.weight, weight)


def test_graph_out_of_a_mixed_batch(words):
    # Row 22.
    other = words.clone()
    other.privacy_budget = PrivacyBudget(node=4.0, max_degree=5)
    one, two = Batch.from_data_list([words, other]).to_data_list()
    ClassSumClassifier(60, 3, 4.0).fit(one)
    ClassSumClassifier(60, 3, 4.0).fit(two)
    assert other.privacy_budget.remaining('node') == 0
    batch = Batch.from_data_list([words, words])
    batch.privacy_budget = PrivacyBudget(node=4.0, max_degree=5)
    with pytest.raises(ValueError, match='of a batch would be overlooked'):
        ClassSumClassifier(60, 3, 4.0).fit(batch)


def test_predict_before_fit(words):
    model = ClassSumClassifier(60, 3, 4.0)
    for method in (model.predict, lambda data: model(data.x)):
        with pytest.raises(RuntimeError, match='Call fit'):
            method(words)


def test_copies_and_files(words, tmp_path):
    model = ClassSumClassifier(60, 3, 4.0).fit(words)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other.predict(words), model.predict(words))
        assert other.privacy == model.privacy
    torch.save(model.state_dict(), tmp_path / 'model.pt')
    other = ClassSumClassifier(60, 3, 4.0)
    other.load_state_dict(torch.load(tmp_path / 'model.pt'))
    assert torch.equal(other.predict(words), model.predict(words))
    assert other.privacy == model.privacy
    other.reset_parameters()
    assert other.weight.abs().sum() == 0


def test_odd_graphs():
    # No node to learn from, a row of zeros, one node.
    data = Data(x=torch.zeros(1, 3), y=torch.tensor([1]),
                train_mask=torch.tensor([False]))
    for mask in (False, True):
        data.train_mask[0] = mask
        for steps in (1, 3):
            model = ClassSumClassifier(3, 2, 1.0, 1e-5, steps).fit(data)
            assert model.weight.isfinite().all()
            assert model.predict(data).shape == (1, )


def test_repr():
    assert repr(ClassSumClassifier(9, 3, 4)) == (
        'ClassSumClassifier(in_channels=9, num_classes=3, epsilon=4.0)')
    assert repr(ClassSumClassifier(9, 3, 4, 1e-5, 2, 'm', 0)) == (
        "ClassSumClassifier(in_channels=9, num_classes=3, epsilon=4.0, "
        "delta=1e-05, steps=2, mask='m', seed=0)")


@pytest.mark.parametrize('options, message', [
    (dict(epsilon=-1.0), "'epsilon' must be a positive"),
    (dict(delta=2.0), "'delta' must lie between 0 and 1"),
    (dict(steps=0), "'steps' must be an integer of at least 1"),
    (dict(num_classes=1), "'num_classes' must be an integer of at least 2"),
    (dict(in_channels=0), "'in_channels' must be an integer of at least 1"),
])
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        ClassSumClassifier(**{'in_channels': 4, 'num_classes': 2,
                              'epsilon': 1.0, **options})


@pytest.mark.parametrize('field, value, message', [
    ('x', torch.full((600, 60), torch.nan), "'x' must be finite"),
    ('x', torch.full((600, 60), -1.0), "'x' must not be negative"),
    ('x', torch.ones(600, 59), r"'x' must hold .* \[num_nodes, 60\]"),
    ('x', torch.ones(600, 60, dtype=torch.long), "'x' must hold floating"),
    ('y', torch.full((600, ), 3), "'y' must hold classes from 0 to 2"),
    ('y', torch.ones(600, 3), r"'y' must hold integers in shape \[600\]"),
    ('y', torch.ones(600), r"'y' must hold integers in shape \[600\]"),
    ('train_mask', torch.ones(600), "'train_mask' must be a boolean tensor"),
    ('train_mask', None, "'train_mask' must be a boolean tensor"),
])
def test_wrong_graphs(words, field, value, message):
    data = words.clone()
    data[field] = value
    data.num_nodes = 600
    model = ClassSumClassifier(60, 3, 4.0)
    with pytest.raises(ValueError, match=message):
        model.fit(data)
    assert model.privacy.releases == ()  # Refused before it costs anything.
