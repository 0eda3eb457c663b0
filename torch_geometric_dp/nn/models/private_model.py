from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from torch_geometric_dp.accountant import (
    Guarantee,
    PrivacyAccountant,
    PrivacyBudget,
    Release,
)
from torch_geometric_dp.noise import NoiseSource


class PrivateModel(torch.nn.Module):
    r"""The base of models that are fitted to a private graph. Each call of
    :obj:`fit` is a release of its own: charge first, then draw. It is charged
    to the graph's :obj:`privacy_budget`, if there is one, and entered in
    :obj:`privacy`.

    Args:
        num_classes (int): The number of classes, a public number.
        mask (str): The boolean node field that selects the labels to learn
            from.
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)
    """
    def __init__(self, num_classes: int, mask: str,
                 seed: Optional[int] = None) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.mask = mask
        self.seed = None if seed is None else int(seed)
        #: The ledger of all that was released to fit this model.
        self.privacy = PrivacyAccountant()
        self._fits = 0  # Numbers the fits of a seeded model.

    def start(self) -> NoiseSource:
        """A new source of noise, for one fit."""
        self._fits += 1
        if self.seed is None:
            return NoiseSource.from_os()
        return NoiseSource.from_seed(self.seed).derive('fit', self._fits)

    def charge(self, data: Any, source: NoiseSource,
               parts: Sequence[tuple[Guarantee, str, tuple[str, ...]]],
               ) -> None:
        """Enters releases (guarantee, mechanism, fields) in the ledger, after
        the graph's budget has agreed to all of them.
        """
        budget = getattr(data, 'privacy_budget', None)
        if budget is not None and not isinstance(budget, PrivacyBudget):
            raise TypeError(f"'privacy_budget' must be a 'PrivacyBudget' "
                            f"(got '{type(budget).__name__}')")
        releases = [
            Release(guarantee, mechanism, fields,
                    source.digest('release', i).hex()[:32],
                    graph=None if budget is None else budget.identity,
                    seed=self.seed)
            for i, (guarantee, mechanism, fields) in enumerate(parts)
        ]
        for release in releases:
            if budget is not None:
                budget.charge(release)
        # What the graph brings along was released before, and is read here.
        self.privacy = PrivacyAccountant.merge(
            [self.privacy, PrivacyAccountant.of(data),
             PrivacyAccountant(tuple(releases))])

    def labels(self, data: Any) -> tuple[Tensor, Tensor]:
        """Which nodes have a label to learn from, and all labels; checked."""
        mask, y = data.get(self.mask), data.get('y')
        rows = data.num_nodes
        if not isinstance(y, Tensor) or y.shape != (rows, ):
            got = list(y.shape) if isinstance(y, Tensor) else y
            raise ValueError(f"'y' must have shape [{rows}], one class for "
                             f"each node (got {got})")
        if (not isinstance(mask, Tensor) or mask.dtype != torch.bool
                or mask.shape != (rows, )):
            got = (f'{mask.dtype} of shape {list(mask.shape)}' if isinstance(
                mask, Tensor) else mask)
            raise ValueError(f"'{self.mask}' must be a boolean tensor of shape "
                             f"[{rows}] (got {got})")
        wrong = mask & ((y < 0) | (y >= self.num_classes))
        if wrong.any():
            row = int(wrong.int().argmax())
            raise ValueError(f"'y' must hold classes from 0 to "
                             f"{self.num_classes - 1} (got {int(y[row])} in "
                             f"row {row})")
        return mask, y

    def features(self, data: Any, columns: int) -> Tensor:
        """The features, dense or sparse; checked."""
        x = data.get('x')
        if (not isinstance(x, Tensor) or not x.is_floating_point()
                or x.dim() != 2 or x.size(1) != columns):
            got = (f'{x.dtype} of shape {list(x.shape)}' if isinstance(
                x, Tensor) else x)
            raise ValueError(f"'x' must hold floating point numbers in shape "
                             f"[num_nodes, {columns}] (got {got})")
        values = x if x.layout == torch.strided else (
            x.to_sparse().coalesce().values())
        if not values.isfinite().all():
            raise ValueError(f"'x' must be finite (got "
                             f"{float(values[~values.isfinite()][0])})")
        return x
