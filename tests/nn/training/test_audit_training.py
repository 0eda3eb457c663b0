"""Audits of whole trainings, with planted people.

Each of many people is there, or is not, by the toss of a fair coin, and what
the attacker sees are the weights after every step. The model has one weight for
each person, which no other person has a part in, and the gradients do not
depend on the weights: so what becomes of the weights are independent trials,
one for each person, out of one training. Half of them say how to guess, the
others are counted (:mod:`torch_geometric_dp.audit.clopper_pearson`).
"""
import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

from torch_geometric_dp.audit.clopper_pearson import epsilon_from_trials
from torch_geometric_dp.nn import make_private

pytest.importorskip('dp_accounting')
pytest.importorskip('scipy')
CONFIDENCE = 0.99
DEGREE = 2


class Sums(torch.nn.Module):
    """One weight for each column of what a node hears, and of its own row."""
    def __init__(self, columns, hops):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(columns))
        self.conv = SimpleConv(aggr='sum') if hops else None

    def forward(self, x, edge_index):
        if self.conv is not None:
            x = x + self.conv(x, edge_index)
        return x * self.weight


def people(coins, hops):
    """Rows far beyond the clipping norm. With hops, each person has two
    neighbours, whose gradients turn around if they hear of somebody.
    """
    count = len(coins)
    there = torch.from_numpy(coins)
    x = 100.0 * torch.diag(there.float())
    data = Data(x=x, y=torch.zeros(count).long(), train_mask=there,
                edge_index=torch.empty(2, 0).long())
    if hops:
        leaves = -10.0 * torch.eye(count).repeat(DEGREE, 1)
        person = torch.arange(count).repeat(DEGREE)
        edges = torch.stack([person, count + torch.arange(len(person))])
        edges = edges[:, there[person]]
        data = Data(x=torch.cat([x, leaves]), y=torch.zeros(len(x) + len(
            leaves)).long(), edge_index=torch.cat([edges, edges.flip(0)], 1),
            train_mask=torch.cat([there, torch.ones(len(leaves)).bool()]))
    return data


def train(coins, hops, break_it, **given):
    """What each step shows of each person, in clipping norms."""
    data = people(coins, hops)
    model = Sums(len(coins), hops)
    private = make_private(
        model, torch.optim.SGD(model.parameters(), lr=1.0), data, hops=hops,
        max_degree=DEGREE if hops else None, seed=1, epochs=1,
        call=lambda model, x, edge_index: model(x, edge_index),
        loss=lambda out, y: -out.sum(), **given)
    break_it(private.mechanism)
    unit = private.mechanism.sample_rate * data.num_nodes
    shown = []
    while private.steps_taken < private.steps:
        before = model.weight.detach().clone()
        private.step(private.batch())
        shown.append((model.weight.detach() - before).numpy() * unit)
    return np.stack(shown), private


def odds(shown, hops, rate, sigma):
    """The logarithm of how much more likely each person is to be there."""
    if hops:
        return shown.sum(axis=0)
    ratio = np.exp(((2.0 * shown - 1) / (2 * sigma**2)).clip(-100, 100))
    return np.log(1 - rate + rate * ratio).sum(axis=0)


def bound(scores, coins, delta):
    """A lower bound on epsilon."""
    half = len(coins) // 2
    levels = np.quantile(scores[:half], np.linspace(0, 1, 21))
    levels = [-np.inf, *levels, np.inf]

    def lower(part, low, high):
        guess = (scores[part] > high) * 1 - (scores[part] <= low)
        right = ((guess > 0) & coins[part]) | ((guess < 0) & ~coins[part])
        return float(epsilon_from_trials(right.sum(), (guess != 0).sum(),
                                         len(guess), CONFIDENCE, delta))

    first = slice(0, half)
    best = max(((low, high) for i, low in enumerate(levels)
                for high in levels[i:]), key=lambda at: lower(first, *at))
    return lower(slice(half, None), *best)


def audit(hops, delta, break_it=lambda mechanism: None, count=1200,
          epsilon=1.0, sample_rate=0.25):
    coins = np.random.RandomState(0).rand(count) < 0.5
    shown, private = train(coins, hops, break_it, epsilon=epsilon,
                           delta=delta, sample_rate=sample_rate)
    sigma = private.noise_multiplier
    return bound(odds(shown, hops, sample_rate, sigma), coins, delta)


def halve(mechanism):
    mechanism.noise_multiplier /= 2


def do_not_clip(mechanism):
    mechanism.clipped_sum = lambda parts: [
        part.double().sum(dim=0) * mechanism.grid_steps for part in parts]


def shuffle(mechanism):
    def draw(count, source, step):
        batches = round(1 / mechanism.sample_rate)
        order = np.random.RandomState(step // batches).permutation(count)
        return order % batches == step % batches

    mechanism.draw = draw


@pytest.mark.parametrize('hops, count', [(0, 3000), (1, 2000)])
def test_training_keeps_its_promise_and_half_the_noise_does_not(hops, count):
    assert audit(hops, 0.1, count=count) <= 1.0
    assert audit(hops, 0.1, halve, count) > 1.0


def test_a_forgotten_clip_is_caught():
    assert audit(0, 0.1, do_not_clip) > 1.0


def test_shuffled_batches_are_caught():
    # Who is in one of four batches for sure is there for all to see; who is
    # drawn with 1/4 each time is in none of them with 0.75^4 = 0.32.
    assert audit(0, 0.6, epsilon=0.2) <= 0.2
    assert audit(0, 0.6, shuffle, epsilon=0.2) > 0.2


def test_neighbours_that_are_not_counted_are_caught():
    def only_its_own(mechanism):
        mechanism.noise_multiplier /= 1 + 2 * mechanism.others

    assert audit(1, 0.1, only_its_own) > 1.0
