"""Where large tensors lie: in memory, or in files that are mapped into it.

Releases go block by block, so that a graph may be larger than memory: its
features are read from a file that is mapped (:class:`numpy.memmap`), and what
comes of them is written to another one (:func:`on_disk`). The operating system
moves pages in and out, and nothing of the size of the features is held besides.
"""
import math
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Database
from torch_geometric.data.database import TensorInfo

BLOCK_CELLS = 2**18  # What is held of a matrix at once: 2 MiB, as doubles.
LEAST_BYTES = 2**20  # Smaller tensors stay in memory: a file has its price.

_FOLDER: ContextVar[str | None] = ContextVar('folder', default=None)


@contextmanager
def on_disk(folder: str | os.PathLike[str]) -> Iterator[None]:
    r"""Within it, transforms and mechanisms that release features and labels
    write what they return (if it has a MiB or more) to mapped files in a
    folder, in place of memory, and so does :class:`ReconstructFeatures`. It is
    the same release, bit for bit.

    The files have no name, and nobody else can open them: they may hold raw
    features on their way to a release. Each stays open, and is gone as soon as
    nobody needs its tensor. Threads that start within it need one of their
    own. To keep a release, save it:

    .. code-block:: python

        data = DigitsGraph()[0]
        with on_disk('.'):
            private = FeatureRR(epsilon=64.0, bounds=(0.0, 1.0))(data)
        torch.save(private, 'private.pt')
        private = torch.load('private.pt', mmap=True, weights_only=False)

    Args:
        folder (str): An existing folder, on a disk with enough space.
    """
    token = _FOLDER.set(_check_folder(folder))
    try:
        yield
    finally:
        _FOLDER.reset(token)


def _check_folder(folder: str | os.PathLike[str]) -> str:
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"'folder' must be the path of a folder "
                        f"(got '{type(folder).__name__}')")
    if not os.path.isdir(folder):
        raise ValueError(f"'folder' must be an existing folder "
                         f"(got {os.fspath(folder)!r})")
    try:  # Now, and not in the middle of a release, which is charged by then.
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"'folder' must be a folder in which files can be "
                         f"made (got {os.fspath(folder)!r}: {error.strerror})"
                         ) from error
    return os.path.abspath(folder)  # Wherever the program goes meanwhile.


def empty(shape: Sequence[int], dtype: torch.dtype,
          device: torch.device | str = 'cpu') -> Tensor:
    """A tensor without content, for a result; on disk if it is large, and
    :func:`on_disk` says so.

    .. code-block:: python

        empty((1000, 3), torch.half).shape   # torch.Size([1000, 3])
    """
    folder, size = _FOLDER.get(), math.prod(shape) * dtype.itemsize
    if size < LEAST_BYTES or torch.device(device).type != 'cpu':
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    # From numpy, which asks for huge pages: half of the time otherwise goes
    # into the first touch of fresh memory.
    buffer = np.empty(size, np.uint8) if folder is None else _map(folder, size)
    return torch.frombuffer(buffer, dtype=dtype).view(tuple(shape))


def _map(folder: str, size: int) -> mmap.mmap:
    # Not by `torch.from_file`, whose tensors no other process can be sent.
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, 'posix_fallocate'):
            # A full disk is an error now, in place of a crash later.
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                raise OSError(error.errno, f"'folder' must have {size:,} bytes "
                              f"left: {error.strerror}", folder) from error
        else:
            file.truncate(size)
        return mmap.mmap(file.fileno(), size)


