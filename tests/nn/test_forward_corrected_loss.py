import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_dp.mechanisms import RandomizedResponse
from torch_geometric_dp.nn import ForwardCorrectedLoss


@given(st.floats(0.1, 5.0), st.integers(2, 6), st.integers(0, 1000))
def test_plain_transcription(epsilon, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(9, classes, generator=generator)
    y = torch.randint(-1, classes, (9, ), generator=generator)
    y[0] = 0
    p = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    q = 1 / (math.exp(epsilon) + classes - 1)
    losses = []
    for row, label in zip(scores.tolist(), y.tolist()):
        if label < 0:
            continue
        total = sum(math.exp(s) for s in row)
        seen = sum(math.exp(s) / total * (p if j == label else q)
                   for j, s in enumerate(row))
        losses.append(-math.log(seen))
    value = ForwardCorrectedLoss(epsilon, classes)(scores, y)
    assert math.isclose(float(value), sum(losses) / len(losses), rel_tol=1e-4)


def test_gradients():
    scores = torch.randn(5, 3, dtype=torch.double, requires_grad=True)
    loss = ForwardCorrectedLoss(1.0, 3).double()
    y = torch.tensor([0, 2, -1, 1, 1])
    assert torch.autograd.gradcheck(lambda s: loss(s, y), (scores, ))
    loss(scores, y).backward()
    assert (scores.grad[2] == 0).all() and (scores.grad[0] != 0).all()


def test_minimiser_is_the_clean_posterior():
    # Labels in their exact noisy proportions: the minimiser over one common
    # distribution is the true one, which plain cross-entropy does not find.
    truth = torch.tensor([0.7, 0.2, 0.1], dtype=torch.double)
    noisy = truth @ RandomizedResponse(1.0, 3).transition_matrix()
    counts = (100000 * noisy).round().long()
    y = torch.arange(3).repeat_interleave(counts)

    def minimiser(loss):
        scores = torch.zeros(3, dtype=torch.double, requires_grad=True)
        optimizer = torch.optim.LBFGS([scores], max_iter=200,
                                      line_search_fn='strong_wolfe',
                                      tolerance_grad=1e-10)

        def step():
            optimizer.zero_grad()
            value = loss(scores.expand(len(y), 3), y)
            value.backward()
            return value

        optimizer.step(step)
        return scores.detach().softmax(dim=0)

    corrected = minimiser(ForwardCorrectedLoss(1.0, 3).double())
    assert torch.allclose(corrected, truth, atol=1e-3)
    plain = minimiser(torch.nn.functional.cross_entropy)
    assert torch.allclose(plain, noisy, atol=1e-3)


def test_bad_input():
    loss = ForwardCorrectedLoss(1.0, 3)
    assert repr(loss) == 'ForwardCorrectedLoss(epsilon=1.0, num_classes=3)'
    assert not list(loss.parameters()) and not loss.state_dict()
    with pytest.raises(ValueError, match="'scores' must have shape"):
        loss(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="'y' must hold one integer"):
        loss(torch.zeros(4, 3), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="'y' must hold one integer"):
        loss(torch.zeros(4, 3), torch.zeros(4))
    with pytest.raises(ValueError, match='unlabelled nodes only'):
        loss(torch.zeros(4, 3), torch.full((4, ), -1))
    with pytest.raises(ValueError, match="integers below 3.*got 3"):
        loss(torch.zeros(4, 3), torch.tensor([0, 1, 2, 3]))
    with pytest.raises(ValueError, match="'epsilon'"):
        ForwardCorrectedLoss(0.0, 3)
