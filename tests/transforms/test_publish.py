"""The way out: what is neither released nor named public does not leave."""
import copy
import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import (
    AddRandomWalkPE,
    Compose,
    LocalDegreeProfile,
    NormalizeFeatures,
    OneHotDegree,
)

from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.release import trials, verify
from torch_geometric_dp.transforms import (
    BoundDegree,
    EdgeRand,
    FeatureRR,
    LabelRR,
    Publish,
    ReconstructLabels,
)

UNIT = (0.0, 1.0)
RELEASE = Compose([FeatureRR(4.0, UNIT), EdgeRand(8.0),
                   LabelRR(1.0, 3, mask='train_mask')])


def refusal(transform, data):
    with trials(), pytest.raises(ValueError) as info:
        transform(data)
    return str(info.value)


def test_publish(graph):
    graph.privacy_budget = PrivacyBudget(epsilon=8.0)
    private = RELEASE(graph)
    before = dict(private._store)
    transform = Publish(public=['train_mask'])
    assert repr(transform) == "Publish(public=('train_mask',))"
    out = transform(private)
    # All that was released, what is public, and the ledger; no budget.
    assert set(out.keys()) == {'x', 'y', 'edge_index', 'edge_private',
                               'train_mask', 'privacy'}
    assert out.privacy == private.privacy
    for key in ('x', 'y', 'edge_index', 'edge_private', 'train_mask'):
        assert torch.equal(out[key], private[key])
    # What came in is as it was.
    assert set(private.keys()) == set(before)
    assert all(private[key] is value for key, value in before.items())
    # Once more changes nothing.
    assert set(transform(out).keys()) == set(out.keys())
    assert torch.equal(Compose([RELEASE, transform])(graph).x, out.x)


def test_raw_fields_are_refused_by_name(graph):
    graph.weekdays = torch.arange(7)
    graph.note = 'of somebody'
    assert refusal(Publish(), graph) == (
        "All fields must be released, or be named public; these are neither: "
        "'x' (raw), 'edge_index' (raw), 'y' (raw), 'train_mask' (raw), "
        "'weekdays' (raw), 'note' (raw). Release them, name those that are "
        "public in Publish(public=[...]), or remove the others with drop=True")
    left = refusal(Publish(['train_mask', 'weekdays']),
                   LabelRR(1.0, 3)(graph))
    assert "neither: 'x' (raw), 'edge_index' (raw), 'note' (raw)." in left
    out = Publish(['train_mask', 'weekdays'], drop=True)(graph)
    assert set(out.keys()) == {'train_mask', 'weekdays', 'privacy'}
    assert out.privacy.releases == ()
    assert 'x' in graph and 'note' in graph


FIELDS = ['x', 'y', 'edge_index', 'train_mask', 'a', 'n', 'text', 'rows']


@settings(max_examples=60)
@given(st.sets(st.sampled_from(FIELDS)), st.sets(st.sampled_from(FIELDS)),
       st.booleans(), st.booleans(), st.booleans())
def test_released_public_or_dropped(given, public, labels, features, hetero):
    data = HeteroData() if hetero else Data()
    store = data['p'] if hetero else data
    values = dict(x=torch.rand(4, 2), y=torch.arange(4) % 3,
                  edge_index=torch.tensor([[0], [1]]),
                  train_mask=torch.ones(4, dtype=torch.bool),
                  a=torch.rand(4), n=3, text='secret', rows=[[1.0]])
    for name in given:
        store[name] = values[name]
    released = set()
    with trials():
        if labels and 'y' in given:
            data = LabelRR(1.0, 3)(data)
            released.add('y')
        if features and 'x' in given:
            data = FeatureRR(1.0, UNIT)(data)
            released.add('x')
    left = given - public - released
    out = Publish(sorted(public), drop=True)(data)
    store = out['p'] if hetero else out
    assert set(store.keys()) - {'privacy'} == given - left
    before = data['p'] if hetero else data
    for name in given - left:
        same = store[name] == before[name]
        assert same.all() if isinstance(same, torch.Tensor) else same
    if left:
        text = refusal(Publish(sorted(public)), data)
        told = {part.split("'")[0].split('.')[-1]
                for part in text.split("neither: '")[1].split(', \'')}
        assert told == left
    else:
        Publish(sorted(public))(data)


