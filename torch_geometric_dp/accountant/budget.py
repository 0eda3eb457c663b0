import math
import secrets
import threading
import warnings
from decimal import Decimal
from typing import Any, Optional

from torch_geometric_dp.accountant.guarantee import KINDS, Release
from torch_geometric_dp.accountant.ledger import PrivacyAccountant

# All budgets of this process by identity: a copy that comes back from a worker
# or a file is the budget that we know, and brings its releases along.
_KNOWN: dict[str, 'PrivacyBudget'] = {}
_LOCK = threading.RLock()

#: What stands in the place of a budget where a batch needs something to stand
#: there: PyG cannot store :obj:`None`.
NO_BUDGET = 'none'


class PrivacyBudgetExceeded(RuntimeError):
    r"""A release would cost more than a :class:`PrivacyBudget` has left. No
    noise was drawn and nothing was released.

    .. code-block:: python

        try:
            private = LabelRR(epsilon=2.0, num_classes=7)(data)
        except PrivacyBudgetExceeded as error:
            print(error.kind, error.requested, error.remaining)
    """
    def __init__(self, kind: str, requested: float, remaining: float,
                 mechanism: str) -> None:
        super().__init__(kind, requested, remaining, mechanism)
        self.kind = kind
        self.requested = requested
        self.remaining = remaining
        self.mechanism = mechanism

    def __str__(self) -> str:
        return (f"{self.mechanism} would cost epsilon = {self.requested:g} "
                f"for '{self.kind}', but the graph's privacy budget has "
                f"{self.remaining:g} left. Nothing was released")


