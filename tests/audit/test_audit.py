import math

import pytest
import torch
from scipy import stats
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import BaseTransform, Compose

from tests.audit import broken
from tests.conftest import FALSE_ALARM
from torch_geometric_dp import PrivacyBudget, transforms
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.audit import (
    PrivacyViolation,
    audit,
    epsilon_from_guesses,
)
from torch_geometric_dp.audit.audit import FALSE_ALARM as ACCUSATION
from torch_geometric_dp.mechanisms import row_pairs
from torch_geometric_dp.nn import NAP, NAPConv

UNIT = (0.0, 1.0)

BROKEN = {
    'noise halved': (broken.HalvedLaplace(1.0, UNIT, seed=0), 20_000),
    'noise halved, Gaussian': (broken.HalvedGaussian(2.0, UNIT, seed=0),
                               200_000),
    'noise halved, EdgeRR': (broken.HalvedEdgeRR(1.0, seed=0), 20_000),
    'a missing factor 2': (broken.MissingFactor(1.0, 4, seed=0), 20_000),
    'a missing factor 2, edges replaced': (
        broken.MissingFactor(1.0, unit='edge', relation='replace', seed=0),
        20_000),
    'a missing factor 2, Gaussian': (
        broken.MissingFactor(2.0, 4, delta=1e-5, seed=0), 200_000),
    'rows that are not clipped': (broken.Unclipped(1.0, 4, seed=0), 2000),
    'values that are not clipped': (
        broken.UnclippedLaplace(1.0, UNIT, clip=True, seed=0), 20_000),
    'a scale that depends on the data (Eq. 11 of NIP-GNN)': (
        NAP(1.0, 4, calibration='paper', seed=0), 20_000),
    'Theorem 1 of RGNN': (transforms.GRRFS.from_paper(1.0, 2, 2, seed=0),
                          40_000),
    'float Laplace': (broken.FloatLaplace(1.0), 20_000),
    'float Laplace, around zero': (broken.FloatLaplace(1.0, (-1.0, 1.0)),
                                   20_000),
    'epsilon not split': (broken.WholeEpsilonForEveryColumn(1.0, UNIT, seed=0),
                          20_000),
    'the order of edges': (broken.TrueEdgesFirst(1.0, seed=0), 20_000),
}


# What shows in a corner alone: there, it is plain to see.
LEAKS = {
    'less noise inside the bounds': broken.LessNoiseInside(1.0, UNIT, seed=0),
    'the range of the data': broken.RangeOfTheData(),
    'a seed from the data': broken.SeedFromTheData(),
    'raw rows in another field': broken.LeavesRows(1.0, UNIT, seed=0),
    'no noise without edges': broken.NoNoiseWithoutEdges(1.0, UNIT, seed=0),
    'columns chosen by their values': broken.ColumnThatIsNotZero(),
    'a class that nothing turns into': broken.NeverTheLastClass(1.0, 5, seed=0),
    'the classes of the data': broken.ClassesOfTheData(1.0, 3, seed=0),
    'labels outside the mask': broken.HiddenLabelsStay(1.0, 3, mask='train',
                                                       seed=0),
    'attributes of edges': broken.AttributesStay(1.0, seed=0),
    'self-loops': broken.SelfLoopsStay(1.0, seed=0),
    'edges of leaves': broken.LeavesStay(1.0, seed=0),
    'the number of edges': broken.ExactCount(1.0, seed=0),
    'a seed from the data, in a layer': broken.SeedOfALayer(1.0, 4),
}


@pytest.mark.parametrize('name', LEAKS)
def test_leaks_are_caught(name):
    with pytest.raises(PrivacyViolation):
        audit(LEAKS[name], trials=4000, seed=0).check()


@pytest.mark.parametrize('name', BROKEN)
def test_broken_promises_are_caught(name):
    target, trials = BROKEN[name]
    report = audit(target, trials=trials, seed=0)
    assert report.lower_bound > report.claimed
    with pytest.raises(PrivacyViolation):
        report.check()


