import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.papers.nap import weights
from tests.conftest import FALSE_ALARM
from torch_geometric_dp import noise
from torch_geometric_dp.accountant import Relation, Trust, Unit
from torch_geometric_dp.mechanisms import NeighbourSum, paper_weights
from torch_geometric_dp.noise import NoiseSource

UNITS = pytest.mark.parametrize('unit', ['node', 'edge'])
RELATIONS = pytest.mark.parametrize('relation', ['add-remove', 'replace'])
# A limit on the degree, on the number of nodes, and whether directions count.
DOMAINS = pytest.mark.parametrize('cap, n, directed', [
    (1, 4, False), (2, 4, False), (3, 4, False), (1, 3, True), (2, 3, True)])


def adjacencies(n, cap, directed):
    """All graphs with up to `cap` edges at a node, as matrices [G, n, n]."""
    cells = [(u, v) for u in range(n) for v in range(n)
             if u != v and (directed or u < v)]
    out = []
    for bits in itertools.product((0, 1), repeat=len(cells)):
        a = np.zeros((n, n), int)
        for bit, (u, v) in zip(bits, cells):
            a[u, v] = bit
            a[v, u] |= 0 if directed else bit
        if max(a.sum(0).max(), a.sum(1).max()) <= cap:
            out.append(a)
    return np.array(out)


def neighbours_of(a, graphs, unit, relation):
    """All graphs at one step from `a`, and the node that may have another
    row in them (or None).
    """
    n = len(a)
    if unit == 'node':
        for k in range(n):
            others = np.arange(n) != k
            same = (graphs == a)[:, others][:, :, others].all((1, 2))
            if relation == 'add-remove':
                same &= (graphs[:, k] == 0).all(1) & (
                    graphs[:, :, k] == 0).all(1)
            for b in graphs[same]:
                yield b, k
    else:
        pairs = np.triu((graphs != a) | (graphs != a).transpose(0, 2, 1))
        count = pairs.sum((1, 2))
        for b in graphs[count == 1]:
            if relation == 'add-remove':
                yield b, None
        if relation == 'replace':
            edges = np.triu(graphs | graphs.transpose(0, 2, 1)).sum((1, 2))
            mine = np.triu(a | a.T).sum()
            for b in graphs[(count == 2) & (edges == mine)]:
                yield b, None


def differences(mechanism, n, cap, directed, hop=0):
    """The distinct differences of sums, in steps, of all neighbouring graphs
    whose rows are as long as they may be, in either direction.
    """
    graphs = adjacencies(n, cap, directed)
    long = int(mechanism.to_steps(torch.tensor([[1e9]])))
    assert 0 < long <= mechanism.steps
    rows = np.array(list(itertools.product((-long, long), repeat=n)))
    seen = set()
    for a in graphs:
        for b, k in neighbours_of(a, graphs, mechanism.unit,
                                  mechanism.relation):
            changed = [rows]
            # At later hops the rows are a release, the same for both.
            if k is not None and hop == 0 and (
                    mechanism.relation == 'replace'):
                other = rows.copy()
                other[:, k] *= -1
                changed.append(other)
            for rows_b in changed:
                diff = rows @ a - rows_b @ b
                seen.update(map(tuple, np.abs(diff).tolist()))
    return np.array(sorted(seen))


@UNITS
@RELATIONS
@DOMAINS
@pytest.mark.parametrize('epsilon', [0.3, 5.0])
def test_exact_loss_of_all_small_graphs(unit, relation, cap, n, directed,
                                        epsilon):
    mechanism = NeighbourSum(epsilon, cap, unit, relation)
    scale = float(mechanism.scale(1))
    diff = differences(mechanism, n, cap, directed)
    # P(z) is proportional to exp(-|z| / scale): the largest loss of an output
    # is the L1 distance over the scale.
    loss = diff.sum(1).max() / scale
    assert loss <= epsilon
    enough = {'node': {'add-remove': cap + 1, 'replace': 2 * cap + 1},
              'edge': {'add-remove': 2, 'replace': 3 + (cap == 1)}}
    if n >= enough[unit][relation]:  # And no smaller epsilon holds.
        assert loss > epsilon * (1 - 1e-5)


@UNITS
@RELATIONS
@DOMAINS
@pytest.mark.parametrize('hop', [0, 1])
def test_euclidean_sensitivity_of_all_small_graphs(unit, relation, cap, n,
                                                   directed, hop):
    mechanism = NeighbourSum(1.0, cap, unit, relation, delta=1e-5)
    diff = differences(mechanism, n, cap, directed, hop)
    distance = math.sqrt((diff**2).sum(1).max()) / mechanism.steps
    bound = mechanism.sensitivity(hop=hop)
    assert distance <= bound
    tight = {('node', 'add-remove'): n > cap and (cap >= 3 or hop == 1),
             # Both a node's sum and all that heard it change by all they can
             # only if it has other neighbours in front than behind.
             ('node', 'replace'): n > 2 * cap and (directed or hop == 1),
             ('edge', 'add-remove'): True,
             ('edge', 'replace'): n >= 3 and cap >= 2 and not directed}
    if tight[unit, relation]:
        assert distance > bound * (1 - 1e-5)


