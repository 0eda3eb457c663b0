"""The entries of a ledger: what was released, and what came before it."""
from dataclasses import dataclass

from torch_geometric_dp.accountant.guarantee import Guarantee
from torch_geometric_dp.accountant.text import (
    check_text,
    check_texts,
    constructed,
    whole,
)
from torch_geometric_dp.accountant.unit import Relation, Unit

#: What a mechanism's argument may be, so that it can be frozen and stored.
Parameter = None | bool | int | float | str | tuple['Parameter', ...]
Pairs = tuple[tuple[str, Parameter], ...]


def _plain(name: str, value: object) -> Parameter:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_plain(name, part) for part in value)
    return check_text(name, value)


def _pairs(name: str, pairs: object) -> Pairs:
    if not isinstance(pairs, (tuple, list)):
        raise ValueError(f"'{name}' must be pairs (got {pairs!r:.80})")
    return tuple((check_text(name, key), _plain(name, value))
                 for key, value in pairs)


def _stability(value: object) -> int:
    stability = whole(value)
    if stability is None or stability < 1:
        raise ValueError(f"'stability' must be a positive integer "
                         f"(got {value!r:.80})")
    return stability


def call(mechanism: str, arguments: Pairs) -> str:
    """A mechanism as it was called.

    .. code-block:: python

        call('LabelRR', (('epsilon', 1.0), ))   # 'LabelRR(epsilon=1.0)'
    """
    shown = ', '.join(f'{name}={_show(value)}' for name, value in arguments)
    return f'{mechanism}({shown})'


def _show(value: Parameter) -> str:
    # Digests stand there without quotes.
    if isinstance(value, str) and value.startswith('<'):
        return value
    if isinstance(value, tuple):
        inner = ', '.join(map(_show, value))
        return f'({inner},)' if len(value) == 1 else f'({inner})'
    return repr(value)


@constructed
@dataclass(frozen=True)
class Projection:
    r"""A function of the raw graph that ran before a release, and changes at
    most :obj:`stability` edges when one raw edge changes: each later release
    of these edges costs so many times as much.

    Args:
        mechanism (str): Its name.
        arguments (tuple): Its arguments, as pairs.
        fields (tuple of str): The fields that it changed.
        stability (int): How many edges one raw edge changes at the most.
        assumptions (tuple of str, optional): What must hold for whole nodes,
            where no such number is known. (default: :obj:`()`)

    .. code-block:: python

        Projection('BoundDegree', (('max_degree', 10), ), ('edge_index', ), 3)
    """
    mechanism: str
    arguments: Pairs
    fields: tuple[str, ...]
    stability: int
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_text('mechanism', self.mechanism)
        object.__setattr__(self, 'arguments', _pairs('arguments',
                                                     self.arguments))
        for name in ('fields', 'assumptions'):
            object.__setattr__(self, name,
                               check_texts(name, getattr(self, name)))
        object.__setattr__(self, 'stability', _stability(self.stability))


@constructed
@dataclass(frozen=True)
class Release:
    r"""One entry of a ledger: a guarantee, and what it was given for.

    Args:
        guarantee (Guarantee): What was promised.
        mechanism (str): The name of the transform, layer or model that drew
            the noise.
        arguments (tuple): What it was called with, as pairs of name and value.
        fields (tuple of str): The fields of the graph that were released.
        release_id (str): The name of this release, a random one. Two copies of
            one release have the same name, and cost once.
        bases (tuple of str, optional): The names of the classes that it is a
            special case of. (default: :obj:`()`)
        graph (str, optional): The identity of the raw graph (see
            :class:`PrivacyBudget`), if it had one. (default: :obj:`None`)
        seed (int, optional): The seed that repeats (and undoes) the noise, if
            it was not secret. (default: :obj:`None`)
        public (tuple, optional): What was read raw and taken as public, as
            pairs of a name and the unit that it belongs to, if any. To that
            unit nothing is promised. (default: :obj:`()`)
        stability (int, optional): How many edges one raw edge changes, if a
            projection came before. (default: :obj:`1`)
        parameters (tuple, optional): Pairs of a name and a value that later
            steps need to undo a known bias. (default: :obj:`()`)
        outputs (tuple, optional): Pairs of a released field and the SHA-256 of
            its values. (default: :obj:`()`)
        processed (str, optional): Who has processed the output since: its
            noise is no longer the one that the parameters tell of.
            (default: :obj:`None`)

    .. code-block:: python

        Release(Guarantee(1.0, 'labels', 'replace'), mechanism='LabelRR',
                arguments=(('epsilon', 1.0), ), fields=('y', ),
                release_id='3f2a').units(Unit.LABELS)   # 1
    """
    guarantee: Guarantee
    mechanism: str
    arguments: Pairs
    fields: tuple[str, ...]
    release_id: str
    bases: tuple[str, ...] = ()
    graph: str | None = None
    seed: int | None = None
    public: tuple[tuple[str, Unit | None], ...] = ()
    stability: int = 1
    parameters: Pairs = ()
    outputs: tuple[tuple[str, str], ...] = ()
    processed: str | None = None

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if not isinstance(self.guarantee, Guarantee):
            raise TypeError(f"'guarantee' must be a 'Guarantee' "
                            f"(got '{type(self.guarantee).__name__}')")
        for name in ('mechanism', 'release_id'):
            check_text(name, getattr(self, name))
        for name in ('graph', 'processed'):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        for name in ('fields', 'bases'):
            put(name, check_texts(name, getattr(self, name)))
        for name in ('arguments', 'parameters'):
            put(name, _pairs(name, getattr(self, name)))
        put('outputs', tuple((check_text('outputs', field),
                              check_text('outputs', digest))
                             for field, digest in self.outputs))
        put('public', tuple(
            (check_text('public', what),
             None if unit is None else Unit.of(unit, 'public'))
            for what, unit in self.public))
        put('stability', _stability(self.stability))
        if self.seed is not None:
            seed = whole(self.seed)
            if seed is None:
                raise ValueError(f"'seed' must be an integer "
                                 f"(got {self.seed!r:.80})")
            put('seed', seed)

    @property
    def call(self) -> str:
        """The mechanism as it was called."""
        return call(self.mechanism, self.arguments)

    @property
    def cost(self) -> tuple[object, ...]:
        """All that decides what it costs, and whom, but for what it takes as
        public, which may grow as it is processed further.
        """
        return self.guarantee, self.graph, self.stability

    def is_a(self, mechanism: str) -> bool:
        """Whether it was released by a mechanism, or a special case of it."""
        return mechanism in (self.mechanism, *self.bases)

    def parameter(self, name: str) -> Parameter:
        """The value of one of :obj:`parameters`."""
        return dict(self.parameters)[name]

    def takes_as_public(self, unit: Unit) -> bool:
        """Whether it read this unit's raw data without any protection."""
        return any(read is not None and unit in (read, Unit.NODE)
                   for _, read in self.public)

    def units(self, unit: Unit, relation: Relation = Relation.ADD_REMOVE,
              max_degree: int | None = None,
              edges: int | None = None) -> int:
        """How many of the units that this release protects change when one
        raw unit does.
        """
        promise, s = self.guarantee, self.stability
        size = promise.changes(unit, relation, max_degree, edges)
        if Unit.EDGES in (unit, promise.unit):
            return s * size
        if s > 1 and edges is not None and unit == promise.unit == Unit.NODE:
            return (1 + s * edges) * promise.changes(Unit.FEATURES)
        return size
