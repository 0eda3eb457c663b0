"""What every mechanism asks of its parameters."""
import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any


def check_epsilon(epsilon: Any, name: str = 'epsilon') -> float:
    """A positive, finite privacy loss.

    .. code-block:: python

        check_epsilon(1)   # 1.0
    """
    if (isinstance(epsilon, bool) or not isinstance(epsilon, Real)
            or not 0 < float(epsilon) < math.inf):
        raise ValueError(f"'{name}' must be a positive, finite number "
                         f"(got {epsilon!r})")
    return float(epsilon)


def check_integer(name: str, value: Any, least: int) -> int:
    """An integer that is not too small.

    .. code-block:: python

        check_integer('num_classes', 7, least=2)   # 7
    """
    if (isinstance(value, bool) or not isinstance(value, Integral)
            or value < least):
        raise ValueError(f"'{name}' must be an integer of at least {least} "
                         f"(got {value!r})")
    return int(value)


def check_integers(name: str, values: Any,
                   least: int) -> int | tuple[int, ...]:
    """One integer, or a row of them, that are not too small.

    .. code-block:: python

        check_integers('domain_sizes', [2, 5], least=2)   # (2, 5)
    """
    if hasattr(values, 'tolist'):
        values = values.tolist()
    if not isinstance(values, Iterable) or isinstance(values, str):
        return check_integer(name, values, least)
    return tuple(check_integer(f'{name}[{i}]', value, least)
                 for i, value in enumerate(values))


def check_delta(delta: Any, name: str = 'delta') -> float:
    """A probability between 0 and 1.

    .. code-block:: python

        check_delta(1e-5)   # 1e-05
    """
    if isinstance(delta, bool) or not isinstance(delta, Real) or not (
            0 < float(delta) < 1):
        raise ValueError(f"'{name}' must lie between 0 and 1 (got {delta!r})")
    return float(delta)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of some words.

    .. code-block:: python

        check_choice('decode', 'none', ('none', 'unbiased'))   # none
    """
    if value not in choices:
        raise ValueError(f"'{name}' must be one of {tuple(choices)} "
                         f"(got {value!r})")
    return str(value)


def check_names(name: str, values: Any) -> tuple[str, ...]:
    """Names of fields.

    .. code-block:: python

        check_names('public', ['train_mask'])   # ('train_mask',)
    """
    if not isinstance(values, (list, tuple)) or not all(
            isinstance(value, str) for value in values):
        raise TypeError(f"'{name}' must be a sequence of names of fields "
                        f"(got {values!r})")
    return tuple(values)