# What is true, and how much of it an audit of 20,000 trials finds.
HONEST = {
    'FeatureRR': (transforms.FeatureRR(1.0, UNIT, seed=0), 0.8),
    'Duchi': (transforms.Duchi(1.0, UNIT, seed=0), 0.85),
    'DuchiMulti': (transforms.DuchiMulti(1.0, UNIT, seed=0), 0.85),
    'ThreeOutputs': (transforms.ThreeOutputs(1.0, UNIT, seed=0), 0.85),
    'Piecewise': (transforms.Piecewise(1.0, UNIT, seed=0), 0.7),
    'PMSub': (transforms.PMSub(1.0, UNIT, seed=0), 0.7),
    'Hybrid': (transforms.Hybrid(1.0, UNIT, seed=0), 0.85),
    'MultiBit': (transforms.MultiBit(1.0, UNIT, seed=0), 0.85),
    'Laplace': (transforms.Laplace(1.0, UNIT, seed=0), 0.7),
    'Gaussian': (transforms.Gaussian(1.0, UNIT, seed=0), 0.2),
    'LabelRR': (transforms.LabelRR(1.0, 5, seed=0), 0.85),
    'EdgeRand': (transforms.EdgeRand(1.0, seed=0), 0.85),
    'LapGraph': (transforms.LapGraph(1.0, seed=0), 0.7),
    'EdgeRR': (transforms.EdgeRR(1.0, seed=0), 0.5),
    'DegreePreservingRR': (transforms.DegreePreservingRR(1.0, seed=0), 0.7),
    'DegreePreservingRR, edges replaced': (
        transforms.DegreePreservingRR(1.0, relation='replace', seed=0), 0.6),
    'GRRFS': (transforms.GRRFS(1.0, 2, 2, seed=0), 0.6),
    'NAP, nodes': (NAP(1.0, 4, seed=0), 0.4),
    'NAP, nodes replaced': (NAP(1.0, 4, relation='replace', seed=0), 0.35),
    'NAP, edges': (NAP(1.0, unit='edge', seed=0), 0.7),
    'NAP, edges replaced': (NAP(1.0, unit='edge', relation='replace',
                                seed=0), 0.6),
    'NAP, Gaussian': (NAP(1.0, 4, delta=1e-5, seed=0), 0.15),
}


@pytest.mark.parametrize('name', HONEST)
def test_honest_promises_are_not(name):
    # A false alarm here has a probability of one in a million.
    assert ACCUSATION <= FALSE_ALARM
    target, least = HONEST[name]
    report = audit(target, trials=20_000, seed=0).check()
    assert report.claimed == report.proven == 1.0
    assert least <= report.lower_bound
    assert report.lower_bound >= report.sure_bound


def test_nodes_whose_edges_are_released():
    # One graph for each trial; less noise, with the same promise.
    honest, careless = (
        transforms.DegreePreservingRR(epsilon, unit='node', max_degree=2,
                                      seed=0) for epsilon in (2.0, 9.0))
    report = audit(honest, trials=800, seed=0).check()
    assert report.lower_bound > 0.4
    assert audit(careless, trials=800, seed=0,
                 guarantee=honest.guarantee).accused


def test_layers_that_learn_their_columns():
    # From the first input: one and the same map in all trials.
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    layer = NAPConv(-1, 3, 1.0, 4, seed=0)
    assert audit(layer, seed=0).check().lower_bound > 0.3
    assert layer.lin.in_channels == -1  # The layer itself has seen nothing.
    assert torch.equal(before, torch.random.get_rng_state())
    audit(NAPConv(5, 3, 1.0, 4, seed=0), trials=80, seed=0).check()


def test_bounds_are_wrong_as_rarely_as_they_say():
    # Randomised response keeps its promise to the last bit.
    target = transforms.LabelRR(1.0, 2, seed=0)
    wrong = sum(audit(target, trials=100, confidence=0.9,
                      seed=seed).lower_bound > 1 for seed in range(50))
    assert stats.binomtest(wrong, 50, 0.1,
                           alternative='greater').pvalue > FALSE_ALARM
    assert wrong > 0  # At 90%, an honest bound has to dare something.


def test_an_accusation_asks_for_more_than_the_bound():
    report = audit(transforms.LabelRR(1.0, 2, seed=0), trials=4000, seed=0)
    for bound, confidence in ((report.lower_bound, 0.99),
                              (report.sure_bound, 1 - 1e-6)):
        assert bound == pytest.approx(float(epsilon_from_guesses(
            report.right, report.guesses, confidence)))


