"""Ledgers as JSON: plain values, checked again when they come back."""
import math
from dataclasses import fields, is_dataclass
from typing import Any

from torch_geometric_dp.accountant.entry import Projection, Release
from torch_geometric_dp.accountant.events import EVENTS
from torch_geometric_dp.accountant.guarantee import Guarantee

_TYPES = {**EVENTS, **{cls.__name__: cls
                       for cls in (Guarantee, Projection, Release)}}


def to_plain(value: Any) -> Any:
    """Lists, strings and numbers that stand for a value."""
    if is_dataclass(value):
        return {'type': type(value).__name__,
                **{f.name: to_plain(getattr(value, f.name))
                   for f in fields(value)}}
    if isinstance(value, (list, tuple)):
        return [to_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {'type': 'float', 'value': str(value)}  # JSON has no infinity.
    return value.value if hasattr(value, 'value') else value


def from_plain(cls: Any, value: Any) -> Any:
    """The record of a class that :func:`to_plain` wrote. Its constructor checks
    all of it.
    """
    try:
        return _build(cls, dict(value))
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"Expected a '{cls.__name__}' as it was written "
                         f"(got something else: {error})") from error


def _build(cls: Any, record: dict[str, Any]) -> Any:
    if record.pop('type') != cls.__name__:
        raise KeyError('type')
    return cls(**{key: _value(part) for key, part in record.items()})


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_value, value))
    if not isinstance(value, dict):
        return value
    if value.get('type') == 'float':
        return float(value['value'])
    return _build(_TYPES[value['type']], dict(value))
