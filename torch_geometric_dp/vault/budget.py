import copy
import math
import secrets
import weakref
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, NoReturn

from torch_geometric_dp.accountant import PrivacyAccountant, Release, Unit
from torch_geometric_dp.accountant.plain import from_plain, to_plain
from torch_geometric_dp.accountant.text import whole
from torch_geometric_dp.vault.store import (
    LOCK,
    Slot,
    SQLiteStore,
    Store,
    temporary_store,
)

# All budgets of this process, by their place: a copy is the budget itself.
_KNOWN: 'weakref.WeakValueDictionary[tuple[str, str], PrivacyBudget]' = (
    weakref.WeakValueDictionary())


class PrivacyBudgetExceeded(RuntimeError):
    r"""A release would cost more than a :class:`PrivacyBudget` has left. No
    noise was drawn and nothing was released.

    .. code-block:: python

        try:
            private = LabelRR(epsilon=2.0, num_classes=7)(data)
        except PrivacyBudgetExceeded as error:
            print(error.unit, error.requested, error.remaining)
    """
    def __init__(self, unit: str, requested: float, remaining: float,
                 mechanism: str, why: str = '') -> None:
        super().__init__(unit, requested, remaining, mechanism, why)
        self.unit = unit
        self.requested = requested
        self.remaining = remaining
        self.mechanism = mechanism
        self.why = why

    def __str__(self) -> str:
        why = f'. {self.why}' if self.why else ''
        return (f"{self.mechanism} would cost epsilon = {self.requested:g} "
                f"for '{self.unit}', but the graph's privacy budget has "
                f"{self.remaining:g} left. Nothing was released{why}")


class ContentChanged(RuntimeError):
    r"""A release with the same arguments and under the same budget exists for
    another content: a subgraph, another graph or a newer version. It would tell
    whether the two are equal. Nothing was released.

    .. code-block:: python

        data.privacy_budget = PrivacyBudget(epsilon=8.0)
        transform = LabelRR(epsilon=1.0, num_classes=7)
        transform(data)
        try:
            transform(data.subgraph(torch.arange(10)))
        except ContentChanged as error:
            print(error)
    """


