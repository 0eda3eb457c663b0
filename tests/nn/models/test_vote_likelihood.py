import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from torch_geometric_dp.nn.models.vote_likelihood import VoteLikelihood


def density(s, mean, scale):
    """The equation, as it stands."""
    counts = np.arange(400)
    return float((stats.poisson.pmf(counts, mean) * np.exp(
        -np.abs(s - counts) / scale) / (2 * scale)).sum())


def simulated(n=2000, degree=6.0, scale=1.0, seed=0):
    random = np.random.RandomState(seed)
    affinity = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    y = random.randint(3, size=n)
    votes = random.poisson(degree * affinity[y]) + random.laplace(
        0, scale, (n, 3))
    return affinity, torch.tensor(y), torch.tensor(votes)


@pytest.mark.parametrize('scale', [0.25, 1.0, 10.0])
def test_the_table_is_the_equation(scale):
    _, y, votes = simulated(scale=scale)
    law = VoteLikelihood(votes, torch.zeros(2000, 3), y, scale)
    points = law.low + law.step * np.arange(len(law.table))
    for row in range(0, len(points), 400):
        for column in (0, 20, 60, 95):
            assert math.exp(law.table[row, column]) == pytest.approx(
                density(points[row], law.means[column], scale), rel=1e-6,
                abs=1e-12)
    assert integrate.quad(density, -100, 200, (20.0, scale), limit=2000,
                          points=[20])[0] == pytest.approx(1, abs=1e-4)


def test_what_neighbours_say_is_learnt():
    affinity, y, votes = simulated()
    prior = torch.full((2000, 3), -math.log(3))
    known = torch.where(torch.arange(2000) % 2 == 0, y, -1)
    law = VoteLikelihood(votes, prior, known, 1.0)
    assert np.abs(law.affinity - affinity).max() < 0.08
    # As good as whoever knows the law.
    best = sum(torch.tensor([[math.log(density(
        float(v), 6 * affinity[k, j], 1.0) + 1e-300) for k in range(3)]
        for v in votes[1::2, j]]) for j in range(3))
    ours, theirs = (float((score.argmax(dim=1) == y[1::2]).float().mean())
                    for score in (law(votes)[1::2], best))
    assert theirs > 0.7 and ours > theirs - 0.02


def test_without_noise_and_without_votes():
    votes = torch.tensor([[3.0, 0.0], [0.0, 5.0], [0.0, 0.0]])
    law = VoteLikelihood(votes, torch.zeros(3, 2), torch.tensor([0, 1, -1]),
                         0.0)
    score = law(votes)
    assert score.isfinite().all()
    assert score[:2].argmax(dim=1).tolist() == [0, 1]
    assert abs(float(score[2, 0] - score[2, 1])) < 0.1
    law = VoteLikelihood(torch.zeros(2, 3), torch.zeros(2, 3),
                         torch.tensor([-1, -1]), 1.0)
    assert law(torch.full((2, 3), 1e6)).isfinite().all()
