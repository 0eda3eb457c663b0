import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp._validate import check_epsilon, check_integer
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.accountant.entry import Pairs
from torch_geometric_dp.mechanisms import RandomizedResponse
from torch_geometric_dp.mechanisms.mechanism import Canary, LabelPair
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.release import field_name
from torch_geometric_dp.transforms.private_transform import (
    Field,
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
            others are set to :obj:`-1`, which a loss has to leave out, as
            :obj:`F.cross_entropy(out, private.y, ignore_index=-1)` does. By
            default, all labels are released. (default: :obj:`None`)
        keep_unmasked (bool, optional): If set to :obj:`True`, labels outside
            :obj:`mask` stay as they are, without any protection, and the ledger
            says so. (default: :obj:`False`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data = DigitsGraph()[0]
        private = LabelRR(epsilon=2.0, num_classes=10, mask='train_mask')(data)
        private.privacy.epsilon('labels')   # 2.0

        out = torch.nn.Linear(64, 10)(private.x)
        loss = torch.nn.functional.cross_entropy(out, private.y,
                                                 ignore_index=-1)
    """
    def __init__(self, epsilon: float, num_classes: int,
                 mask: str | None = None, keep_unmasked: bool = False,
                 seed: int | None = None) -> None:
        super().__init__(seed)
        self.epsilon = check_epsilon(epsilon)
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

    def canaries(self, data: Any | None = None) -> Sequence[Canary]:
        """Those of the mechanism, or none and all of several labels; if there
        is a mask, those that it hides, too.
        """
        out: list[Any] = [replace(pair, mask=self.mask)
                          for pair in self.mechanism.canaries()]
        if data is not None and data.y is not None and data.y.dim() == 2 and (
                data.y.size(1) > 1):
            none, all_of_them = ((value, ) * data.y.size(1) for value in (0, 1))
            out = [LabelPair(none, all_of_them, self.mask)]
        if self.mask is not None and not self.keep_unmasked:
            out.append(replace(out[0], selected=False))
        return out

    @property
    def guarantee(self) -> Guarantee:
        """One node's labels, in the local model."""
        return Guarantee(self.epsilon, Unit.LABELS, Relation.REPLACE)

    def public(self, fields: list[Field],
               ) -> tuple[tuple[str, Unit | None], ...]:
        """The mask, and what stays outside of it."""
        out: list[tuple[str, Unit | None]] = []
        if self.mask is None:
            return ()
        for field in fields:
            name = field_name(field.store, self.mask)
            out.append((name, None))
            if self.keep_unmasked:
                out.append((f"the labels outside '{name}', kept as they are",
                            None))
        return tuple(out)

    def describe(self, fields: list[Field]) -> Pairs:
        """What it takes to undo the bias."""
        out: Pairs = (('num_classes', self.num_classes), )
        if self.keep_unmasked:  # Then -1 does not tell what was released.
            out += (('kept_outside', self.mask), )
        return out

    def read(self, data: Any) -> list[Field]:
        """The labels of all node types that have some."""
        fields = []
        for store in node_stores_with(data, 'y'):
            response, selected = self._mechanism(store.y), self._selected(store)
            response.check(store.y, 'y', selected)
            content = (store.y, ) if selected is None else (store.y, selected)
            fields.append(Field(store, 'y', content, (response, selected)))
        return fields

    def write(self, field: Field, source: NoiseSource) -> list[str]:
        """Draws the labels of one node type."""
        raw, (response, selected) = field.store.y, field.ready
        out = response(raw, source, selected)
        if self.keep_unmasked and selected is not None:
            rows = selected.view(-1, *[1] * (raw.dim() - 1))
            out = torch.where(rows, out, raw.to(out.dtype))
        field.store.y = out
        return ['y']

    def _mechanism(self, y: Tensor) -> RandomizedResponse:
        return label_response(y, self.epsilon, self.num_classes)

    def _selected(self, store: BaseStorage) -> Tensor | None:
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
