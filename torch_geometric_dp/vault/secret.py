"""The owner's secret: whoever has it and the vault can repeat releases, and
take their noise off. It is never in the vault.
"""
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from torch_geometric_dp.vault.store import VaultError

#: The environment variable that a secret is read from, if there is no other.
ENVIRONMENT = 'TORCH_GEOMETRIC_DP_SECRET'
_LEAST = 16

Secret = str | os.PathLike[str] | Callable[[], bytes] | None


def read_secret(secret: Secret, default: str | None, new: bool) -> bytes:
    """The secret, as 32 bytes: from a callable (a secret manager), from a key
    file, from the environment, or from the key file beside the vault, which is
    made with a :obj:`new` one.

    .. code-block:: python

        read_secret(lambda: b'sixteen bytes or more', None, new=True)
    """
    told = os.environ.get(ENVIRONMENT)
    if callable(secret):
        content, where = secret(), "what 'secret' returns"
    elif secret is None and told is not None:
        content, where = told.encode(), f'the variable {ENVIRONMENT}'
    else:
        path = default if secret is None else os.fspath(secret)
        if path is None:
            raise ValueError(
                f"'secret' must be given, as a key file or a callable, or "
                f"stand in the variable {ENVIRONMENT}: this vault is no "
                f"file that a key could lie beside")
        content, where = _key_file(path, new), f"the key file '{path}'"
    if not isinstance(content, bytes) or len(content) < _LEAST:
        raise VaultError(f"{where} must hold at least {_LEAST} bytes")
    return hashlib.sha256(content).digest()


def _key_file(path: str, new: bool) -> bytes:
    if new:
        # Complete before it has its name, and for its owner alone.
        file, draft = tempfile.mkstemp(dir=os.path.dirname(path) or '.')
        with open(file, 'w') as out:
            out.write(secrets.token_hex(32))
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # Of another vault of the same owner, or of the last attempt.
        finally:
            os.unlink(draft)
    try:
        with open(path, 'rb') as lines:
            mode = stat.S_IMODE(os.fstat(lines.fileno()).st_mode)
            content = lines.read().strip()
    except FileNotFoundError:
        raise VaultError(
            f"The secret of this vault is not there ('{path}'), so nothing can "
            f"be released. Put the key file back; if it is lost, "
            f"PrivacyBudget.open(..., lost=True) goes on with a new secret, "
            f"but can repeat no release that was made before") from None
    if os.name == 'posix' and mode & 0o077:
        raise VaultError(f"The key file '{path}' must be for its owner alone "
                         f"(got the mode {mode:o}): chmod 600, and think about "
                         f"who may have read it")
    return content


def wrap(secret: bytes, key: bytes, label: str) -> bytes:
    """A key, sealed with a secret."""
    nonce = secrets.token_bytes(12)
    return nonce + AESGCM(secret).encrypt(nonce, key, label.encode())


def unwrap(secret: bytes, sealed: bytes, label: str) -> bytes | None:
    """The key again; :obj:`None` if it was sealed with another secret."""
    try:
        return AESGCM(secret).decrypt(sealed[:12], sealed[12:], label.encode())
    except (InvalidTag, ValueError):  # It may be no sealed key at all.
        return None


class Keyring(NamedTuple):
    """The name of a vault, and its keys. Noise depends on the one that was the
    newest when it was drawn; those that cannot be unsealed are not there.
    """
    vault: str
    keys: dict[int, bytes]
    newest: int

    @property
    def key(self) -> bytes:
        """The newest one."""
        return self.keys[self.newest]

    def sealed(self, secret: bytes,
               known: dict[str, bytes]) -> dict[str, bytes]:
        """The same keys, sealed with another secret."""
        return {**known, **{
            f'key {number}': wrap(secret, key, f'{self.vault} {number}')
            for number, key in self.keys.items()}}


def make_keys(known: dict[str, bytes], secret: bytes) -> dict[str, bytes]:
    """What a vault knows of itself, with one more key, sealed with a secret."""
    vault = known.get('id', secrets.token_hex(16).encode())
    number = 1 + max((int(name[4:]) for name in known
                      if name.startswith('key ')), default=0)
    sealed = wrap(secret, secrets.token_bytes(32), f'{vault.decode()} {number}')
    return {**known, 'id': vault, f'key {number}': sealed}


def open_keys(known: dict[str, bytes], secret: bytes) -> Keyring:
    """The keys of a vault, of which the newest must be there."""
    vault = known['id'].decode()
    keys, newest = {}, 0
    for name, sealed in known.items():
        if name.startswith('key '):
            number = int(name[4:])
            newest = max(newest, number)
            key = unwrap(secret, sealed, f'{vault} {number}')
            if key is not None:
                keys[number] = key
    if newest not in keys:
        raise VaultError(
            "The secret is not the one that this vault was made with, or last "
            "given, so nothing can be released. Give the right one; if it is "
            "lost, PrivacyBudget.open(..., lost=True) goes on with a new one, "
            "but can repeat no release that was made before")
    return Keyring(vault, keys, newest)
