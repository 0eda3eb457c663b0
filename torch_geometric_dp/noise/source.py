"""A keyed stream of random bits, addressed by row and column."""
import hashlib
import hmac
import math
import secrets
from collections.abc import Iterable, Iterator

import numpy as np
from cryptography.hazmat.primitives.ciphers import (
    Cipher,
    CipherContext,
    algorithms,
    modes,
)
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Shape = int | tuple[int, ...]
Address = str | int | bytes

WORD = 2**64  # How many values a word has.
BLOCK_WORDS = 2**15  # 256 KiB: a block and its cells stay in the L2 cache.

_ZEROS = memoryview(bytes(8 * BLOCK_WORDS))


class NoiseSource:
    r"""A keyed stream of random bits.

    Args:
        key (bytes): 32 secret bytes. Use :meth:`from_os` for secure noise and
            :meth:`from_seed` for a run that can be repeated (and undone) by
            everybody who knows the seed.

    .. code-block:: python

        source = NoiseSource.from_os()
        uniforms(source, (1000, 3))                  # three draws a row
        uniforms(source.derive("again"), (1000, 3))  # other bits
    """
    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ValueError(f"'key' must have 32 bytes (got {len(key)})")
        self._key = key
        self._cipher = algorithms.AES(self.digest('stream'))

    @classmethod
    def from_os(cls) -> 'NoiseSource':
        """A fresh key from the operating system's entropy."""
        return cls(secrets.token_bytes(32))

    @classmethod
    def from_seed(cls, seed: int) -> 'NoiseSource':
        """A key that everybody who knows :obj:`seed` can compute."""
        return cls(hashlib.sha256(f'seed {int(seed)}'.encode()).digest())

    def digest(self, *address: Address) -> bytes:
        """32 bytes that belong to an address, and tell nothing of the key."""
        message = b''
        for part in address:
            if not isinstance(part, bytes):
                part = f'{type(part).__name__} {part}'.encode()
            message += len(part).to_bytes(8, 'big') + part
        return hmac.digest(self._key, message, 'sha256')

    def derive(self, *address: Address) -> 'NoiseSource':
        """An independent source that belongs to an address."""
        return NoiseSource(self.digest('derive', *address))

    def fingerprint(self, content: Iterable[NDArray[np.uint8]]) -> bytes:
        """A keyed fingerprint of the bytes of some blocks.

        The polynomial hash of AES-GCM, at the speed of memory, and then a
        keyed hash: without the key, nobody can test a guess of the content
        against the fingerprint.
        """
        mac = Cipher(algorithms.AES(self.digest('fingerprint key')),
                     modes.GCM(bytes(12))).encryptor()
        for block in content:
            for start in range(0, block.size, 2**24):
                chunk = block[start:start + 2**24]
                mac.authenticate_additional_data(chunk.data)
        mac.finalize()
        return self.digest('fingerprint', mac.tag)

    def blocks(self, rows: int, width: int,
               first: int = 0) -> Iterator[tuple[int, int, Words]]:
        """Yields :obj:`(start, stop, words)`: the words of rows
        :obj:`start` to :obj:`stop`, :obj:`width` each, from row :obj:`first`
        to the one before :obj:`rows`. The buffer is used again for the next
        block.
        """
        step = block_rows(width)
        counter, odd = divmod(first * width, 2)  # A block holds two words.
        stream = Cipher(self._cipher, modes.CTR(
            counter.to_bytes(16, 'big'))).encryptor()
        stream.update(bytes(8 * odd))
        buffer = np.empty(step * width, '<u8')
        for start in range(first, rows, step):
            stop = min(rows, start + step)
            words = buffer[:(stop - start) * width]
            _fill(stream, words)
            yield start, stop, words.astype(np.uint64, copy=False)

    def gather(self, rows: NDArray[np.integer], columns: NDArray[np.integer],
               width: int, depth: int) -> Words:
        """The words of scattered cells of a grid with :obj:`width` columns
        and :obj:`depth` (an even number) words a cell.
        """
        blocks = np.empty((len(rows), depth // 2, 2), '>u8')
        blocks[:, :, 0] = 0  # The upper half of the counter.
        first = rows.astype(np.uint64) * np.uint64(width)
        first = (first + columns.astype(np.uint64)) * np.uint64(depth // 2)
        blocks[:, :, 1] = first[:, None] + np.arange(depth // 2, dtype='u8')
        out = np.empty(blocks.nbytes + 15, np.uint8)
        cipher = Cipher(self._cipher, modes.ECB()).encryptor()
        cipher.update_into(blocks.reshape(-1).view(np.uint8).data, out.data)
        words = out[:blocks.nbytes].view('<u8').reshape(len(rows), depth)
        return words.astype(np.uint64, copy=False)

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}(key=<secret>)'


def _fill(stream: CipherContext, words: Words) -> None:
    # A cipher stream is the encryption of zeros.
    out = words.view(np.uint8).data
    for start in range(0, len(out), len(_ZEROS)):
        part = out[start:start + len(_ZEROS)]
        stream.update_into(_ZEROS[:len(part)], part)


def block_rows(width: int) -> int:
    """The rows of a block, if there are :obj:`width` words in each."""
    return max(1, BLOCK_WORDS // max(width, 1))


def grid(shape: Shape) -> tuple[int, int]:
    """Rows, and cells in a row, of an array's shape."""
    shape = (shape, ) if isinstance(shape, int) else tuple(shape)
    return (shape[0], math.prod(shape[1:])) if shape else (1, 1)
