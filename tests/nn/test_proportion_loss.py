import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_dp.mechanisms import simplex_projection
from torch_geometric_dp.nn import ProportionLoss, metis_bags


@given(st.floats(0.2, 4.0), st.integers(2, 5), st.integers(0, 1000))
def test_plain_transcription(epsilon, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    n, floor = 12, 0.1
    bags = torch.randint(0, 4, (n, ), generator=generator)
    y = torch.randint(-1, classes, (n, ), generator=generator)
    y[0] = 0
    scores = torch.randn(n, classes, generator=generator)
    p = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    q = 1 / (math.exp(epsilon) + classes - 1)
    losses = []
    for bag in set(bags[y >= 0].tolist()):
        nodes = [v for v in range(n) if bags[v] == bag and y[v] >= 0]
        guess = sum(scores[v].softmax(dim=0) for v in nodes) / len(nodes)
        seen = torch.tensor([sum(int(y[v]) == j for v in nodes) / len(nodes)
                             for j in range(classes)])
        target = simplex_projection((seen - q) / (p - q))
        target = (1 - floor) * target + floor / classes
        losses.append(float((guess * (guess / target).log()).sum()))
    value = ProportionLoss(bags, epsilon, classes, floor)(scores, y)
    assert math.isclose(float(value), sum(losses) / len(losses),
                        rel_tol=1e-3, abs_tol=1e-5)


def test_gradients():
    scores = torch.randn(6, 3, dtype=torch.double, requires_grad=True)
    loss = ProportionLoss(torch.tensor([0, 0, 0, 1, 1, 2]), 1.0, 3)
    y = torch.tensor([0, 2, 1, 1, -1, -1])
    assert torch.autograd.gradcheck(lambda s: loss(s, y), (scores, ))
    loss(scores, y).backward()
    assert (scores.grad[4:] == 0).all()


def test_right_proportions_cost_nothing():
    # At a huge epsilon the labels are exact, and so is the target.
    loss = ProportionLoss(torch.zeros(4, dtype=torch.long), 40.0, 2, 1e-6)
    y = torch.tensor([0, 0, 0, 1])
    right = torch.tensor([[0.75, 0.25]]).log().expand(4, 2)
    assert float(loss(right, y)) < 1e-5 < float(loss(torch.zeros(4, 2), y))


def ring(n):
    node = torch.arange(n)
    return torch.stack([node, (node + 1) % n])


@pytest.mark.parametrize('edge_index, n', [
    (torch.empty(2, 0, dtype=torch.long), 7),
    (torch.empty(2, 0, dtype=torch.long), 0),
    (torch.tensor([[0], [0]]), 1),
    (torch.tensor([[0, 0, 1, 1], [0, 1, 0, 0]]), 5),
    (ring(40), 40),
])
@pytest.mark.parametrize('bags', [1, 2, 16])
def test_bags_cover_all_nodes(edge_index, n, bags):
    out = metis_bags(edge_index, n, bags)
    assert out.shape == (n, ) and out.dtype == torch.long
    assert ((out >= 0) & (out < bags)).all()


def test_bags_keep_neighbours_together():
    bags = metis_bags(ring(64), 64, 4)
    assert bags.bincount().min() >= 12
    assert int((bags[ring(64)[0]] != bags[ring(64)[1]]).sum()) <= 8
    assert torch.equal(bags, metis_bags(ring(64).flip(0), 64, 4))
    assert torch.equal(bags, metis_bags(ring(64).repeat(1, 2), 64, 4))


def test_bad_input():
    bags = torch.tensor([0, 1, 1])
    loss = ProportionLoss(bags, 1.0, 3)
    assert repr(loss) == ('ProportionLoss(bags=(0, 1, 1), epsilon=1.0, '
                          'num_classes=3)')
    with pytest.raises(ValueError, match="'bags' must hold"):
        ProportionLoss(bags.float(), 1.0, 3)
    with pytest.raises(ValueError, match="'bags' must hold"):
        ProportionLoss(-bags, 1.0, 3)
    with pytest.raises(ValueError, match="'floor' must lie"):
        ProportionLoss(bags, 1.0, 3, floor=0.0)
    with pytest.raises(ValueError, match='3 nodes in .bags. .got 4'):
        loss(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match='unlabelled nodes only'):
        loss(torch.zeros(3, 3), torch.full((3, ), -1))
    with pytest.raises(ValueError, match="'num_bags'"):
        metis_bags(ring(4), 4, 0)
    with pytest.raises(ValueError, match="'edge_index'"):
        metis_bags(ring(4), 3, 2)
