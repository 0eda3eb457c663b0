import math
from typing import Any, Optional

import torch
from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.accountant.guarantee import Parameter
from torch_geometric_dp.mechanisms import RandomizedResponse
from torch_geometric_dp.mechanisms.checks import check_integer
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.private_transform import (
    PrivateTransform,
    node_stores_with,
)


@functional_transform('dp_label_rr')
class LabelRR(PrivateTransform):
    r"""Releases node labels by randomised response in the local model
    (functional name: :obj:`dp_label_rr`).

    A label :math:`v` out of :math:`c` is kept with probability

    .. math::
        p = \frac{e^{\varepsilon}}{e^{\varepsilon} + c - 1}

    and is otherwise replaced by one of the others, all equally likely. The
    released label is :math:`\varepsilon`-locally private; the proof stands in
    :mod:`torch_geometric_dp.mechanisms.randomized_response`.

    Multi-label :obj:`y` of shape :obj:`[num_nodes, num_classes]` with entries 0
    and 1 is released by binary randomised response on each entry with
    :math:`\varepsilon / c`: a node's whole row is :math:`\varepsilon`-private
    by basic composition.

    Args:
        epsilon (float): The privacy loss of one node's label(s).
        num_classes (int): The number of classes :math:`c`, or of labels in
            multi-label :obj:`y`; a public number.
        mask (str, optional): The name of a boolean node field, which is
            public: only the labels that it selects are released, and all
            others are set to :obj:`-1`. By default, all labels are released.
            (default: :obj:`None`)
        keep_unmasked (bool, optional): If set to :obj:`True`, labels outside
            :obj:`mask` stay as they are, without any protection, and the ledger
            says so. (default: :obj:`False`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data = DigitsGraph()[0]
        private = LabelRR(epsilon=2.0, num_classes=10, mask='train_mask')(data)
        private.privacy.epsilon('labels')   # 2.0
    """
    def __init__(self, epsilon: float, num_classes: int,
                 mask: Optional[str] = None, keep_unmasked: bool = False,
                 seed: Optional[int] = None) -> None:
        super().__init__(seed)
        self.epsilon = RandomizedResponse(epsilon, num_classes).epsilon
        self.num_classes = check_integer('num_classes', num_classes, 2)
        if mask is not None and not isinstance(mask, str):
            raise TypeError(f"'mask' must be the name of a boolean node field, "
                            f"such as 'train_mask' "
                            f"(got '{type(mask).__name__}')")
        if keep_unmasked and mask is None:
            raise ValueError("'keep_unmasked' needs a 'mask': without one, "
                             "all labels are released")
        self.mask = mask
        self.keep_unmasked = bool(keep_unmasked)

    @property
    def mechanism(self) -> RandomizedResponse:
        """The randomised response of one label out of all classes."""
        return RandomizedResponse(self.epsilon, self.num_classes)

    @property
    def guarantee(self) -> Guarantee:
        """One node's labels, in the local model."""
        assumptions = []
        if self.mask is not None:
            assumptions.append(f"'{self.mask}' is public")
        if self.keep_unmasked:
            assumptions.append(f"the labels outside '{self.mask}', which were "
                               f"kept as they are, are public")
        return Guarantee(self.epsilon, 'labels',
                         "the labels of one node are replaced",
                         assumptions=tuple(assumptions))

    @property
    def parameters(self) -> tuple[tuple[str, Parameter], ...]:
        """What it takes to undo the bias."""
        out: list[tuple[str, Parameter]] = [('num_classes', self.num_classes)]
        if self.keep_unmasked:  # Then -1 does not tell what was released.
            out.append(('kept_outside', self.mask))
        return tuple(out)

    def read(self, data: Any) -> list[tuple[BaseStorage, str]]:
        """The labels of all node types that have some."""
        stores = node_stores_with(data, 'y')
        for store in stores:
            self._mechanism(store.y).check(store.y, 'y', self._selected(store))
        return [(store, 'y') for store in stores]

    def write(self, store: BaseStorage, field: str,
              source: NoiseSource) -> None:
        """Draws the labels of one node type."""
        raw, selected = store[field], self._selected(store)
        out = self._mechanism(raw)(raw, source, selected)
        if self.keep_unmasked and selected is not None:
            rows = selected.view(-1, *[1] * (raw.dim() - 1))
            out = torch.where(rows, out, raw.to(out.dtype))
        store[field] = out

    def _mechanism(self, y: Tensor) -> RandomizedResponse:
        return label_response(y, self.epsilon, self.num_classes)

    def _selected(self, store: BaseStorage) -> Optional[Tensor]:
        if self.mask is None:
            return None
        mask, rows = store.get(self.mask), store.y.size(0)
        if mask is None:
            raise ValueError(f"'{self.mask}' is missing: it selects the labels "
                             f"to release (got the fields "
                             f"{sorted(map(str, store.keys()))})")
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            kind = mask.dtype if isinstance(mask, Tensor) else type(mask)
            raise TypeError(f"'{self.mask}' must be a boolean tensor "
                            f"(got {kind})")
        if mask.dim() != 1 or mask.size(0) != rows:
            raise ValueError(f"'{self.mask}' must have shape [{rows}], one "
                             f"entry for each row of 'y' "
                             f"(got {list(mask.shape)})")
        return mask

    def __repr__(self) -> str:
        args = [f'epsilon={self.epsilon}', f'num_classes={self.num_classes}']
        if self.mask is not None:
            args.append(f"mask='{self.mask}'")
        if self.keep_unmasked:
            args.append('keep_unmasked=True')
        if self.seed is not None:
            args.append(f'seed={self.seed}')
        return f"{self.__class__.__name__}({', '.join(args)})"


def label_response(y: Tensor, epsilon: float,
                   num_classes: int) -> RandomizedResponse:
    """The randomised response of each entry of labels, whose shape tells
    whether there is one for each node, or a row of binary ones.
    """
    if not isinstance(y, Tensor):
        raise TypeError(f"'y' must be a tensor (got '{type(y).__name__}')")
    if y.dim() == 2 and y.size(1) > 1:  # Multi-label.
        if y.size(1) != num_classes:
            raise ValueError(
                f"'y' must have shape [num_nodes] or [num_nodes, "
                f"{num_classes}], as 'num_classes' says "
                f"(got {list(y.shape)})")
        # Rounded down, so that the parts never add up to more.
        part = math.nextafter(epsilon / num_classes, 0.0)
        return RandomizedResponse(part, 2)
    if y.dim() == 0 or y.dim() > 2:
        raise ValueError(f"'y' must have shape [num_nodes] or [num_nodes, "
                         f"{num_classes}] (got {list(y.shape)})")
    if y.is_floating_point() or y.is_complex():
        raise ValueError(f"'y' must hold integer classes from 0 to "
                         f"{num_classes - 1} (got {y.dtype})")
    return RandomizedResponse(epsilon, num_classes)
