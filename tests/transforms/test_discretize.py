import math

import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_dp import storage
from torch_geometric_dp.transforms import Discretize


def test_discretize(graph):
    raw = graph.x.clone()
    transform = Discretize(bounds=(0.0, 1.0), bins=4)
    assert repr(transform) == 'Discretize(bounds=(0.0, 1.0), bins=4)'
    out = transform(graph)
    assert torch.equal(graph.x, raw) and 'privacy' not in out
    assert out.x.dtype == raw.dtype
    assert torch.equal(out.x, (raw * 4).floor().clamp(max=3))
    # Half a bin away from the middle, at the most.
    assert (transform.decode(out.x) - raw).abs().max() <= 1 / 8 + 1e-6


def test_every_column_has_its_own_bins():
    x = torch.tensor([[-1.0, 10.0, 7.0], [1.0, 19.9, 8.0], [0.0, 20.0, 9.0]],
                     dtype=torch.double)
    transform = Discretize(([-1.0, 10.0], torch.tensor([1.0, 20.0])), [2, 10],
                           columns=[0, 1])
    out = transform(Data(x=x)).x
    assert out.tolist() == [[0, 0, 7], [1, 9, 8], [1, 9, 9]]
    assert transform.decode(out).tolist() == [
        [-0.5, 10.5, 7], [0.5, 19.5, 8], [0.5, 19.5, 9]]
    assert transform.decode(out.long()).tolist() == transform.decode(
        out).tolist()
    other = Discretize(([-1.0, 10.0], [1.0, 21.0]), [2, 10], columns=[0, 1])
    assert repr(other) != repr(transform)


def test_clip():
    x = torch.tensor([[-7.0], [0.5], [math.inf], [-math.inf]])
    transform = Discretize((0.0, 1.0), 3, clip=True)
    assert transform(Data(x=x)).x.view(-1).tolist() == [0, 1, 2, 0]
    assert repr(transform).endswith('bins=3, clip=True)')


@pytest.mark.parametrize('x, clip, message', [
    ([[0.5, 1.5]], False, "'x' must lie within its bounds, from 0.0 to 1.0 in "
     "column 1 (got another value in row 0)"),
    ([[0.5, 0.5], [-0.1, 0.5]], False, "'x' must lie within its bounds, from "
     "0.0 to 1.0 in column 0 (got another value in row 1)"),
    ([[math.nan, 0.5]], True, "'x' must lie within its bounds, from 0.0 to 1.0 "
     "in column 0 (got another value in row 0)"),
])
def test_values_outside_the_bounds(x, clip, message):
    with pytest.raises(ValueError) as info:
        Discretize((0.0, 1.0), 2, clip=clip)(Data(x=torch.tensor(x)))
    assert str(info.value) == message


def test_the_row_of_a_value_in_a_later_block(monkeypatch):
    monkeypatch.setattr(storage, 'BLOCK_CELLS', 4)
    x = torch.zeros(9, 2)
    x[7, 1] = 2.0
    with pytest.raises(ValueError, match='in column 1 .* in row 7'):
        Discretize((0.0, 1.0), 2)(Data(x=x))


@pytest.mark.parametrize('arguments, message', [
    (((1.0, 0.0), 2), "'bounds' must be finite, and the lower one below the "
     "upper one (got (1.0, 0.0))"),
    ((1.0, 2), "'bounds' must be a pair, the lowest and the highest value "
     "(got 1.0)"),
    (((0.0, 1.0), 1), "'bins' must be an integer of at least 2 (got 1)"),
    (((0.0, 1.0), [2, 2.5]), "'bins[1]' must be an integer of at least 2 "
     "(got 2.5)"),
    (((0.0, 1.0), 2, [-1]), "'columns[0]' must be an integer of at least 0 "
     "(got -1)"),
])
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError) as info:
        Discretize(*arguments)
    assert str(info.value) == message


@pytest.mark.parametrize('transform, message', [
    (Discretize((0.0, 1.0), [2, 2]), "'bins' must have one entry for each of "
     "the 3 columns (got [2])"),
    (Discretize(([0.0, 0.0], 1.0), 2), "'bounds' must have one entry for each "
     "of the 3 columns (got [2])"),
    (Discretize((0.0, 1.0), 2, [3]), "'columns' must lie below 3, the number "
     "of columns of 'x' (got 3)"),
])
def test_another_number_of_columns(graph, transform, message):
    with pytest.raises(ValueError) as info:
        transform(graph)
    assert str(info.value) == message
