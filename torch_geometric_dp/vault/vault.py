"""A store together with the owner's secret."""
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch_geometric_dp.vault.history import next_entries, seal_account
from torch_geometric_dp.vault.secret import (
    ENVIRONMENT,
    Keyring,
    Secret,
    make_keys,
    open_keys,
    read_secret,
)
from torch_geometric_dp.vault.sqlite import SQLiteStore
from torch_geometric_dp.vault.store import LOCK, Store, VaultError
from torch_geometric_dp.vault.witness import Witness


class Vault:
    """A store, and the keys that it holds, for whoever has the secret.

    Args:
        store (Store): Where everything is kept.
        secret (str or callable, optional): A key file, or a function that
            returns the secret; by default, what stands in the environment, or
            the key file beside the store. (default: :obj:`None`)

    .. code-block:: python

        vault = Vault(SQLiteStore('people.vault', create=True))
        len(vault.keys().key)   # 32
    """
    def __init__(self, store: Store, secret: Secret = None) -> None:
        self.store = store
        self.secret = secret
        self._keys: Keyring | None = None

    @property
    def key_file(self) -> str | None:
        """The key file beside the store."""
        beside = isinstance(self.store, SQLiteStore)
        return f'{self.store.address}.key' if beside else None

    @property
    def _beside(self) -> bool:
        # Whether the secret lies there.
        return (self.key_file is not None and self.secret is None
                and ENVIRONMENT not in os.environ)

    def _read(self, new: bool) -> bytes:
        return read_secret(self.secret, self.key_file, new)

    def keys(self, again: bool = False) -> Keyring:
        """The keys; read :obj:`again` if somebody may have changed them."""
        if self._keys is None or again:
            known = self.store.run('', lambda transaction, _: (
                transaction.load()))
            if 'id' not in known:
                secret = self._read(new=True)

                def make(transaction: Any, _: bool) -> dict[str, bytes]:
                    transaction.lock()
                    known: dict[str, bytes] = transaction.load()
                    if 'id' not in known:
                        known = make_keys(known, secret)
                        transaction.keep(known)
                    return known

                known = self.store.run('', make)
            self._keys = self._open(known)
            if self.store.durable:
                self._check_place(known['id'])
        return self._keys

    def _check_place(self, name: bytes) -> None:
        # A vault that was taken away, and another one in its place, would have
        # all of its budgets left.
        witness = Witness('place', self.store.address)
        now = 1, hashlib.sha256(name).digest()
        if witness.seen() not in (None, now):
            self._keys = None
            raise VaultError(
                f"Another vault was at {self.store.address} before, and what "
                f"was spent is in that one. Nothing was released. Put it back; "
                f"if it is gone, and you know that nothing of it counts any "
                f"more, remove {witness.path}")
        if witness.seen() is None:
            witness.see(*now)

    def _open(self, known: dict[str, bytes]) -> Keyring:
        secret = self._read(new=False)
        try:
            return open_keys(known, secret)
        except VaultError:
            draft = f'{self.key_file}.new'
            if not self._beside or not os.path.exists(draft):
                raise
            # Somebody is changing the secret, or died on the way.
            keys = open_keys(known, read_secret(draft, None, new=False))
            with suppress(OSError):
                os.replace(draft, str(self.key_file))
            return keys

    def rotate(self, new: Secret = None) -> None:
        """Seals the keys with another secret, and makes a new key for what is
        released from now on. What was released before can be repeated still.

        Args:
            new (str or callable, optional): The new secret. By default, a new
                one takes the place of the key file. (default: :obj:`None`)
        """
        draft = None if new is not None else f'{self.key_file}.new'
        if draft is not None and not self._beside:
            raise ValueError("'new' must be given: the secret does not lie in "
                             "a key file beside the vault")
        old = self._read(new=False)
        secret = read_secret(draft if new is None else new, None, new=True)
        self._change(lambda known: make_keys(
            open_keys(known, old).sealed(secret, known), secret), secret,
            'the secret was changed', old)
        if draft is not None and self.key_file is not None:
            with suppress(FileNotFoundError):  # Who opens it now may be faster.
                os.replace(draft, self.key_file)
        else:
            self.secret = new

    def give_up(self) -> None:
        """Goes on with a new secret, as the old one is lost. Nothing is
        betrayed by that; but what was released before cannot be repeated.
        """
        secret = self._read(new=True)
        try:
            self._keys = self.keys(again=True)
        except VaultError:
            self._change(lambda known: make_keys(known, secret), secret,
                         'the secret was lost', None)

    def _change(self, change: Callable[[dict[str, bytes]], dict[str, bytes]],
                secret: bytes, why: str, old: bytes | None) -> None:
        # All accounts are sealed anew, together with the keys.
        def work(transaction: Any, again: bool) -> Keyring:
            transaction.lock()
            before = transaction.load()
            if again:  # Perhaps it was done, and nobody heard of it.
                try:
                    return open_keys(before, secret)
                except VaultError:
                    pass
            known = change(before)
            keys = open_keys(known, secret)
            for name in transaction.names():
                identity = transaction.find(name)
                on = transaction.on(identity)
                account = on.account()
                if old is not None and account != seal_account(
                        open_keys(before, old).key, identity, account):
                    raise VaultError(f"The budget '{name}' was changed by "
                                     f"somebody without the secret")
                entry, = next_entries(account, identity, [('secret', why)])
                on.save(seal_account(keys.key, identity, account._replace(
                    number=entry.number, link=entry.link)), [entry])
            transaction.keep(known)
            return keys

        with LOCK:
            self._keys = self.store.run('', work)
