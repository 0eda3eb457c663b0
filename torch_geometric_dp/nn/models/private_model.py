from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp.accountant import PrivacyAccountant, Unit
from torch_geometric_dp.graph.adjacency import edge_index_of
from torch_geometric_dp.graph.pairs import (
    Pairs,
    check_edge_index,
    split_pairs,
)
from torch_geometric_dp.release import (
    Content,
    Part,
    Releaser,
    Ticket,
    budget_of,
    check_batch,
    refuse_n_id,
    verify,
)


class PrivateModel(Captured, torch.nn.Module):
    r"""The base of models that are fitted to a private graph. A fit is a
    release: it is charged to the graph's :obj:`privacy_budget`, if there is
    one, all of its parts or none, and entered in :obj:`privacy`.

    With a budget, the same fit to the same graph has the same noise, and is
    free. Without one, each fit is a release of its own.

    Args:
        num_classes (int): The number of classes, a public number.
        mask (str): The boolean node field that selects the labels to learn
            from.
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)
    """
    def __init__(self, num_classes: int, mask: str,
                 seed: int | None = None) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.mask = mask
        self._releaser = Releaser(seed)
        #: The ledger of all that was released to fit this model.
        self.privacy = PrivacyAccountant()

    @property
    def seed(self) -> int | None:
        """The seed, if the noise is repeatable."""
        return self._releaser.seed

    def renew(self) -> 'PrivateModel':
        """Makes the next fit a new release, which costs again, even if there
        is one already. Returns the model itself.
        """
        self._releaser.renew()
        return self

    def admit(self, data: Any, parts: Sequence[Part],
              content: Content) -> Ticket:
        """Charges the graph's budget with all parts of a fit, or none, enters
        them in the ledger, and returns what to draw them with.
        """
        if isinstance(data, Batch):
            check_batch(data)
        refuse_n_id(data, type(self).__name__)
        known = PrivacyAccountant.of(data)
        parts = [replace(part, stability=max(map(known.stability, part.fields)))
                 for part in parts]
        ticket = self._releaser.admit(parts, content, budget_of(data))
        # What the graph brings along was released before, and is read here.
        self.privacy = PrivacyAccountant.merge(
            [self.privacy, known, PrivacyAccountant(ticket.releases)])
        return ticket

    def taken_as_public(self, data: Any, private: str) -> tuple[
            tuple[str, Unit | None], ...]:
        """What a fit for private edges reads raw: features, labels, their mask
        and the field that tells which edges are private. What was released
        before, as the graph's ledger shows, is not among them.
        """
        state = verify(PrivacyAccountant.of(data), data)
        names = (('x', Unit.FEATURES), ('y', Unit.LABELS), (self.mask, None),
                 (private, None))
        return tuple((name, unit) for name, unit in names
                     if name in data and state.get(name) != 'covered')

    def get_extra_state(self) -> dict[str, str]:
        """The ledger."""
        return {'ledger': self.privacy.to_json()}

    def set_extra_state(self, state: dict[str, str]) -> None:
        """Adds what was spent to the ledger: loading never lowers it."""
        self.privacy = PrivacyAccountant.merge(
            [self.privacy, PrivacyAccountant.from_json(state['ledger'])])

    def labels(self, data: Any) -> tuple[Tensor, Tensor]:
        """Which nodes have a label to learn from, and all labels; checked."""
        mask, y = data.get(self.mask), data.get('y')
        rows = data.num_nodes
        if not isinstance(y, Tensor) or y.shape != (rows, ) or (
                y.is_floating_point() or y.is_complex()):
            got = (f'{y.dtype} of shape {list(y.shape)}' if isinstance(
                y, Tensor) else y)
            raise ValueError(f"'y' must hold integers in shape [{rows}], one "
                             f"class for each node (got {got})")
        if (not isinstance(mask, Tensor) or mask.dtype != torch.bool
                or mask.shape != (rows, )):
            got = (f'{mask.dtype} of shape {list(mask.shape)}' if isinstance(
                mask, Tensor) else mask)
            raise ValueError(f"'{self.mask}' must be a boolean tensor of shape "
                             f"[{rows}] (got {got})")
        if (mask & ((y < 0) | (y >= self.num_classes))).any():
            raise ValueError(f"'y' must hold classes from 0 to "
                             f"{self.num_classes - 1} (got others)")
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
            raise ValueError("'x' must be finite (got NaN or infinity)")
        return x


def edge_pairs(data: Any, name: str) -> tuple[Pairs, Pairs]:
    """The pairs of nodes with a private edge, and those with a public one, as
    the boolean edge field of a name tells; without it, all are private. Edges
    count without direction, and once.

    .. code-block:: python

        private, public = edge_pairs(data, 'edge_private')
    """
    if not isinstance(data, Data):
        raise TypeError(f"'data' must be 'Data', with nodes of one type: take "
                        f"one type of nodes, and the edges between them, out "
                        f"of others (got '{type(data).__name__}')")
    for weight in ('edge_weight', 'edge_attr'):
        if data.get(weight) is not None:
            raise ValueError(f"'{weight}' must not be there: all edges count "
                             f"alike, and what one adds is bounded. Remove "
                             f"it, as in data.{weight} = None")
    edge_index = edge_index_of(data)
    check_edge_index(edge_index, data.num_nodes)
    return split_pairs(edge_index, data.get(name), name)
