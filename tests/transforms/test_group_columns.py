import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_dp.transforms import GroupColumns


@pytest.fixture
def words():
    generator = torch.Generator().manual_seed(0)
    return Data(x=(torch.rand(50, 7, generator=generator) < 0.2).float())


def combined(x, group):
    """Column by column."""
    out = torch.zeros(len(x), max(group) + 1)
    for column, number in enumerate(group):
        out[:, number] = torch.maximum(out[:, number], x[:, column].float())
    return out


@pytest.mark.parametrize('dtype', [torch.float, torch.long, torch.uint8,
                                   torch.bool])
def test_side_by_side(words, dtype):
    words.x = words.x.to(dtype)
    out = GroupColumns(3)(words)
    assert repr(GroupColumns(3)) == 'GroupColumns(groups=3)'
    assert out.x.dtype == dtype and 'privacy' not in out
    assert torch.equal(out.x.float(), combined(words.x, [0, 0, 0, 1, 1, 1, 2]))


def test_at_random(words):
    transform = GroupColumns(3, seed=5)
    assert repr(transform) == 'GroupColumns(groups=3, seed=5)'
    group = transform.group_of(7)
    assert sorted(group.tolist()) == [0, 0, 0, 1, 1, 1, 2]
    assert torch.equal(group, GroupColumns(3, seed=5).group_of(7))
    assert not torch.equal(group, GroupColumns(3, seed=6).group_of(7))
    assert torch.equal(transform(words).x, combined(words.x, group.tolist()))


def test_as_given(words):
    groups = [1, 0, 0, 3, 1, 1, 0]  # Nobody is in group 2.
    out = GroupColumns(groups)(words)
    assert torch.equal(out.x, combined(words.x, groups))
    assert repr(GroupColumns(groups)) != repr(GroupColumns(groups[::-1]))


@pytest.mark.parametrize('groups, seed, message', [
    (0, None, "'groups' must have at least one column each (got 0)"),
    (-1, None, "'groups' must be an integer of at least 0 (got -1)"),
    ([0, 1.5], None, "'groups[1]' must be an integer of at least 0 (got 1.5)"),
    ([0, 1], 3, "'seed' must be left out if 'groups' tells the group of each "
     "column: nothing is drawn"),
])
def test_bad_arguments(groups, seed, message):
    with pytest.raises(ValueError) as info:
        GroupColumns(groups, seed)
    assert str(info.value) == message


def test_bad_input(words):
    with pytest.raises(ValueError, match="'groups' must have one entry for "
                       "each of the 7 columns of 'x' .got 2"):
        GroupColumns([0, 1])(words)
    words.x[3, 2] = 2
    with pytest.raises(ValueError, match="'x' must hold integers from 0 to 1 "
                       "in column 2 .got another value, or none, in row 3"):
        GroupColumns(3)(words)


@pytest.mark.parametrize('name, size, columns, sparsity', [
    ('Cora', 25, 58, 73.8), ('CiteSeer', 70, 53, 56.0)])
def test_table_2_of_the_paper(real_data, name, size, columns, sparsity,
                              tmp_path):
    from pathlib import Path
    from shutil import copytree

    from torch_geometric.datasets import Planetoid
    copytree(Path(real_data) / 'Planetoid' / name / 'raw',
             tmp_path / name / 'raw')
    data = Planetoid(str(tmp_path), name)[0]
    out = GroupColumns(size)(data)
    assert out.num_features == columns
    zeros = 100 * (out.x == 0).float().mean().item()
    assert zeros == pytest.approx(sparsity, abs=0.05)
