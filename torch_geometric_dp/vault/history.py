r"""A history that cannot be quietly shortened.

Every entry has a link, the SHA-256 of the link before it and of what it says.
So whoever changes, moves or takes away an entry changes all links that follow.
The last link stands in the account, together with the terms and with what was
spent, under a seal that only the owner's secret can make (HMAC-SHA-256). What
is left is to put back a whole vault as it was before: the number and link of
the last entry are also remembered outside of it, see
:mod:`torch_geometric_dp.vault.witness`.
"""
import datetime
import functools
import getpass
import hashlib
import hmac
import json
import os
import socket
from collections.abc import Iterable, Sequence

from torch_geometric_dp.vault.store import Account, Entry, Slot, VaultError


def next_entries(account: Account | None, identity: str,
                 contents: Iterable[tuple[str, str]]) -> list[Entry]:
    """Entries that follow an account's last one, or are its first, given their
    kinds and contents.
    """
    number, link = _last(account, identity)
    at, who = datetime.datetime.now(datetime.UTC).isoformat(), _name_of(
        os.getpid())
    entries = []
    for kind, content in contents:
        number += 1
        link = _link(link, number, at, who, kind, content)
        entries.append(Entry(number, at, who, kind, content, link))
    return entries


def check_chain(account: Account, identity: str,
                entries: Sequence[Entry]) -> None:
    """Raises an error if the entries are not all that an account tells of."""
    number, link = _last(None, identity)
    for entry in entries:
        number += 1
        link = _link(link, number, *entry[1:5])
        if entry.number != number or entry.link != link:
            raise VaultError(
                f"The history of this budget was changed at entry {number}: it "
                f"does not follow the one before it. {WHAT_TO_DO}")
    if (number, link) != (account.number, account.link):
        raise VaultError(f"The history of this budget was changed: it has "
                         f"{number} entries, and should have "
                         f"{account.number}. {WHAT_TO_DO}")


WHAT_TO_DO = ('Nothing was released. Put back the newest copy of the vault '
              'that you trust, and find out who can write to it')


def _last(account: Account | None, identity: str) -> tuple[int, bytes]:
    if account is None:
        return 0, hashlib.sha256(identity.encode()).digest()
    return account.number, account.link


def _link(before: bytes, *row: object) -> bytes:
    text = json.dumps(row, default=repr)
    return hashlib.sha256(before + text.encode()).digest()


@functools.lru_cache
def _name_of(process: int) -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A container's user may have no name.
        user = str(os.getuid()) if hasattr(os, 'getuid') else 'somebody'
    return f'{user}@{socket.gethostname()}:{process}'


def seal(key: bytes, *parts: object) -> bytes:
    """A seal over some text, numbers and bytes."""
    text = json.dumps([part.hex() if isinstance(part, bytes) else part
                       for part in parts])
    return hmac.digest(key, b'seal ' + text.encode(), 'sha256')


def seal_account(key: bytes, identity: str, account: Account) -> Account:
    """An account, with its seal."""
    return account._replace(tag=seal(key, 'account', identity, *account[:-1]))


def seal_slot(key: bytes, identity: str, slot: str, bound: Slot) -> Slot:
    """What a slot is bound to, with its seal: or whoever can write to the vault
    could give one release the noise of another.
    """
    return bound._replace(tag=seal(key, 'slot', identity, slot, *bound[:-1]))
