import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from benchmarks import dpdgc as decoupled
from benchmarks import node_gap as gap_style
from benchmarks.dpdgc import dpdgc
from benchmarks.gap import multiplier
from benchmarks.node_gap import PARTS, adjacency, descend, node_gap, sensitivity
from torch_geometric_dp.mechanisms import NeighbourSum


def matrix_of(pairs, n):
    out = torch.zeros(n, n)
    for u, v in pairs:
        out[u, v] = out[v, u] = 1
    return out


def graphs(n):
    pairs = list(itertools.combinations(range(n), 2))
    for size in range(len(pairs) + 1):
        for some in itertools.combinations(pairs, size):
            yield matrix_of(some, n)


def neighbours(n, edges):
    """Pairs of graphs that differ in at most so many pairs at node 0."""
    for one in graphs(n):
        for size in range(edges + 1):
            for ends in itertools.combinations(range(1, n), size):
                two = one.clone()
                for v in ends:
                    two[0, v] = two[v, 0] = 1 - two[0, v]
                yield one, two


@pytest.mark.parametrize('cap, edges', [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_sums_with_some_edges(cap, edges):
    # All rows are the same, but for that of node 0, which is turned round.
    rows, other = torch.ones(4, 1), torch.ones(4, 1)
    other[0] = -1
    most = 0.0
    for one, two in neighbours(4, edges):
        if max(one.sum(dim=1).max(), two.sum(dim=1).max()) <= cap:
            most = max(most, float((one @ rows - two @ other).norm()))
    assert most <= sensitivity(cap, edges) + 1e-6
    assert most >= 0.75 * sensitivity(cap, edges)


def test_sums_with_all_edges_are_those_of_the_package():
    for cap in (3, 10):
        scale = NeighbourSum(2.0, cap, 'node', 'replace', 1e-5)
        assert math.isclose(sensitivity(cap)**2, 4 * cap**2 + 4 * cap)
        assert scale.relation == 'replace'
        assert sensitivity(cap, 3 * cap) <= sensitivity(cap)


def csr(dense):
    edge_index = dense.nonzero().t()
    return adjacency(Data(edge_index=edge_index, num_nodes=len(dense)))


@pytest.mark.parametrize('edges', [1, 2])
def test_both_releases_of_dpdgc(edges):
    train = torch.ones(4, dtype=torch.bool)
    weight = F.normalize(torch.ones(4, 2), dim=1)  # The worst: all the same.
    first = second = 0.0
    for one, two in neighbours(4, edges):
        second = max(second, float((one @ weight - two @ weight).norm()))
        found = [decoupled.gradient(csr(a), torch.tensor([label, 0, 0, 0]),
                                    train, 2)
                 for a, label in ((one, 0), (two, 1))]
        first = max(first, float((found[0] - found[1]).norm()))
    assert math.isclose(second, decoupled.sensitivity(edges), rel_tol=1e-6)
    assert 1.0 < first <= 2 * (edges + 1)


def test_descent_adds_up_gradients_of_norm_one():
    # One step without noise is the mean gradient, which one node moves by at
    # most two over their number.
    generator = torch.Generator().manual_seed(0)
    rows = F.normalize(torch.randn(6, 3, generator=generator), dim=1)
    train = torch.ones(6, dtype=torch.bool)
    y = torch.arange(6) % 2
    weight = descend(rows, y, train, 2, 0.0, generator, steps=1)
    for label in (0, 1):
        other, z = rows.clone(), y.clone()
        other[0], z[0] = -rows[0], label
        moved = descend(other, z, train, 2, 0.0, generator, steps=1) - weight
        assert moved.norm() <= 10.0 * 2 / 6 + 1e-6
    # Noise of 2 m a step, times the root of the steps.
    many = torch.zeros(2, 4000)
    many[:, 0] = 1
    found = descend(many, y[:2], train[:2], 2, 3.0, generator, steps=1)
    assert math.isclose(float(found[1:].std()), 10.0 / 2 * 6.0, rel_tol=0.1)


def test_three_parts_make_one():
    m = multiplier(4.0, 1e-5, PARTS)
    assert math.isclose(1 / multiplier(4.0, 1e-5)**2, PARTS / m**2)


def blocks(n=600):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 3
    ends = torch.randint(0, n, (2, 100 * n), generator=generator)
    ends = ends[:, (y[ends[0]] == y[ends[1]]) & (ends[0] != ends[1])]
    x = F.one_hot(y, 3).float() + torch.randn(n, 3, generator=generator)
    mask = torch.rand(n, generator=generator) < 0.7
    return Data(x=x, y=y, edge_index=to_undirected(ends), train_mask=mask)


def test_classes():
    data = blocks()
    for predict in (lambda e: node_gap(data, e, 1e-5, 0, 10),
                    lambda e: node_gap(data, e, 1e-5, 0, 10, edges=1),
                    lambda e: dpdgc(data, e, 1e-5, 0, 1)):
        right = [float((predict(e) == data.y)[~data.train_mask].float().mean())
                 for e in (0.01, 1e4)]
        assert right[1] > 0.85 and right[0] < 0.6
        assert torch.equal(predict(2.0), predict(2.0))


def test_scales_of_all_noise(monkeypatch):
    data, m, seen = blocks(60), multiplier(4.0, 1e-5, PARTS), []

    def recorded(shape, scale, generator):
        seen.append(scale)
        return torch.zeros(shape)

    for module in (gap_style, decoupled):
        monkeypatch.setattr(module, 'noise', recorded)
    steps = [2 * m * math.sqrt(gap_style.STEPS)] * gap_style.STEPS
    node_gap(data, 4.0, 1e-5, 0, 10, edges=3)
    assert seen == pytest.approx(
        [*steps, m * math.sqrt(4 * 10 + 3**2), *steps])
    seen.clear()
    dpdgc(data, 4.0, 1e-5, 0, 3)
    assert seen == pytest.approx(
        [2 * (3 + 1) * m, m * math.sqrt(3 + 3**2), *steps])
