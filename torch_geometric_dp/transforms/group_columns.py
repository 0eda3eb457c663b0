from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import scatter

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._validate import check_integers
from torch_geometric_dp.mechanisms import GRRFS
from torch_geometric_dp.storage import empty, row_blocks
from torch_geometric_dp.transforms.feature_transform import feature_stores


@functional_transform('dp_group_columns')
class GroupColumns(Captured, BaseTransform):
    r"""Combines groups of binary columns into one column each, which is 1 if
    any of them is (functional name: :obj:`dp_group_columns`).

    `RGNN` does so with words, nearly all of which are 0 in nearly all rows:
    fewer columns that are less sparse can be randomised with less noise. Cora's
    1,433 words in groups of 25 leave 58 columns.

    It releases nothing: each node does it for itself, before a release. The
    groups are public, so it costs nothing, either.

    Args:
        groups (int or sequence of ints): The number of columns in a group, or
            the number of the group, from 0 on, that each column belongs to.
        seed (int, optional): If :obj:`groups` is one number, puts columns
            together at random, in a way that belongs to the seed. By default,
            groups are made of columns that stand side by side.
            (default: :obj:`None`)

    .. code-block:: python

        data.x = (data.x > 0.9).float()
        GroupColumns(2)(data).x.shape               # torch.Size([30, 2])
        GroupColumns([0, 1, 1, 2])(data).x.shape    # torch.Size([30, 3])
    """
    def __init__(self, groups: int | Sequence[int],
                 seed: int | None = None) -> None:
        self.groups = check_integers('groups', groups, 0)
        if self.groups == 0:
            raise ValueError("'groups' must have at least one column each "
                             "(got 0)")
        if isinstance(self.groups, tuple) and seed is not None:
            raise ValueError("'seed' must be left out if 'groups' tells the "
                             "group of each column: nothing is drawn")
        self.seed = None if seed is None else int(seed)

    def group_of(self, num_features: int) -> Tensor:
        """The group of each of so many columns."""
        if isinstance(self.groups, int):
            group = torch.arange(num_features) // self.groups
            if self.seed is None:
                return group
            generator = torch.Generator().manual_seed(self.seed)
            return group[torch.randperm(num_features, generator=generator)]
        if len(self.groups) != num_features:
            raise ValueError(f"'groups' must have one entry for each of the "
                             f"{num_features} columns of 'x' "
                             f"(got {len(self.groups)})")
        return torch.tensor(self.groups)

    def forward(self, data: Any) -> Any:
        """Combines the columns of all node types that have features."""
        for store in feature_stores(data):
            x = store.x
            GRRFS(1.0, 1, 2, x.size(1)).check(x)  # Zeros and ones alone.
            group = self.group_of(x.size(1)).to(x.device)
            out = empty((x.size(0), int(group.max()) + 1), x.dtype, x.device)
            for start, stop in row_blocks(*x.shape):
                out[start:stop] = scatter(x[start:stop], group, dim=1,
                                          reduce='max')
            store.x = out
        return data
