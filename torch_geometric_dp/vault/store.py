"""What a vault keeps, and the one small interface of all places for it."""
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar('T')


class VaultError(RuntimeError):
    r"""A vault cannot be used as it is: it is gone, locked, full, damaged,
    newer than this version, or its history was changed. Nothing was released.

    .. code-block:: python

        try:
            private = LabelRR(epsilon=1.0, num_classes=7)(data)
        except VaultError as error:
            print(error)   # What is wrong, and what to do.
    """


class Account(NamedTuple):
    """A budget: its terms, how far its history goes, what was spent, and a seal
    over all of that.
    """
    terms: str
    number: int
    link: bytes
    tally: str
    tag: bytes


class Entry(NamedTuple):
    """One line of a history, linked to the one before it."""
    number: int
    at: str
    who: str
    kind: str
    content: str
    link: bytes


class Slot(NamedTuple):
    """What is bound: a content, the noise that belongs to it, the key that both
    depend on, the entries that it was charged with, and a seal.
    """
    fingerprint: bytes
    nonce: bytes
    key: int
    first: int
    last: int
    tag: bytes


class Transaction(Protocol):
    """What can be done to one budget, and to the vault itself, while nobody
    else does anything to them.
    """
    def ahead(self, number: int | None, slot: str | None) -> None:
        """Says what will be asked for, after the budget itself: an entry and a
        slot. A store that is far away is asked for all of it at once.
        """

    def account(self) -> Account:
        """The budget."""

    def entries(self, first: int, last: int | None = None) -> list[Entry]:
        """The entries with numbers from :obj:`first` to :obj:`last`."""

    def slot(self, slot: str) -> Slot | None:
        """What a slot is bound to, if it is."""

    def save(self, account: Account, entries: Sequence[Entry]) -> None:
        """Writes the budget as it is now, and new entries."""

    def bind(self, slot: str, bound: Slot) -> None:
        """Binds a slot, or binds it anew."""

    def lock(self) -> None:
        """Keeps all others out of the whole vault, for what follows."""

    def find(self, name: str) -> str | None:
        """The identity of a budget."""

    def names(self) -> list[str]:
        """The names of all budgets."""

    def create(self, name: str, account: Account,
               entries: Sequence[Entry]) -> None:
        """A new budget."""

    def on(self, identity: str) -> 'Transaction':
        """The same transaction, on another budget."""

    def load(self) -> dict[str, bytes]:
        """What is known of the vault itself: its name, and its keys, sealed."""

    def keep(self, known: dict[str, bytes]) -> None:
        """Writes that."""


class Store(Protocol):
    """A place for budgets.

    .. code-block:: python

        def names(store: Store) -> list:
            return store.run('', lambda transaction, again: transaction.names())

        names(SQLiteStore('some.vault', create=True))   # []
    """
    #: Where it is, for whoever wants to open it again; without a password.
    address: str
    #: Whether it outlives the process that made it.
    durable: bool

    def run(self, identity: str, work: Callable[[Any, bool], T]) -> T:
        """Does some work on a budget while nobody else does: all of it, or
        nothing. The work is given a :class:`Transaction`. If it is not known
        whether it was done, it is tried again with :obj:`True` as its second
        argument, and has to look for itself.
        """


#: Held by whoever uses a vault in this process. Nobody forks meanwhile: a child
#: would inherit half a transaction, and wait for its end for ever.
LOCK = threading.RLock()
#: Stores with a connection, which is closed before a fork: a child would rely
#: on file locks that only its parent has, and charges of the child could be
#: lost when the parent ends.
CONNECTED: 'weakref.WeakSet[Any]' = weakref.WeakSet()


def _before_fork() -> None:
    LOCK.acquire()
    for store in list(CONNECTED):
        store.close()


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(before=_before_fork, after_in_parent=LOCK.release,
                        after_in_child=LOCK.release)