class PrivacyBudget:
    r"""A cap on everything that is ever released from a raw graph, and the
    graph's identity.

    Assign it to the raw graph as :obj:`data.privacy_budget`. Every transform
    charges it before it draws any noise, from whatever copy or branch of the
    graph, and raises :class:`PrivacyBudgetExceeded` if there is not enough.
    A graph with a budget is known again: the same transform returns the same
    release, and is charged once.

    Copies are the same budget. A budget that comes back from a worker process
    or a saved dataset joins the one in this process. Processes that release at
    the same time learn of each other's releases only when their results meet;
    if they have overdrawn the budget together, a warning says so, the ledger
    tells the truth, and nothing more is released.

    Args:
        epsilon (float, optional): The cap for each of :obj:`"features"`,
            :obj:`"labels"` and :obj:`"edges"` separately; infinity for an
            identity without a cap. (default: :obj:`None`)
        features (float, optional): The cap for features, in place of
            :obj:`epsilon`. (default: :obj:`None`)
        labels (float, optional): Likewise for labels. (default: :obj:`None`)
        edges (float, optional): Likewise for edges. (default: :obj:`None`)
        node (float, optional): The cap for a whole person, by group privacy.
            Needs :obj:`max_degree`. (default: :obj:`None`)
        max_degree (int, optional): The largest number of edges at one node, a
            public number. (default: :obj:`None`)
        delta (float, optional): All caps hold except with this probability.
            (default: :obj:`0.0`)

    .. code-block:: python

        data.privacy_budget = PrivacyBudget(epsilon=8.0)
        private = LabelRR(epsilon=1.0, num_classes=7)(data)
        data.privacy_budget.remaining('labels')   # 7.0
    """
    def __init__(self, epsilon: Optional[float] = None, *,
                 features: Optional[float] = None,
                 labels: Optional[float] = None, edges: Optional[float] = None,
                 node: Optional[float] = None,
                 max_degree: Optional[int] = None, delta: float = 0.0) -> None:
        given = {'epsilon': epsilon, 'features': features, 'labels': labels,
                 'edges': edges, 'node': node}
        for name, cap in given.items():
            if cap is not None and not cap > 0:
                raise ValueError(f"'{name}' must be positive (got {cap})")
        if all(cap is None for cap in given.values()):
            raise ValueError("A budget needs a cap: 'epsilon', 'features', "
                             "'labels', 'edges' or 'node' (infinity for an "
                             "identity without a cap)")
        if (node is None) != (max_degree is None):
            raise ValueError(f"'node' and 'max_degree' belong together (got "
                             f"node={node}, max_degree={max_degree})")
        if max_degree is not None and (max_degree != int(max_degree)
                                       or max_degree < 1):
            raise ValueError(f"'max_degree' must be a positive integer "
                             f"(got {max_degree})")
        if not 0 <= delta < 1:
            raise ValueError(f"'delta' must lie in [0, 1) (got {delta})")
        caps = {kind: given[kind] or epsilon for kind in KINDS[:3]}
        caps['node'] = node
        self.caps = {k: float(cap) for k, cap in caps.items() if cap}
        self.max_degree = None if max_degree is None else int(max_degree)
        self.delta = float(delta)
        self.identity = secrets.token_hex(16)
        self._spent = PrivacyAccountant()
        _KNOWN[self.identity] = self

    @property
    def spent(self) -> PrivacyAccountant:
        """The ledger of everything that was released from this graph."""
        return self._spent

    def remaining(self, kind: str) -> float:
        """What is left of the cap for :obj:`kind`; infinity without one."""
        if kind not in KINDS:
            raise ValueError(f"'kind' must be one of {KINDS} (got {kind!r})")
        if kind not in self.caps:
            return math.inf
        spent = self._epsilon(kind, self._spent)
        # As decimal numbers, see `exact_sum`.
        return float(Decimal(repr(self.caps[kind])) - Decimal(repr(spent)))

    def charge(self, release: Release) -> None:
        """Enters a release, or raises :class:`PrivacyBudgetExceeded`. One that
        was entered before costs nothing.
        """
        with _LOCK:
            known = {r.release_id for r in self._spent.releases}
            if release.release_id in known:
                return
            after = self._spent.spend(release)
            for kind, cap in self.caps.items():
                if self._epsilon(kind, after) > cap:
                    requested = self._epsilon(kind,
                                              PrivacyAccountant((release, )))
                    raise PrivacyBudgetExceeded(kind, requested,
                                                self.remaining(kind),
                                                release.mechanism)
            self._spent = after

    def _epsilon(self, kind: str, ledger: PrivacyAccountant) -> float:
        return ledger.epsilon(kind, self.delta, self.max_degree)

    def _join(self, spent: PrivacyAccountant) -> None:
        with _LOCK:
            before = self._spent
            self._spent = PrivacyAccountant.merge([before, spent])
            if self._spent == before:
                return
            over = [kind for kind in self.caps if self.remaining(kind) < 0]
        if over:
            warnings.warn(
                f"Processes that did not know of each other have overdrawn "
                f"the privacy budget for {', '.join(over)}: "
                f"{self!r}", stacklevel=2)

    # A copy is the budget itself: two branches draw on one account.

    def __copy__(self) -> 'PrivacyBudget':
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> 'PrivacyBudget':
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_budget, (self.identity, self.caps, self.max_degree,
                                self.delta, self._spent)

    def __repr__(self) -> str:
        left = ', '.join(f'{kind}={self.remaining(kind):g} of {cap:g}'
                         for kind, cap in self.caps.items())
        return f'{self.__class__.__name__}({left} left)'


def restore_budget(identity: str, caps: dict[str, float],
                   max_degree: Optional[int], delta: float,
                   spent: PrivacyAccountant) -> PrivacyBudget:
    """The budget with an identity, here and now: what unpickling calls."""
    with _LOCK:
        budget = _KNOWN.get(identity)
        if budget is None:
            budget = PrivacyBudget.__new__(PrivacyBudget)
            budget.caps = caps
            budget.max_degree = max_degree
            budget.delta = delta
            budget.identity = identity
            budget._spent = PrivacyAccountant()
            _KNOWN[identity] = budget
        budget._join(spent)
        return budget
