import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch_geometric.data import Batch, Data, HeteroData

from tests.conftest import FALSE_ALARM
from torch_geometric_dp import PrivacyAccountant, PrivacyBudget
from torch_geometric_dp.transforms import LabelRR


def test_label_rr(graph):
    raw = graph.y.clone()
    transform = LabelRR(epsilon=1.0, num_classes=3, mask='train_mask')
    assert repr(transform) == (
        "LabelRR(epsilon=1.0, num_classes=3, mask='train_mask')")
    out = transform(graph)
    assert torch.equal(graph.y, raw) and 'privacy' not in graph
    assert (out.y[~out.train_mask] == -1).all()
    assert ((out.y >= 0) & (out.y < 3))[out.train_mask].all()
    assert out.y.dtype == raw.dtype and out.x is graph.x
    assert out.privacy.epsilon('labels') == 1.0
    assert out.privacy.epsilon('features') == 0.0
    release, = out.privacy.releases
    assert release.fields == ('y', ) and release.seed is None
    assert release.parameter('num_classes') == 3
    assert release.guarantee.model == 'local'
    assert release.guarantee.assumptions == ()
    assert release.public == (('train_mask', None), )
    assert 'takes as public: train_mask' in str(out.privacy)


def test_repr_tells_everything_that_matters():
    assert repr(LabelRR(2, 7)) == 'LabelRR(epsilon=2.0, num_classes=7)'
    assert repr(LabelRR(2, 7, 'm', keep_unmasked=True, seed=3)) == (
        "LabelRR(epsilon=2.0, num_classes=7, mask='m', keep_unmasked=True, "
        "seed=3)")


def test_labels_outside_the_mask_are_kept_on_request(graph):
    out = LabelRR(1.0, 3, 'train_mask', keep_unmasked=True)(graph)
    mask = out.train_mask
    assert torch.equal(out.y[~mask], graph.y[~mask])
    kept = "the labels outside 'train_mask', kept as they are"
    assert out.privacy.releases[0].public == (('train_mask', None),
                                              (kept, None))
    assert f'takes as public: train_mask, {kept}' in str(out.privacy)
    with pytest.raises(ValueError, match="'keep_unmasked' needs a 'mask'"):
        LabelRR(1.0, 3, keep_unmasked=True)


@pytest.mark.parametrize('dtype', [torch.float, torch.long, torch.bool])
def test_multi_label(dtype):
    n, labels, epsilon = 20000, 4, 2.0
    y = (torch.arange(n * labels).view(n, labels) % 3 == 0).to(dtype)
    out = LabelRR(epsilon, num_classes=labels, seed=0)(Data(y=y))
    assert out.y.dtype == dtype and out.y.shape == y.shape
    assert out.privacy.epsilon('labels') == epsilon
    # Each bit is flipped with the odds of epsilon / 4: brute force over two
    # whole rows that differ everywhere gives epsilon for the row.
    flip = 1 / (1 + math.exp(epsilon / labels))
    flips = int((out.y != y).sum())
    assert stats.binomtest(flips, n * labels, flip).pvalue > FALSE_ALARM
    mechanism = LabelRR(epsilon, labels)._mechanism(y)
    odds = mechanism.keep / mechanism.other
    assert epsilon - 1e-12 < labels * math.log(odds) <= epsilon


def test_multi_label_with_a_mask():
    y = torch.ones(6, 3)
    data = Data(y=y, train_mask=torch.arange(6) < 3)
    out = LabelRR(1.0, 3, 'train_mask')(data)
    assert (out.y[3:] == -1).all() and (out.y[:3] >= 0).all()
    out = LabelRR(1.0, 3, 'train_mask', keep_unmasked=True)(data)
    assert torch.equal(out.y[3:], y[3:])


def test_hetero_data():
    data = HeteroData()
    data['paper'].y = torch.arange(10) % 4
    data['paper'].train_mask = torch.arange(10) < 5
    data['author'].y = torch.arange(6) % 4
    data['author'].train_mask = torch.arange(6) < 5
    data['venue'].x = torch.randn(3, 2)
    data.privacy_budget = PrivacyBudget(epsilon=1.0)
    transform = LabelRR(1.0, 4, 'train_mask')
    out = transform(data)
    assert (out['paper'].y[5:] == -1).all() and out['author'].y[5] == -1
    assert 'y' not in out['venue']
    # Each node has one label: the types do not add up.
    assert out.privacy.epsilon('labels') == 1.0
    assert out.privacy.releases[0].fields == ('paper.y', 'author.y')
    assert torch.equal(transform(data)['paper'].y, out['paper'].y)


def test_batch(graph):
    one, two = graph.clone(), graph.clone()
    one.privacy_budget = PrivacyBudget(epsilon=1.0)
    two.privacy_budget = PrivacyBudget(epsilon=2.0)
    transform = LabelRR(1.0, 3, 'train_mask')
    batch = Batch.from_data_list([one, two], follow_batch=['y'])
    batch.note = 'added to the batch'
    out = transform(batch)
    assert out.num_graphs == 2 and out.note == 'added to the batch'
    assert torch.equal(out.y_batch, batch.y_batch)
    # Before or after batching: the same noise, ledgers and charges.
    for data, released in zip((one, two), out.to_data_list()):
        assert torch.equal(released.y, transform(data).y)
        assert released.privacy == transform(data).privacy
        assert data.privacy_budget.spent.epsilon('labels') == 1.0
    assert PrivacyAccountant.of(out).epsilon('labels') == 1.0


