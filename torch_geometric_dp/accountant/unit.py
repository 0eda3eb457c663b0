"""Who is protected, and from what: the words of a promise, typed."""
from enum import StrEnum
from typing import NoReturn, Self


class _Word(StrEnum):
    # A word out of a fixed list; plain strings are welcome in its place.
    @classmethod
    def of(cls, value: object, name: str) -> Self:
        """The word for a string, or an error that names the argument."""
        try:
            return cls(str(value))
        except ValueError:
            words = ', '.join(repr(str(word)) for word in cls)
            raise ValueError(f"'{name}' must be one of {words} "
                             f"(got {value!r})") from None

    def __setstate__(self, state: object) -> NoReturn:
        raise ValueError(f"'{type(self).__name__}' is a word out of a fixed "
                         f"list: a file may not change it")


class Unit(_Word):
    """What one person has at stake: a row of features, a label, one edge, or
    all of it, with all edges or with at most some number of them.

    .. code-block:: python

        Unit('edge') is Unit.EDGES   # True
    """
    FEATURES = 'features'
    LABELS = 'labels'
    EDGES = 'edges'
    NODE = 'node'

    @classmethod
    def _missing_(cls, value: object) -> 'Unit | None':
        return cls.EDGES if value == 'edge' else None

    def words(self, edges: int | None = None) -> str:
        """One of them, in words; a node with so many of its edges."""
        some = 'its edges' if edges is None else (
            f"at most {edges} of its edges")
        return {'features': 'the row of one node',
                'labels': 'the label of one node',
                'edges': 'one private edge',
                'node': f'one node, with its row, its label and {some},',
                }[self.value]


class Relation(_Word):
    """How two neighbouring graphs differ in one unit: it is there or not, which
    leaves an empty place (:obj:`ADD_REMOVE`), or it is exchanged for any other
    one, or for an empty place (:obj:`REPLACE`).

    .. code-block:: python

        Relation('replace').words   # 'is replaced'
    """
    ADD_REMOVE = 'add-remove'
    REPLACE = 'replace'

    @property
    def words(self) -> str:
        """What happens to a unit, in words."""
        return {'add-remove': 'is added or removed',
                'replace': 'is replaced'}[self.value]


class Trust(_Word):
    """Who draws the noise: each node for itself (:obj:`LOCAL`), or somebody
    whom all of them trust (:obj:`CENTRAL`). With :obj:`JOINT`, that somebody
    shows each node's own results to that node alone: a node is protected
    against all others, even if these put together what they were shown.

    .. code-block:: python

        Trust('local') is Trust.LOCAL   # True
    """
    LOCAL = 'local'
    CENTRAL = 'central'
    JOINT = 'joint'