class Leaky(BaseTransform):
    """Randomised response, or with probability delta the truth, marked."""
    guarantee = Guarantee(1.0, Unit.FEATURES, Relation.REPLACE, delta=0.05)

    def canaries(self, data=None):
        return row_pairs([0.0], [1.0], [0.0])

    def forward(self, data):
        keep = torch.rand_like(data.x) < 1 / (1 + math.exp(-1.0))
        leak = torch.rand_like(data.x) < 0.05
        data.x = torch.where(leak, data.x + 2,
                             torch.where(keep, data.x, 1 - data.x))
        return data


def test_bounds_with_delta_are_wrong_as_rarely_as_they_say():
    # Not a bit of the promise is left unused.
    wrong = sum(audit(Leaky(), trials=1000, confidence=0.9,
                      seed=seed).lower_bound > 1 for seed in range(50))
    assert stats.binomtest(wrong, 50, 0.1,
                           alternative='greater').pvalue > FALSE_ALARM
    assert wrong > 0


class LeaksAll(Leaky):
    """Randomised response, or with probability delta the truth of all rows."""
    guarantee = Guarantee(1.0, Unit.FEATURES, Relation.REPLACE, delta=0.05,
                          model='central')

    def forward(self, data):
        keep = torch.rand_like(data.x) < 1 / (1 + math.exp(-1.0))
        data.x = data.x + 2 if torch.rand(1) < 0.05 else torch.where(
            keep, data.x, 1 - data.x)
        return data


def test_noise_that_canaries_share_accuses_nobody():
    # With many rows in one release, an accusation in five per cent of all
    # releases would be no wonder.
    for seed in range(10):
        audit(LeaksAll(), trials=1000, seed=seed).check()


class Remembers(BaseTransform):
    """Randomised response that is drawn once for each content."""
    guarantee = Guarantee(1.0, Unit.FEATURES, Relation.REPLACE)

    def canaries(self, data=None):
        return row_pairs([0.0], [1.0], [0.0])

    def __init__(self):
        self.memory = {}

    def forward(self, data):
        key = data.x.numpy().tobytes()
        if key not in self.memory:
            keep = torch.rand_like(data.x) < 1 / (1 + math.exp(-1.0))
            self.memory[key] = torch.where(keep, data.x, 1 - data.x)
        data.x = self.memory[key]
        return data


def test_what_a_target_remembers_accuses_nobody():
    pair = Data(x=torch.zeros(1, 1)), Data(x=torch.ones(1, 1))
    target = Remembers()
    for seed in range(5):
        audit(target, *pair, trials=1000, seed=seed).check()
    assert not target.memory  # Trials are copies.


class Noise(BaseTransform):
    """Tells nothing at all, in many columns, about rows of zeros or ones."""
    guarantee = Guarantee(0.0, Unit.FEATURES, Relation.REPLACE)

    def canaries(self, data=None):
        return row_pairs([0.0] * 60, [1.0] * 60)

    def forward(self, data):
        data.x = torch.randn_like(data.x).round(decimals=3)
        return data


def test_what_was_learned_by_heart_does_not_count():
    # With so many columns, the trials for learning are told apart by chance.
    report = audit(Noise(), trials=1000, seed=0)
    assert report.lower_bound < 0.2 and not report.accused


def test_larger_epsilons():
    for epsilon in (0.2, 4.0):
        report = audit(transforms.LabelRR(epsilon, 2, seed=0), seed=0).check()
        assert report.lower_bound > 0.5 * epsilon


@pytest.mark.filterwarnings('ignore:the chains have not converged')
def test_what_is_published_is_read_from_the_ledger():
    report = audit(transforms.GRRFS.from_paper(1.0, 2, 2, seed=0), seed=0)
    assert report.proven == 2.0
    assert report.claimed == pytest.approx(math.log(1 + math.expm1(2.0) / 2))
    report = audit(transforms.EdgeRR(1.0, dendrogram='paper', steps=1),
                   trials=16, seed=0)
    assert report.claimed == 1.0 and report.proven == math.inf


