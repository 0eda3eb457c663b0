import copy
import functools
import json
import math
import os
import secrets
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from html import escape
from multiprocessing.reduction import ForkingPickler
from numbers import Real
from typing import Any, NamedTuple, NoReturn, TypeVar

from torch_geometric_dp.accountant import PrivacyAccountant, Release, Unit
from torch_geometric_dp.accountant.plain import from_plain, to_plain
from torch_geometric_dp.accountant.spending import (
    Spending,
    spend,
    spending_from_plain,
    spending_to_plain,
)
from torch_geometric_dp.accountant.text import whole
from torch_geometric_dp.vault.history import (
    WHAT_TO_DO,
    check_chain,
    next_entries,
    seal_account,
    seal_slot,
)
from torch_geometric_dp.vault.postgres import PostgresStore
from torch_geometric_dp.vault.secret import Secret
from torch_geometric_dp.vault.sqlite import SQLiteStore, temporary_store
from torch_geometric_dp.vault.store import (
    LOCK,
    Account,
    Entry,
    Slot,
    Store,
    VaultError,
)
from torch_geometric_dp.vault.vault import Vault
from torch_geometric_dp.vault.witness import Witness

T = TypeVar('T')

_VAULTS: dict[str, Vault] = {}  # Of this process, by their place.
# And all of its budgets: a copy is the budget itself.
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


class Line(NamedTuple):
    """One line of a budget's history: who did what, and when; the release that
    was charged, or the caps that were set.
    """
    number: int
    at: str
    who: str
    what: str
    release: Release | None
    caps: dict[str, float] | None = None


