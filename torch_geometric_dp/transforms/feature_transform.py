import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Optional, Protocol, Union

import torch
from torch import Tensor
from torch_geometric.data.storage import BaseStorage
from torch_geometric.utils import is_sparse

from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.mechanisms.checks import check_epsilon
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.private_transform import (
    PrivateTransform,
    node_stores_with,
)

Bound = Union[float, Sequence[float], Tensor]

# Shares of epsilon are rounded down by more than all roundings of their sum.
_ROUND_DOWN = 1.0 - 2.0**-40


class Scores(Protocol):
    """How a row's epsilon is split over its columns, see
    :class:`torch_geometric_dp.explain.HeteroScores`.
    """
    public: bool

    def theta(self) -> Tensor:
        """One share for each column; they sum to one."""


class FeatureTransform(PrivateTransform):
    r"""The base of all transforms that release node features :obj:`x` in the
    local model: each node randomises its own row.

    Args:
        epsilon (float): The privacy loss of one node's whole row.
        bounds (tuple): The lowest and the highest value, each of them one for
            all columns or one for each; public numbers.
        scores (HeteroScores, optional): How :obj:`epsilon` is split over the
            columns. By default, all get the same share.
            (default: :obj:`None`)
        clip (bool, optional): If set to :obj:`True`, values outside the bounds
            are moved to them; by default, they are refused.
            (default: :obj:`False`)
        private_scores (bool, optional): If set to :obj:`True`, accepts scores
            that were computed on private data, which voids the guarantee; the
            ledger says so. (default: :obj:`False`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)
    """
    def __init__(self, epsilon: float, bounds: tuple[Bound, Bound],
                 scores: Optional[Scores] = None, clip: bool = False,
                 private_scores: bool = False,
                 seed: Optional[int] = None) -> None:
        super().__init__(seed)
        self.epsilon = check_epsilon(epsilon)
        if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
            raise ValueError(f"'bounds' must be a pair, the lowest and the "
                             f"highest value (got {bounds!r})")
        low, high = (torch.as_tensor(b, dtype=torch.double) for b in bounds)
        self.bounds = low.tolist(), high.tolist()
        if scores is not None and not scores.public and not private_scores:
            raise ValueError(
                "'scores' were computed on private data (public=False), which "
                "voids the guarantee: compute them on public data, or accept "
                "that with private_scores=True")
        self.scores = scores
        self.clip = bool(clip)
        self.private_scores = bool(private_scores)

    @abstractmethod
    def mechanism(self, num_features: int) -> ColumnMechanism:
        """The mechanism for rows with so many columns."""

    def epsilons(self, num_features: int) -> list[float]:
        """The privacy loss of each column; together at most
        :obj:`epsilon`.
        """
        if self.scores is None:
            share = self.epsilon / num_features * _ROUND_DOWN
            return [share] * num_features
        theta = self.scores.theta().double()
        if theta.numel() != num_features:
            raise ValueError(f"'scores' must have one entry for each of the "
                             f"{num_features} columns of 'x' "
                             f"(got {theta.numel()})")
        shares: list[float] = (self.epsilon * _ROUND_DOWN * theta).tolist()
        return shares

    @property
    def guarantee(self) -> Guarantee:
        """One node's whole row, in the local model."""
        assumptions = []
        if self.scores is not None and not self.scores.public:
            assumptions.append("the scores, which were computed on private "
                               "data, tell nothing about it")
        return Guarantee(self.epsilon, 'features',
                         "the features of one node are replaced",
                         assumptions=tuple(assumptions))

    def read(self, data: Any) -> list[tuple[BaseStorage, str]]:
        """The features of all node types that have some."""
        stores = feature_stores(data)
        for store in stores:
            self._mechanism(store.x).check(store.x, 'x')
        return [(store, 'x') for store in stores]

    def write(self, store: BaseStorage, field: str,
              source: NoiseSource) -> None:
        """Draws the features of one node type."""
        store[field] = self._mechanism(store[field])(store[field], source)

    def _mechanism(self, x: Tensor) -> ColumnMechanism:
        mechanism = self.mechanism(x.size(1))
        mechanism.clip = self.clip
        return mechanism

    def arguments(self) -> list[str]:
        """What :obj:`repr` shows between the brackets."""
        low, high = map(short, self.bounds)
        args = [f'epsilon={self.epsilon}', f'bounds=({low}, {high})']
        if self.scores is not None:
            args.append(f'scores={self.scores!r}')
        for name in ('clip', 'private_scores'):
            if getattr(self, name):
                args.append(f'{name}=True')
        if self.seed is not None:
            args.append(f'seed={self.seed}')
        return args

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({', '.join(self.arguments())})"


def feature_stores(data: Any) -> list[BaseStorage]:
    """The stores of a graph's node types that have features, all of them dense
    matrices.
    """
    stores = node_stores_with(data, 'x')
    for store in stores:
        x = store.x
        if not isinstance(x, Tensor) or is_sparse(x):
            kind = 'sparse' if is_sparse(x) else type(x).__name__
            raise TypeError(f"'x' must be a dense tensor: noise is dense, "
                            f"and zeros are values like any other "
                            f"(got {kind}; see x.to_dense())")
        if x.dim() != 2 or x.size(1) == 0:
            raise ValueError(f"'x' must have shape [num_nodes, "
                             f"num_features] (got {list(x.shape)})")
    return stores


def short(values: Any) -> str:
    """One number, or a digest of those of all columns: PyG knows a
    pre-transform again by its :obj:`repr`, so it has to tell all.
    """
    if not isinstance(values, (list, tuple)):
        return str(values)
    digest = hashlib.sha256(repr(values).encode()).hexdigest()[:8]
    return f'<{len(values)} columns, {digest}>'
