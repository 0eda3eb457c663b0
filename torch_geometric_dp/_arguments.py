"""What an object was called with: the one source of its :obj:`repr`, of the
address of its noise and of its entry in a ledger.
"""
import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Self

import torch

from torch_geometric_dp.accountant.entry import Pairs, Parameter, call

_SHOWN = 8  # Longer rows of numbers are told by their digest.


class Captured:
    """The base of all that is known by its arguments. They are bound to the
    signature of :obj:`__init__` once, when an object is made; where the object
    has an attribute of the same name, that is the argument, checked.
    """
    #: Arguments that change nothing of what is released.
    _aside: tuple[str, ...] = ('budget', )

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Binds the arguments."""
        self = super().__new__(cls)
        try:
            bound = inspect.signature(cls.__init__).bind(self, *args, **kwargs)
        except TypeError:  # A copy, or `__init__` will say what is wrong.
            return self
        bound.apply_defaults()
        self.__dict__['_given'] = dict(list(bound.arguments.items())[1:])
        return self

    def arguments(self, all_of_them: bool = False) -> Pairs:
        """Pairs of a name and a plain value: those without a default, and those
        that differ from it.
        """
        out: list[tuple[str, Parameter]] = []
        for name, parameter in inspect.signature(
                type(self).__init__).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                out += [(key, plain(value)) for key, value in
                        self.__dict__['_given'].get(name, {}).items()
                        if key not in self._aside]
            elif name != 'self' and name not in self._aside:
                value = getattr(self, name, self.__dict__['_given'].get(name))
                if all_of_them or parameter.default is parameter.empty or (
                        plain(value) != plain(parameter.default)):
                    out.append((name, plain(value)))
        return tuple(out)

    def lineage(self, base: type) -> tuple[str, ...]:
        """The names of the classes between this one and a base class."""
        return tuple(cls.__name__ for cls in type(self).__mro__[1:]
                     if issubclass(cls, base) and cls is not base)

    def __repr__(self) -> str:
        """As it was called."""
        return call(type(self).__name__, self.arguments())


def _is_name(value: Parameter) -> bool:
    return isinstance(value, str) and not value.startswith('<')


def plain(value: Any) -> Parameter:
    """A value as frozen data: long rows of numbers by their number and their
    SHA-256.

    .. code-block:: python

        plain([0.0, 1.0])   # (0.0, 1.0)
    """
    if isinstance(value, str):
        return str(value)
    if hasattr(value, 'tolist'):  # Of torch and of numpy: plain numbers.
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):  # Whose repr may round what is in it.
        return tuple((plain(key), plain(part)) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        row = tuple(map(plain, value))
        if len(row) <= _SHOWN or all(_is_name(part) for part in row):
            return row
        what = 'numbers' if all(isinstance(part, (int, float))
                                for part in row) else 'values'
        digest = hashlib.sha256(repr(row).encode()).hexdigest()
        return f'<{len(row)} {what}, {digest}>'
    if hasattr(value, 'theta'):  # Scores, whoever has written them.
        return (f'<{type(value).__name__}(theta={plain(value.theta())}, '
                f'public={value.public})>')
    if is_dataclass(value) and not isinstance(value, type):
        pairs = tuple((f.name, plain(getattr(value, f.name)))
                      for f in fields(value))
        return f'<{call(type(value).__name__, pairs)}>'
    if isinstance(value, torch.nn.Module):
        return f"<{' '.join(repr(value).split())}>"
    text = repr(value)
    if ' at 0x' in text:
        raise TypeError(f"'{type(value).__name__}' cannot be an argument: its "
                        f"repr does not tell what it holds (got {text})")
    return f'<{text}>'
