import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.conftest import FALSE_ALARM
from torch_geometric_dp.accountant import GaussianNoise, Trust, Unit
from torch_geometric_dp.mechanisms import ClassSums
from torch_geometric_dp.noise import NoiseSource

ROWS = [(0.0, 0.0), (1.0, 0.0), (0.0, 3.0), (1.0, 1.0), (-2.0, 1.0)]


def steps_of(mechanism, nodes):
    """The sums of a small data set in steps, from a loop over its nodes."""
    total = np.zeros((2, 2))
    for row, label in nodes:
        x = mechanism.rows(torch.tensor([row])).to_dense()[0].numpy()
        r = mechanism.votes(torch.eye(2)[[label]])[0].numpy()
        total += np.outer(x, r)
    return total


def neighbours(most=2):
    """All pairs of data sets with up to so many nodes and one more."""
    nodes = list(itertools.product(ROWS, (0, 1)))
    for size in range(most + 1):
        for data in itertools.combinations_with_replacement(nodes, size):
            for extra in nodes:
                yield data, (*data, extra)


def log_laplace(scale, reach):
    z = np.arange(-reach, reach + 1)
    log = -np.abs(z) / scale
    return log - np.log(np.exp(log).sum())


@pytest.mark.parametrize('epsilon', [0.5, 4.0])
def test_laplace_exactly(epsilon):
    # The logarithm of the ratio of two outputs' probabilities, over all data
    # sets and all outputs that matter: ratios only grow until noise is beyond
    # all sums.
    mechanism = ClassSums(epsilon, 2, 2, row_steps=6, vote_steps=1)
    far, worst = 40, 0.0
    log = log_laplace(mechanism.scales[0], far + 20)
    middle = far + 20
    for one, two in neighbours(1):
        a, b = (steps_of(mechanism, nodes) for nodes in (one, two))
        loss = 0.0
        for s, t in zip(a.ravel().astype(int), b.ravel().astype(int)):
            out = np.arange(-far, far + 1)
            loss += np.abs(log[out - s + middle] - log[out - t + middle]).max()
        worst = max(worst, loss)
    assert worst <= epsilon
    assert worst > 0.8 * epsilon  # No more noise than it takes, but rounding.


def exact_delta(epsilon, shifts, sigmas, far=9):
    """The smallest delta at epsilon for discrete Gaussian noise, and integers
    that differ by the shifts: all outputs of up to two cells.
    """
    p, q = np.ones(1), np.ones(1)
    for shift, sigma in zip(shifts, sigmas):
        z = np.arange(-math.ceil(far * sigma) - abs(shift),
                      math.ceil(far * sigma) + abs(shift) + 1)
        one = np.exp(-0.5 * (z / sigma)**2)
        two = np.exp(-0.5 * ((z - shift) / sigma)**2)
        p = np.multiply.outer(p, one / one.sum()).ravel()
        q = np.multiply.outer(q, two / two.sum()).ravel()
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


@pytest.mark.parametrize('epsilon, delta', [(0.5, 0.01), (3.0, 1e-4)])
def test_gaussian_exactly(epsilon, delta):
    mechanism = ClassSums(epsilon, 2, 2, delta, row_steps=32, vote_steps=1)
    differences = set()
    for one, two in neighbours(0):
        change = steps_of(mechanism, two) - steps_of(mechanism, one)
        cells = change.ravel().astype(int)
        differences.add(tuple(cells[cells != 0]))
    # One node changes one class, which is one or two cells here.
    losses = [exact_delta(epsilon, cells, mechanism.scales * 2)
              for cells in differences if cells]
    assert 0.3 * delta < max(losses) <= delta


@pytest.mark.parametrize('delta', [None, 1e-3])
def test_several_releases_exactly(delta):
    mechanism = ClassSums(1.5, 2, 2, delta, (0.7, 0.3), row_steps=32,
                          vote_steps=1)
    first, second = mechanism.scales
    if delta is None:
        # The distance is at most 32 in each, the ratios multiply.
        assert 0.9 * 1.5 < 32 / first + 32 / second <= 1.5
        assert (32 / first) / (32 / second) == pytest.approx(7 / 3, 1e-6)
        return
    one = ClassSums(1.5, 2, 2, delta, row_steps=32, vote_steps=1).scales[0]
    assert (first**-2 + second**-2)**-0.5 == pytest.approx(one, rel=0.05)
    lost = exact_delta(1.5, (32, 32), (first, second))
    assert 0.3 * delta < lost <= delta


VOTES = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.3, -0.6)]


def replaced(mechanism):
    """What one node that is replaced changes in the sums, in steps."""
    terms = set()
    for row, vote in itertools.product(ROWS, VOTES):
        x = mechanism.rows(torch.tensor([row])).to_dense()[0].numpy()
        r = mechanism.votes(torch.tensor([vote]))[0].numpy()
        terms.add(tuple(np.outer(x, r).ravel().astype(int)))
    for one, other in itertools.permutations(terms, 2):
        yield np.subtract(one, other)


