import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_geometric_dp.mechanisms import ClassSums
from torch_geometric_dp.mechanisms.centred_rows import centred, to_grid
from torch_geometric_dp.noise import NoiseSource

STEPS = 2**20


def rows(nodes=30, columns=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(nodes, columns, generator=generator, dtype=torch.double)
    x *= torch.rand(nodes, columns, generator=generator) < 0.4
    scale = 0.1 + torch.rand(columns, generator=generator).double()
    centre = 0.3 * torch.rand(columns, generator=generator).double()
    return x, scale, centre


def test_against_dense_rows():
    x, scale, centre = rows()
    x[3] = 0
    expected = scale * x - centre
    expected = expected / expected.norm(dim=1, keepdim=True)
    matrix, factor = centred(x.to_sparse_csr(), scale, centre)
    assert torch.allclose(matrix.to_dense() - torch.outer(factor, centre),
                          expected)
    grid = to_grid(x.to_sparse_csr(), scale, centre, STEPS)
    assert torch.allclose(grid.to_dense() / STEPS, expected, atol=0.01)
    votes = torch.randint(-9, 10, (30, 4)).double()
    assert torch.equal(grid.sums(votes).double(), grid.to_dense().t() @ votes)


@settings(max_examples=40)
@given(data=st.data())
def test_norms_in_integers(data):
    # In Python's own integers: no row is longer than the number of steps.
    number = st.floats(0, 1) | st.sampled_from([0.0, 1e-9, 1.0])
    columns = 4
    x = torch.tensor([data.draw(st.lists(number, min_size=columns,
                                         max_size=columns))
                      for _ in range(3)], dtype=torch.double)
    scale = torch.tensor(data.draw(st.lists(
        st.floats(1e-3, 1e3), min_size=columns, max_size=columns))).double()
    centre = scale * torch.tensor(data.draw(st.lists(
        number, min_size=columns, max_size=columns))).double()
    for steps in (STEPS, 2**12):
        dense = to_grid(x.to_sparse_csr(), scale, centre, steps).to_dense()
        for row in dense.tolist():
            whole = [int(v) for v in row]
            assert whole == row
            assert sum(v * v for v in whole) <= steps**2


def test_rows_at_the_centre_and_no_centre():
    x, scale, _ = rows()
    zero = torch.zeros(12, dtype=torch.double)
    grid = to_grid(x.to_sparse_csr(), scale, zero, STEPS)
    norm = grid.to_dense().norm(dim=1)
    assert (norm[x.norm(dim=1) > 0] > 0.99 * STEPS).all()
    same = x[:1].expand(3, -1).contiguous()
    grid = to_grid(same.to_sparse_csr(), scale, scale * x[0], STEPS)
    assert grid.to_dense().norm(dim=1).max() <= STEPS


@pytest.mark.parametrize('steps', [STEPS, 2**12])
def test_a_node_changes_a_release_by_one_at_most(steps):
    # The sums of all nodes, and of all but one, over all nodes and many votes.
    x, scale, centre = rows(8, 5)
    mechanism = ClassSums(1.0, 5, 3, 1e-5, row_steps=steps)
    grid = to_grid(x.to_sparse_csr(), scale, centre, steps)
    largest = 0.0
    for votes in (torch.eye(3)[torch.arange(8) % 3], torch.randn(8, 3),
                  -torch.eye(3)[torch.arange(8) % 3]):
        votes = mechanism.votes(votes)
        for node in range(8):
            without = votes.clone()
            without[node] = 0
            change = (grid.sums(votes) - grid.sums(without)).double().norm()
            largest = max(largest, float(change))
    whole = steps * mechanism.vote_steps
    assert 0.9 * whole < largest <= whole
    noisy = mechanism.release(grid, votes, NoiseSource.from_seed(0))
    assert noisy.shape == (5, 3)
