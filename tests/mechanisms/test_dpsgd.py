import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.conftest import FALSE_ALARM
from torch_geometric_dp.accountant import Relation, Unit
from torch_geometric_dp.accountant.sampled import sampled_epsilon
from torch_geometric_dp.mechanisms import DPSGD, Mechanism
from torch_geometric_dp.noise import NoiseSource

pytest.importorskip('dp_accounting')


def mechanism(**given):
    return DPSGD(**{'epsilon': 2.0, 'delta': 1e-5, 'sample_rate': 0.1,
                    'steps': 20, 'num_parameters': 6, **given})


def test_promise():
    rows = mechanism()
    assert str(rows) == ('DPSGD(epsilon=2.0, delta=1e-05, sample_rate=0.1, '
                         'steps=20, num_parameters=6)')
    assert isinstance(rows, Mechanism)
    assert (rows.others, rows.own) == (0, 1)
    promise = rows.guarantee
    assert (promise.epsilon, promise.delta) == (2.0, 1e-5)
    assert (promise.unit, promise.relation) == (Unit.NODE, Relation.ADD_REMOVE)
    assert promise.changes(Unit.EDGES) == 0
    assert 1.9 < rows.worst_case().epsilon <= 2.0
    hops = mechanism(hops=2, max_degree=2)
    assert (hops.others, hops.own) == (6, 1)
    assert hops.guarantee.changes(Unit.EDGES) == 2
    assert 'no node has more than 2 edges' in hops.guarantee.assumptions[1]
    replaced = mechanism(hops=1, max_degree=3, relation='replace')
    assert (replaced.others, replaced.own) == (6, 2)
    few = mechanism(hops=1, max_degree=3, relation='replace', edges=2)
    assert few.others == 4
    assert few.guarantee.edges == 2
    assert (rows.noise_multiplier < few.noise_multiplier
            < replaced.noise_multiplier)
    assert hops.noise_multiplier < replaced.noise_multiplier


def test_noise_is_what_all_steps_need():
    # A factor of two that is lost is more than what is promised.
    for given in ({}, {'hops': 2, 'max_degree': 2}):
        found = mechanism(**given)
        assert found.noise_multiplier > found.event.multiplier
        assert sampled_epsilon(found.event, 1e-5) <= 2.0
        half = replace(found.event, multiplier=found.noise_multiplier / 2)
        assert sampled_epsilon(half, 1e-5) > 2.5


def test_steps_that_were_taken_cost_less():
    found = mechanism()
    spent = [found.epsilon_after(steps) for steps in (0, 1, 10, 20)]
    assert spent[0] == 0.0
    assert spent == sorted(spent) and 1.9 < spent[-1] <= 2.0
    assert found.after(10).epsilon == spent[2] < 1.7
    assert found.after(10).event.steps == 10
    assert found.after(0).delta == 0.0


def test_clipped_sum_is_a_plain_loop():
    torch.manual_seed(0)
    found = mechanism(max_grad_norm=0.5)
    parts = [torch.randn(9, 2, 2), torch.randn(9, 2)]
    for part in parts:
        part[::2] *= 0.01  # Some are not clipped.
        part[1] *= 1e30
    total = found.clipped_sum(parts)
    expected = [torch.zeros(2, 2).double(), torch.zeros(2).double()]
    for i in range(9):
        flat = torch.cat([part[i].double().view(-1) for part in parts])
        factor = min(1.0, 0.5 / float(flat.norm()))
        for known, part in zip(expected, parts):
            known += part[i].double() * factor
    unit = 0.5 / found.grid_steps
    for found_part, known in zip(total, expected):
        assert (found_part == found_part.round()).all()
        assert torch.allclose(found_part * unit, known, atol=2e-6)


@pytest.mark.parametrize('kind', [torch.float, torch.double])
def test_no_clipped_gradient_is_longer_than_promised(kind):
    # Exactly, on integers: also where all columns are at a half of a step.
    torch.manual_seed(0)
    found = mechanism(num_parameters=1000)
    rows = torch.randn(200, 1000, dtype=kind) * torch.logspace(-3, 30, 200)[
        :, None].to(kind)
    for row in (*rows, torch.ones(1000, dtype=kind)):
        steps, = found.clipped_sum([row[None]])
        square = sum(int(value)**2 for value in steps.tolist())
        assert square <= found.grid_steps**2
        if float(row.norm()) > 1:
            assert square > 0.99 * found.grid_steps**2


