"""GAP and ProGAP: noise that is exact, and networks that learn."""
import math

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from benchmarks import gap as module
from benchmarks.gap import NoisySums, gap, multiplier, true_epsilon
from benchmarks.progap import progap
from torch_geometric_dp.accountant.gaussian import gaussian_delta


def graph(nodes=200, degree=10):
    """Two classes that only edges tell apart: friends are of one class."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(nodes) % 2
    source = torch.arange(nodes).repeat_interleave(degree)
    target = 2 * torch.randint(nodes // 2, source.shape,
                               generator=generator) + y[source]
    edges = torch.stack([source, target])[:, source != target]
    # Half of the nodes say what they are.
    x = torch.nn.functional.one_hot(torch.where(
        torch.rand(nodes, generator=generator) < 0.5, y, 2), 3).float()
    lot = torch.rand(nodes, generator=generator)
    return Data(x=x, y=y, edge_index=to_undirected(edges),
                train_mask=lot < 0.5, val_mask=(lot >= 0.5) & (lot < 0.7),
                test_mask=lot >= 0.7)


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 8.0])
@pytest.mark.parametrize('releases', [1, 3])
def test_multiplier_is_exact(epsilon, releases):
    m = multiplier(epsilon, 1e-7, releases) / math.sqrt(releases)
    assert gaussian_delta(epsilon, m) <= 1e-7
    assert gaussian_delta(epsilon, 0.999 * m) > 1e-7


def test_true_epsilon():
    for epsilon in (0.5, 1.0, 4.0):
        right = true_epsilon(epsilon, counted='undirected')
        assert math.isclose(right, epsilon, rel_tol=1e-6)
        # Less noise by the root of two costs more than the root of two.
        assert true_epsilon(epsilon) > 1.4 * epsilon


def test_an_undirected_edge_changes_two_rows():
    data, rows = graph(), torch.randn(200, 4)
    u, v = data.edge_index[:, 0]
    one = ((data.edge_index == torch.stack([u, v])[:, None]).all(dim=0) |
           (data.edge_index == torch.stack([v, u])[:, None]).all(dim=0))
    assert int(one.sum()) == 2
    without = Data(edge_index=data.edge_index[:, ~one], num_nodes=200)
    far = (NoisySums(data, None, 1, 0)(rows)
           - NoisySums(without, None, 1, 0)(rows)).norm()
    assert math.isclose(float(far), module.SENSITIVITY['undirected'],
                        rel_tol=1e-4)
    assert far > 1.4 * module.SENSITIVITY['directed']


@pytest.mark.parametrize('counted', ['undirected', 'directed'])
def test_noise_has_the_scale_that_was_computed(counted):
    alone = Data(edge_index=torch.empty(2, 0, dtype=torch.long),
                 num_nodes=5000)
    sums = NoisySums(alone, 1.0, 2, 0, counted=counted)
    assert sums.scale == module.SENSITIVITY[counted] * multiplier(
        1.0, module.DELTA, 2)
    first, second = (sums(torch.ones(5000, 4)) for _ in range(2))
    for noise in (first, second):  # Six standard deviations.
        assert abs(float(noise.std()) / sums.scale - 1) < 6 / math.sqrt(40_000)
    assert not torch.equal(first, second)
    with pytest.raises(RuntimeError, match='paid for'):
        sums(torch.ones(5000, 4))


@pytest.mark.parametrize('fit', [gap, progap])
def test_edges_help(fit):
    data = graph()

    def right(epsilon):
        out = fit(data, epsilon, seed=0, hops=(1, 2), epochs=40)
        return float((out == data.y)[data.test_mask].float().mean())

    assert right(None) > 0.95  # Rows alone tell it for half of the nodes.
    assert right(0.01) < 0.9


@pytest.mark.parametrize('fit, hops', [(gap, 2), (progap, 2)])
def test_no_more_sums_than_hops(fit, hops, monkeypatch):
    calls = []
    plain = NoisySums.__call__

    def counting(self, rows):
        calls.append(self)
        return plain(self, rows)

    monkeypatch.setattr(NoisySums, '__call__', counting)
    fit(graph(), 1.0, seed=0, hops=(hops, ), epochs=2)
    assert len(calls) == hops
    assert calls[0].left == 0
