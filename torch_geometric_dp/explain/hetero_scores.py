import hashlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torch_geometric_dp._typing import Path


@dataclass(frozen=True, eq=False, repr=False)
class HeteroScores:
    r"""How important and how sensitive each column is, and what share of a
    row's epsilon it gets (HeteroRR, Eq. 7):

    .. math::
        \theta_i \propto \gamma \alpha_i + (1 - \gamma)
        (\beta_{\min} + \beta_{\max} - \beta_i)

    Important columns get a larger share, and so less noise; sensitive ones a
    smaller share.

    Args:
        importance (Tensor): :math:`\alpha`, not negative; see
            :func:`feature_importance`. Normalised to sum to one.
        sensitivity (Tensor, optional): :math:`\beta`, not negative; see
            :func:`feature_sensitivity`. Normalised to sum to one. Without it,
            no column counts as more sensitive than another.
            (default: :obj:`None`)
        gamma (float, optional): The weight of importance against
            sensitivity, from 0 to 1. (default: :obj:`0.5`)
        public (bool, optional): Whether the scores were computed on public
            data and a public model only. If not, they tell about private rows,
            and void the guarantee of what is released with them.
            (default: :obj:`False`)

    .. code-block:: python

        scores = HeteroScores(torch.tensor([3.0, 1.0]), gamma=1.0, public=True)
        scores.theta().tolist()   # [0.75, 0.25]
    """
    importance: Tensor
    sensitivity: Tensor | None = None
    gamma: float = 0.5
    public: bool = False

    def __post_init__(self) -> None:
        if self.sensitivity is None:
            object.__setattr__(self, 'sensitivity',
                               torch.ones_like(self.importance))
        for name in ('importance', 'sensitivity'):
            value = torch.as_tensor(getattr(self, name)).detach().double()
            if value.dim() != 1 or value.numel() == 0:
                raise ValueError(f"'{name}' must have shape [num_features] "
                                 f"(got {list(value.shape)})")
            if not (value >= 0).all() or not 0 < value.sum() < float('inf'):
                raise ValueError(f"'{name}' must be finite, not negative, and "
                                 f"not all zero (got {value.tolist()[:5]}...)")
            object.__setattr__(self, name, value.cpu() / value.sum().cpu())
        sizes = len(self.importance), len(self._beta)
        if sizes[0] != sizes[1]:
            raise ValueError(f"'importance' and 'sensitivity' must have the "
                             f"same length (got {sizes[0]} and {sizes[1]})")
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"'gamma' must lie in [0, 1] (got {self.gamma})")

    @property
    def _beta(self) -> Tensor:
        assert self.sensitivity is not None  # Since `__post_init__`.
        return self.sensitivity

    def theta(self) -> Tensor:
        """One share for each column; they sum to one."""
        beta = self._beta
        theta = (self.gamma * self.importance + (1.0 - self.gamma) *
                 (beta.min() + beta.max() - beta))
        return theta / theta.sum()

    def with_gamma(self, gamma: float) -> 'HeteroScores':
        """The same scores, weighed otherwise."""
        return replace(self, gamma=gamma)

    def save(self, path: Path) -> None:
        """Writes the scores to a file."""
        torch.save({'importance': self.importance,
                    'sensitivity': self.sensitivity, 'gamma': self.gamma,
                    'public': self.public}, path)

    @classmethod
    def load(cls, path: Path) -> 'HeteroScores':
        """The scores that :meth:`save` wrote."""
        return cls(**torch.load(path, weights_only=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeteroScores) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        # PyG knows a pre-transform again by its `repr`: it has to tell all.
        content = torch.cat([self.importance, self._beta]).numpy()
        digest = hashlib.sha256(content.tobytes()).hexdigest()
        return (f'{self.__class__.__name__}([{self.importance.numel()}], '
                f'gamma={self.gamma}, public={self.public}, {digest})')