def test_graph_labels():
    graphs = [Data(x=torch.randn(i + 1, 2), y=torch.tensor([i % 3]))
              for i in range(5)]
    out = LabelRR(1.0, 3)(Batch.from_data_list(graphs))
    assert out.y.shape == (5, ) and len(out.privacy) == 5


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 30), st.integers(2, 9), st.floats(0.01, 20),
       st.sampled_from([torch.long, torch.int, torch.uint8]),
       st.booleans())
def test_any_graph(n, classes, epsilon, dtype, column):
    y = (torch.arange(n) % classes).to(dtype)
    data = Data(y=y.view(-1, 1) if column else y, m=torch.arange(n) % 2 == 0)
    out = LabelRR(epsilon, classes, 'm')(data)
    assert out.y.shape == data.y.shape
    assert ((out.y.view(-1) == -1) == ~out.m).all()
    assert (out.y < classes).all()
    assert out.privacy.epsilon('labels') == epsilon


def test_pickle(graph):
    graph.privacy_budget = PrivacyBudget(epsilon=1.0)
    transform = LabelRR(1.0, 3)
    again = pickle.loads(pickle.dumps(transform))
    assert repr(again) == repr(transform)
    assert torch.equal(again(graph).y, transform(graph).y)
    # Neither holds what the noise is derived from.
    key = graph.privacy_budget.key()
    for holder in (transform, again):
        assert key not in pickle.dumps(holder)
        assert key.hex() not in repr(vars(holder))


@pytest.mark.parametrize('change, error, message', [
    (dict(y=None), ValueError, "'y' is missing: the graph has no node type "
     "with it (got the fields ['edge_index', 'train_mask', 'x'])"),
    (dict(y=torch.full((12, ), 3)), ValueError,
     "'y' must hold integers from 0 to 2 (got another value, or none, in "
     "row 0)"),
    (dict(y=torch.full((12, ), -1)), ValueError,
     "'y' must hold integers from 0 to 2 (got another value, or none, in "
     "row 0)"),
    (dict(y=torch.zeros(12)), ValueError,
     "'y' must hold integer classes from 0 to 2 (got torch.float32)"),
    (dict(y=torch.zeros(12, 5).long()), ValueError,
     "'y' must have shape [num_nodes] or [num_nodes, 3], as 'num_classes' "
     "says (got [12, 5])"),
    (dict(y=torch.zeros(12, 3, 2).long()), ValueError,
     "'y' must have shape [num_nodes] or [num_nodes, 3] (got [12, 3, 2])"),
    (dict(y=[0] * 12), TypeError, "'y' must be a tensor (got 'list')"),
    (dict(train_mask=None), ValueError, "'train_mask' is missing: it selects "
     "the labels to release (got the fields ['edge_index', 'x', 'y'])"),
    (dict(train_mask=torch.ones(11).bool()), ValueError,
     "'train_mask' must have shape [12], one entry for each row of 'y' "
     "(got [11])"),
    (dict(train_mask=torch.ones(12, 2).bool()), ValueError,
     "'train_mask' must have shape [12], one entry for each row of 'y' "
     "(got [12, 2])"),
    (dict(train_mask=torch.ones(12)), TypeError,
     "'train_mask' must be a boolean tensor (got torch.float32)"),
    (dict(train_mask=[True] * 12), TypeError,
     "'train_mask' must be a boolean tensor (got <class 'list'>)"),
    (dict(privacy_budget=8.0), TypeError,
     "'privacy_budget' must be a 'PrivacyBudget' (got 'float')"),
])
def test_bad_input_is_refused_by_name(graph, change, error, message):
    for key, value in change.items():
        graph[key] = value
    with pytest.raises(error) as info:
        LabelRR(1.0, 3, 'train_mask')(graph)
    assert str(info.value) == message


@pytest.mark.parametrize('epsilon', [0, -1.0, math.nan, math.inf])
def test_bad_epsilon(epsilon):
    with pytest.raises(ValueError, match=f"'epsilon' must be a positive, finite"
                       f" number .got {epsilon}"):
        LabelRR(epsilon, 3)


def test_bad_arguments(graph):
    with pytest.raises(TypeError, match="'mask' must be the name of a boolean"):
        LabelRR(1.0, 3, mask=graph.train_mask)
    with pytest.raises(TypeError, match="Expected 'Data' or 'HeteroData'"):
        LabelRR(1.0, 3)(torch.zeros(3))


def test_labels_outside_the_mask_need_not_be_known(graph):
    graph.y = torch.where(graph.train_mask, graph.y, -1)
    assert (LabelRR(1.0, 3, 'train_mask')(graph).y[8:] == -1).all()
