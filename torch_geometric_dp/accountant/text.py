"""Text and records that come from files, which may be hostile."""
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, NoReturn, TypeVar

T = TypeVar('T')


def check_text(name: str, text: Any) -> str:
    """A string that stays on one line of a table: whoever writes it cannot
    forge the next one.
    """
    if not isinstance(text, str) or not text.isprintable():
        raise ValueError(f"'{name}' must be one line of printable text "
                         f"(got {text!r:.80})")
    return text


def check_texts(name: str, texts: Any) -> tuple[str, ...]:
    """Several of them: a string alone would be taken for its letters."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ValueError(f"'{name}' must be a tuple of strings "
                         f"(got {texts!r:.80})")
    return tuple(check_text(name, text) for text in texts)


def number(name: str, value: Any) -> float:
    """A number as a float; text, which :obj:`float` would read, is none."""
    if isinstance(value, (bool, str, bytes)):
        raise ValueError(f"'{name}' must be a number (got {value!r:.80})")
    return float(value)


def whole(value: Any) -> int | None:
    """A number as an integer, if it is one."""
    try:
        same = not isinstance(value, (bool, str)) and value == int(value)
    except (OverflowError, TypeError, ValueError):
        same = False
    return int(value) if same else None


def constructed(cls: type[T]) -> type[T]:
    """Makes pickles of a frozen dataclass go through its constructor, which
    checks what it is given; nothing is ever written into one that exists.
    """
    def reduce(self: Any) -> tuple[Any, ...]:
        return cls, tuple(getattr(self, f.name) for f in fields(self))

    def refuse(self: Any, state: Any) -> NoReturn:
        raise ValueError(f"'{cls.__name__}' is frozen: no file may change it")

    cls.__reduce__ = reduce  # type: ignore[method-assign]
    cls.__setstate__ = refuse  # type: ignore[attr-defined]
    return cls
