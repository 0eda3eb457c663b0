import copy
import math
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
from torch_geometric_dp.mechanisms.centred_rows import CentredRows
from torch_geometric_dp.mechanisms.class_sums import _product
from torch_geometric_dp.nn.models import ClassSumClassifier
from torch_geometric_dp.nn.models.class_sum_classifier import (
    _held_out,
    linear_weights,
)
from torch_geometric_dp.noise import NoiseSource


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


def test_without_noise_the_first_step_is_the_formula(words):
    # Centred, stretched rows of those who are not held out, and the gradient
    # at weights of zero; the scale is one of six.
    model = ClassSumClassifier(60, 3, 1e6, 1e-5, steps=1).fit(words)
    node = words.train_mask.nonzero().view(-1)
    own = node[~_held_out(node)]
    assert 0.03 < 1 - len(own) / len(node) < 0.15
    x = torch.nn.functional.normalize(words.x.double(), dim=1)
    size = 0.92 * len(node)
    total = x[own].sum(dim=0)
    scale = (total + 0.05)**-0.5
    z = scale * (x - total / size)
    z = torch.nn.functional.normalize(z, dim=1)
    share = words.y[node].bincount() / len(node)
    gradient = z[own].t() @ (torch.eye(3)[words.y[own]] - share).double()
    cosine = torch.nn.functional.cosine_similarity(
        model.weight.double().view(-1), gradient.view(-1), dim=0)
    assert cosine > 0.999
    assert torch.allclose(model.bias.double(), share.double().log(), atol=0.01)
    expected = z @ model.weight.double() + model.bias
    assert torch.allclose(model(words.x).double(), expected, atol=0.1)
    assert torch.allclose(model.predict_proba(words),
                          model(words.x).softmax(dim=1))


def test_gradients_are_paid_for_and_reduce_the_loss(words):
    data, losses = words.clone(), []
    data.y[::4] = 0  # So that no weights are right for all.
    for steps in (1, 16):
        model = ClassSumClassifier(60, 3, 20.0, 1e-5, steps, seed=1)
        model.fit(data)
        assert model.privacy.epsilon('node') == 20.0
        losses.append(torch.nn.functional.cross_entropy(
            model(data.x)[data.train_mask], data.y[data.train_mask]))
    assert losses[1] < 0.8 * losses[0]


def test_number_of_steps(words, monkeypatch):
    # Sixteen with Gaussian noise; with Laplace noise four or one.
    drawn = []
    release = ClassSums.release
    monkeypatch.setattr(ClassSums, 'release', lambda self, *args: drawn.append(
        self) or release(self, *args))

    def releases(epsilon, *args):
        drawn.clear()
        ClassSumClassifier(60, 3, epsilon, *args).fit(words)
        return len(drawn)

    assert releases(4.0, 1e-5) == 2 + 16
    assert releases(4.0, 1e-5, 3) == 2 + 3
    assert releases(4.0) == 1 + 4  # 450 nodes in 180 cells are enough,
    assert releases(0.5) == 1 + 1  # and here they are not.
    assert releases(0.5, None, 3) == 1 + 3