def test_what_was_changed_since_is_refused(graph):
    private = RELEASE(graph)
    changes = dict(x=graph.x, y=graph.y, edge_index=graph.edge_index,
                   edge_private=~private.edge_private)
    for name, value in changes.items():
        changed = copy.copy(private)
        changed[name] = value
        # Even if it is said to be public: the ledger says otherwise.
        for public in (['train_mask'], ['train_mask', name]):
            assert f"neither: '{name}' (changed). " in refusal(Publish(public),
                                                               changed)
        assert name not in Publish(['train_mask'], drop=True)(changed)
    # One entry is enough, and so is its place; a type that holds the same
    # values is no change.
    changed = private.clone()
    changed.y[0] = (changed.y[0] + 1) % 3
    assert "'y' (changed)" in refusal(Publish(['train_mask']), changed)
    for change in (private.x.flip(0), private.x[:-1], private.x.to_sparse(),
                   private.x.tolist()):
        changed = copy.copy(private)
        changed.x = change
        assert "'x' (changed)" in refusal(Publish(['train_mask']), changed)
    same = copy.copy(private)
    same.x, same.y = private.x.double(), private.y.int()
    Publish(['train_mask'])(same)


def test_what_is_made_of_a_release_comes_after(graph):
    private = RELEASE(graph)
    publish = Publish(['train_mask'])
    assert "'x' (changed)" in refusal(Compose([NormalizeFeatures(), publish]),
                                      private)
    assert Compose([publish, NormalizeFeatures()])(private).x.shape == (12, 3)
    assert 'changed' in refusal(publish, private.subgraph(torch.arange(5)))
    assert publish(private).subgraph(torch.arange(5)).num_nodes == 5
    # Our own know the ledger.
    out = publish(BoundDegree(3)(ReconstructLabels(1)(private)))
    assert 'y_soft' in out


def test_a_released_field_under_another_name_is_raw(graph):
    # A digest belongs to a name.
    private = RELEASE(graph)
    private.copy = private.y
    assert "'copy' (raw)" in refusal(Publish(['train_mask']), private)


def test_raw_edges_with_fewer_edges_are_raw(graph):
    cut = LabelRR(1.0, 3)(BoundDegree(1)(graph))
    assert "neither: 'edge_index' (raw)." in refusal(
        Publish(['x', 'train_mask']), cut)


@pytest.mark.parametrize('before, name', [
    (LocalDegreeProfile(), 'x'), (OneHotDegree(2), 'x'),
    (AddRandomWalkPE(2, attr_name='position'), 'position')])
def test_structure_with_an_innocent_name(graph, before, name):
    # Nobody sees what it was computed from, so that somebody has to say.
    with trials():
        private = EdgeRand(8.0)(before(graph))
    public = {'x', 'y', 'train_mask'} - {name}
    assert f"neither: '{name}' (raw)." in refusal(Publish(sorted(public)),
                                                  private)
    assert name not in Publish(sorted(public), drop=True)(private)


@pytest.fixture
def hetero():
    data = HeteroData()
    data['a'].y, data['b'].y = torch.arange(5) % 3, torch.arange(4) % 3
    data['a'].mask = torch.ones(5, dtype=torch.bool)
    data['a'].num_nodes, data['b'].num_nodes = 5, 4
    data['a', 'to', 'a'].edge_index = torch.tensor([[0, 1], [1, 0]])
    data['a', 'to', 'b'].edge_index = torch.tensor([[0], [1]])
    data['a', 'to', 'b'].edge_private = torch.tensor([False])
    return data


