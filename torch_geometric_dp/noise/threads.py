from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar('T')


def in_threads(function: Callable[[int, int], T], rows: int,
               least: int = 1) -> list[T]:
    """Calls a function on as many parts :obj:`(first, last)` of the rows as
    torch has threads, all at once, but on no part of less than :obj:`least`
    rows, which takes no longer than to start a thread. It pays where kernels do
    most of the work: they run without the interpreter's lock.
    """
    count = max(1, min(torch.get_num_threads(), rows // least))
    ends = [rows * i // count for i in range(count + 1)]
    if count == 1:
        return [function(0, rows)]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, ends[:-1], ends[1:]))
