import math
import pickle

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import Compose

from torch_geometric_dp import (
    ContentChanged,
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms import (
    GRRFS,
    Discretize,
    GroupColumns,
    LabelRR,
)


@pytest.fixture
def binary(graph):
    graph.x = (graph.x > 0.4).float()
    return graph


def test_grrfs(binary):
    raw = binary.x.clone()
    transform = GRRFS(epsilon=4.0, num_sampled=2, domain_sizes=2)
    assert repr(transform) == (
        'GRRFS(epsilon=4.0, num_sampled=2, domain_sizes=2)')
    out = transform(binary)
    assert torch.equal(binary.x, raw) and 'privacy' not in binary
    assert out.x.dtype == raw.dtype and out.y is binary.y
    assert set(out.x.unique().tolist()) <= {0.0, 1.0}
    assert out.privacy.epsilon('features') == 4.0
    assert out.privacy.epsilon('labels') == 0.0
    release, = out.privacy.releases
    assert release.fields == ('x', )
    assert release.guarantee.model == 'local'
    assert release.guarantee.claimed_epsilon is None
    assert dict(release.parameters) == {
        'num_sampled': 2, 'epsilon_x': 2.0, 'domain_sizes': 2,
        'attribute_epsilon': pytest.approx(
            math.log(1 + 2 / 3 * (math.exp(2.0) - 1)), abs=1e-12)}
    assert PrivacyAccountant.from_json(out.privacy.to_json()) == out.privacy


def test_from_paper(binary):
    transform = GRRFS.from_paper(epsilon_x=0.1, num_sampled=3, domain_sizes=2,
                                 seed=0)
    assert repr(transform) == ("GRRFS(epsilon=0.3, num_sampled=3, "
                               "domain_sizes=2, calibration='paper', seed=0)")
    # Ten columns, so that the claim differs from the truth.
    binary.x = (torch.arange(120).view(12, 10) % 2).float()
    out = transform(binary)
    claim = math.log(1 + 0.3 * (math.exp(0.3) - 1))
    assert out.privacy.epsilon('features') == 0.3
    assert out.privacy.claimed_epsilon('features') == pytest.approx(claim)
    release, = out.privacy.releases
    assert release.parameter('epsilon_x') == pytest.approx(0.1)
    assert release.parameter('attribute_epsilon') == pytest.approx(
        math.log(1 + 0.3 * (math.exp(0.1) - 1)))
    assert 'which is a claim; 0.3 is proven' in str(out.privacy)
    # The mechanism is the same, whoever asks for it.
    proven, source = GRRFS(0.3, 3, 2, seed=0), NoiseSource.from_seed(0)
    assert proven.calibration == 'proven' != transform.calibration
    assert torch.equal(proven.mechanism(10)(binary.x, source),
                       transform.mechanism(10)(binary.x, source))


def test_mixed_sizes(graph):
    sizes = [2, 5, 3]
    graph.x = torch.stack([torch.arange(12) % size for size in sizes], dim=1)
    out = GRRFS(3.0, 2, sizes, seed=1)(graph)
    assert out.x.dtype == torch.long
    assert (out.x.max(dim=0).values < torch.tensor(sizes)).all()
    assert out.privacy.releases[0].parameter('domain_sizes') == (2, 5, 3)
    assert repr(GRRFS(3.0, 2, torch.tensor(sizes), seed=1)) == (
        'GRRFS(epsilon=3.0, num_sampled=2, domain_sizes=(2, 5, 3), seed=1)')
    # Equal sizes are one number on the record.
    graph.x = graph.x % 2
    equal = GRRFS(3.0, 2, [2, 2, 2])(graph)
    assert equal.privacy.releases[0].parameter('domain_sizes') == 2


def test_permanent_response(binary):
    binary.privacy_budget = PrivacyBudget(epsilon=4.0)
    transform = GRRFS(4.0, 2, 2)
    out = transform(binary)
    assert torch.equal(transform(binary).x, out.x)
    again = pickle.loads(pickle.dumps(transform))
    assert torch.equal(again(binary).x, out.x)
    assert binary.privacy_budget.spent.epsilon('features') == 4.0
    assert torch.equal(GRRFS(4.0, 2, 2)(binary).x, out.x)
    other = GRRFS(1.0, 2, 2)
    with pytest.raises(PrivacyBudgetExceeded):
        other(binary)
    # What was released goes on free of charge.
    assert other(out).privacy.epsilon('features') == 4.0
    assert transform(binary).privacy.releases[0].release_id == (
        out.privacy.releases[0].release_id)


def test_parts_of_a_graph_are_refused(binary):
    binary.privacy_budget = PrivacyBudget(epsilon=8.0)
    transform = GRRFS(8.0, 2, 2)
    part = Data(x=binary.x[:4], privacy_budget=binary.privacy_budget)
    part.n_id = torch.arange(4)
    with pytest.raises(ValueError, match="'n_id' tells that the graph is a"):
        transform(part)
    assert binary.privacy_budget.spent.releases == ()
    transform(binary)
    del part.n_id
    with pytest.raises(ContentChanged):
        transform(part)
    assert binary.privacy_budget.spent.epsilon('features') == 8.0


def test_hetero_data_and_batches(binary):
    data = HeteroData()
    data['paper'].x = torch.zeros(5, 8)
    data['author'].x = torch.ones(4, 3)
    out = GRRFS.from_paper(1.0, 2, 2)(data)
    release, = out.privacy.releases
    assert release.fields == ('paper.x', 'author.x')
    # Each node has one row: what holds for the worse type holds for all.
    assert release.guarantee.claimed_epsilon == pytest.approx(
        math.log(1 + 2 / 3 * (math.exp(2) - 1)))
    assert release.parameter('attribute_epsilon') == pytest.approx(
        math.log(1 + 2 / 3 * (math.e - 1)))
    batch = GRRFS(1.0, 1, 2)(Batch.from_data_list([binary, binary]))
    assert batch.x.shape == (24, 3) and len(batch.privacy) == 2


def test_grouped_and_discretised(graph):
    release = Compose([Discretize((0.0, 1.0), bins=2), GroupColumns(2),
                       GRRFS(2.0, 1, 2), LabelRR(1.0, 3)])
    out = release(graph)
    assert out.x.shape == (12, 2)
    assert out.privacy.epsilon('features') == 2.0
    assert out.privacy.epsilon('node') == 3.0


@pytest.mark.parametrize('x, error, message', [
    (torch.full((12, 3), 0.5), ValueError, "'x' must hold integers from 0 to 1 "
     "in column 0 (got another value, or none, in row 0)"),
    (torch.full((12, 3), 2), ValueError, "'x' must hold integers from 0 to 1 "
     "in column 0 (got another value, or none, in row 0)"),
    (torch.zeros(12, 1), ValueError, "'num_sampled' must be at most the number "
     "of columns, which is 1 (got 2)"),
    (torch.zeros(12, 3).to_sparse(), TypeError, "'x' must be a dense tensor: "
     "noise is dense, and zeros are values like any other (got sparse; see "
     "x.to_dense())"),
    (torch.zeros(12), ValueError, "'x' must have shape [num_nodes, "
     "num_features] (got [12])"),
    (None, ValueError, "'x' is missing: the graph has no node type with it "
     "(got the fields ['edge_index', 'train_mask', 'y'])"),
])
def test_bad_input_is_refused_before_it_costs_anything(graph, x, error,
                                                       message):
    graph.x, graph.privacy_budget = x, None
    budget = PrivacyBudget(epsilon=4.0)
    graph.privacy_budget = budget
    message = message.replace("'edge_index', ", "'edge_index', 'privacy_budget"
                              "', ")
    with pytest.raises(error) as info:
        GRRFS(4.0, 2, 2)(graph)
    assert str(info.value) == message
    assert budget.spent.releases == ()


@pytest.mark.parametrize('arguments, message', [
    ((0, 2, 2), "'epsilon' must be a positive, finite number (got 0)"),
    ((1.0, 0, 2), "'num_sampled' must be an integer of at least 1 (got 0)"),
    ((1.0, 2, 1), "'domain_sizes' must be an integer of at least 2 (got 1)"),
    ((1.0, 3, [2, 2]), "'num_sampled' must be at most the number of columns, "
     "which is 2 (got 3)"),
])
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError) as info:
        GRRFS(*arguments)
    assert str(info.value) == message
    with pytest.raises(ValueError, match="'epsilon_x' must be a positive"):
        GRRFS.from_paper(-1.0, 2, 2)


def test_sizes_of_another_graph(graph):
    graph.x = torch.zeros(12, 3)
    with pytest.raises(ValueError) as info:
        GRRFS(1.0, 1, [2, 2])(graph)
    assert str(info.value) == ("'domain_sizes' must be one number, or one for "
                               "each of the 3 columns (got 2)")
