r"""What all private layers share: charge first, then draw, and draw once. The
order of things is kept by the door, :mod:`torch_geometric_dp.release`.

A layer is bound to one input. The same input gets the same release, at the next
epoch and in evaluation, which costs once; another input is refused, or renewed
and charged. If the input belongs to a graph with a budget, it is charged there,
and another layer with the same arguments gets the same release, too. Otherwise
the layer has a budget of its own, without a cap and without a name, that its
copies share.

A layer holds no secret: nothing in a file, a copy or a :obj:`state_dict` takes
the noise off. Its ledger goes along with all of them.
"""
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp.accountant import Guarantee, PrivacyAccountant, Unit
from torch_geometric_dp.accountant.entry import Pairs
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.pyg import origin
from torch_geometric_dp.release import Content, Part, Releaser
from torch_geometric_dp.vault import PrivacyBudget
from torch_geometric_dp.vault.budget import restore_budget
from torch_geometric_dp.vault.sqlite import temporary_store

Public = tuple[tuple[str, Unit | None], ...]


class PrivateLayer(Captured, MessagePassing):
    r"""The base of layers that read private data and release what they
    compute.

    Args:
        budget (PrivacyBudget, optional): What every release is charged to. By
            default, the one of the graph that the input belongs to, if it has
            one. (default: :obj:`None`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)
        **kwargs (optional): Arguments of :obj:`MessagePassing`.
    """
    def __init__(self, budget: PrivacyBudget | None = None,
                 seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if budget is not None and not isinstance(budget, PrivacyBudget):
            raise TypeError(f"'budget' must be a 'PrivacyBudget' "
                            f"(got '{type(budget).__name__}')")
        self.budget = budget
        self._releaser = Releaser(seed)
        #: The ledger of all that this layer has released.
        self.privacy = PrivacyAccountant()
        # Where the input has no budget: what this layer is bound to, and
        # whether that was left behind in another process.
        self._own: PrivacyBudget | None = None
        self._left_behind = False
        self._cache: tuple[Any, Tensor] | None = None

    @property
    def seed(self) -> int | None:
        """The seed, if the noise is repeatable."""
        return self._releaser.seed

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What one release promises."""

    @abstractmethod
    def stand_in(self, *args: Any) -> Tensor:
        """Something of the form of the output, for the same arguments, that
        depends on nothing private.
        """

    def renew(self) -> 'PrivateLayer':
        """Makes the next forward pass a new release, which costs again, even
        if its input is an old one. Returns the layer itself.
        """
        self._releaser.renew()
        if self._is_left_behind():
            self._own, self._left_behind = None, False
        return self

    @torch.compiler.disable
    def release_once(self, guarantee: Guarantee, given: dict[str, Any],
                     content: Content, draw: Callable[[NoiseSource], Tensor],
                     public: Public = (), again: bool = True) -> Tensor:
        """Charges for a release and draws it, or returns the one that was drawn
        before.

        Args:
            guarantee (Guarantee): What is promised.
            given (dict): The private fields, as the layer was given them: they
                tell which graph they belong to.
            content (sequence): All that the release depends on, by name.
            draw (callable): From a source of noise to the release.
            public (tuple, optional): What is read raw and taken as public.
                (default: :obj:`()`)
            again (bool, optional): If set to :obj:`False`, nothing comes again:
                each call is a release of its own. (default: :obj:`True`)
        """
        known = origin(*given.values())
        budget = self.budget or known.budget
        # An input that is trained has a slot of its own, bound anew each time.
        trained: Pairs = () if again else (('input', 'trained'), )
        part = Part(self, PrivateLayer, guarantee, tuple(given), public,
                    trained, known.stability)
        if not again:
            self.renew()
        ticket = self._releaser.admit(
            [part], content, budget or self._unnamed(),
            anonymous=budget is None)
        self.privacy = self.privacy.spend(*ticket.releases)
        first = next(iter(given.values()))
        which = ticket.releases[0].release_id, first.dtype, first.device
        if self._cache is not None and self._cache[0] == which:
            return self._cache[1].clone()  # Somebody may write into it.
        out = draw(ticket.source)
        self._cache = (which, out.clone()) if again else None
        return out

    def _is_left_behind(self) -> bool:
        if self._own is not None:
            try:
                return not self._own.caps
            except (LookupError, OSError):
                return True
        return self._left_behind

    def _unnamed(self) -> PrivacyBudget:
        if self._is_left_behind():
            raise RuntimeError(
                f"{self!r} was loaded from another process, and what it is "
                f"bound to has stayed there: its release cannot come again. "
                f"Call renew() for a new one, which costs again, or give the "
                f"graph a budget: data.privacy_budget = PrivacyBudget(...)")
        if self._own is None:
            self._own = PrivacyBudget(epsilon=math.inf)
        return self._own

    # What is saved: the ledger, and where the layer is bound. #

    def get_extra_state(self) -> dict[str, str]:
        """The ledger, and the place of what the layer is bound to."""
        state = {'ledger': self.privacy.to_json()}
        if self._own is not None:
            _, (address, identity) = self._own.__reduce__()
            state.update(address=address, identity=identity)
        return state

    def set_extra_state(self, state: dict[str, str]) -> None:
        """Adds what was spent to the ledger: loading never lowers it."""
        self.privacy = PrivacyAccountant.merge(
            [self.privacy, PrivacyAccountant.from_json(state['ledger'])])
        self._cache = None
        if 'address' in state:
            # A vault that a file names could be one whose key is known to
            # whoever wrote the file. Ours is the one of this process.
            here = state['address'] == temporary_store().address
            self._own = restore_budget(
                state['address'], state['identity']) if here else None
            self._left_behind = not here

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {**state, '_cache': None}