def test_a_replaced_node_exactly():
    # The whole loss for Laplace noise; the distance for Gaussian noise, and
    # the delta of all pairs that differ in up to two cells.
    mechanism = ClassSums(1.5, 2, 2, row_steps=32, vote_steps=1,
                          relation='replace')
    worst = max(np.abs(change).sum() for change in replaced(mechanism))
    assert 0.9 * 1.5 < worst / mechanism.scales[0] <= 1.5
    mechanism = ClassSums(1.5, 2, 2, 1e-3, row_steps=32, vote_steps=1,
                          relation='replace')
    changes = list(replaced(mechanism))
    assert max(np.linalg.norm(change) for change in changes) <= 2 * 32
    few = {tuple(c[c != 0]) for c in changes if 0 < (c != 0).sum() <= 2}
    largest = sorted(few, key=np.linalg.norm)[-4:]
    lost = max(exact_delta(1.5, cells, mechanism.scales * 2)
               for cells in largest)
    assert 0.3 * 1e-3 < lost <= 1e-3
    alone = ClassSums(1.5, 2, 2, 1e-3, row_steps=32, vote_steps=1)
    assert exact_delta(1.5, largest[-1], alone.scales * 2) > 1e-3
    assert mechanism.guarantee.relation == 'replace'
    assert mechanism.worst_case().epsilon <= 1.5


def law_of_least(sums, scale, reach=120):
    """The chance of each sum to be the least, the first of equals."""
    noise = np.exp(log_laplace(scale, reach))
    values = np.arange(-reach, reach + max(sums) + 1)
    chance = np.array([[noise[v - q + reach] if abs(v - q) <= reach else 0.0
                        for v in values] for q in sums])
    above = 1 - chance.cumsum(axis=1)  # Strictly.
    from_it = above + chance
    out = []
    for i in range(len(sums)):
        others = [above[j] if j < i else from_it[j]
                  for j in range(len(sums)) if j != i]
        out.append((chance[i] * np.prod(others, axis=0)).sum())
    return np.array(out)


@pytest.mark.parametrize('relation', ['add-remove', 'replace'])
def test_the_least_loss_exactly(relation):
    # All data sets of one more node, or of one that is another, next to sums
    # that are near each other and far from it; all losses of 0, 1/2 and 1.
    mechanism = ClassSums(2.0, 2, 2, row_steps=2, vote_steps=2,
                          relation=relation)
    scale, worst = mechanism.scales[0], 0.0
    nodes = [2 * np.array(n) for n in itertools.product((0, 1, 2), repeat=2)]
    for start in ((0, 0), (0, 40), (40, 0)):
        before = [start] if relation == 'add-remove' else [
            start + n for n in nodes]
        laws = {tuple(b): np.log(law_of_least(b, scale)) for b in before}
        for node, one in itertools.product(nodes, before):
            other = np.log(law_of_least(start + node, scale))
            worst = max(worst, np.abs(laws[tuple(one)] - other).max())
    assert 0.9 * 2.0 < worst <= 2.0
    # Whatever the number of columns.
    three = [np.log(law_of_least(np.array(q), scale))
             for q in ((4, 12, 12), (8, 12, 12), (4, 16, 16))]
    assert max(np.abs(three[0] - t).max() for t in three[1:]) <= 2.0


@pytest.mark.parametrize('delta', [None, 1e-5])
def test_the_least_loss(delta):
    mechanism = ClassSums(1.0, 2, 2, delta, (0.5, 0.5))
    losses = torch.tensor([0.3, 0.1, 0.2]).expand(5000, 3)
    found = {mechanism.least(losses, NoiseSource.from_seed(i), 1)
             for i in range(20)}
    assert found == {1}
    # Nothing but noise: each of them is found, and the usual one more often.
    count = [[mechanism.least(losses[:1], NoiseSource.from_seed(i), 0, usual)
              for i in range(300)].count(2) for usual in (None, 2)]
    assert 60 < count[0] < 150 < count[1] < 290
    # In Gaussian noise, the few losses of a node have a norm of one together.
    drawn = []
    mechanism._noise = lambda sums, *args: drawn.append(sums) or 0 * sums
    mechanism.least(torch.ones(1, 3), NoiseSource.from_seed(0))
    whole = mechanism.row_steps * mechanism.vote_steps
    norm = drawn[0].norm() if delta else drawn[0].abs().max()
    assert 0.99 * whole < norm <= whole


def test_noise_of_a_multiplier():
    for relation, distance in (('add-remove', 1), ('replace', 2)):
        mechanism = ClassSums.from_multiplier(2.5, 6, 3, 1e-6, (0.2, 0.8),
                                              relation=relation)
        steps = distance * 2**26
        lost = math.hypot(*[steps / scale for scale in mechanism.scales])
        assert 1 / 2.5 * (1 - 1e-6) < lost <= 1 / 2.5
        assert mechanism.guarantee.event.multiplier == pytest.approx(
            2.5, rel=1e-6)
        assert mechanism.guarantee.delta == 1e-6
        assert mechanism.worst_case().epsilon <= mechanism.epsilon