def test_a_replaced_row_alone():
    # The ledger counts a node's features as a part of the node.
    for cap, delta in itertools.product((1, 2, 3, 8), (None, 1e-5)):
        mechanism = NeighbourSum(1.0, cap, delta=delta)
        row = 2 * cap if delta is None else math.sqrt(4 * cap)
        assert row <= mechanism.sensitivity() * (1 + 1e-15)


def test_known_sensitivities():
    def of(unit, relation, delta=None, hop=0):
        return NeighbourSum(1.0, 5, unit, relation,
                            delta).sensitivity(hop=hop)

    assert of('node', 'add-remove') == 10 and of('node', 'replace') == 20
    assert of('edge', 'add-remove') == 2 and of('edge', 'replace') == 4
    assert of('node', 'add-remove', 1e-5) == pytest.approx(30**0.5)
    assert of('node', 'replace', 1e-5) == pytest.approx(120**0.5)
    assert of('node', 'replace', 1e-5, hop=1) == pytest.approx(110**0.5)
    assert of('edge', 'add-remove', 1e-5) == pytest.approx(2**0.5)
    assert of('edge', 'replace', 1e-5) == pytest.approx(6**0.5)


@UNITS
@RELATIONS
@pytest.mark.parametrize('delta', [None, 1e-5])
@pytest.mark.parametrize('seed', range(3))
def test_weights(unit, relation, delta, seed):
    # Each weight on each node, over all graphs: never more than epsilon.
    weight = torch.tensor(np.random.RandomState(seed).uniform(0.1, 7, 4))
    mechanism = NeighbourSum(2.0, 2, unit, relation, delta)
    scale = mechanism.scale(1, weight).numpy()
    assert scale.argmin() == int(weight.argmax())
    # Rounded to a 32nd of a factor of two, upwards.
    ratio = scale / scale.min() * weight.numpy() / float(weight.max())
    assert (ratio >= 1 - 1e-9).all() and (ratio < 2**(1 / 32) + 1e-9).all()
    diff = differences(mechanism, 4, 2, False)
    p = mechanism.order
    distance = ((diff / scale)**p).sum(1).max()**(1 / p)
    if delta is None:
        assert 1.0 < distance <= 2.0
    else:  # Of the Gaussian mechanism, in units of its noise.
        plain = NeighbourSum(2.0, 1, 'edge', delta=delta, steps=2**24)
        allowed = plain.steps * 2**0.5 / float(plain.scale(1))
        assert 0.5 * allowed < distance <= allowed
    # A common factor makes no difference, and equal weights are none.
    assert np.allclose(mechanism.scale(1, 3 * weight), scale)
    assert torch.equal(mechanism.scale(1, torch.full((4, ), 3.3)),
                       mechanism.scale(1).expand(4))


@pytest.mark.parametrize('epsilon, delta', [(1.0, 1e-5), (3.0, 1e-3)])
def test_exact_delta_on_a_coarse_grid(epsilon, delta):
    # An edge more or less changes one cell at each of its ends.
    mechanism = NeighbourSum(epsilon, unit='edge', delta=delta, steps=16)
    row = int(mechanism.to_steps(torch.tensor([[5.0]])))
    assert row in (14, 15)  # Less a step for floats, and half a one to round.
    sigma = float(mechanism.scale(1))
    z = np.arange(-10 * math.ceil(sigma) - row, 10 * math.ceil(sigma) + 1)

    def law(shift):
        one = stats.norm.pdf((z + shift) / sigma)
        return np.multiply.outer(one, one) / one.sum()**2

    exact = np.maximum(law(0) - math.exp(epsilon) * law(row), 0).sum()
    assert 0.01 * delta < exact <= delta


@pytest.mark.parametrize('hops, sigma', [(1, 3.7306), (2, 5.2758),
                                         (5, 8.3419)])
def test_composition_over_hops(hops, sigma):
    # For a sensitivity of one at each hop.
    mechanism = NeighbourSum(1.0, unit='edge', delta=1e-5, hops=hops)
    noise = float(mechanism.scale(1)) / (mechanism.steps * 2**0.5)
    assert noise == pytest.approx(sigma, abs=1e-3)
    assert mechanism.guarantee.event.multiplier == pytest.approx(
        3.7306, abs=1e-4)
    # Pure epsilons add up.
    pure = NeighbourSum(1.0, unit='edge', hops=hops)
    assert float(pure.scale(1)) == pytest.approx(2 * hops * pure.steps)


