import random

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform, Compose

from tests.audit import broken
from tests.audit.promises import promise
from torch_geometric_dp import PrivacyBudget, transforms
from torch_geometric_dp.accountant import Relation, Unit
from torch_geometric_dp.audit import audit, trials
from torch_geometric_dp.audit.canaries import Rows, canaries
from torch_geometric_dp.audit.trials import processes, release, run_trials
from torch_geometric_dp.audit.two_graphs import TwoGraphs
from torch_geometric_dp.mechanisms import Star
from torch_geometric_dp.nn import NAP


def run(target, count=600, seed=0, **kwargs):
    canary = canaries(target, target.guarantee)[0]
    return run_trials(target, canary, count, np.random.SeedSequence(seed),
                      **kwargs)


def test_seeds():
    transform = transforms.Laplace(1.0, (0.0, 1.0), seed=0)
    one, again, other = (run(transform, seed=s) for s in (0, 0, 1))
    assert np.array_equal(one[0], again[0]) and np.array_equal(one[1], again[1])
    assert not np.array_equal(one[1], other[1])
    assert not np.isin(one[0], other[0]).all()
    # Without one, noise is new.
    transform = transforms.Laplace(1.0, (0.0, 1.0))
    assert not np.array_equal(run(transform)[0], run(transform)[0])


def test_the_callers_generator_is_left_alone():
    before = torch.random.get_rng_state()
    one, again = (run(broken.FloatLaplace(1.0))[0] for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(one, again)


class Draws(BaseTransform):
    """Adds what a generator draws, which it holds, or everybody does."""
    def __init__(self, draw, *held):
        self.draw = draw
        self.held = {'generators': list(held)}

    def forward(self, data):
        noise = self.draw(*self.held['generators'])
        data.x = torch.full_like(data.x, float(noise))
        return data


def uniform(generator):
    return generator.random()


def torch_uniform(generator=None):
    return torch.rand(1, generator=generator, dtype=torch.double)


def numpy_uniform():
    return np.random.rand()


def python_uniform():
    return random.random()


class Wraps(BaseTransform):
    """Holds the layer that draws."""
    def __init__(self, layer):
        self.layer = layer

    def forward(self, data):
        data.x = self.layer(data.x, torch.empty(2, 0).long())
        return data


LAPLACE = transforms.Laplace(1.0, (0.0, 1.0), seed=0)
HOLDERS = {
    'a transform': LAPLACE,
    'a composition': Compose([LAPLACE]),
    'compositions in each other': Compose([Compose([LAPLACE])]),
    'a layer with a seed': Wraps(NAP(1.0, 4, seed=0)),
    'a layer without one': Wraps(NAP(1.0, 4)),
    'torch': Draws(torch_uniform, torch.Generator()),
    'numpy': Draws(uniform, np.random.default_rng(0)),
    'numpy, of old': Draws(np.random.RandomState.rand,
                           np.random.RandomState(0)),
    'python': Draws(uniform, random.Random(0)),
    'torch, global': Draws(torch_uniform),
    'numpy, global': Draws(numpy_uniform),
    'python, global': Draws(python_uniform),
}


@pytest.mark.parametrize('name', HOLDERS)
@pytest.mark.parametrize('workers', [1, 2])
def test_no_two_releases_share_their_noise(name, workers, monkeypatch):
    # One and the same graph again and again, in many jobs.
    monkeypatch.setattr(trials, '_TOGETHER', 4)
    data = Data(x=torch.zeros(1, 1, dtype=torch.double))
    canary = TwoGraphs(data, Data(x=data.x + 1), promise('features'))
    with processes(workers) as apply:
        out, _ = run_trials(HOLDERS[name], canary, 200,
                            np.random.SeedSequence(0), apply)
    # 200 draws, the coarsest from a grid with 65,536 steps in a scale: 0.3 are
    # expected to meet, and the odds of seven or more are below 1e-6.
    assert len(np.unique(out[:, 0])) > 193


def test_generators_of_others_are_left_alone():
    held = np.random.default_rng(0)
    states = held.bit_generator.state, random.getstate()
    numpy_state = np.random.get_state()[1].copy()
    canary = TwoGraphs(Data(x=torch.zeros(1, 1)), Data(x=torch.ones(1, 1)),
                       promise('features'))
    for target in (Draws(uniform, held), Draws(numpy_uniform),
                   Draws(python_uniform)):
        one, again = (run_trials(target, canary, 20,
                                 np.random.SeedSequence(0)) for _ in range(2))
        assert np.array_equal(one[0], again[0])
    assert states == (held.bit_generator.state, random.getstate())
    assert np.array_equal(numpy_state, np.random.get_state()[1])


def test_two_processes():
    transform = transforms.Laplace(1.0, (0.0, 1.0), seed=0)
    canary = Rows('x', torch.zeros(2), torch.ones(2))
    canary.copies = 100
    results = []
    for workers in (1, 2):
        with processes(workers) as apply:
            results.append(run_trials(transform, canary, 600,
                                      np.random.SeedSequence(0), apply))
    one, two = results
    assert np.array_equal(one[0], two[0]) and np.array_equal(one[1], two[1])


def test_there_is_work_for_all():
    # Also where trials are few, which is where a release takes long.
    jobs = []

    def apply(run, todo):
        jobs.extend(todo)
        return map(run, jobs)

    data, neighbour = Data(x=torch.zeros(1, 2)), Data(x=torch.ones(1, 2))
    run_trials(transforms.Laplace(1.0, (0.0, 1.0)),
               TwoGraphs(data, neighbour, promise('features')), 128,
               np.random.SeedSequence(0), apply)
    assert [len(coins) for _, _, coins, _ in jobs] == [32] * 4


def test_progress(capsys):
    run(transforms.LabelRR(1.0, 2))
    assert capsys.readouterr().err == ''
    run(transforms.LabelRR(1.0, 2), progress=True)
    assert 'y = 0: 100%' in capsys.readouterr().err


class Remembers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.renewed = 0

    def renew(self):
        self.renewed += 1

    def forward(self, x, edge_index):
        return 2 * x


def test_layers_forget_their_last_release():
    layer = torch.nn.Sequential(Remembers())
    layer.forward = lambda x, edge_index: layer[0](x, edge_index)
    x = torch.ones(2, 1, requires_grad=True)
    for i in range(3):
        out = release(layer, Data(x=x, edge_index=torch.empty(2, 0).long()))
        assert layer[0].renewed == i + 1 and not out.requires_grad


class Charges(Remembers):
    """A layer with a budget of its own, and no noise."""
    guarantee = promise('edges')

    def canaries(self, data=None):
        return [Star(1, (1.0, 0.0), Unit.EDGES, Relation.ADD_REMOVE)]

    def __init__(self):
        super().__init__()
        self.budget = PrivacyBudget(epsilon=1.0)

    def forward(self, x, edge_index):
        assert self.budget is None
        return super().forward(x, edge_index)


def test_nothing_is_charged(graph):
    graph.x[3] = 0.0
    neighbour = graph.clone()
    neighbour.x[3] = 1.0
    graph.privacy_budget = PrivacyBudget(epsilon=1.0)
    transform = transforms.Laplace(1.0, (0.0, 1.0), seed=0)
    audit(transform, graph, neighbour, trials=60)
    assert graph.privacy_budget.remaining('features') == 1.0
    # All noise is new: a release does not stay the same.
    canary = TwoGraphs(graph, neighbour, transform.guarantee)
    out, _ = run_trials(transform, canary, 20, np.random.SeedSequence(0))
    assert len(np.unique(out[:, 0])) > 15
    audit(Charges(), trials=60)