@pytest.mark.parametrize('delta, order', [(None, 1), (1e-5, 2)])
@settings(max_examples=30)
@given(data=st.data())
def test_norms_in_integers(delta, order, data):
    # The bound that all rests on, in Python's own integers.
    mechanism = ClassSums(1.0, 5, 3, delta)
    number = st.floats(-1e300, 1e300, allow_subnormal=True)
    x = torch.tensor([data.draw(st.lists(number, min_size=5, max_size=5))],
                     dtype=torch.double)
    r = torch.tensor([data.draw(st.lists(st.floats(-9, 9), min_size=3,
                                         max_size=3))])
    for steps, most in ((mechanism.rows(x).to_dense(), 2**16),
                        (mechanism.votes(r), 2**10)):
        whole = [int(v) for v in steps[0].tolist()]
        assert whole == steps[0].tolist()
        assert sum(abs(v)**order for v in whole) <= most**order
    if x.abs().max() > 0:  # And little is lost.
        norm = torch.linalg.vector_norm(mechanism.rows(x).to_dense(), order)
        assert norm > 2**16 - 8


def test_sums_are_those_of_a_loop():
    x = torch.rand(40, 6) * (torch.rand(40, 6) < 0.5)
    y = torch.randint(0, 3, (40, ))
    for delta, order in ((None, 1), (1e-5, 2)):
        mechanism = ClassSums(1e6, 6, 3, delta)
        for form in (x, x.to_sparse(), x.to_sparse_csr()):
            out = mechanism.release(mechanism.rows(form),
                                    mechanism.votes(torch.eye(3)[y]),
                                    NoiseSource.from_os())
            expected = torch.zeros(6, 3, dtype=torch.double)
            for row, label in zip(x.double(), y):
                expected[:, label] += row / row.norm(order).clamp(min=1e-9)
            assert torch.allclose(out, expected, atol=0.02)


@pytest.mark.parametrize('delta', [None, 1e-5])
def test_noise_has_the_stated_deviation(delta):
    mechanism = ClassSums(2.0, 3000, 2, delta, (0.6, 0.4))
    rows = mechanism.rows(torch.zeros(1, 3000))
    votes = mechanism.votes(torch.zeros(1, 2))
    source = NoiseSource.from_seed(0)
    noise = [mechanism.release(rows, votes, source, i) for i in (0, 1)]
    for i in (0, 1):
        values = (noise[i] / mechanism.deviation(i)).view(-1).numpy()
        # The fourth moment of a Laplace law is 6, of a Gaussian one 3.
        spread = math.sqrt(((6 if delta is None else 3) - 1) / len(values))
        bound = stats.norm.isf(FALSE_ALARM / 4)
        assert abs((values**2).mean() - 1) < bound * spread
        assert abs(values.mean()) < bound / math.sqrt(len(values))
    # Releases do not share their noise.
    joint = np.corrcoef(noise[0].view(-1), noise[1].view(-1))[0, 1]
    assert abs(joint) < stats.norm.isf(FALSE_ALARM / 2) / math.sqrt(6000)
    again = mechanism.release(rows, votes, NoiseSource.from_seed(0))
    assert torch.equal(again, noise[0])


def test_deviation_against_known_values():
    assert ClassSums(4.0, 10, 2).deviation() == pytest.approx(
        math.sqrt(2) / 4, rel=1e-6)
    # The analytic Gaussian mechanism at (1, 1e-5).
    assert ClassSums(1.0, 10, 2, 1e-5).deviation() == pytest.approx(
        3.7306, rel=1e-4)


def test_guarantee_and_repr():
    guarantee = ClassSums(4.0, 10, 2, 1e-5).guarantee
    assert guarantee.unit == Unit.NODE and guarantee.model == Trust.CENTRAL
    assert (guarantee.epsilon, guarantee.delta) == (4.0, 1e-5)
    assert isinstance(guarantee.event, GaussianNoise)
    assert guarantee.event.multiplier == pytest.approx(
        ClassSums(4.0, 10, 2, 1e-5).deviation(), rel=1e-6)
    assert guarantee.assumptions == ()
    assert repr(ClassSums(4.0, 10, 2)) == (
        'ClassSums(epsilon=4.0, num_features=10, num_classes=2)')
    assert repr(ClassSums(4.0, 10, 2, 1e-5, (0.5, 0.5))) == (
        'ClassSums(epsilon=4.0, num_features=10, num_classes=2, delta=1e-05, '
        'shares=(0.5, 0.5))')


@pytest.mark.parametrize('options, message', [
    (dict(epsilon=0.0), "'epsilon' must be a positive"),
    (dict(epsilon=1e-9), "'epsilon' is too small"),
    (dict(delta=0.0), "'delta' must lie between 0 and 1"),
    (dict(num_classes=1), "'num_classes' must be an integer of at least 2"),
    (dict(shares=(0.5, 0.6)), "'shares' must be positive and add up to 1"),
    (dict(shares=(1.5, -0.5)), "'shares' must be positive and add up to 1"),
    (dict(shares=()), "'shares' must be positive and add up to 1"),
])
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        ClassSums(**{'epsilon': 1.0, 'num_features': 4, 'num_classes': 2,
                     **options})