def spent_by_one_node(model, words, monkeypatch, held):
    """What is drawn in a fit, for a node with a number that is held out, or
    not: over all releases that it has a part in, the squares of what it changes
    at most over the noise's scale, the same not squared, and the largest
    change that there was over what it may be.
    """
    node = words.train_mask.nonzero().view(-1)
    who = int((_held_out(node) == held).nonzero()[0])
    pure, parts = [], []

    def noted(mechanism, change, index):
        if change.any():
            whole = mechanism.row_steps * mechanism.vote_steps
            size = torch.linalg.vector_norm(change.double(), mechanism.order)
            parts.append(float(size) / whole)
            pure.append(whole / mechanism.scales[index])

    release, least = ClassSums.release, ClassSums.least

    def watched(self, rows, votes, source, index=0):
        one = torch.zeros_like(votes)
        one[who] = votes[who]
        noted(self, rows.sums(one) if isinstance(rows, CentredRows) else
              _product(rows, one), index)
        return release(self, rows, votes, source, index)

    def watched_least(self, losses, source, index=0, usual=None):
        assert len(losses) == _held_out(node).sum()
        if held:  # Who is held out is first among them.
            steps = losses[0].clamp(0, 1) * self.vote_steps
            noted(self, self.row_steps * (
                steps / math.sqrt(len(steps)) if self.delta else
                steps.max().view(1)), index)
        return least(self, losses, source, index, usual)

    monkeypatch.setattr(ClassSums, 'release', watched)
    monkeypatch.setattr(ClassSums, 'least', watched_least)
    model.fit(words)
    return sum(p**2 for p in pure), sum(pure), max(parts)


@pytest.mark.parametrize('held', [False, True])
def test_one_node_never_has_more_than_the_budget(words, monkeypatch, held):
    data = words.clone()
    data.y = 2 - data.y  # Errors are large from the first step on.
    model = ClassSumClassifier(60, 3, 4.0, 1e-5, seed=0)
    square, _, largest = spent_by_one_node(model, data, monkeypatch, held)
    noise = model.privacy.releases[0].guarantee.event.multiplier
    assert 0.99 < square * noise**2 <= 1 + 1e-6
    assert 0.99 < largest <= 1
    monkeypatch.undo()
    for steps in (1, 4):
        model = ClassSumClassifier(60, 3, 4.0, steps=steps, seed=0)
        _, pure, largest = spent_by_one_node(model, data, monkeypatch, held)
        assert 0.99 * 4.0 < pure <= 4.0 and largest <= 1
        monkeypatch.undo()


def test_replaced_rows_take_twice_the_noise(words, monkeypatch):
    model = ClassSumClassifier(60, 3, 4.0, 1e-5, seed=0, relation='replace')
    square, _, _ = spent_by_one_node(model, words, monkeypatch, False)
    noise = model.privacy.releases[0].guarantee.event.multiplier
    assert 0.24 < square * noise**2 <= 0.25 * (1 + 1e-6)
    assert model.privacy.epsilon('node', relation='replace') == 4.0


def test_learns_within_the_release_of_another(words):
    source = NoiseSource.from_seed(0)
    models = [ClassSumClassifier(60, 3, 4.0, 1e-5, relation='replace')
              for _ in range(3)]
    noise = models[0]._promise().event.multiplier
    for model, m in zip(models, (None, noise * (1 + 1e-6), 100 * noise)):
        assert model.learn(words.x, words.y, words.train_mask, source,
                           m) is model
        assert model.privacy.releases == ()
    assert torch.allclose(models[0].weight, models[1].weight, atol=1e-2)
    assert accuracy(models[0], words) > 0.95 > accuracy(models[2], words)
    assert models[0].cells >= 16 * 60 * 3 + 60 + 3 + 6
    # The noise is at least as large as asked for, in every release.
    scales = models[0]._descent(5.0).scales
    distance = 2 * 2**30
    assert math.hypot(*[distance / s for s in scales]) <= 1 / 5.0
    with pytest.raises(ValueError, match="'multiplier' must not be given"):
        ClassSumClassifier(60, 3, 4.0).learn(words.x, words.y,
                                             words.train_mask, source, 1.0)


def test_rows_of_signed_numbers(words):
    generator = torch.Generator().manual_seed(0)
    data = words.clone()
    data.x = torch.randn(600, 8, generator=generator)
    data.x[:, :3] += 2.5 * torch.eye(3)[words.y] - 1
    for delta in (1e-5, None):
        model = ClassSumClassifier(8, 3, 8.0, delta, clip=4.0, seed=0)
        assert accuracy(model.fit(data), data) > 0.75
        far = data.clone()
        far.x = data.x.clamp(-4, 4)
        assert torch.equal(model(far.x), model(data.x))
        sparse = data.clone()
        sparse.x = data.x.to_sparse_csr()
        sparse.num_nodes = 600
        assert torch.equal(model.predict(sparse), model.predict(data))
        with pytest.raises(ValueError, match="must not be negative without"):
            ClassSumClassifier(8, 3, 8.0, delta).fit(data)