class PrivacyBudget:
    r"""A cap on everything that is ever released from a raw graph, and the
    graph's identity.

    Assign it to the raw graph as :obj:`data.privacy_budget`. Every transform
    charges it before it draws any noise, from whatever copy or branch of the
    graph, and raises :class:`PrivacyBudgetExceeded` if there is not enough.
    A graph with a budget is known again: the same transform returns the same
    release, and is charged once. Other content under the same budget is refused
    (:class:`ContentChanged`): one budget, one graph.

    A budget that is made so lives in a temporary file that this process and its
    children share, and that goes with the process; :meth:`open` makes one that
    stays. Copies are the same budget. It caps what is private: a unit without a
    cap may be taken as public.

    Args:
        epsilon (float, optional): The cap for each of :obj:`"features"`,
            :obj:`"labels"` and :obj:`"edges"` separately; infinity for an
            identity without a cap. (default: :obj:`None`)
        features (float, optional): The cap for features, in place of
            :obj:`epsilon`. (default: :obj:`None`)
        labels (float, optional): Likewise for labels. (default: :obj:`None`)
        edges (float, optional): Likewise for edges. (default: :obj:`None`)
        node (float, optional): The cap for a whole person, by group privacy.
            Needs :obj:`max_degree` or :obj:`node_edges`.
            (default: :obj:`None`)
        max_degree (int, optional): The largest number of edges at one node, a
            public number. (default: :obj:`None`)
        node_edges (int, optional): The cap for a person is for a row, a label
            and at most so many edges, in place of all of them.
            (default: :obj:`None`)
        delta (float, optional): All caps hold except with this probability.
            (default: :obj:`0.0`)

    .. code-block:: python

        data.privacy_budget = PrivacyBudget(epsilon=8.0)
        private = LabelRR(epsilon=1.0, num_classes=7)(data)
        data.privacy_budget.remaining('labels')   # 7.0
    """
    identity: str
    _name: str | None = None

    def __init__(self, epsilon: float | None = None, *,
                 features: float | None = None, labels: float | None = None,
                 edges: float | None = None, node: float | None = None,
                 max_degree: int | None = None,
                 node_edges: int | None = None, delta: float = 0.0) -> None:
        given = {'epsilon': epsilon, 'features': features, 'labels': labels,
                 'edges': edges, 'node': node}
        terms = _terms(given, max_degree, node_edges, delta)
        _refuse_ranks()
        identity = secrets.token_hex(16)
        self._set(_vault(temporary_store()), identity)
        _create(self._vault, identity, identity, terms)
        _KNOWN[self._vault.store.address, identity] = self

    @classmethod
    def open(cls, store: str | os.PathLike[str] | Store, name: str = 'graph',
             epsilon: float | None = None, *, secret: Secret = None,
             lost: bool = False, delta: float = 0.0,
             max_degree: int | None = None, node_edges: int | None = None,
             **caps: float) -> 'PrivacyBudget':
        r"""The budget of a name in a vault that outlives this process; it is
        made if there is none.

        The name is the graph's identity: tomorrow's program, another process
        and another machine that open it mean the same graph, share what is
        left, and get the same releases. Caps are set once: opening with other
        ones is refused, and opening without any takes those that were set.

        Args:
            store (str): A file, for all processes of one machine, or a
                PostgreSQL database, for several machines:
                :obj:`"postgresql://user@host/database"`.
            name (str, optional): The name of the raw graph.
                (default: :obj:`"graph"`)
            epsilon (float, optional): As for the budget itself.
                (default: :obj:`None`)
            secret (str or callable, optional): The owner's secret, which is
                never in the vault: a key file, or a function that returns it.
                By default, what the variable
                :obj:`TORCH_GEOMETRIC_DP_SECRET` holds, or the key file beside
                the vault, which is made. (default: :obj:`None`)
            lost (bool, optional): If set to :obj:`True`, goes on with a new
                secret if the old one is lost. (default: :obj:`False`)
            delta (float, optional): As for the budget itself.
                (default: :obj:`0.0`)
            max_degree (int, optional): As for the budget itself.
                (default: :obj:`None`)
            node_edges (int, optional): As for the budget itself.
                (default: :obj:`None`)
            **caps: As for the budget itself: :obj:`features`, :obj:`labels`,
                :obj:`edges`, :obj:`node`.

        .. code-block:: python

            budget = PrivacyBudget.open('people.vault', epsilon=8.0)
            budget is PrivacyBudget.open('people.vault')   # True
        """
        unknown = set(caps) - {str(unit) for unit in Unit}
        if unknown:
            raise TypeError(f"'{min(unknown)}' is no cap: there are 'epsilon', "
                            f"'features', 'labels', 'edges' and 'node'")
        if not isinstance(name, str) or not name:
            raise TypeError(f"'name' must be a text (got {name!r})")
        given = {'epsilon': epsilon, **{str(unit): caps.get(str(unit))
                                        for unit in Unit}}
        asked = any(value is not None for value in (
            *given.values(), max_degree, node_edges, delta or None))
        terms = {**_terms(given, max_degree, node_edges, delta), 'name': name
                 } if asked else None
        vault = _vault(_store(store, create=asked), secret)
        if lost:
            vault.give_up()
        identity = _create(vault, name, secrets.token_hex(16), terms)
        with LOCK:
            budget = restore_budget(vault.store.address, identity)
            budget._vault = vault  # Which may have another secret by now.
        budget._run(lambda transaction, account, again: (None, account))
        if budget._terms.get('name') != name:
            raise VaultError(f"The name '{name}' was given to another budget "
                             f"by somebody without the secret. {WHAT_TO_DO}")
        if terms is not None and terms != budget._terms:
            other = ', '.join(
                f"{key} = {_shown(budget._terms[key])}, and not {_shown(value)}"
                for key, value in terms.items() if value != budget._terms[key])
            raise ValueError(
                f"The budget '{name}' exists, with other terms: {other}. Terms "
                f"are set once: open it without any, or raise a cap with "
                f"raise_caps(), which is entered in its history")
        return budget

    def _set(self, vault: Vault, identity: str) -> None:
        self.identity = identity
        self._vault = vault
        self._terms: dict[str, Any] = {}
        self._tally = '{}'
        self._ledger: list[Line] = []
        self._seen: tuple[int, bytes] | None = None  # As of the last look.
        self._checked = 0  # The process that has read the whole history.

    # What is in the vault, and whether it is as it was left. #

    def _run(self, work: Callable[[Any, Account, bool], tuple[T, Account]],
             slot: str | None = None) -> T:
        keys = self._vault.keys()

        def checked(transaction: Any, again: bool) -> tuple[T, Account]:
            transaction.ahead(self._seen and self._seen[0], slot)
            account = transaction.account()
            if account != seal_account(keys.key, self.identity, account):
                raise _Sealed()
            self._check(transaction, account)
            return work(transaction, account, again)

        with LOCK:
            try:
                out, account = self._vault.store.run(self.identity, checked)
            except _Sealed:
                if keys == self._vault.keys(again=True):
                    raise VaultError(
                        f"The account of this budget was changed by somebody "
                        f"without the secret. {WHAT_TO_DO}") from None
                return self._run(work, slot)
            self._see(account)
            return out

    def _check(self, transaction: Any, account: Account) -> None:
        durable, seen = self._vault.store.durable, self._seen
        if durable and self._checked != os.getpid():
            check_chain(account, self.identity, transaction.entries(1))
            seen = self._witness(account).seen()
        if seen is None or seen == (account.number, account.link):
            return
        known = transaction.entries(seen[0], seen[0])
        if account.number < seen[0] or not known or known[0].link != seen[1]:
            raise VaultError(
                f"This vault is not the newest: entry {seen[0]} of this budget "
                f"was seen here before, and another one, or none, is in its "
                f"place. A backup was put back, or there are two copies that "
                f"went different ways, and what was spent since is not in it. "
                f"Nothing was released. Put back the newest copy; if it is "
                f"gone, and you know that nothing was released since, remove "
                f"{self._witness(account).path}")

    def _witness(self, account: Account) -> Witness:
        return Witness(self._vault.keys().vault, _parsed(account.terms).get(
            'name', self.identity))

    def _see(self, account: Account) -> None:
        now = account.number, account.link
        if self._vault.store.durable:
            if now != self._seen:
                self._witness(account).see(*now)
            self._checked = os.getpid()
        self._seen = now
        self._terms, self._tally = _parsed(account.terms), account.tally

    @property
    def _spending(self) -> dict[Unit, Spending]:
        return spending_from_plain(json.loads(self._tally))

    def _look(self) -> None:
        self._run(lambda transaction, account, again: (None, account))

    def _known(self) -> dict[str, Any]:
        if not self._terms:
            self._look()
        return self._terms

    @property
    def caps(self) -> dict[str, float]:
        """The cap of each unit that has one."""
        return {unit: float(cap) for unit, cap in self._known()['caps'].items()}

    @property
    def max_degree(self) -> int | None:
        """The largest number of edges at one node."""
        degree: int | None = self._known()['max_degree']
        return degree

    @property
    def node_edges(self) -> int | None:
        """How many edges of a person the cap for a person is for, if not all.
        """
        edges: int | None = self._known()['node_edges']
        return edges

    @property
    def delta(self) -> float:
        """The probability with which the caps may not hold."""
        return float(self._known()['delta'])

    def history(self) -> list[Line]:
        """All that ever happened to this budget: who released what, and when,
        who has raised a cap, and changed the secret.
        """
        def read(transaction: Any, account: Account,
                 again: bool) -> tuple[list[Entry], Account]:
            return transaction.entries(last + 1), account

        with LOCK:
            last = self._ledger[-1].number if self._ledger else 0
            self._ledger += map(_line, self._run(read))
            return list(self._ledger)

    @property
    def spent(self) -> PrivacyAccountant:
        """The ledger of everything that was released from this graph."""
        return PrivacyAccountant(tuple(
            line.release for line in self.history() if line.release))

    def key(self) -> bytes:
        """The secret that the noise of new releases is derived from."""
        return self._vault.keys().key

    def key_of(self, slot: str, renew: bool) -> tuple[int, bytes]:
        """The number of the key that a slot is bound with, or will be, and the
        key.
        """
        keys = self._vault.keys()
        if renew or keys.newest == 1:
            return keys.newest, keys.key
        bound = self._run(lambda transaction, account, again: (
            transaction.slot(slot), account))
        keys = self._vault.keys()
        number = keys.newest if bound is None else bound.key
        if number not in keys.keys:
            raise VaultError(
                "This was released with a secret that is lost, so that the "
                "same release cannot be made again. Nothing was released. Pay "
                "for a new one with renew()")
        return number, keys.keys[number]

    def remaining(self, unit: str) -> float:
        """What is left of the cap for a unit; infinity without one."""
        self._look()
        return self._remaining(Unit.of(unit, 'unit'), self._spending)

    def _remaining(self, unit: Unit, spent: Mapping[Unit, Spending]) -> float:
        if unit not in self.caps:
            return math.inf
        cap, cost = self.caps[unit], spent[unit].epsilon(self.delta)
        if math.isinf(cap) or math.isinf(cost):
            return cap - cost if cap != cost else 0.0
        # As decimal numbers, see `exact_sum`.
        return float(Decimal(repr(cap)) - Decimal(repr(cost)))

    def bind(self, slot: str, fingerprint: bytes, nonce: bytes,
             releases: Sequence[Release], renew: bool = False,
             key: int | None = None) -> tuple[bytes, list[Release], bool]:
        """Charges releases, all of them or none, and binds a slot to a content
        and to the nonce of its noise; or finds that it is bound to this content
        already, which costs nothing. Returns the nonce, the entries and whether
        they are new.
        """
        number = self._vault.keys().newest if key is None else key
        contents = [('release', json.dumps(to_plain(release)))
                    for release in releases]

        def work(transaction: Any, account: Account, again: bool,
                 ) -> tuple[tuple[bytes, list[Release], bool], Account]:
            bound = transaction.slot(slot)
            if again and bound is not None and bound.nonce == nonce:
                return (nonce, list(releases), True), account  # It was done.
            if bound is not None and not renew:
                self._check_slot(slot, bound, number)
                if not secrets.compare_digest(bound.fingerprint, fingerprint):
                    raise ContentChanged(_changed(releases))
                entries = transaction.entries(bound.first, bound.last)
                return (bound.nonce, [
                    _release(entry) for entry in entries], False), account
            if number != self._vault.keys().newest:
                raise VaultError("The secret was changed meanwhile. Nothing "
                                 "was released: call it again")
            after = self._afford(releases, account)
            entries = next_entries(account, self.identity, contents)
            bound = Slot(fingerprint, nonce, number, account.number + 1,
                         account.number + len(entries), b'')
            keys = self._vault.keys()
            if entries:
                account = self._sealed(account._replace(
                    number=entries[-1].number, link=entries[-1].link,
                    tally=json.dumps(spending_to_plain(after))))
                transaction.save(account, entries)
            transaction.bind(slot, seal_slot(keys.keys[number], self.identity,
                                             slot, bound))
            return (nonce, list(releases), True), account

        return self._run(work, slot)

    def _sealed(self, account: Account) -> Account:
        return seal_account(self._vault.keys().key, self.identity, account)

    def _check_slot(self, slot: str, bound: Slot, number: int) -> None:
        key = self._vault.keys().keys.get(bound.key, b'')
        if bound.key != number or bound != seal_slot(key, self.identity, slot,
                                                     bound):
            raise VaultError(f"What this release is bound to was changed by "
                             f"somebody without the secret. {WHAT_TO_DO}")

    def _afford(self, releases: Sequence[Release],
                account: Account) -> dict[Unit, Spending]:
        terms = _parsed(account.terms)
        before = spending_from_plain(json.loads(account.tally))
        per_node = terms['max_degree'], terms['node_edges']
        after = spend(before, releases, *per_node)
        for unit, spent in after.items():
            cap = float(terms['caps'][unit])
            if spent.epsilon(terms['delta']) <= cap:
                continue
            alone = spend({unit: Spending()}, releases, *per_node)[unit]
            self._terms = terms
            raise PrivacyBudgetExceeded(
                unit, alone.epsilon(self.delta), self._remaining(unit, before),
                ' and '.join(r.call for r in releases), self._why(unit, alone))
        return after

    def take_as_public(self, unit: Unit, who: str) -> None:
        """Refuses somebody who reads what the budget protects, and promises
        nothing for it.
        """
        if self.caps.get(unit, math.inf) < math.inf:
            raise PrivacyBudgetExceeded(unit, math.inf, self.remaining(unit),
                                        who, _public([who], unit))

    def _why(self, unit: Unit, spent: Spending) -> str:
        if spent.public:
            return _public(spent.public, unit)
        if spent.pairs.delta > self.delta:
            return (f"It needs delta = {spent.pairs.delta:g}, and the budget "
                    f"has delta = {self.delta:g}: PrivacyBudget(..., "
                    f"delta=...)")
        return ''

    def raise_caps(self, why: str, **caps: float) -> None:
        """Raises caps that this budget has, which is entered in its history.

        Args:
            why (str): The reason.
            **caps: The new caps: :obj:`features`, :obj:`labels`, :obj:`edges`
                or :obj:`node`.
        """
        if not isinstance(why, str) or not why.strip():
            raise ValueError("'why' must say for what reason")

        def work(transaction: Any, account: Account,
                 again: bool) -> tuple[None, Account]:
            terms = json.loads(account.terms)
            for unit, cap in caps.items():
                if unit not in terms['caps']:
                    raise ValueError(f"'{unit}' has no cap that could be "
                                     f"raised (got those of "
                                     f"{', '.join(terms['caps'])})")
                if not _number(unit, cap) >= float(terms['caps'][unit]):
                    raise ValueError(f"'{unit}' may only be raised, from "
                                     f"{terms['caps'][unit]} (got {cap})")
                terms['caps'][unit] = repr(float(cap))
            text = json.dumps(terms)
            if again and account.terms == text:
                return None, account
            entry, = next_entries(account, self.identity, [
                ('terms', json.dumps({**terms, 'why': why}))])
            account = self._sealed(account._replace(
                terms=text, number=entry.number, link=entry.link))
            transaction.save(account, [entry])
            return None, account

        self._run(work)

    def rotate(self, new: Secret = None) -> None:
        """Gives the vault another secret; see :meth:`Vault.rotate`."""
        self._vault.rotate(new)

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
        if not self._vault.store.durable:
            warnings.warn(
                "A budget is saved that lives as long as this process: what is "
                "spent after this point is not recorded here, and later "
                "programs cannot release anything under it. Use "
                "PrivacyBudget.open('people.vault', ...)", stacklevel=2)
        return _reduce(self)

    def __setstate__(self, state: Any) -> NoReturn:
        raise ValueError("A 'PrivacyBudget' has no state that a file may set")

    # To look at. #

    def _left(self) -> list[str]:
        self._look()
        spent = self._spending
        return [f'{unit}={self._remaining(Unit(unit), spent):g} of {cap:g}'
                for unit, cap in self.caps.items()]

    def __repr__(self) -> str:
        try:
            left = ', '.join(self._left())
        except (LookupError, ValueError, VaultError):
            return f'{self.__class__.__name__}(its vault is gone)'
        return f'{self.__class__.__name__}({left} left)'

    @property
    def name(self) -> str | None:
        """Its name in its vault; a temporary one has none."""
        if self._name is None and self._vault.store.durable:
            def find(transaction: Any, again: bool) -> str | None:
                return next((name for name in transaction.names()
                             if transaction.find(name) == self.identity), None)

            self._name = self._vault.store.run(self.identity, find)
        return self._name

    def _about(self) -> list[str]:
        # What is to be known besides what is left.
        name, where = self.name, self._vault.store.address
        about = ['temporary: it goes with the process that made it' if name is
                 None else f"'{_one_line(name)}', in {_one_line(where)}"]
        if self.delta > 0:
            about.append(f'delta = {self.delta:g}')
        if self.max_degree is not None:
            about.append(f'max_degree = {self.max_degree}')
        if self.node_edges is not None:
            about.append(f'node_edges = {self.node_edges}')
        return about

    def __str__(self) -> str:
        try:
            rows = [_HEAD, *map(_row, self.history())]
            about = self._about()
        except (LookupError, ValueError, VaultError) as error:
            return f'{self!r}: {error}'
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ['  '.join(cell.ljust(width) for cell, width in zip(
            row, widths)).rstrip() for row in rows]
        lines.insert(1, '  '.join('-' * width for width in widths))
        return '\n'.join([repr(self), *about, *lines])

    def _repr_html_(self) -> str:
        def row(cells: Iterable[str], tag: str) -> str:
            inner = ''.join(f'<{tag}>{escape(c)}</{tag}>' for c in cells)
            return f'<tr>{inner}</tr>'

        try:
            history, about = self.history(), self._about()
        except (LookupError, ValueError, VaultError) as error:
            return f'<p>{escape(repr(self))}: {escape(str(error))}</p>'
        spent = self._spending
        left = row(('protects', 'cap', 'left'), 'th') + ''.join(
            row((unit, f'{cap:g}',
                 f'{self._remaining(Unit(unit), spent):g}'), 'td')
            for unit, cap in self.caps.items())
        # A browser is no place for all entries of a long life.
        lines = row(_HEAD, 'th') + ''.join(
            row(_row(line), 'td') for line in history[-_SHOWN:])
        earlier = len(history) - _SHOWN
        if earlier > 0:
            about.append(f'{earlier} earlier entries are in history()')
        notes = '<br>'.join(map(escape, about))
        return (f'<p><b>{escape(self.__class__.__name__)}</b> {notes}</p>'
                f'<table>{left}</table><table>{lines}</table>')