def row_blocks(rows: int, width: int,
               first: int = 0) -> Iterator[tuple[int, int]]:
    """Yields :obj:`(start, stop)` for blocks of rows of a matrix, from row
    :obj:`first` to the one before :obj:`rows`.

    .. code-block:: python

        list(row_blocks(10, width=2**16))   # [(0, 4), (4, 8), (8, 10)]
    """
    step = max(1, BLOCK_CELLS // max(width, 1))
    for start in range(first, rows, step):
        yield start, min(rows, start + step)


def load_rows(database: Database, num_rows: int | None = None) -> Tensor:
    r"""The rows of a PyG database, tensors of one shape at places from 0 on,
    as one tensor: a matrix of features, say. It is read block by block, and
    lies on disk if :func:`on_disk` says so.

    .. code-block:: python

        from torch_geometric.data import SQLiteDatabase

        rows = dict(dtype=torch.float, size=(4, ))
        raw = SQLiteDatabase('raw.db', 'x', schema=rows)
        save_rows(data.x, raw)
        with on_disk('.'):
            data.x = load_rows(raw)
            private = FeatureRR(epsilon=8.0, bounds=(0.0, 1.0))(data)
        save_rows(private.x, SQLiteDatabase('private.db', 'x', schema=rows))

    Args:
        database (Database): The database. PyG's default schema loses the shape
            of tensors: state it.
        num_rows (int, optional): How many rows to load, from the first on. By
            default all, which takes a database that knows how many it has, as
            :obj:`RocksDatabase` does not. (default: :obj:`None`)
    """
    count = _length(database) if num_rows is None else num_rows
    if count is None:
        raise ValueError(f"'num_rows' must be stated for a database that does "
                         f"not know it (got '{type(database).__name__}')")
    if count < 1:
        raise ValueError("'database' must hold at least one row (got none)"
                         if num_rows is None else
                         f"'num_rows' must be at least 1 (got {num_rows})")
    first = database[0]
    if not isinstance(first, Tensor):
        raise TypeError(f"'database' must hold tensors (got "
                        f"'{type(first).__name__}' in row 0)")
    out = empty((count, *first.shape), first.dtype)
    for start, stop in row_blocks(count, first.numel()):
        rows = database[start:stop]
        if len(rows) < stop - start:  # PyG leaves out what is not there.
            raise ValueError(f"'database' must hold rows from 0 to {count - 1} "
                             f"(got {len(rows)} from {start} to {stop - 1})")
        torch.stack(rows, out=out[start:stop])
    return out


def save_rows(x: Tensor, database: Database) -> None:
    """Writes the rows of a tensor to an empty PyG database, block by block; see
    :func:`load_rows`.

    .. code-block:: python

        from torch_geometric.data import SQLiteDatabase

        database = SQLiteDatabase('rows.db', 'x', schema=dict(
            dtype=torch.float, size=(4, )))
        save_rows(data.x, database)
        len(database)   # 30

    Args:
        x (torch.Tensor): The rows, of the type and the shape that the
            database's schema states.
        database (Database): An empty database.
    """
    if _holds_rows(database):
        raise ValueError(f"'database' must be empty (got "
                         f"{_length(database) or 'some'} rows)")
    for info in database.schema.values():
        if isinstance(info, TensorInfo):  # Of which PyG checks nothing.
            _check_schema(x, info)
    x = x.detach().cpu()
    for start, stop in row_blocks(len(x), math.prod(x.shape[1:])):
        database[start:stop] = x[start:stop]


def _length(database: Database) -> int | None:
    try:
        return len(database)
    except NotImplementedError:
        return None


def _holds_rows(database: Database) -> bool:
    held = _length(database)
    if held is not None:
        return held > 0
    try:
        database[0]
    except KeyError:
        return False
    return True


def _check_schema(x: Tensor, info: TensorInfo) -> None:
    # Bytes of another type would be read as other numbers.
    if x.dtype != info.dtype:
        raise ValueError(f"'x' must be of the type that the schema of "
                         f"'database' states, {info.dtype} (got {x.dtype})")
    row, size = tuple(x.shape[1:]), tuple(info.size)
    if len(row) != len(size) or any(b not in (-1, a)
                                    for a, b in zip(row, size)):
        raise ValueError(f"'x' must have rows of the shape that the schema of "
                         f"'database' states, {list(size)} (got {list(row)})")
