import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from torch_geometric.data import Data, HeteroData

from tests.conftest import FALSE_ALARM
from torch_geometric_dp.attacks import (
    MembershipInference,
    membership_inference,
)
from torch_geometric_dp.attacks.membership_inference import (
    _compared,
    _Judge,
    log_probabilities,
)
from torch_geometric_dp.attacks.report import scored_numbers

BAD_LUCK = norm.isf(FALSE_ALARM / 2)


@pytest.fixture(scope='module', autouse=True)
def few_steps():
    """What is as clear as here is learned in few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(membership_inference, '_EPOCHS', 40)
        yield


def graph(num_nodes=60, classes=3, seed=0):
    """Column 0 of `x` is the number of the node; a third are members."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(num_nodes, generator=generator)
    data = Data(
        x=torch.cat([torch.arange(num_nodes).view(-1, 1).float(), torch.rand(
            num_nodes, 2, generator=generator)], dim=1),
        y=torch.randint(classes, (num_nodes, ), generator=generator),
        edge_index=torch.randint(num_nodes, (2, 2 * num_nodes),
                                 generator=generator))
    data.shadow_mask, data.train_mask = torch.zeros(2, num_nodes).bool()
    data.shadow_mask[order[:num_nodes // 2]] = True
    data.train_mask[order[num_nodes // 2:-num_nodes // 4]] = True
    return data


def remembers(train, classes=3):
    """Is sure of what it was trained on, and of nothing else."""
    known = train.x[:, 0]

    def model(other):
        sure = torch.isin(other.x[:, 0], known).float().view(-1, 1)
        return 5 * sure * torch.eye(classes)[0]

    return model


def knows_nothing(train, classes=3):
    """Answers that depend on the node alone."""
    def model(other):
        return (37 * other.x[:, :1] * torch.arange(1, classes + 1)).sin()

    return model


def target_of(fit, data):
    return fit(data.subgraph(data.train_mask))


@pytest.mark.parametrize('num_shadows, knows_labels', [(1, True),
                                                       (4, False), (6, True)])
def test_finds_every_member(num_shadows, knows_labels):
    data = graph()
    report = MembershipInference(
        remembers, num_shadows=num_shadows,
        knows_labels=knows_labels).run(target_of(remembers, data), data)
    assert report.numbers == {'balanced accuracy': 1.0, 'AUC': 1.0,
                              'TPR at 1% FPR': 1.0}
    # A shadow in place of the target has seen no candidate.
    assert report.baseline == {'balanced accuracy': 0.5, 'AUC': 0.5,
                               'TPR at 1% FPR': 0.01}
    member = data.train_mask[~data.shadow_mask]
    assert report.truth.tolist() == member.tolist()


@pytest.mark.parametrize('num_shadows', [1, 4])
def test_finds_nothing_where_nothing_is(num_shadows):
    data = graph(4000)
    report = MembershipInference(knows_nothing, num_shadows=num_shadows).run(
        target_of(knows_nothing, data), data)
    # Given the scores, members were drawn by lot: the two rates are means of
    # 1,000 nodes out of 2,000, and their difference has at most this variance.
    deviation = math.sqrt(0.25 * (1 / 1000 + 1 / 1000))
    assert abs(2 * report['balanced accuracy'] - 1) < BAD_LUCK * deviation
    # That of the Mann-Whitney statistic, by lot.
    deviation = math.sqrt(2001 / (12 * 1000 * 1000))
    assert abs(report['AUC'] - 0.5) < BAD_LUCK * deviation
    assert report['TPR at 1% FPR'] < 0.05
    assert len(np.unique(report.scores)) > 1900


def test_weak_memory_is_found_better_by_several_shadows():
    # Nodes differ much in how sure everybody is of them, and little in how
    # much surer those are who have seen them.
    def weak(train):
        def model(other):
            sure = 40 * other.x[:, 1] + torch.isin(other.x[:, 0],
                                                   train.x[:, 0])
            return torch.stack([sure, -sure], dim=1) / 10

        return model

    data = graph(800, classes=2)
    one, four = (MembershipInference(weak, num_shadows=count).run(
        target_of(weak, data), data) for count in (1, 4))
    assert one['AUC'] < 0.6 and four['AUC'] > 0.99
    assert four['balanced accuracy'] > 0.95
    assert four['TPR at 1% FPR'] > 0.9 > 0.1 > one['TPR at 1% FPR']


def test_control_shows_what_is_no_leak():
    # Members have other rows. Whoever is asked about them is surer, and the
    # attack goes by that; the control says that the target has no part in it.
    def fit(train):
        def model(other):
            seen = torch.isin(other.x[:, 0], train.x[:, 0])
            sure = seen.float() + 3 * (other.x[:, 1] > 10)
            return torch.stack([sure, -sure], dim=1)

        return model

    data = graph(classes=2)
    data.x[data.train_mask, 1] += 100
    control = MembershipInference(fit).run(target_of(fit, data), data)
    assert control['AUC'] == control.baseline['AUC'] == 1.0


def test_numbers_by_counting():
    truth = np.array([True, True, True, False, False])
    scores = np.array([2.0, 1.0, -1.0, 1.5, 0.0])
    numbers = MembershipInference._numbers(truth, scores)
    # Two of three members, and one of two others; four of six pairs.
    assert numbers['balanced accuracy'] == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert numbers['AUC'] == pytest.approx((2 + 1 + 0) / 6)
    assert numbers['TPR at 1% FPR'] == pytest.approx(1 / 3)


def test_nothing_is_given_away():
    data, asked, trained = graph(), [], []

    def fit(train):
        trained.append(train)
        model = knows_nothing(train)

        def answer(other):
            asked.append(other)
            return model(other)

        return answer

    MembershipInference(fit, num_shadows=4).run(fit(data), data)
    own = set(data.x[data.shadow_mask, 0].tolist())
    rest = set(data.x[~data.shadow_mask, 0].tolist())
    for other in asked:
        assert set(other.keys()) == {'x', 'edge_index'}
        assert set(other.x[:, 0].tolist()) in (own, rest)
    halves = [set(train.x[:, 0].tolist()) for train in trained[1:]]
    for train, half in zip(trained[1:], halves):
        assert set(train.keys()) == {'x', 'y', 'edge_index', 'train_mask'}
        assert train.train_mask.all() and len(half) == len(own) // 2
        assert torch.equal(train.y, data.y[train.x[:, 0].long()])
    assert halves[0] | halves[1] == halves[2] | halves[3] == own
    assert not halves[0] & halves[1] and halves[0] != halves[2]
    # The target, once; and each shadow, about its own side and the other.
    assert len(asked) == 1 + 4 * 2


def test_without_labels_they_are_not_read():
    data = graph()
    attack = MembershipInference(knows_nothing, knows_labels=False)
    before = attack.run(target_of(knows_nothing, data), data)
    data.y[~data.shadow_mask] = 2 - data.y[~data.shadow_mask]
    after = attack.run(target_of(knows_nothing, data), data)
    assert before.scores.tolist() == after.scores.tolist()
    assert 'classes of all' not in str(after)
    attack = MembershipInference(knows_nothing)
    assert attack.run(target_of(knows_nothing, data),
                      data).scores.tolist() != after.scores.tolist()


@settings(max_examples=5)
@given(st.integers(0, 2**31))
def test_order_of_candidates_does_not_matter(seed):
    data, rng = graph(24), np.random.RandomState(seed)
    # The attacker's nodes stay in their order among themselves.
    order = torch.from_numpy(rng.permutation(24))
    own = data.shadow_mask[order]
    order[own] = order[own].sort().values
    shuffled = data.clone()
    for name in ('x', 'y', 'train_mask', 'shadow_mask'):
        shuffled[name] = data[name][order]
    shuffled.edge_index = order.argsort()[data.edge_index]

    def fit(train):
        weight = train.x[:, 1:].T @ train.x[:, 1:]

        def model(other):  # Reads edges, too.
            x = other.x[:, 1:]
            x = x.index_add(0, other.edge_index[1], x[other.edge_index[0]])
            seen = torch.isin(other.x[:, 0], train.x[:, 0])
            return torch.cat([x @ weight, seen.float().view(-1, 1)], dim=1)

        return model

    attack = MembershipInference(fit, num_shadows=4)
    a = attack.run(target_of(fit, data), data)
    b = attack.run(target_of(fit, shuffled), shuffled)
    back = order[~shuffled.shadow_mask]  # The old numbers.
    place = torch.zeros(24).long()
    place[~data.shadow_mask] = torch.arange(len(back))
    np.testing.assert_allclose(a.scores[place[back]], b.scores, atol=1e-4)
    assert a.truth[place[back]].tolist() == b.truth.tolist()


@settings(max_examples=10)
@given(st.integers(2, 5), st.integers(2, 9), st.integers(0, 12),
       st.sampled_from([torch.float32, torch.float64]))
def test_odd_graphs(classes, num_nodes, num_edges, dtype):
    # Few nodes, self-loops, duplicates, isolated nodes, directed edges.
    data = graph(2 * num_nodes, classes)
    data.shadow_mask = torch.arange(2 * num_nodes) >= num_nodes
    data.train_mask = torch.arange(2 * num_nodes) < num_nodes // 2
    data.edge_index = torch.randint(2 * num_nodes, (2, num_edges))

    def fit(train):
        model = remembers(train, classes)
        return lambda other: model(other).to(dtype)

    before = data.clone()
    report = MembershipInference(fit).run(target_of(fit, data), data)
    assert report['AUC'] == 1.0
    assert len(report.scores) == num_nodes
    assert set(data.keys()) == set(before.keys())
    for name in before.to_dict():
        assert torch.equal(data[name], before[name])


def test_probabilities_and_logits_say_the_same():
    data = graph()

    def as_probabilities(train):
        model = remembers(train)
        return lambda other: model(other).softmax(dim=1)

    a, b = (MembershipInference(fit).run(target_of(fit, data), data)
            for fit in (remembers, as_probabilities))
    np.testing.assert_allclose(a.scores, b.scores, rtol=1e-3, atol=1e-3)
    out = torch.tensor([[0.0, 1.0], [0.5, 0.5]], dtype=torch.double)
    assert log_probabilities(out).exp().tolist()[1] == pytest.approx([0.5, 0.5])
    assert log_probabilities(out).isfinite().all()
    huge = torch.tensor([[1e4, -1e4]], dtype=torch.double)
    assert log_probabilities(huge)[0, 1] == pytest.approx(math.log(1e-12))


def test_answers_beyond_doubt():
    data = graph()

    def fit(train):  # Probabilities of exactly one and zero.
        model = remembers(train)
        return lambda other: torch.where(model(other).sum(dim=1, keepdim=True)
                                         > 0, torch.eye(3)[0], 1 / 3)

    report = MembershipInference(fit).run(target_of(fit, data), data)
    assert np.isfinite(report.scores).all()
    assert report['balanced accuracy'] == report['AUC'] == 1.0


def test_compared_with_those_who_never_saw_it():
    rng = torch.Generator().manual_seed(0)
    inside = torch.rand(3, 5, generator=rng) < 0.5
    inside = torch.stack([inside, ~inside], dim=1).flatten(0, 1)
    looks = torch.rand(6, 5, 2, generator=rng, dtype=torch.double)
    out = _compared(looks, ~inside)
    for i in range(6):
        for node in range(5):
            others = [looks[j, node] for j in range(6)
                      if j // 2 != i // 2 and not inside[j, node]]
            assert len(others) == 2  # One of each other pair.
            expected = looks[i, node] - sum(others) / 2
            torch.testing.assert_close(out[i, node], torch.cat(
                [looks[i, node], expected]))


@pytest.mark.parametrize('shadows', [1, 4])
def test_baseline_is_the_mean_over_all_shadows(shadows):
    data = graph()
    report = MembershipInference(remembers, num_shadows=shadows).run(
        target_of(remembers, data), data)
    assert report.guessed.shape == (shadows, len(report.truth))
    for name in ('AUC', 'TPR at 1% FPR'):
        assert report.baseline[name] == pytest.approx(np.mean([
            scored_numbers(report.truth, guess)[name]
            for guess in report.guessed]))


def test_judge_has_no_favourite():
    # Ten times as many members, and nothing to tell them by: even odds.
    looks = torch.ones(110, 2, dtype=torch.double)
    judge = _Judge(looks, torch.arange(110) < 100, seed=0)
    assert abs(judge(looks)[0]) < 0.05


def test_repeatable_and_leaves_the_generator_alone():
    data = graph()
    target = target_of(knows_nothing, data)
    state = torch.get_rng_state()
    a, b = (MembershipInference(knows_nothing, seed=3).run(target, data)
            for _ in range(2))
    assert a.scores.tolist() == b.scores.tolist()
    assert torch.equal(state, torch.get_rng_state())
    other = MembershipInference(knows_nothing, seed=4).run(target, data)
    assert a.scores.tolist() != other.scores.tolist()


@pytest.mark.parametrize('epsilon, delta', [(0.5, 0.0), (4.0, 0.0),
                                            (4.0, 0.01), (8.0, 1e-5)])
def test_bounds_by_brute_force(epsilon, delta):
    false = np.linspace(0, 1, 200_001)
    odds = math.exp(epsilon)
    true = np.minimum(odds * false + delta, 1 - (1 - false - delta) / odds)
    true = np.clip(true, 0, 1)
    bounds = MembershipInference.bounds(epsilon, delta)
    assert bounds['balanced accuracy'] == pytest.approx(
        ((true + 1 - false) / 2).max(), abs=1e-4)
    assert bounds['AUC'] == pytest.approx(np.trapezoid(true, false), abs=1e-4)
    assert bounds['TPR at 1% FPR'] == pytest.approx(true[2000], abs=1e-9)


def test_bounds_are_reached_by_randomised_response():
    # A target that answers whether a node is a member, truthfully with the odds
    # that epsilon allows.
    for epsilon in (0.5, 2.0):
        truth = math.exp(epsilon) / (1 + math.exp(epsilon))
        bounds = MembershipInference.bounds(epsilon)
        assert bounds['balanced accuracy'] == pytest.approx(truth)
        assert bounds['AUC'] == pytest.approx(truth)
        assert bounds['TPR at 1% FPR'] == pytest.approx(
            0.01 * math.exp(epsilon))
    assert MembershipInference.bounds(4.0)['balanced accuracy'] == (
        pytest.approx(0.982, abs=1e-3))


NODES = 12


@pytest.mark.parametrize('field, value, words', [
    ('train_mask', torch.zeros(NODES).bool(), r"'train_mask' .*got 0 of 6"),
    ('train_mask', torch.arange(NODES) < 6, r"'train_mask' .*got 6 of 6"),
    ('train_mask', torch.ones(NODES).bool(), "'shadow_mask' .*node 6 in both"),
    ('train_mask', torch.ones(5).bool(), r"'train_mask' .*shape \[12\]"),
    ('train_mask', torch.ones(NODES).long(), "'train_mask' .*torch.int64"),
    ('train_mask', None, "'train_mask' .*got None"),
    ('shadow_mask', torch.ones(NODES, 1).bool(), r"'shadow_mask' .*\[12, 1\]"),
    ('shadow_mask', torch.zeros(NODES), "'shadow_mask' .*torch.float32"),
    ('shadow_mask', torch.zeros(NODES).bool(), "'shadow_mask' .*got 0"),
    ('shadow_mask', torch.arange(NODES) == 11, "'shadow_mask' .*got 1"),
    ('shadow_mask', None, "'shadow_mask' .*got None"),
    ('y', None, "'y' .*got None"),
    ('y', torch.zeros(NODES), "'y' .*torch.float32"),
    ('y', torch.zeros(NODES, 2).long(), r"'y' .*\[12, 2\]"),
    ('y', torch.full((NODES, ), 3), "'y' .*from 0 to 2"),
    ('y', torch.full((NODES, ), -1), "'y' .*from 0 to 2"),
])
def test_refuses_odd_fields_by_name(field, value, words):
    data = graph(NODES)
    data.shadow_mask = torch.arange(NODES) >= 6
    data.train_mask = torch.arange(NODES) < 3
    target = target_of(remembers, data)
    data[field] = value
    with pytest.raises(ValueError, match=words):
        MembershipInference(remembers).run(target, data)


@pytest.mark.parametrize('answer, words', [
    (lambda other: other.x[:, 0], r"shape \[30, num_classes\].*\[30\]"),
    (lambda other: other.x[:, :1], r"\[30, 1\]"),
    (lambda other: other.x[:3], r"\[3, 3\]"),
    (lambda other: other.x.long(), 'torch.int64'),
    (lambda other: 'none', 'got none'),
    (lambda other: other.x / 0, 'finite'),
])
def test_refuses_odd_answers(answer, words):
    data = graph()
    with pytest.raises(ValueError, match=f"'target' .*{words}"):
        MembershipInference(remembers).run(answer, data)
    with pytest.raises(ValueError, match=f"'fit' .*{words}"):
        MembershipInference(lambda train: answer).run(remembers(data), data)


def test_refuses_what_is_no_graph_or_no_model():
    data = graph()
    with pytest.raises(TypeError, match="'data' must be a graph.*HeteroData"):
        MembershipInference(remembers).run(remembers(data), HeteroData())
    # Before any shadow is trained, which takes long.
    with pytest.raises(TypeError, match="'target' must give a model.*'int'"):
        MembershipInference(lambda train: 1 / 0).run(5, data)
    with pytest.raises(TypeError, match="'target' must give a model.*'Data'"):
        MembershipInference(lambda train: 1 / 0).run(data, data)
    with pytest.raises(TypeError, match="'fit' must give a model.*NoneType"):
        MembershipInference(lambda train: None).run(remembers(data), data)


def test_says_that_a_model_is_in_training_mode():
    class Model(torch.nn.Module):
        def forward(self, other):
            return other.x

    data = graph()
    attack = MembershipInference(lambda train: Model().eval())
    with pytest.warns(UserWarning, match="'target' gave a model in training"):
        attack.run(Model(), data)
    with pytest.warns(UserWarning, match="'fit' gave a model in training"):
        MembershipInference(lambda train: Model()).run(Model().eval(), data)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        attack.run(Model().eval(), data)


def test_models_may_learn_when_asked():
    # Answers with gradients, and a step of training in between, do no harm.
    def fit(train):
        model = knows_nothing(train)
        bias = torch.zeros(3, requires_grad=True)

        def ask(data):
            bias.sum().backward()
            return model(data) + bias

        return ask

    data = graph()
    report = MembershipInference(fit).run(target_of(fit, data), data)
    assert 0 <= report.numbers['AUC'] <= 1


def test_refuses_other_classes():
    data = graph()
    with pytest.raises(ValueError, match="'target' .*as many classes"):
        MembershipInference(remembers).run(lambda other: torch.rand(30, 4),
                                           data)


def test_refuses_odd_arguments():
    with pytest.raises(TypeError, match="'fit' .*'NoneType'"):
        MembershipInference(None)
    for number in (0, 2, 3, 5, -1, 1.0, True):
        with pytest.raises(ValueError, match="'num_shadows'"):
            MembershipInference(remembers, num_shadows=number)
    for seed in (-1, 0.5, 'one'):
        with pytest.raises(ValueError, match="'seed' must be an integer"):
            MembershipInference(remembers, seed=seed)
    for epsilon in (0, -1.0, math.inf):
        with pytest.raises(ValueError, match="'epsilon'"):
            MembershipInference.bounds(epsilon)
    with pytest.raises(ValueError, match="'delta'"):
        MembershipInference.bounds(1.0, 1.0)


def test_says_what_it_is():
    attack = MembershipInference(remembers)
    assert repr(attack) == 'MembershipInference(fit=<remembers>)'
    attack = MembershipInference(remembers, members='in', shadow='mine',
                                 num_shadows=4, knows_labels=False, seed=7)
    assert repr(attack) == (
        "MembershipInference(fit=<remembers>, members='in', "
        "shadow='mine', num_shadows=4, knows_labels=False, seed=7)")
    data = graph()
    data['in'], data['mine'] = data.train_mask, data.shadow_mask
    del data.train_mask, data.shadow_mask
    report = attack.run(remembers(data.subgraph(data['in'])), data)
    assert report['AUC'] == 1.0
    assert str(report).startswith(repr(attack))
    assert report.knew == ('how the target was trained',
                           '30 nodes of their own, with classes',
                           'the rows and edges of all candidates')
    pytest.importorskip('matplotlib').use('Agg')
    assert report.plot().get_title() == 'MembershipInference'