class PrivacyBudget:
    r"""A cap on everything that is ever released from a raw graph, and the
    graph's identity.

    Assign it to the raw graph as :obj:`data.privacy_budget`. Every transform
    charges it before it draws any noise, from whatever copy or branch of the
    graph, and raises :class:`PrivacyBudgetExceeded` if there is not enough.
    A graph with a budget is known again: the same transform returns the same
    release, and is charged once. Other content under the same budget is refused
    (:class:`ContentChanged`): one budget, one graph.

    A budget lives in a temporary file that this process and its children
    share, and that goes with the process. Copies are the same budget. It caps
    what is private: a unit without a cap may be taken as public.

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
    identity: str

    def __init__(self, epsilon: float | None = None, *,
                 features: float | None = None, labels: float | None = None,
                 edges: float | None = None, node: float | None = None,
                 max_degree: int | None = None, delta: float = 0.0) -> None:
        given = {'epsilon': epsilon, 'features': features, 'labels': labels,
                 'edges': edges, 'node': node}
        terms = _terms(given, max_degree, delta)
        self._open(temporary_store(), secrets.token_hex(16))
        self._store.create(self.identity, terms)
        _KNOWN[self._store.address, self.identity] = self

    def _open(self, store: Store, identity: str) -> None:
        self.identity = identity
        self._store = store
        self._terms: dict[str, Any] | None = None
        self._spent = PrivacyAccountant()
        self._last = 0  # The number of the last charge that was read.

    def _read(self) -> dict[str, Any]:
        # The store alone says what the caps are.
        if self._terms is None:
            self._terms = self._store.terms(self.identity)
        return self._terms

    @property
    def caps(self) -> dict[str, float]:
        """The cap of each unit that has one."""
        return {unit: float(cap) for unit, cap in self._read()['caps'].items()}

    @property
    def max_degree(self) -> int | None:
        """The largest number of edges at one node."""
        degree: int | None = self._read()['max_degree']
        return degree

    @property
    def delta(self) -> float:
        """The probability with which the caps may not hold."""
        return float(self._read()['delta'])

    @property
    def spent(self) -> PrivacyAccountant:
        """The ledger of everything that was released from this graph."""
        with LOCK, self._store.transaction(self.identity) as transaction:
            return self._update(transaction)

    def _update(self, transaction: Any) -> PrivacyAccountant:
        new = transaction.charges(self._last)
        if new:
            self._spent = self._spent.spend(
                *(from_plain(Release, entry) for _, entry in new))
            self._last = new[-1][0]
        return self._spent

    def key(self) -> bytes:
        """The secret that the noise of all releases is derived from."""
        return self._store.key()

    def remaining(self, unit: str) -> float:
        """What is left of the cap for a unit; infinity without one."""
        return self._remaining(Unit.of(unit, 'unit'), self.spent)

    def _remaining(self, unit: Unit, spent: PrivacyAccountant) -> float:
        if unit not in self.caps:
            return math.inf
        cap, cost = self.caps[unit], self._epsilon(unit, spent)
        if math.isinf(cap) or math.isinf(cost):
            return cap - cost if cap != cost else 0.0
        # As decimal numbers, see `exact_sum`.
        return float(Decimal(repr(cap)) - Decimal(repr(cost)))

    def bind(self, slot: str, fingerprint: bytes, nonce: bytes,
             releases: Sequence[Release],
             renew: bool = False) -> tuple[bytes, list[Release], bool]:
        """Charges releases, all of them or none, and binds a slot to a content
        and to the nonce of its noise; or finds that it is bound to this content
        already, which costs nothing. Returns the nonce, the entries and whether
        they are new.
        """
        with LOCK, self._store.transaction(self.identity) as transaction:
            bound = transaction.slot(slot)
            if bound is not None and not renew:
                if not secrets.compare_digest(bound.fingerprint, fingerprint):
                    raise ContentChanged(
                        f"{releases[0].call if releases else 'A projection'} "
                        f"was applied to other content under this budget "
                        f"before: a subgraph, another graph or another "
                        f"version. Release the whole graph first and take "
                        f"parts of the release, which is free; give another "
                        f"graph its own budget; or pay for a new release with "
                        f"renew()")
                return bound.nonce, [from_plain(Release, entry)
                                     for entry in bound.entries], False
            self._afford(releases, transaction)
            entries = [to_plain(release) for release in releases]
            for entry in entries:
                transaction.charge(entry)
            transaction.bind(slot, Slot(fingerprint, nonce, entries))
            return nonce, list(releases), True

    def _afford(self, releases: Sequence[Release], transaction: Any) -> None:
        before = self._update(transaction)
        after = before.spend(*releases)
        for name, cap in self.caps.items():
            unit = Unit(name)
            if self._epsilon(unit, after) <= cap:
                continue
            alone = PrivacyAccountant(tuple(releases))
            raise PrivacyBudgetExceeded(
                unit, self._epsilon(unit, alone), self._remaining(unit, before),
                ' and '.join(r.call for r in releases),
                self._why(unit, alone))

    def take_as_public(self, unit: Unit, who: str) -> None:
        """Refuses somebody who reads what the budget protects, and promises
        nothing for it.
        """
        if self.caps.get(unit, math.inf) < math.inf:
            raise PrivacyBudgetExceeded(unit, math.inf, self.remaining(unit),
                                        who, _public([who], unit))

    def _why(self, unit: Unit, releases: PrivacyAccountant) -> str:
        public = releases.public(unit)
        if public:
            return _public(public, unit)
        needed = releases.delta(unit, self.max_degree)
        if needed > self.delta:
            return (f"It needs delta = {needed:g}, and the budget has delta = "
                    f"{self.delta:g}: PrivacyBudget(..., delta=...)")
        return ''

    def _epsilon(self, unit: Unit, ledger: PrivacyAccountant) -> float:
        return ledger.epsilon(unit, self.delta, self.max_degree)

    @classmethod
    def for_each(cls, graphs: Iterable[Any], **terms: Any) -> list[Any]:
        """The graphs of a dataset, each with a budget and an identity of its
        own: other people.

        Args:
            graphs (iterable of Data): The graphs, which stay as they are.
            **terms: The arguments of each budget.
        """
        out = [copy.copy(graph) for graph in graphs]
        for graph in out:
            graph.privacy_budget = cls(**terms)
        return out

    # A copy is the budget itself: two branches draw on one account. A pickle
    # says where it is, and nothing else: a file cannot change it.

    def __copy__(self) -> 'PrivacyBudget':
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> 'PrivacyBudget':
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_budget, (self._store.address, self.identity)

    def __setstate__(self, state: Any) -> NoReturn:
        raise ValueError("A 'PrivacyBudget' has no state that a file may set")

    def __repr__(self) -> str:
        try:
            spent = self.spent
        except (FileNotFoundError, LookupError, ValueError):
            return f'{self.__class__.__name__}(its vault is gone)'
        left = ', '.join(f'{unit}={self._remaining(Unit(unit), spent):g} of '
                         f'{cap:g}' for unit, cap in self.caps.items())
        return f'{self.__class__.__name__}({left} left)'


def restore_budget(address: str, identity: str) -> PrivacyBudget:
    """The budget at a place: what unpickling calls. It is opened when it is
    needed, and only if it is there.
    """
    if not isinstance(address, str) or not isinstance(identity, str):
        raise TypeError(f"A budget is known by two strings, where it is and "
                        f"who (got {address!r}, {identity!r})")
    with LOCK:
        budget = _KNOWN.get((address, identity))
        if budget is None:
            budget = PrivacyBudget.__new__(PrivacyBudget)
            budget._open(SQLiteStore(address), identity)
            _KNOWN[address, identity] = budget
        return budget


def _public(who: Sequence[str], unit: Unit) -> str:
    return (f"{', '.join(who)} takes '{unit}' as public, and this budget "
            f"protects them. If they are public, leave them out of the budget, "
            f"as in PrivacyBudget({'labels' if unit == 'edges' else 'edges'}"
            f"=...)")


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"'{name}' must be a number (got {value!r})")
    return float(value)


def _terms(given: dict[str, Any], max_degree: Any, delta: Any) -> Any:
    caps = {}
    for name, cap in given.items():
        if cap is not None:
            caps[name] = _number(name, cap)
            if not caps[name] > 0:
                raise ValueError(f"'{name}' must be positive (got {cap})")
    if not caps:
        raise ValueError("A budget needs a cap: 'epsilon', 'features', "
                         "'labels', 'edges' or 'node' (infinity for an "
                         "identity without a cap)")
    if (given['node'] is None) != (max_degree is None):
        raise ValueError(f"'node' and 'max_degree' belong together (got "
                         f"node={given['node']}, max_degree={max_degree})")
    degree = max_degree and whole(_number('max_degree', max_degree))
    if max_degree is not None and (degree is None or degree < 1):
        raise ValueError(f"'max_degree' must be a positive integer "
                         f"(got {max_degree})")
    if not 0 <= _number('delta', delta) < 1:
        raise ValueError(f"'delta' must lie in [0, 1) (got {delta})")
    units = [*Unit][:3]
    all_of_them = {str(u): caps.get(u, caps.get('epsilon')) for u in units}
    all_of_them['node'] = caps.get('node')
    return {'caps': {unit: repr(cap) for unit, cap in all_of_them.items()
                     if cap is not None},
            'max_degree': degree,
            'delta': float(delta)}
