from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar('F', bound=Callable[..., object])


def jit(function: F) -> F:
    """Compiles a numeric kernel once, keeps it on disk, and runs it without
    the interpreter's lock. The one place where numba's flags are set.
    """
    return cast(F, numba.njit(cache=True, nogil=True)(function))
