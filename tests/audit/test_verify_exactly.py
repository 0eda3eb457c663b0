import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audit import broken
from tests.audit.promises import promise
from torch_geometric_dp import mechanisms, transforms
from torch_geometric_dp.accountant import Unit
from torch_geometric_dp.audit import (
    PrivacyViolation,
    largest_loss,
    verify_exactly,
)
from torch_geometric_dp.explain import HeteroScores
from torch_geometric_dp.hrg import BlockCounts
from torch_geometric_dp.nn import NAP

COLUMNS = ('Duchi', 'ThreeOutputs', 'Piecewise', 'PMSub', 'SquareWave',
           'Hybrid', 'Laplace', 'FeatureRR')
BOUNDS = ([-1.0, 0.0], [1.0, 5.0])


@pytest.mark.parametrize('name', COLUMNS)
@pytest.mark.parametrize('epsilons', [[0.5, 2.0], [0.0, 1.0]])
def test_columns(name, epsilons):
    result = verify_exactly(getattr(mechanisms, name)(epsilons, BOUNDS))
    assert result.holds and result.unit == Unit.FEATURES
    # Tight, column by column.
    assert result.columns == pytest.approx(epsilons, abs=1e-8)
    assert result.exact == pytest.approx(sum(epsilons), abs=1e-8)
    assert result.claimed == sum(epsilons)


@settings(max_examples=20)
@given(st.floats(1e-3, 12), st.integers(2, 60),
       st.sampled_from(['none', 'unbiased', 'posterior']))
def test_feature_rr(epsilon, bins, decode):
    mechanism = mechanisms.FeatureRR(epsilon, bins=bins, decode=decode)
    result = verify_exactly(mechanism).check()
    matrix = mechanism.transition_matrix()
    assert result.exact == pytest.approx(
        np.log(matrix[:, None] / matrix).max(), rel=1e-9)


@pytest.mark.parametrize('epsilon', [0.3, 4.0])
@pytest.mark.parametrize('d', [1, 2, 3, 4])
def test_rows_against_their_laws(epsilon, d):
    for mechanism in (mechanisms.DuchiMulti(epsilon, d),
                      mechanisms.MultiBit(epsilon, d, num_sampled=1),
                      mechanisms.MultiBit(epsilon, d, num_sampled=d)):
        corners = [np.array(row) for row in np.ndindex(*[2] * d)]
        laws = [mechanism.row_distribution((2.0 * row - 1).tolist())[1]
                for row in corners]
        loss = max(np.log(one / other).max() for one in laws for other in laws)
        result = verify_exactly(mechanism).check()
        assert result.exact == pytest.approx(loss, abs=1e-9)
        assert result.exact == pytest.approx(epsilon, abs=1e-5)


@pytest.mark.parametrize('epsilon', [0.1, 3.0])
def test_labels(epsilon):
    for target in (mechanisms.RandomizedResponse(epsilon, 7),
                   transforms.LabelRR(epsilon, 7)):
        result = verify_exactly(target).check()
        assert result.exact == pytest.approx(epsilon, abs=1e-12)
        assert result.worst_pair == (0, 1) and result.worst_output == 0
        assert result.unit == Unit.LABELS


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 5.0])
def test_edges(epsilon):
    for make in (mechanisms.EdgeRand, transforms.EdgeRand, transforms.EdgeRR):
        result = verify_exactly(make(epsilon)).check()
        assert result.exact == pytest.approx(epsilon, abs=1e-8)
        assert result.unit == Unit.EDGES
    result = verify_exactly(transforms.LapGraph(epsilon, count_share=0.5))
    assert 0.6 * epsilon < result.check().exact <= epsilon


def test_transforms():
    scores = HeteroScores([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], public=True)
    result = verify_exactly(transforms.FeatureRR(2.0, (0.0, 1.0),
                                                 scores=scores))
    assert len(result.columns) == 3 and result.holds
    assert result.mechanism.startswith('FeatureRR(epsilon=2.0, bounds=')
    result = verify_exactly(transforms.Duchi(2.0, (0.0, 1.0)), num_features=5)
    assert result.columns == pytest.approx([0.4] * 5)
    result = verify_exactly(transforms.MultiBit(9.0, (0.0, 1.0)))
    assert result.exact == pytest.approx(9.0)