def test_long_rows_do_not_diverge():
    # 120 of 200 words in a row: without noise, steps may not be too long.
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 4, (1500, ), generator=generator)
    often = 0.6 + 0.15 * torch.randn(4, 200, generator=generator)
    x = (torch.rand(1500, 200, generator=generator) < often[y]).float()
    data = Data(x=x, y=y, train_mask=torch.arange(1500) < 1100)
    found = [accuracy(ClassSumClassifier(200, 4, epsilon, 1e-5, seed=0).fit(
        data), data) for epsilon in (1.0, 8.0, 64.0, 1e5)]
    assert found[1] > found[0] and min(found[1:]) > 0.9


def test_a_column_or_two():
    # Few columns have large eigenvalues.
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (2000, ), generator=generator)
    x = torch.rand(2000, 2, generator=generator)
    x[torch.arange(2000), y] += 0.5
    data = Data(x=x, y=y, train_mask=torch.arange(2000) < 1500)
    for epsilon in (1.0, 100.0):
        model = ClassSumClassifier(2, 2, epsilon, 1e-5, seed=0).fit(data)
        assert accuracy(model, data) > 0.8


@pytest.mark.parametrize('delta', [None, 1e-5])
@pytest.mark.parametrize('epsilon', [1.0, 100.0])
def test_rows_that_tell_nothing(delta, epsilon):
    # The most frequent class, and its share as the probability.
    generator = torch.Generator().manual_seed(1)
    y = (torch.rand(3000, generator=generator) < 0.35).long()
    x = (torch.rand(3000, 100, generator=generator) < 0.2).float()
    data = Data(x=x, y=y, train_mask=torch.arange(3000) < 2400)
    model = ClassSumClassifier(100, 2, epsilon, delta, seed=0).fit(data)
    majority = float((y[2400:] == 0).float().mean())
    assert accuracy(model, data) >= majority - 0.02
    assert abs(float(model.predict_proba(data)[:, 0].mean()) - 0.65) < 0.05


@pytest.mark.parametrize('delta', [None, 1e-5])
def test_probabilities_are_calibrated(delta):
    # Classes that overlap: what is said to be 80% is right in 80%, about.
    generator = torch.Generator().manual_seed(2)
    y = torch.randint(0, 3, (6000, ), generator=generator)
    often = 0.2 + 0.06 * torch.rand(3, 80, generator=generator)
    x = (torch.rand(6000, 80, generator=generator) < often[y]).float()
    data = Data(x=x, y=y, train_mask=torch.arange(6000) < 4000)
    chance = ClassSumClassifier(80, 3, 8.0, delta, seed=0).fit(
        data).predict_proba(data)[4000:]
    sure, guess = chance.max(dim=1)
    right = (guess == y[4000:]).float()
    assert 0.4 < right.mean() < 0.9
    error = 0.0
    for part in (10 * sure).long().unique():
        inside = (10 * sure).long() == part
        error += float((sure - right)[inside].sum().abs()) / 2000
    assert error < 0.08


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
    (dict(clip=0.0), "'clip' must be a positive, finite number"),
    (dict(relation='other'), "'relation' must be one of"),
])
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        ClassSumClassifier(**{'in_channels': 4, 'num_classes': 2,
                              'epsilon': 1.0, **options})


@pytest.mark.parametrize('field, value, message', [
    ('x', torch.full((600, 60), torch.nan), "'x' must be finite"),
    ('x', torch.full((600, 60), -1.0), "'x' must not be negative without"),
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