def test_all_stores_of_hetero_data(hetero):
    hetero.privacy_budget = PrivacyBudget(epsilon=8.0)
    hetero.total = 9
    private = EdgeRand(8.0)(LabelRR(1.0, 3)(hetero))
    text = refusal(Publish(), private)
    assert text.split('neither: ')[1].split('. ')[0] == (
        "'total' (raw), 'a.mask' (raw), 'a__to__b.edge_index' (raw), "
        "'a__to__b.edge_private' (raw)")
    # With its type, or for all types.
    public = ['total', 'mask', 'a__to__b.edge_index', 'edge_private']
    out = Publish(public)(private)
    assert 'privacy_budget' not in out and 'privacy_budget' in private
    assert [set(store.keys()) for store in out.stores] == [
        {'total', 'privacy'}, {'y', 'mask', 'num_nodes'}, {'y', 'num_nodes'},
        {'edge_index', 'edge_private'}, {'edge_index', 'edge_private'}]
    out = Publish(drop=True)(private)
    assert [set(store.keys()) for store in out.stores] == [
        {'privacy'}, {'y', 'num_nodes'}, {'y', 'num_nodes'},
        {'edge_index', 'edge_private'}, set()]
    # A name with a type is for that type alone.
    private['b'].mask = torch.ones(4)
    assert "neither: 'b.mask' (raw)." in refusal(
        Publish(['total', 'a.mask', 'a__to__b.edge_index', 'edge_private']),
        private)


def test_types_do_not_lend_their_releases(hetero):
    private = LabelRR(1.0, 3)(hetero)
    private['a'].y, private['b'].y = private['b'].y, private['a'].y
    assert "'a.y' (changed), 'b.y' (changed)" in refusal(
        Publish(['mask', 'edge_index', 'edge_private']), private)


@pytest.mark.parametrize('name', ['privacy', 'privacy_budget'])
def test_the_ledger_of_a_type_is_a_field(hetero, name):
    # Only the graph as a whole has one; anything may hide under its name.
    private = LabelRR(1.0, 3)(hetero)
    private['a'][name] = hetero['a'].y
    publish = Publish(['mask', 'edge_index', 'edge_private'])
    assert f"neither: 'a.{name}' (raw)." in refusal(publish, private)
    assert name not in Publish(drop=True)(private)['a']


def test_batches(graph):
    graphs = PrivacyBudget.for_each([graph, graph], epsilon=8.0)
    private = [RELEASE(data) for data in graphs]
    batch = Batch.from_data_list(private)
    out = Publish(['train_mask'])(batch)
    assert 'privacy_budget' not in out and len(out.privacy) == 2
    assert torch.equal(out.x, batch.x)
    assert refusal(Publish(), batch).count('train_mask') == 1
    # What is in one of them, and what was added to all of them.
    batch.note = 'of somebody'
    assert "neither: 'note' (raw)." in refusal(Publish(['train_mask']), batch)
    assert 'note' not in Publish(['train_mask'], drop=True)(batch)
    assert 'note' in Publish(['train_mask', 'note'])(batch)
    private[1].y = graph.y
    batch = Batch.from_data_list(private)
    assert "neither: 'y' (changed)." in refusal(Publish(['train_mask']), batch)


def test_graphs_of_a_batch_do_not_lend_their_releases(graph):
    one, two = (RELEASE(data) for data in PrivacyBudget.for_each(
        [graph, graph], epsilon=8.0))
    one.y, two.y = two.y, one.y
    assert "'y' (changed)" in refusal(Publish(['train_mask']),
                                      Batch.from_data_list([one, two]))


def test_a_file_holds_no_more_than_is_shown(graph):
    # A view that is saved takes with it what it is a view of.
    secret = torch.full((12, 1000), 0.123456789, dtype=torch.double)
    secret[:, 0] = torch.arange(12) < 8
    private = RELEASE(graph)
    private.train_mask = secret[:, 0]
    out = Publish(['train_mask'])(private)
    file = io.BytesIO()
    torch.save(out, file)
    assert secret[0, 1:2].numpy().tobytes() not in file.getvalue()
    assert torch.equal(out.train_mask, secret[:, 0])


def test_verify_says_the_same_and_changes_nothing(graph):
    private = RELEASE(graph)
    private.y = graph.y
    private.note = 'of somebody'
    states = {'x': 'covered', 'edge_index': 'covered', 'y': 'changed',
              'edge_private': 'covered', 'train_mask': 'public', 'note': 'raw'}
    assert verify(private.privacy, private, ['train_mask']) == states
    assert private.privacy.verify(private, ['train_mask']) == states


def test_bad_arguments(graph):
    with pytest.raises(TypeError, match="'public' must"):
        Publish('train_mask')
    with pytest.raises(TypeError, match="'public' must"):
        Publish([graph.train_mask])
    with pytest.raises(TypeError, match="Expected 'Data' or 'HeteroData' .got "
                       "'Tensor'"):
        Publish()(graph.x)
