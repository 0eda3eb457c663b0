import math

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import Compose

from torch_geometric_dp import (
    ContentChanged,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.explain import HeteroScores
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms import Duchi, FeatureRR, LabelRR, Laplace

UNIT = (0.0, 1.0)


@pytest.fixture
def scores():
    return HeteroScores(torch.tensor([6.0, 3.0, 1.0]),
                        torch.tensor([1.0, 1.0, 2.0]), 0.5, public=True)


def test_feature_rr(graph, scores):
    raw = graph.x.clone()
    transform = FeatureRR(4.0, UNIT, bins=16, scores=scores)
    theta = tuple(scores.theta().tolist())
    assert repr(transform) == (
        f"FeatureRR(epsilon=4.0, bounds=(0.0, 1.0), bins=16, "
        f"scores=<HeteroScores(theta={theta}, public=True)>)")
    out = transform(graph)
    assert torch.equal(graph.x, raw) and out.y is graph.y
    assert out.x.shape == raw.shape and not torch.equal(out.x, raw)
    assert ((out.x >= 0) & (out.x <= 1)).all()
    assert out.privacy.epsilon('features') == 4.0
    assert out.privacy.epsilon('labels') == 0.0
    assert out.privacy.releases[0].guarantee.assumptions == ()
    shares = torch.tensor(transform.epsilons(3), dtype=torch.double)
    assert torch.allclose(shares, 4.0 * scores.theta())
    assert math.fsum(transform.epsilons(3)) <= 4.0
    assert transform.mechanism(3).epsilons.tolist() == shares.tolist()


def test_repr_tells_everything_that_matters(scores):
    transform = FeatureRR(1, (torch.zeros(3), torch.ones(3)), 'auto', None,
                          'unbiased', clip=True, seed=4)
    other = FeatureRR(1, (torch.zeros(3), 2 * torch.ones(3)), 'auto', None,
                      'unbiased', clip=True, seed=4)
    assert repr(transform) == (
        "FeatureRR(epsilon=1.0, bounds=((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)), "
        "decode='unbiased', clip=True, seed=4)")
    assert repr(transform) != repr(other)
    assert repr(FeatureRR(1, UNIT, scores=scores)) != repr(
        FeatureRR(1, UNIT, scores=scores.with_gamma(0.1)))


def test_uniform_split(graph):
    transform = FeatureRR(3.0, UNIT)
    assert transform.epsilons(3) == [pytest.approx(1.0)] * 3
    assert transform(graph).privacy.epsilon('features') == 3.0


def test_with_labels_under_one_budget(graph):
    graph.privacy_budget = PrivacyBudget(epsilon=4.0)
    release = Compose([FeatureRR(4.0, UNIT), LabelRR(1.0, 3)])
    out = release(graph)
    assert out.privacy.epsilon('features') == 4.0
    assert out.privacy.epsilon('labels') == 1.0
    assert out.privacy.epsilon('node') == 5.0
    assert torch.equal(release(graph).x, out.x)
    with pytest.raises(PrivacyBudgetExceeded):
        FeatureRR(0.1, UNIT)(graph)


def test_released_features_cost_nothing_more(graph):
    out = Compose([FeatureRR(1.0, UNIT), FeatureRR(9.0, UNIT)])(graph)
    assert out.privacy.epsilon('features') == 1.0


def test_out_of_bounds(graph):
    graph.x = graph.x * 3 - 1
    with pytest.raises(ValueError, match="'x' must lie within its bounds"):
        FeatureRR(1.0, UNIT)(graph)
    out = FeatureRR(1.0, UNIT, clip=True)(graph)
    assert ((out.x >= 0) & (out.x <= 1)).all()
    graph.x[0, 0] = math.nan
    with pytest.raises(ValueError, match='got another value, or none, in row'):
        FeatureRR(1.0, UNIT, clip=True)(graph)


def test_clip_to_bounds_that_the_features_cannot_hold():
    # 0.1 is less than the float32 next to it, and 0.5 is no integer.
    out = FeatureRR(1.0, (0.0, 0.1), clip=True)(Data(x=torch.ones(9, 1))).x
    assert ((out >= 0) & (out <= 0.1)).all()
    for transform in (FeatureRR, Duchi, Laplace):
        one, two = (transform(500.0, (0.5, 2.5), clip=True, seed=0)(Data(x=x)).x
                    for x in (torch.tensor([[0, 9]]), torch.tensor([[0.5, 9]])))
        assert torch.allclose(one, two, atol=0.3)


def test_clip_is_the_same_as_clipped_before():
    # So many cells that some words are rejected, and drawn again.
    x = 3 * torch.rand(20000, 3, dtype=torch.double) - 1
    for transform in (FeatureRR, Duchi, Laplace):
        mechanism = transform(3.0, UNIT).mechanism(3)
        source = NoiseSource.from_seed(0)
        expected = mechanism(x.clamp(0, 1), source)
        mechanism.clip = True
        assert torch.equal(mechanism(x, source), expected)


def test_private_scores_are_opt_in(graph):
    scores = HeteroScores(torch.ones(3))
    with pytest.raises(ValueError, match="'scores' were computed on private"):
        FeatureRR(1.0, UNIT, scores=scores)
    out = FeatureRR(1.0, UNIT, scores=scores, private_scores=True)(graph)
    assert 'assumes that the scores, which were computed on private data' in (
        str(out.privacy))


@pytest.mark.parametrize('dtype', [torch.float, torch.double, torch.half])
def test_types(graph, dtype):
    graph.x = graph.x.to(dtype)
    assert FeatureRR(1.0, UNIT)(graph).x.dtype == dtype


def test_hetero_data_and_batch(graph):
    data = HeteroData()
    data['a'].x, data['b'].x = torch.rand(5, 3), torch.rand(4, 7)
    out = FeatureRR(1.0, UNIT)(data)
    assert out['a'].x.shape == (5, 3) and out['b'].x.shape == (4, 7)
    assert out.privacy.epsilon('features') == 1.0
    graph.privacy_budget = PrivacyBudget(epsilon=1.0)
    transform = FeatureRR(1.0, UNIT)
    batch = transform(Batch.from_data_list([graph, graph]))
    assert torch.equal(batch[0].x, transform(graph).x)


def test_parts_of_one_graph():
    data = Data(x=torch.rand(100, 3))
    data.privacy_budget = PrivacyBudget(epsilon=1.0)
    transform = FeatureRR(1.0, UNIT)
    nodes = torch.arange(17)
    with pytest.raises(ValueError, match="'n_id' tells that the graph is a"):
        transform(Data(x=data.x[nodes], n_id=nodes,
                       privacy_budget=data.privacy_budget))
    out = transform(data)
    with pytest.raises(ContentChanged):
        transform(data.subgraph(nodes))
    assert torch.equal(out.subgraph(nodes).x, out.x[nodes])
    assert data.privacy_budget.remaining('features') == 0.0


@pytest.mark.parametrize('x, error, message', [
    (None, ValueError, "'x' is missing"),
    (torch.rand(12), ValueError, "'x' must have shape"),
    (torch.rand(12, 0), ValueError, "'x' must have shape"),
    (torch.rand(12, 3).to_sparse(), TypeError, "'x' must be a dense tensor"),
    (torch.rand(12, 3).to_sparse_csr(), TypeError, "see x.to_dense()"),
    ([[0.0]], TypeError, "'x' must be a dense tensor"),
])
def test_bad_features(graph, x, error, message):
    graph.x = x
    with pytest.raises(error) as info:
        FeatureRR(1.0, UNIT)(graph)
    assert message in str(info.value)


@pytest.mark.parametrize('arguments, message', [
    (dict(epsilon=0.0), "'epsilon' must be a positive, finite number"),
    (dict(bounds=1.0), "'bounds' must be a pair"),
    (dict(bounds=(0.5, 0.5)), "'bounds' must be finite, and the lower one"),
    (dict(bounds=(1.0, 0.0)), "'bounds' must be finite, and the lower one"),
    (dict(bounds=(0.0, math.inf)), "'bounds' must be finite, and the lower"),
    (dict(bounds=(torch.zeros(3), torch.tensor([1.0, 0.0, 1.0]))),
     "'bounds' must be finite, and the lower one"),
    (dict(bounds=([0.0] * 3, [1.0] * 4)), "the same number of both"),
    (dict(bins=0), "'bins' must be an integer of at least 2"),
    (dict(decode='x'), "'decode' must be one of"),
])
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError) as info:
        FeatureRR(**{'epsilon': 1.0, 'bounds': UNIT, **arguments})
    assert message in str(info.value)


@pytest.mark.parametrize('change, arguments', [
    (dict(x=torch.full((12, 3), math.nan)), {}),
    (dict(x=torch.full((12, 3), math.inf)), {}),
    (dict(x=torch.full((12, 3), 1.5)), {}),
    (dict(x=torch.full((12, 2), 0.5)), {'scores': HeteroScores(
        torch.ones(3), public=True)}),
    (dict(), {'bounds': ([0.0] * 4, [1.0] * 4)}),
])
def test_bad_input_leaves_the_ledger_alone(graph, change, arguments):
    graph.privacy_budget = PrivacyBudget(epsilon=1.0)
    graph.update(change)
    transform = FeatureRR(**{'epsilon': 1.0, 'bounds': UNIT, **arguments})
    with pytest.raises(ValueError, match="'x' must lie|'scores' must|'bounds'"):
        transform(graph)
    assert graph.privacy_budget.spent.releases == ()
    assert 'privacy' not in graph


def test_scores_of_the_wrong_length(graph):
    scores = HeteroScores(torch.ones(4), public=True)
    with pytest.raises(ValueError, match="one entry for each of the 3 columns"):
        FeatureRR(1.0, UNIT, scores=scores)(graph)
