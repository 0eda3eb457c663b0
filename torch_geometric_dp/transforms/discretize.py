from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._typing import Bounds
from torch_geometric_dp._validate import check_integer, check_integers
from torch_geometric_dp.storage import empty, row_blocks
from torch_geometric_dp.transforms.feature_transform import (
    check_bounds,
    feature_stores,
)


@functional_transform('dp_discretize')
class Discretize(Captured, BaseTransform):
    r"""Turns continuous columns into the numbers of bins of equal width, from 0
    on, for transforms that release integers (functional name:
    :obj:`dp_discretize`).

    It releases nothing: each node does it for itself, before a release. Bounds
    and bins are public numbers, so it costs nothing, either.

    Args:
        bounds (tuple): The lowest and the highest value, each of them one for
            all columns or one for each; public numbers.
        bins (int or sequence of ints): The number of bins of all columns, or
            of each of them.
        columns (sequence of ints, optional): The columns to discretise, which
            :obj:`bounds` and :obj:`bins` belong to; the others stay as they
            are. By default, all columns. (default: :obj:`None`)
        clip (bool, optional): If set to :obj:`True`, values outside the bounds
            go to the outermost bins; by default, they are refused.
            (default: :obj:`False`)

    .. code-block:: python

        transform = Discretize(bounds=(0.0, 1.0), bins=4)
        private = GRRFS(4.0, num_sampled=2, domain_sizes=4)(transform(data))
        middles = transform.decode(private.x)
    """
    def __init__(self, bounds: Bounds,
                 bins: int | Sequence[int],
                 columns: Sequence[int] | None = None,
                 clip: bool = False) -> None:
        self.bounds = check_bounds(bounds)
        self.bins = check_integers('bins', bins, 2)
        self.columns = None if columns is None else tuple(
            check_integer(f'columns[{i}]', column, 0)
            for i, column in enumerate(columns))
        self.clip = bool(clip)

    def forward(self, data: Any) -> Any:
        """Discretises the features of all node types that have some."""
        for store in feature_stores(data):
            store.x = self._map(store.x, self._number)
        return data

    def decode(self, x: Tensor) -> Tensor:
        """The middle of each bin, in place of its number; for the mean of
        several numbers, the mean of their middles.
        """
        def middle(number: Tensor, first: int, low: Tensor, high: Tensor,
                   bins: Tensor) -> Tensor:
            return low + (number + 0.5) / bins * (high - low)

        return self._map(x if x.is_floating_point() else x.float(), middle)

    def _map(self, x: Tensor, function: Any) -> Tensor:
        # What a function makes of the columns of a block, its first row, and
        # the columns' bounds and bins.
        d = x.size(1)
        columns = range(d) if self.columns is None else self.columns
        if max(columns, default=0) >= d:
            raise ValueError(f"'columns' must lie below {d}, the number of "
                             f"columns of 'x' (got {max(columns)})")
        public = []
        for name, value in (('bounds', self.bounds[0]),
                            ('bounds', self.bounds[1]), ('bins', self.bins)):
            row = torch.tensor(value, dtype=torch.double, device=x.device)
            if row.dim() > 0 and row.shape != (len(columns), ):
                raise ValueError(f"'{name}' must have one entry for each of "
                                 f"the {len(columns)} columns (got "
                                 f"{list(row.shape)})")
            public.append(row)
        out = empty(x.shape, x.dtype, x.device)
        for start, stop in row_blocks(x.size(0), d):
            block = x[start:stop].clone()
            values = block[:, list(columns)].double()
            block[:, list(columns)] = function(values, start, *public).to(
                x.dtype)
            out[start:stop] = block
        return out

    def _number(self, x: Tensor, first: int, low: Tensor, high: Tensor,
                bins: Tensor) -> Tensor:
        wrong = x.isnan() if self.clip else ~((x >= low) & (x <= high))
        if wrong.any():
            row, column = wrong.nonzero()[0].tolist()
            limits = [bound.expand(x.size(1))[column].item()
                      for bound in (low, high)]
            name = column if self.columns is None else self.columns[column]
            raise ValueError(
                f"'x' must lie within its bounds, from {limits[0]} to "
                f"{limits[1]} in column {name} (got another value in "
                f"row {first + row})")
        number = ((x - low) / (high - low) * bins).floor()
        # The highest value belongs to the last bin.
        return number.clamp(min=0).minimum(bins - 1)
