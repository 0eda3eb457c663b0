r"""What all private layers share: charge first, then draw, and draw once.

A layer holds a secret key. The noise of a release is a keyed stream, addressed
by the layer's arguments, its budget's identity and a keyed fingerprint of the
raw input. So the same input gets the same release, at the next epoch and in
evaluation, which costs once, and another input gets other noise and costs
again. (The theorem stands in
:mod:`torch_geometric_dp.transforms.private_transform`.)

The key is in no :obj:`state_dict`, and does not go into a file or a copy with
the layer: who has a model and the key takes the noise off. A layer that was
loaded or copied has a key of its own. It knows what was spent, but the same
input is a new release to it.
"""
from collections.abc import Callable
from typing import Any, Optional

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from torch_geometric_dp.accountant import (
    Guarantee,
    PrivacyAccountant,
    PrivacyBudget,
    Release,
)
from torch_geometric_dp.noise import NoiseSource


class PrivateLayer(MessagePassing):
    r"""The base of layers that read private data and release what they
    compute.

    Args:
        budget (PrivacyBudget, optional): What every release is charged to,
            before any noise is drawn. (default: :obj:`None`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)
        **kwargs (optional): Arguments of :obj:`MessagePassing`.
    """
    def __init__(self, budget: Optional[PrivacyBudget] = None,
                 seed: Optional[int] = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if budget is not None and not isinstance(budget, PrivacyBudget):
            raise TypeError(f"'budget' must be a 'PrivacyBudget' "
                            f"(got '{type(budget).__name__}')")
        self.budget = budget
        self.seed = None if seed is None else int(seed)
        #: The ledger of all that this layer has released.
        self.privacy = PrivacyAccountant()
        self._forget()

    def _forget(self) -> None:
        self._source = (NoiseSource.from_os() if self.seed is None else
                        NoiseSource.from_seed(self.seed))
        self._fresh = 0  # Numbers the releases that are not to come again.
        self._cache: Optional[tuple[str, Tensor]] = None

    def renew(self) -> None:
        """Makes the next forward pass a new release, which costs again, even
        if its input is an old one.
        """
        self._source, self._cache = self._source.derive('renew'), None

    def release_once(self, guarantee: Guarantee, raw: list[Tensor],
                     draw: Callable[[NoiseSource], Tensor],
                     again: bool = True) -> Tensor:
        """Charges for a release of raw tensors and draws it, or returns the
        one that was drawn before. If :obj:`again` is :obj:`False`, nothing
        comes again: each call is a release of its own.
        """
        source = self._source.derive(
            repr(self), self.budget.identity if self.budget else '',
            *map(self._fingerprint, raw))
        if not again:
            self._fresh += 1
            source = source.derive('fresh', self._fresh)
        release_id = source.digest('release').hex()[:32]
        if self._cache is not None and self._cache[0] == release_id:
            return self._cache[1].clone()  # Somebody may write into it.
        release = Release(guarantee, repr(self), ('x', 'edge_index'),
                          release_id, graph=self.budget.identity
                          if self.budget else None, seed=self.seed)
        if self.budget is not None:
            self.budget.charge(release)
        self.privacy = self.privacy.spend(release)
        out = draw(source)
        if again:
            self._cache = release_id, out.clone()
        return out

    def _fingerprint(self, value: Tensor) -> bytes:
        shape = f'{value.dtype}{tuple(value.shape)}'
        flat = value.detach().cpu().contiguous().view(-1)
        content: NDArray[np.uint8] = (flat.view(torch.uint8).numpy() if len(
            flat) else np.empty(0, np.uint8))
        return self._source.digest(shape, self._source.fingerprint(content))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        secrets = ('_source', '_fresh', '_cache')
        return {key: value for key, value in state.items()
                if key not in secrets}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()