def test_composition_of_unequal_hops():
    accounting = pytest.importorskip('dp_accounting')
    from dp_accounting.pld import privacy_loss_distribution as pld
    assert accounting is not None
    mechanism = NeighbourSum(2.0, 2, 'node', 'replace', 1e-5, hops=3)
    sigma = float(mechanism.scale(4)) / mechanism.steps
    parts = [pld.from_gaussian_mechanism(
        sigma / mechanism.sensitivity(hop=hop)) for hop in range(3)]
    assert mechanism.sensitivity(hop=0) > mechanism.sensitivity(hop=1)
    total = parts[0].compose(parts[1]).compose(parts[2])
    assert total.get_epsilon_for_delta(1e-5) == pytest.approx(2.0, abs=2e-3)


@given(st.integers(1, 40), st.floats(1e-3, 1e6), st.integers(0, 2**32 - 1),
       st.sampled_from([None, 1e-5]), st.floats(0.01, 100))
def test_rounded_rows_are_never_too_long(d, size, seed, delta, clip):
    mechanism = NeighbourSum(1.0, 3, delta=delta, clip=clip, steps=64)
    x = torch.from_numpy(size * np.random.RandomState(seed).standard_cauchy(
        (50, d))).float()
    rows = mechanism.to_steps(x)
    assert torch.equal(rows, rows.round())
    integers = rows.long().abs()
    assert int(integers.pow(mechanism.order).sum(1).max()) <= (
        mechanism.steps**mechanism.order)
    # What is short enough is rounded, and nothing else.
    norm = torch.linalg.vector_norm(x.double(), mechanism.order, dim=1)
    short = norm * 64 / clip < 64 - d**(1 / mechanism.order) / 2 - 1.01
    assert torch.equal(rows[short], (x[short].double() * 64 / clip).round())
    # The others keep their direction.
    long = norm > clip
    ideal = x[long].double() / norm[long].view(-1, 1) * 64
    assert (rows[long] - ideal).abs().max() <= d / 2 + 1.5 if long.any() else 1


@pytest.mark.parametrize('delta', [None, 1e-5])
def test_noise(delta):
    # Unbiased, with the stated variance, for each of two weights.
    mechanism = NeighbourSum(1.0, 1, delta=delta, clip=2.0)
    n, d = 20000, 10
    sums = mechanism.to_steps(torch.full((n, d), 0.1))
    weight = torch.where(torch.arange(n) % 2 == 0, 1.0, 0.25)
    out = mechanism.release(sums, mechanism.scale(d, weight),
                            NoiseSource.from_seed(0))
    error = out - sums * mechanism.clip / mechanism.steps
    assert (sums / mechanism.steps * mechanism.clip - 0.1).abs().max() < 2e-6
    variance = mechanism.variance(d, weight)
    limit = stats.norm.isf(FALSE_ALARM / 4)
    for part in (0, 1):
        cells, v = error[part::2].flatten(), float(variance[part])
        assert abs(cells.mean()) < limit * math.sqrt(v / cells.numel())
        # The fourth moment of a Laplace variable is 6, of a normal one 3.
        spread = (5 if delta is None else 2) / cells.numel()
        assert abs(cells.var() / v - 1) < limit * math.sqrt(spread)
    # Rows of another scale have other noise.
    both = torch.stack([error[0::2].flatten(), error[1::2].flatten()])
    assert abs(torch.corrcoef(both)[0, 1]) < limit / math.sqrt(both.size(1))
    uniform = float(mechanism.variance(d))
    if delta is None:
        assert uniform == pytest.approx(2 * 4.0**2, rel=1e-5)
    else:
        assert uniform == pytest.approx((2 * 2 * 3.7306)**2, rel=1e-3)
    assert variance.shape == (n, )


@pytest.mark.parametrize('delta', [None, 1e-5])
@pytest.mark.parametrize('n', [0, 1, 333])
def test_threads_change_nothing(n, delta, monkeypatch):
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', 64)
    mechanism = NeighbourSum(1.0, 1, delta=delta)
    sums, scale = torch.zeros(n, 3).double(), mechanism.scale(3)
    out = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, 'get_num_threads', lambda n=threads: n)
        out.append(mechanism.release(sums, scale, NoiseSource.from_seed(0)))
    assert torch.equal(*out) and (out[0] != 0).all() and (sums == 0).all()


def loss_of_node(a, weight, k, cap):
    """What removing node k costs, in units of epsilon, where the weights are
    public: all rows are (1, 0, ..., 0), and the noise has scale 2 cap / weight.
    """
    rest = a.copy()
    rest[k] = rest[:, k] = 0
    return sum(w * d for w, d in zip(weight, (a - rest).sum(1))) / (2 * cap)