def test_broken_mechanisms():
    for target in (broken.HalvedLaplace(1.0, (0.0, 1.0)),
                   broken.WholeEpsilonForEveryColumn(1.0, (0.0, 1.0))):
        result = verify_exactly(target)
        assert result.exact == pytest.approx(2.0)
        assert not result.holds and 'BROKEN' in str(result)
        with pytest.raises(PrivacyViolation, match='claimed 1, exact 2'):
            result.check()


def test_integers_that_were_rounded_the_wrong_way():
    # A little less noise than promised, as a careless rounding would do.
    mechanism = mechanisms.RandomizedResponse(1.0, 3)
    mechanism._other = int(mechanism._other * (1 - 1e-9))
    assert not verify_exactly(mechanism).holds
    mechanism = mechanisms.MultiBit(4.0, 3)
    mechanism._half += 2**40
    assert not verify_exactly(mechanism).holds
    mechanism = mechanisms.DuchiMulti(4.0, 3)
    mechanism._noise -= 2**40
    assert not verify_exactly(mechanism).holds
    mechanism = mechanisms.EdgeRand(4.0)
    mechanism._flip *= 1 - mechanism._flip / 10**6
    assert not verify_exactly(mechanism).holds
    mechanism = mechanisms.LapGraph(4.0)
    mechanism._tau //= 2
    assert not verify_exactly(mechanism).holds


class Table:
    guarantee = promise('labels')

    def worst_case(self):
        laws = {'a': [0.5, 0.5], 'b': [0.25, 0.75], 'c': [0.4, 0.6]}
        loss, pair, output = largest_loss(
            (value, (np.array([0, 1]), np.array(law)))
            for value, law in laws.items())
        return mechanisms.WorstCase(loss, Unit.LABELS, pair, output)

    def canaries(self):
        return []

    def __repr__(self):
        return 'Table()'


def test_any_mechanism_that_knows_its_worst_case():
    assert isinstance(Table(), mechanisms.Mechanism)
    result = verify_exactly(Table())
    assert result.exact == pytest.approx(math.log(2))
    assert result.holds
    assert str(result) == (
        'Table(): for the label of one node claimed 1, exact 0.693147: holds. '
        'Worst pair: a and b, told apart by 0')


def test_outputs_that_one_input_never_has():
    loss, pair, output = largest_loss([
        ('a', (np.array([0.0, 1.0]), np.array([0.5, 0.5]))),
        ('b', (np.array([1.0, 2.0]), np.array([0.5, 0.5]))),
    ])
    assert loss == math.inf and pair == ('a', 'b') and output == 0.0


def test_equal_outputs_count_as_one():
    one = np.array([0.0, 0.0, 1.0]), np.array([0.1, 0.4, 0.5])
    other = np.array([0.0, 0.0, 1.0]), np.array([0.4, 0.1, 0.5])
    assert largest_loss([('a', one), ('b', other)])[0] == 0.0


def test_what_cannot_be_listed():
    with pytest.raises(TypeError, match="with hops=2 cannot be verified"):
        verify_exactly(NAP(1.0, 4, hops=2))
    with pytest.raises(TypeError, match="'DegreePreservingRR' cannot be"):
        verify_exactly(transforms.DegreePreservingRR(1.0))
    with pytest.raises(TypeError, match="dendrogram='joint' cannot"):
        verify_exactly(transforms.EdgeRR(1.0, dendrogram='joint'))
    with pytest.raises(TypeError, match="'int' cannot be verified exactly"):
        verify_exactly(3)


def test_all_mechanisms_keep_the_protocol():
    for mechanism in (
            mechanisms.FeatureRR(1.0), mechanisms.Gaussian(1.0, 2),
            mechanisms.GRRFS(1.0, 1, [2, 3]), mechanisms.EdgeRand(1.0),
            mechanisms.RandomizedResponse(1.0, 3), mechanisms.LapGraph(1.0),
            mechanisms.DegreePreservingRR(1.0), mechanisms.ClassSums(1.0, 2, 2),
            mechanisms.NeighbourSum(1.0, 3), BlockCounts(1.0)):
        assert isinstance(mechanism, mechanisms.Mechanism)
        assert mechanism.guarantee.epsilon == 1.0
        for pair in mechanism.canaries():
            assert pair.unit == mechanism.guarantee.unit


def test_halved_noise_in_counts():
    result = verify_exactly(broken.HalvedEdgeRR(1.0))
    assert result.claimed == 1.0
    assert result.exact == pytest.approx(2.0) and not result.holds


