from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch_geometric.data.storage import BaseStorage
from torch_geometric.utils import is_sparse

from torch_geometric_dp._typing import Bounds
from torch_geometric_dp._validate import check_epsilon
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.mechanisms.mechanism import Canary
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.private_transform import (
    Field,
    PrivateTransform,
    node_stores_with,
)

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
    def __init__(self, epsilon: float, bounds: Bounds,
                 scores: Scores | None = None, clip: bool = False,
                 private_scores: bool = False,
                 seed: int | None = None) -> None:
        super().__init__(seed)
        self.epsilon = check_epsilon(epsilon)
        self.bounds = check_bounds(bounds)
        if scores is not None:
            _check_scores(scores, private_scores)
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
        theta = _check_theta(self.scores)
        if theta.numel() != num_features:
            raise ValueError(f"'scores' must have one entry for each of the "
                             f"{num_features} columns of 'x' "
                             f"(got {theta.numel()})")
        theta = theta / theta.sum().clamp(min=1.0)  # Never more than all of it.
        shares: list[float] = (self.epsilon * _ROUND_DOWN * theta).tolist()
        return shares

    @property
    def guarantee(self) -> Guarantee:
        """One node's whole row, in the local model."""
        assumptions = []
        if self.scores is not None and not self.scores.public:
            assumptions.append("the scores, which were computed on private "
                               "data, tell nothing about it")
        return Guarantee(self.epsilon, Unit.FEATURES, Relation.REPLACE,
                         assumptions=tuple(assumptions))

    @property
    def num_features(self) -> int:
        """The number of columns that the arguments ask for, or two."""
        if self.scores is not None:
            return int(self.scores.theta().numel())
        return max((len(bound) for bound in self.bounds
                    if isinstance(bound, list)), default=2)

    def canaries(self, data: Any | None = None) -> Sequence[Canary]:
        """Those of the mechanism, for as many columns."""
        columns = (self.num_features if data is None or data.x is None else
                   data.x.size(1))
        return self._law(columns).canaries()

    def _law(self, num_features: int) -> ColumnMechanism:
        mechanism = self.mechanism(num_features)
        mechanism.clip = self.clip
        return mechanism

    def read(self, data: Any) -> list[Field]:
        """The features of all node types that have some."""
        fields = []
        for store in feature_stores(data):
            mechanism = self._law(store.x.size(1))
            mechanism.check(store.x, 'x')
            fields.append(Field(store, 'x', (store.x, ), mechanism))
        return fields

    def write(self, field: Field, source: NoiseSource) -> list[str]:
        """Draws the features of one node type."""
        field.store.x = field.ready(field.store.x, source)
        return ['x']


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


def check_bounds(bounds: Any) -> tuple[Any, Any]:
    """The lowest and the highest value, of all columns or of each, as plain
    numbers.

    .. code-block:: python

        check_bounds((0, [1, 2]))   # (0.0, [1.0, 2.0])
    """
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise ValueError(f"'bounds' must be a pair, the lowest and the "
                         f"highest value (got {bounds!r})")
    low, high = (torch.as_tensor(b, dtype=torch.double) for b in bounds)
    sizes = {len(b) for b in (low, high) if b.dim() > 0}
    if len(sizes) > 1 or max(low.dim(), high.dim()) > 1:
        raise ValueError(f"'bounds' must have one number for all columns, or "
                         f"one for each, the same number of both (got shapes "
                         f"{list(low.shape)} and {list(high.shape)})")
    if not ((low < high) & torch.isfinite(high - low)).all():
        raise ValueError(f"'bounds' must be finite, and the lower one below "
                         f"the upper one (got {bounds!r})")
    return low.tolist(), high.tolist()


def _check_scores(scores: Any, private_scores: bool) -> None:
    if not callable(getattr(scores, 'theta', None)) or not isinstance(
            getattr(scores, 'public', None), bool):
        raise TypeError(f"'scores' must have theta(), the share of each "
                        f"column, and 'public': see HeteroScores "
                        f"(got '{type(scores).__name__}')")
    if not scores.public and not private_scores:
        raise ValueError(
            "'scores' were computed on private data (public=False), which "
            "voids the guarantee: compute them on public data, or accept "
            "that with private_scores=True")
    _check_theta(scores)


def _check_theta(scores: Scores) -> Tensor:
    theta = torch.as_tensor(scores.theta()).double()
    if theta.dim() != 1 or not (theta >= 0).all() or not (
            abs(float(theta.sum()) - 1) <= 1e-6):
        raise ValueError(f"'scores' must give each column a share of epsilon, "
                         f"not negative, and all of them together 1 (got a sum "
                         f"of {float(theta.sum()):g})")
    return theta