def test_a_graph_that_breaks_the_published_claim():
    # A star with three leaves. Eq. 11 gives its centre a weight of 3, since
    # each leaf has but one neighbour: removing it costs twice epsilon.
    star = np.zeros((4, 4), int)
    star[0, 1:] = star[1:, 0] = 1
    weight = weights(star, [1.0] * 4, 3)
    assert weight == [3.0, 1.0, 1.0, 1.0]
    assert loss_of_node(star, weight, 0, 3) == 2.0
    # With m leaves, (m + 1) / 2 times.
    big = np.zeros((21, 21), int)
    big[0, 1:] = big[1:, 0] = 1
    weight = weights(big, [1.0] * 21, 20)
    assert loss_of_node(big, weight, 0, 20) == 10.5
    # And the weights are no secret only if the degrees are none: without the
    # centre, a leaf's noise has another scale, and no epsilon bounds the ratio.
    path = np.zeros((4, 4), int)
    path[0, 1] = path[1, 0] = path[1, 2] = path[2, 1] = 1
    less = path.copy()
    less[2] = less[:, 2] = 0
    one, two = (1.0 / weights(g, [1.0] * 4, 3)[0]
                for g in (path, less))
    assert one != two
    ratio = [abs(z) / two - abs(z) / one for z in (10, 1000, 10**5)]
    assert abs(ratio[2]) > 1e4


@pytest.mark.parametrize('cap', [1, 2, 3, 5])
def test_weights_of_the_paper(cap):
    # As its proof needs them: over all graphs, no node costs more than epsilon
    # if the weights are public; and they are the largest such ones by Eq. 11.
    worst = 0.0
    for a in adjacencies(4, min(cap, 3), False):
        for seed in range(3):
            rank = np.random.RandomState(seed).permutation(4) + 1.0
            edges = torch.tensor(np.array(a.nonzero()))
            weight = paper_weights(edges, torch.tensor(rank), cap)
            degree = a.sum(0)
            own = [cap / d if d else math.inf for d in degree]
            expected = np.minimum(weights(a, rank, cap), own)
            assert np.allclose(weight, expected)
            worst = max(worst, *(loss_of_node(a, weight.tolist(), k, cap)
                                 for k in range(4)))
    assert worst <= 1 + 1e-12 and worst > 0.9


def test_paper_scale():
    mechanism = NeighbourSum(2.0, 3)
    scale = mechanism.paper_scale(torch.tensor([1.0, 2.0]))
    assert (scale / mechanism.steps).tolist() == [3.0, 1.5]


def test_guarantee():
    promise = NeighbourSum(2.0, 3).guarantee
    assert (promise.epsilon, promise.delta) == (2.0, 0.0)
    assert promise.unit == Unit.NODE and promise.model == Trust.CENTRAL
    assert promise.relation == Relation.ADD_REMOVE
    assert promise.assumptions == (
        "the number of nodes is public",
        "no node has more than 3 edges, in any graph that is possible")
    promise = NeighbourSum(2.0, unit='edge', relation='replace',
                           delta=1e-6).guarantee
    assert (promise.unit, promise.delta) == (Unit.EDGES, 1e-6)
    assert promise.relation == Relation.REPLACE
    assert promise.assumptions == ("the number of nodes is public", )


@pytest.mark.parametrize('change, message', [
    (dict(epsilon=0), "'epsilon' must be a positive, finite number .got 0"),
    (dict(max_degree=None), "'max_degree' must be an integer of at least 1 for "
     "unit='node'.*got None"),
    (dict(max_degree=0), "'max_degree' must be an integer of at least 1 .got "
     "0"),
    (dict(unit='graph'), "'unit' must be one of .* .got 'graph'"),
    (dict(relation='swap'), "'relation' must be one of .* .got 'swap'"),
    (dict(delta=0.0), "'delta' must lie between 0 and 1 .got 0.0"),
    (dict(clip=-1.0), "'clip' must be a positive, finite number .got -1.0"),
    (dict(hops=0), "'hops' must be an integer of at least 1 .got 0"),
])
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        NeighbourSum(**{'epsilon': 1.0, 'max_degree': 3, **change})


def test_an_epsilon_that_is_too_small():
    with pytest.raises(ValueError, match="'epsilon' is too small for sums "
                       "with 9 columns, 99 cells of which"):
        NeighbourSum(1e-10, 10).scale(9)
    with pytest.raises(ValueError, match="'epsilon' is too small for "
                       "'max_degree' 1000000 and these weights"):
        NeighbourSum(1e-2, 10**6).scale(9)
    with pytest.raises(ValueError, match="'x' must have fewer columns"):
        NeighbourSum(1.0, 1, steps=4).to_steps(torch.zeros(1, 9))