_HEAD = ('when (UTC)', 'who', 'protects', 'epsilon', 'what')
_SHOWN = 100


def _row(line: Line) -> tuple[str, ...]:
    protects = epsilon = ''
    if line.release is not None:
        promise = line.release.guarantee
        protects, epsilon = str(promise.unit), f'{promise.epsilon:g}'
        if line.release.stability > 1 and promise.unit == Unit.EDGES:
            epsilon = f'{line.release.stability} x {epsilon}'
        if promise.delta > 0:
            epsilon += f', delta = {promise.delta:g}'
    return tuple(map(_one_line, (line.at[:19].replace('T', ' '), line.who,
                                 protects, epsilon, line.what)))


def _one_line(text: str) -> str:
    # Or whoever writes a line could forge the next one.
    return ''.join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@functools.lru_cache
def _parsed(terms: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(terms)  # Nobody changes it.
    return parsed


class _Sealed(Exception):
    # The seal is not that of our keys: the account, or the keys, were changed.
    pass


def _reduce(budget: PrivacyBudget) -> tuple[Any, ...]:
    return restore_budget, (budget._vault.store.address, budget.identity)


# What goes to another process of the family is not saved.
ForkingPickler.register(PrivacyBudget, _reduce)


def _vault(store: Store, secret: Secret = None) -> Vault:
    with LOCK:
        vault = _VAULTS.get(store.address)
        if vault is None or (secret is not None and vault.secret != secret):
            vault = _VAULTS[store.address] = Vault(store, secret)
        return vault


def _store(where: Any, create: bool = False) -> Store:
    if not isinstance(where, (str, os.PathLike)):
        store: Store = where
        return store
    address = os.fspath(where)
    if address.startswith(('postgresql:', 'postgres:')):
        known = _VAULTS.get(address)
        return PostgresStore(address, create) if known is None else known.store
    return SQLiteStore(address, create)


def _create(vault: Vault, name: str, identity: str, terms: Any) -> str:
    # The identity of the budget of a name, which is new if there is none.
    keys = vault.keys()

    def work(transaction: Any, again: bool) -> str:
        found: str | None = transaction.find(name)
        if found is None:
            transaction.lock()
            found = transaction.find(name)
        if found is not None:
            return found
        if terms is None:
            raise LookupError(
                f"'{name}' is no budget of {vault.store.address}: state its "
                f"caps, as in epsilon=8.0, to make one (got "
                f"{', '.join(transaction.names()) or 'none'})")
        witness = Witness(keys.vault, name)
        if vault.store.durable and witness.seen() is not None:
            raise VaultError(
                f"The budget '{name}' was seen here before, and was taken out "
                f"of the vault {vault.store.address}. {WHAT_TO_DO}; if it is "
                f"to be made anew, remove {witness.path}")
        text = json.dumps(terms)
        entry, = next_entries(None, identity, [('terms', text)])
        tally = json.dumps(spending_to_plain(
            {Unit(unit): Spending() for unit in terms['caps']}))
        transaction.on(identity).create(name, seal_account(
            keys.key, identity, Account(text, entry.number, entry.link, tally,
                                        b'')), [entry])
        return identity

    return vault.store.run(identity, work)


def _release(entry: Entry) -> Release:
    release: Release = from_plain(Release, json.loads(entry.content))
    return release


def _line(entry: Entry) -> Line:
    release, caps, what = None, None, entry.content
    if entry.kind == 'release':
        release = _release(entry)
        what = release.call
    elif entry.kind == 'terms':
        terms = json.loads(entry.content)
        caps = {unit: float(cap) for unit, cap in terms['caps'].items()}
        what = 'caps: ' + ', '.join(f'{u}={cap:g}' for u, cap in caps.items())
        if 'why' in terms:
            what += f" ({terms['why']})"
    return Line(entry.number, entry.at, entry.who, what, release, caps)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ', '.join(f'{unit}={cap}' for unit, cap in value.items())
    return str(value)


def _changed(releases: Sequence[Release]) -> str:
    return (f"{releases[0].call if releases else 'A projection'} was applied "
            f"to other content under this budget before: a subgraph, another "
            f"graph or another version. Release the whole graph first and take "
            f"parts of the release, which is free; give another graph its own "
            f"budget; or pay for a new release with renew()")


def _refuse_ranks() -> None:
    # Each rank would have a budget of its own, and spend all of it.
    distributed = sys.modules.get('torch.distributed')
    ranks = int(os.environ.get('WORLD_SIZE') or 1
                ) if 'RANK' in os.environ else 1
    if distributed is not None and distributed.is_available() and (
            distributed.is_initialized()):
        ranks = distributed.get_world_size()
    if ranks > 1:
        raise RuntimeError(
            f"This is one of {ranks} ranks, each of which would have a budget "
            f"of its own, and spend all of it. Open one that they share: "
            f"PrivacyBudget.open('people.vault', epsilon=...), or a vault in "
            f"PostgreSQL if they are on several machines")


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
            budget._set(_vault(_store(address)), identity)
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


def _terms(given: dict[str, Any], max_degree: Any, node_edges: Any,
           delta: Any) -> Any:
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
    sizes = {'max_degree': max_degree, 'node_edges': node_edges}
    if (given['node'] is not None) != sum(
            size is not None for size in sizes.values()):
        raise ValueError(f"'node' and one of 'max_degree' and 'node_edges' "
                         f"belong together (got node={given['node']}, "
                         f"max_degree={max_degree}, node_edges={node_edges})")
    for name, size in sizes.items():
        sizes[name] = size and whole(_number(name, size))
        if size is not None and (sizes[name] or 0) < 1:
            raise ValueError(f"'{name}' must be a positive integer "
                             f"(got {size})")
    if not 0 <= _number('delta', delta) < 1:
        raise ValueError(f"'delta' must lie in [0, 1) (got {delta})")
    units = [*Unit][:3]
    all_of_them = {str(u): caps.get(u, caps.get('epsilon')) for u in units}
    all_of_them['node'] = caps.get('node')
    return {'caps': {unit: repr(cap) for unit, cap in all_of_them.items()
                     if cap is not None},
            **sizes,
            'delta': float(delta)}