@pytest.mark.parametrize('sizes, m', [([2, 3, 2], 1), ([2, 3, 2], 2),
                                      ([4, 2], 2)])
def test_grrfs(sizes, m):
    # Against all pairs of rows, and all outputs.
    mechanism = mechanisms.GRRFS(1.5, m, sizes)
    rows = list(itertools.product(*map(range, sizes)))
    losses = [math.log(mechanism.probability(one, out) /
                       mechanism.probability(other, out))
              for one in rows for other in rows for out in rows]
    result = verify_exactly(mechanism)
    assert result.exact == pytest.approx(max(losses), abs=1e-12)
    assert result.holds and result.unit == Unit.FEATURES


def test_what_is_published():
    # Theorem 1 of RGNN, for rows with twice as many columns as are chosen.
    transform = transforms.GRRFS.from_paper(0.5, 3, 2)
    result = verify_exactly(transform)
    assert result.claimed == pytest.approx(math.log1p(math.expm1(1.5) / 2))
    assert result.exact == pytest.approx(1.5) and not result.holds
    result = verify_exactly(transform, num_features=3)  # All are chosen.
    assert result.claimed == pytest.approx(1.5) and result.holds
    # Eq. 11 of NIP-GNN: the scale of the noise tells.
    result = verify_exactly(NAP(1.0, 4, calibration='paper'))
    assert result.claimed == 1.0 and result.exact == math.inf


@pytest.mark.parametrize('delta', [None, 1e-5])
@pytest.mark.parametrize('relation', ['add-remove', 'replace'])
@pytest.mark.parametrize('unit', ['node', 'edge'])
def test_sums_over_neighbours(unit, relation, delta):
    # Tight: the stars are as far apart as the sensitivity says, up to a grid.
    cap = 4 if unit == 'node' else None
    layer = NAP(1.5, cap, unit=unit, relation=relation, delta=delta,
                clip=3.0)
    result = verify_exactly(layer).check()
    assert result.exact == pytest.approx(1.5, abs=1e-5)
    assert result.unit == Unit(unit) and result.delta == (delta or 0.0)
    assert not verify_exactly(broken.Unclipped(1.5, cap, unit=unit,
                                               relation=relation,
                                               delta=delta)).holds
    result = verify_exactly(broken.MissingFactor(1.5, cap, unit=unit,
                                                 relation=relation,
                                                 delta=delta))
    assert not result.holds
    if delta is None:
        assert result.exact == pytest.approx(3.0, abs=1e-5)


@pytest.mark.parametrize('delta', [None, 1e-5])
@pytest.mark.parametrize('shares', [(1.0, ), (0.5, 0.25, 0.25)])
def test_sums_over_classes(shares, delta):
    # Tight, but for one step of the grid that the row is cut by.
    mechanism = mechanisms.ClassSums(1.5, 4, 7, delta, shares)
    result = verify_exactly(mechanism).check()
    assert 1.5 - 5e-5 < result.exact < 1.5
    assert result.unit == 'node' and result.delta == (delta or 0.0)
    mechanism.scales = tuple(scale / 2 for scale in mechanism.scales)
    result = verify_exactly(mechanism)
    assert not result.holds
    if delta is None:
        assert result.exact == pytest.approx(3.0, abs=1e-4)


@pytest.mark.parametrize('epsilon, delta', [(0.2, 1e-3), (1.0, 1e-5),
                                            (8.0, 1e-9)])
@pytest.mark.parametrize('d', [1, 5])
def test_gaussian(epsilon, delta, d):
    mechanism = mechanisms.Gaussian(epsilon, d, delta)
    result = verify_exactly(mechanism).check()
    assert result.exact == pytest.approx(epsilon, abs=1e-6)
    assert f'for the row of one node at delta {delta:g} claimed' in str(result)
    # Against the definition: what the two laws of a projection have in excess.
    sigma = mechanism.sigma / (mechanism.steps * math.sqrt(d))
    z = np.linspace(-40 * sigma, 40 * sigma, 2**20)
    one, other = (np.exp(-0.5 * ((z - m) / sigma)**2) for m in (1, 0))
    excess = np.maximum(one - math.exp(result.exact) * other, 0).sum()
    assert excess / one.sum() == pytest.approx(delta, rel=1e-4)
    mechanism.sigma *= 1 - 1e-6
    assert not verify_exactly(mechanism).holds