def test_products_are_clipped_as_what_they_stand_for():
    # Two dense layers, one with a bias: the same as gradients written out.
    torch.manual_seed(0)
    found = mechanism(max_grad_norm=0.5)
    scale = torch.logspace(-3, 2, 30)[:, None]
    factors = [(torch.randn(30, 5), torch.randn(30, 3) * scale),
               (torch.randn(30, 4), torch.randn(30, 2) * scale)]
    factors[0][0][3] = 0.0
    written = [torch.einsum('ni,nj->nij', b, a) for a, b in factors]
    unit = 0.5 / found.grid_steps
    for one, two in zip(found.factored_sum(factors),
                        found.clipped_sum(written)):
        assert (one == one.round()).all()
        assert torch.allclose(one * unit, two * unit, atol=5e-3)
    # Exactly: no example is longer than promised.
    for i in range(30):
        sums = found.factored_sum([(a[i:i + 1], b[i:i + 1])
                                   for a, b in factors])
        square = sum(int(value)**2 for part in sums
                     for value in part.flatten().tolist())
        assert square <= found.grid_steps**2
    factors[1][0][7, 0] = math.nan
    assert all(part.isfinite().all() for part in found.factored_sum(factors))


def test_gradients_that_are_not_finite_count_as_zero():
    found = mechanism(num_parameters=2)
    rows = torch.tensor([[1.0, 0.0], [math.nan, 1.0], [math.inf, 0.0]])
    total, = found.clipped_sum([rows])
    assert total[1] == 0 and 0 < total[0] <= found.grid_steps
    total, = found.clipped_sum([torch.empty(0, 2)])
    assert (total == 0).all()


def test_batches_are_poisson_samples():
    # Neither their size nor how often a node is in one is fixed, as with
    # batches of a shuffled list.
    found = mechanism(sample_rate=0.25)
    source, count, steps = NoiseSource.from_seed(0), 2000, 40
    drawn = np.stack([found.draw(count, source, t) for t in range(steps)])
    deviations = math.sqrt(2 * math.log(4 / FALSE_ALARM))
    spread = math.sqrt(0.25 * 0.75 * count * steps)
    assert abs(drawn.sum() - 0.25 * count * steps) < deviations * spread
    # Sizes vary as a binomial variable does, within a factor of two.
    assert 0.5 < drawn.sum(axis=1).var() / (0.25 * 0.75 * count) < 2.0
    # In the first four batches, one epoch, many nodes are in none.
    missed = (drawn[:4].sum(axis=0) == 0).mean()
    assert abs(missed - 0.75**4) < deviations / math.sqrt(count)


def test_noise_has_the_scale_that_is_promised():
    found = mechanism(num_parameters=20_000, max_grad_norm=3.0)
    source = NoiseSource.from_seed(0)
    noise, = found.release([torch.zeros(20_000).double()], source, 0)
    assert float(noise.std()) == pytest.approx(3 * found.noise_multiplier,
                                               rel=0.05)
    again, = found.release([torch.zeros(20_000).double()], source, 0)
    other, = found.release([torch.zeros(20_000).double()], source, 1)
    assert torch.equal(noise, again) and not torch.equal(noise, other)
    with pytest.raises(ValueError, match="'total' must hold 20000 numbers"):
        found.release([torch.zeros(3).double()], source, 0)


@pytest.mark.parametrize('name, given', [
    ('epsilon', {'epsilon': 0.0}), ('delta', {'delta': 1.0}),
    ('sample_rate', {'sample_rate': 1.5}), ('steps', {'steps': 0}),
    ('max_degree', {'hops': 1}), ('edges', {'edges': 1}),
    ('relation', {'relation': 'swap'}), ('max_grad_norm', {'max_grad_norm': 0}),
    ('grid_steps', {'grid_steps': 2**25})])
def test_wrong_arguments_are_refused(name, given):
    with pytest.raises(ValueError, match=f"'{name}'"):
        mechanism(**given)
