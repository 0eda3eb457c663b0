"""How far a history went, remembered outside of the vault: a backup that was
put back, or another copy of a vault, has a shorter or another one.
"""
import hashlib
import os
import warnings
from pathlib import Path

#: The environment variable that names the folder.
ENVIRONMENT = 'TORCH_GEOMETRIC_DP_STATE'


def folder() -> Path:
    """The folder, on this machine and for this user.

    .. code-block:: python

        folder().name   # 'torch_geometric_dp'
    """
    told = os.environ.get(ENVIRONMENT)
    if told is not None:
        return Path(told)
    state = os.environ.get('XDG_STATE_HOME')
    home = Path(state) if state else Path.home() / '.local' / 'state'
    return home / 'torch_geometric_dp'


class Witness:
    """What this machine has seen of the history of one budget.

    Args:
        vault (str): The vault's own name, which its copies share.
        name (str): The name of the budget.

    .. code-block:: python

        witness = Witness('some vault', 'some budget')
        witness.seen()   # None
    """
    def __init__(self, vault: str, name: str) -> None:
        # A name that no vault can choose.
        digest = hashlib.sha256(f'{vault} {name}'.encode()).hexdigest()
        self.path = folder() / digest

    def seen(self) -> tuple[int, bytes] | None:
        """The number and the link of the last entry that was seen."""
        try:
            number, link, check = self.path.read_text().split()
        except (OSError, ValueError):
            return None
        # A half-written one is none.
        good = check == _check(number, link)
        return (int(number), bytes.fromhex(link)) if good else None

    def see(self, number: int, link: bytes) -> None:
        """Remembers an entry. It need not outlive a power failure: what is
        older notices less, and is never wrong.
        """
        text = f'{number} {link.hex()} {_check(str(number), link.hex())}\n'
        try:
            if not self.path.exists():
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.write(file, text.ljust(160).encode())
            finally:
                os.close(file)
        except OSError as error:
            warnings.warn(f"A backup of the vault that is put back will not be "
                          f"noticed, as nothing can be remembered outside of "
                          f"it: {error}. The variable {ENVIRONMENT} names a "
                          f"folder for that", stacklevel=2)


def _check(number: str, link: str) -> str:
    return hashlib.sha256(f'{number} {link}'.encode()).hexdigest()[:16]