def test_the_shape_of_the_data_counts():
    data = Data(x=torch.rand(5, 7), y=torch.zeros(5, 3).long())
    data.privacy_budget = PrivacyBudget(epsilon=0.1)
    report = audit(transforms.Duchi(1.0, UNIT, seed=0), data, trials=2000,
                   seed=0)
    # Either pair of rows may be the one that tells most.
    assert 'x = [0.0, ' in str(report)
    report = audit(transforms.LabelRR(1.0, 3, seed=0), data, trials=2000,
                   seed=0)
    assert 'y = [0, 0, 0]' in str(report)
    assert data.privacy_budget.remaining('features') == 0.1  # Untouched.


def neighbours(graph, unit):
    other = graph.clone()
    if unit == 'features':
        graph.x[3], other.x[3] = 0.0, 1.0
    elif unit == 'labels':
        other.y[3] = (graph.y[3] + 1) % 3
    else:
        edge = torch.tensor([[3, 9], [9, 3]])
        other.edge_index = torch.cat([graph.edge_index, edge], dim=1)
    return graph, other


@pytest.mark.parametrize('unit, make', [
    ('features', lambda e: transforms.FeatureRR(e, UNIT, seed=0)),
    ('labels', lambda e: transforms.LabelRR(e, 3, seed=0)),
    ('edges', lambda e: transforms.EdgeRand(e, seed=0)),
])
def test_two_graphs(graph, unit, make):
    data, neighbour = neighbours(graph, unit)
    honest = make(1.0)
    audit(honest, data, neighbour, trials=300, seed=0).check()
    # Less noise, with the same promise.
    report = audit(make(8.0), data, neighbour, trials=300, seed=0,
                   guarantee=honest.guarantee)
    assert report.accused


def test_two_graphs_and_a_layer():
    data = Data(x=torch.eye(2), edge_index=torch.empty(2, 0).long())
    joined = Data(x=torch.eye(2), edge_index=torch.tensor([[0, 1], [1, 0]]))
    honest, careless = (NAP(epsilon, unit='edge', seed=0)
                        for epsilon in (2.0, 8.0))
    assert audit(honest, data, joined, 800, seed=0).check().lower_bound > 0.3
    assert audit(careless, data, joined, 800, seed=0,
                 guarantee=honest.guarantee).accused


def test_compositions(graph):
    data, neighbour = neighbours(graph, 'labels')
    both = Compose([transforms.FeatureRR(1.0, UNIT, seed=0),
                    transforms.LabelRR(8.0, 3, seed=0)])
    with pytest.raises(ValueError, match="'guarantee' must be given: Compose"):
        audit(both, data, neighbour)
    promise = transforms.LabelRR(1.0, 3).guarantee
    with pytest.raises(ValueError, match='no worst pair is known for Compose'):
        audit(both, guarantee=promise)
    assert audit(both, data, neighbour, 400, seed=0,
                 guarantee=promise).accused


def test_audits_repeat():
    one, again = (audit(transforms.LabelRR(1.0, 3, seed=0), trials=2000,
                        seed=7) for _ in range(2))
    assert one == again and str(one) == str(again)
    assert one != audit(transforms.LabelRR(1.0, 3, seed=0), trials=2000, seed=8)


def test_bad_arguments(graph):
    target = transforms.LabelRR(1.0, 3)
    with pytest.raises(ValueError, match="'confidence' must lie between 0 and "
                       "1 .got 1.0"):
        audit(target, confidence=1.0)
    with pytest.raises(ValueError, match="'trials' must be an integer of at "
                       "least 8"):
        audit(target, trials=1)
    with pytest.raises(ValueError, match="'workers' must be"):
        audit(target, workers=0)
    with pytest.raises(ValueError, match="'data' must be given with"):
        audit(target, neighbour=graph)
    with pytest.raises(TypeError, match="'data' must be a 'Data'.*got "
                       "'HeteroData'"):
        audit(target, HeteroData())
    with pytest.raises(TypeError, match="'target' must be a transform or a "
                       "layer.*got the function 'release'"):
        def release(data):
            return target(data)

        audit(release, guarantee=target.guarantee)
