import numpy as np
import pytest
import torch

from torch_geometric_dp.attacks.decoder import (
    EVIDENCE,
    Decoder,
    Forward,
    Linear,
    Network,
    select,
)


def doubles(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.double,
                       generator=torch.Generator().manual_seed(seed))


def test_ridge_regression_by_its_equation():
    z, x, new = doubles(20, 5), doubles(20, 3, seed=1), doubles(4, 5, seed=2)
    found = Linear(z, x, copies=0)(new, strength=0.3)
    centre, scale = z.mean(dim=0), z.std(dim=0, correction=0)
    z, new = (z - centre) / scale, (new - centre) / scale
    matrix = z.t() @ z + 0.3 * 20 * torch.eye(5)
    weights = torch.linalg.solve(matrix, z.t() @ (x - x.mean(dim=0)))
    assert torch.allclose(found, x.mean(dim=0) + new @ weights)


def test_least_squares_column_by_column():
    # Strong ridge regression leaves what each column's two copies tell.
    z, x = doubles(30, 7), doubles(30, 3, seed=1)
    found = Linear(z, x, copies=2)(z, strength=1e12)
    for j in range(3):
        inputs = np.column_stack([np.ones(30), z[:, j], z[:, 3 + j]])
        weights = np.linalg.lstsq(inputs, x[:, j].numpy(), rcond=None)[0]
        assert np.allclose(found[:, j], inputs @ weights, atol=1e-6)


def test_constant_columns_tell_nothing():
    z = torch.ones(10, 2, dtype=torch.double)
    linear = Linear(z, doubles(10, 2), copies=1)
    assert torch.allclose(linear(5 * z, 1e-8),
                          doubles(10, 2).mean(dim=0).expand(10, 2))


def test_posterior_mean_by_its_equation():
    x, z, new = doubles(15, 2), doubles(15, 2, seed=1), doubles(3, 2, seed=2)
    forward = Forward(z, x, strength=1e12)
    found = forward.posterior_mean(new, x)
    model = []
    for j in range(2):
        slope, shift = np.polyfit(x[:, j], z[:, j], 1)
        seen = slope * x[:, j].numpy() + shift
        model.append((seen, np.mean((z[:, j].numpy() - seen)**2)))
    for row, mean in zip(new, found):
        logs = sum(-(float(row[j]) - seen)**2 / (2 * variance)
                   for j, (seen, variance) in enumerate(model))
        weights = np.exp(logs - logs.max())
        wanted = weights @ x.numpy() / weights.sum()
        assert mean.tolist() == pytest.approx(wanted.tolist(), rel=1e-5)


def test_a_network_that_is_of_no_use_is_not_used():
    z = doubles(40, 2)
    network = Network(z, z.abs(), seed=0)
    assert torch.equal(network(z), torch.zeros(40, 2))
    assert network.best(z, -z.abs()) == 0  # It learns the opposite.
    assert torch.equal(network(z), torch.zeros(40, 2))


def test_a_network_stops_where_it_was_best():
    z = doubles(200, 1)
    one, two = Network(z, z.abs(), seed=0), Network(z, z.abs(), seed=0)
    steps = one.best(doubles(50, 1, seed=1), doubles(50, 1, seed=1).abs())
    two.train(steps)
    assert steps > 0 and torch.equal(one(z), two(z))
    assert float((one(z) - z.abs()).square().mean()) < 0.02


def decode(released, x, extra=None, options=(('released', ), ), count=None):
    blocks = {'released': released} | (extra or {})
    count = count or len(x) // 2
    fit = torch.arange(count) % 5 > 0
    known, hidden = torch.arange(len(x)) < count, torch.arange(len(x)) >= count
    decoder = Decoder(select(blocks, known), x[known], options, fit, seed=0)
    return decoder, decoder(select(blocks, hidden)), x[hidden]


def test_what_is_not_linear_takes_the_network():
    x = doubles(1200, 2).clamp(-2, 2)
    angle = x @ doubles(2, 6, seed=1)
    decoder, found, truth = decode(angle.sin(), x)
    ridge = Linear(angle.sin()[:600], x[:600], 0)(angle.sin()[600:], 1e-8)
    error, linear = ((a - truth).square().mean() for a in (found, ridge))
    assert decoder.choice.steps > 0
    assert error < 0.5 * linear


def test_inputs_that_help_are_used_and_others_are_not():
    x = doubles(300, 2)
    options = [('released', ), ('released', 'other')]
    noise = doubles(300, 2, seed=1)
    decoder, found, truth = decode(noise, x, {'other': 2 * x}, options)
    assert decoder.choice.inputs == ('released', 'other')
    assert (found - truth).abs().max() < 1e-4
    decoder, _, _ = decode(x + 0.1 * noise, x,
                           {'other': doubles(300, 60, seed=2)}, options, 100)
    assert decoder.choice.inputs == ('released', )


def test_identifies_by_what_explains_and_by_what_is_near():
    x, noise = doubles(200, 6), doubles(200, 6, seed=1)
    for scale, least in ((0.0, 1.0), (0.2, 0.9)):
        released = (3 * x + scale * noise).flip(1)
        decoder, _, truth = decode(released, x)
        hidden = {'released': released[100:]}
        for evidence in ((1.0, 0.0), (1.0, 1.0), (0.0, 1.0)):
            decoder.choice.evidence = evidence
            guess = decoder.identify(hidden, truth)
            assert (guess == torch.arange(100)).double().mean() >= least


@pytest.mark.parametrize('explains, near', EVIDENCE)
def test_evidence_counts_as_much_as_it_says(explains, near):
    x, released = doubles(60, 3), doubles(60, 3, seed=1)
    decoder, found, truth = decode(released, x)
    decoder.choice.evidence = (explains, near)
    seen = -(found[:, None] - truth).square().sum(dim=2)
    score = near * seen / (2 * decoder.choice.error) + (
        explains * decoder._forward.log_likelihood(released[30:], truth))
    assert torch.equal(decoder.identify({'released': released[30:]}, truth),
                       score.argmax(dim=1))


def test_memory_is_bounded_by_blocks(monkeypatch):
    x, noise = doubles(60, 3), doubles(60, 3, seed=1)
    decoder, found, truth = decode(x + noise, x)
    blocks = {'released': (x + noise)[30:]}
    guess = decoder.identify(blocks, truth)
    monkeypatch.setattr('torch_geometric_dp.attacks.decoder._CELLS', 64)
    assert torch.allclose(decoder(blocks), found)
    assert torch.equal(decoder.identify(blocks, truth), guess)
