import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from torch_geometric_dp.accountant.composition import (
    Tally,
    compose,
    exact_sum,
)
from torch_geometric_dp.accountant.entry import Projection, Release
from torch_geometric_dp.accountant.plain import from_plain, to_plain
from torch_geometric_dp.accountant.text import constructed
from torch_geometric_dp.accountant.tight import tight_epsilon
from torch_geometric_dp.accountant.unit import Relation, Trust, Unit

_PEOPLE = "graphs with different identities hold different people"


@constructed
@dataclass(frozen=True, repr=False)
class PrivacyAccountant:
    r"""The ledger that travels on a released graph as :obj:`data.privacy`: what
    was released, at what cost, and to whom.

    It is frozen. :meth:`spend` returns a new ledger, and whoever releases
    something assigns it to the released graph. One release counts once, however
    many copies of it meet.

    Epsilons of different units protect different things and are never added
    to each other, except where one person holds them all: ask for
    :obj:`epsilon('node', max_degree=...)`.

    Graphs with different identities (see :class:`PrivacyBudget`) are taken to
    hold different people, which the ledger lists as an assumption: the cost is
    the largest among them. What has no identity may be about anybody, and adds
    up.

    Args:
        releases (tuple of Release, optional): The entries.
            (default: :obj:`()`)
        projections (tuple of Projection, optional): What was done to the raw
            graph before. (default: :obj:`()`)

    .. code-block:: python

        private = LabelRR(epsilon=1.0, num_classes=7)(data)
        print(private.privacy)               # the ledger, as a table
        private.privacy.epsilon('labels')    # 1.0
        PrivacyAccountant.from_json(private.privacy.to_json())
    """
    releases: tuple[Release, ...] = ()
    projections: tuple[Projection, ...] = ()

    def __post_init__(self) -> None:
        known: dict[str, Release] = {}
        for release in self.releases:
            if not isinstance(release, Release):
                raise TypeError(f"'releases' must hold entries of the type "
                                f"'Release' (got '{type(release).__name__}')")
            first = known.setdefault(release.release_id, release)
            differ = first.public != release.public
            if first.cost != release.cost or (differ and not (
                    first.processed or release.processed)):
                # Or whoever writes a cheaper one of the same name would win.
                raise ValueError(
                    f"'releases' must tell one thing of one release (got "
                    f"{first.call} and {release.call}, at different costs, "
                    f"under the name {release.release_id!r})")
            if differ:  # What was read to process one of them further.
                known[release.release_id] = replace(first, public=tuple(
                    dict.fromkeys(first.public + release.public)))
        for projection in self.projections:
            if not isinstance(projection, Projection):
                raise TypeError(f"'projections' must hold entries of the type "
                                f"'Projection' "
                                f"(got '{type(projection).__name__}')")
        object.__setattr__(self, 'releases', tuple(known.values()))
        object.__setattr__(self, 'projections',
                           tuple(dict.fromkeys(self.projections)))

    @classmethod
    def of(cls, data: Any) -> 'PrivacyAccountant':
        """The ledger of a graph, or the merged one of a batch of graphs;
        an empty one if there is none.
        """
        ledgers = getattr(data, 'privacy', None)
        if ledgers is None or isinstance(ledgers, cls):
            return ledgers or cls()
        return cls.merge(ledger for ledger in ledgers if ledger is not None)

    @classmethod
    def merge(cls, ledgers: Iterable['PrivacyAccountant'],
              ) -> 'PrivacyAccountant':
        """One ledger for several graphs that are used together."""
        ledgers = list(ledgers)
        return cls(tuple(r for ledger in ledgers for r in ledger.releases),
                   tuple(p for ledger in ledgers for p in ledger.projections))

    def spend(self, *releases: Release) -> 'PrivacyAccountant':
        """A ledger with more entries."""
        return replace(self, releases=self.releases + releases)

    def project(self, projection: Projection) -> 'PrivacyAccountant':
        """A ledger that knows what was done to the raw graph."""
        return replace(self, projections=self.projections + (projection, ))

    def stability(self, field: str) -> int:
        """How many units of a field one raw unit changes at the most."""
        return math.prod(p.stability for p in self.projections
                         if field in p.fields)

    def rewrite(self, release: Release, outputs: tuple[tuple[str, str], ...],
                by: str, public: tuple[tuple[str, Unit | None], ...] = (),
                ) -> 'PrivacyAccountant':
        """A ledger in which :obj:`release` goes on as other outputs: what was
        released has been processed further, which costs nothing but what was
        read raw for it. Its outputs of other names are still what they were.
        """
        known = {**dict(release.outputs), **dict(outputs)}
        new = replace(release, outputs=tuple(known.items()), processed=by,
                      public=tuple(dict.fromkeys(release.public + public)))
        return replace(self, releases=tuple(
            new if r.release_id == release.release_id else r
            for r in self.releases))

    def find(self, field: str, mechanism: str) -> Release:
        """The entry of a field that still has the noise of a mechanism, or of
        a special case of it.
        """
        found = [r for r in self.releases
                 if field in r.fields and r.is_a(mechanism)]
        if not found:
            seen = [r.call for r in self.releases if field in r.fields]
            raise ValueError(
                f"'privacy' must hold a release of '{field}' by "
                f"'{mechanism}', which tells what noise is in it "
                f"(got {', '.join(seen) or 'none of it'})")
        if len(found) > 1:
            raise ValueError(
                f"'privacy' must hold one release of '{field}', as what is in "
                f"it is the noise of one "
                f"(got {', '.join(r.call for r in found)})")
        if found[0].processed is not None:
            raise ValueError(
                f"'{field}' must be as it was released: it no longer has the "
                f"noise of {found[0].call} (got the output of "
                f"{found[0].processed})")
        return found[0]

    def verify(self, data: Any, public: Iterable[str] = ()) -> Any:
        """What is known of every field of a graph: :obj:`"covered"` by an
        entry whose digest it has, named :obj:`"public"`, :obj:`"changed"`
        since an entry was written, or :obj:`"raw"`; see
        :func:`torch_geometric_dp.release.verify`.
        """
        from torch_geometric_dp.release import verify
        return verify(self, data, public)

    def epsilon(self, unit: str, delta: float | None = None,
                max_degree: int | None = None,
                relation: str = 'add-remove', method: str = 'kov',
                edges: int | None = None) -> float:
        r"""The privacy loss of one unit; infinity if some release took it as
        public.

        Args:
            unit (Unit or str): :obj:`"features"`, :obj:`"labels"`,
                :obj:`"edges"`, or :obj:`"node"`: one whole person, with all of
                these.
            delta (float, optional): The probability with which the loss may
                be larger. By default, the smallest for which anything is
                promised, :meth:`delta`. (default: :obj:`None`)
            max_degree (int, optional): For :obj:`"node"` when edges were
                released: the largest number of edges at one node, a public
                number. An edge release of epsilon costs a node
                :obj:`max_degree * epsilon`. (default: :obj:`None`)
            relation (Relation or str, optional): For :obj:`"node"` and
                :obj:`"edges"`: whether one comes or goes
                (:obj:`"add-remove"`) or is exchanged for another
                (:obj:`"replace"`). (default: :obj:`"add-remove"`)
            method (str, optional): How pairs of epsilon and delta compose:
                :obj:`"kov"` (optimal for what the pairs tell), or with the
                :obj:`accounting` extra :obj:`"rdp"` or :obj:`"pld"` (uses
                the shape of the noise). Pure epsilons at :obj:`delta=0`
                always add up. (default: :obj:`"kov"`)
            edges (int, optional): For :obj:`"node"`: the loss of somebody
                whose row and label are replaced, and at most so many of whose
                edges come or go, in place of all of them. Needs no
                :obj:`max_degree`. (default: :obj:`None`)
        """
        if delta is None:
            delta = self.delta(unit, max_degree, relation, edges)
        elif not 0 <= delta < 1:
            raise ValueError(f"'delta' must lie in [0, 1) (got {delta})")
        if self.public(unit):
            return math.inf

        def loss(units: list[tuple[Release, int]]) -> float:
            if method == 'kov' or delta == 0:
                costs = [r.guarantee.group(size) for r, size in units]
                return compose(costs, delta)
            return tight_epsilon(units, delta, method)

        return max(map(loss, self._people(unit, max_degree, relation,
                                          edges)))

    def delta(self, unit: str, max_degree: int | None = None,
              relation: str = 'add-remove', edges: int | None = None) -> float:
        """The smallest delta for which anything is promised to one unit; 0 if
        all releases are pure.
        """
        return max(
            Tally.of(r.guarantee.group(size) for r, size in units).delta
            for units in self._people(unit, max_degree, relation, edges))

    def claimed_epsilon(self, unit: str) -> float:
        """What the publications behind :obj:`calibration="paper"` would have
        claimed in place of :meth:`epsilon`.
        """
        return max(
            exact_sum(r.guarantee.epsilon if r.guarantee.claimed_epsilon is
                      None else r.guarantee.claimed_epsilon for r, _ in units)
            for units in self._people(unit, 1, 'add-remove'))

    def public(self, unit: str) -> list[str]:
        """Who has read one unit's raw data and taken it as public."""
        asked = Unit.of(unit, 'unit')
        return list(dict.fromkeys(r.mechanism for r in self.releases
                                  if r.takes_as_public(asked)))

    def _people(self, unit: str, max_degree: int | None, relation: str,
                edges: int | None = None) -> list[list[tuple[Release, int]]]:
        # What touches one unit, for each graph that was released.
        asked, how = Unit.of(unit, 'unit'), Relation.of(relation, 'relation')
        graphs = defaultdict(list)
        for release in self.releases:
            size = release.units(asked, how, max_degree, edges)
            if size > 0:
                graphs[release.graph].append((release, size))
        anybody = graphs.pop(None, [])
        return [units + anybody for units in graphs.values()] or [anybody]

    def to_json(self) -> str:
        """The ledger as JSON, all numbers exact."""
        return json.dumps({'version': 2, 'ledger': to_plain(self)}, indent=2,
                          allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> 'PrivacyAccountant':
        """The ledger that :meth:`to_json` wrote."""
        content = json.loads(text)
        version = content.get('version') if isinstance(content, dict) else None
        if version != 2:
            raise ValueError(f"'version' of a ledger must be 2 "
                             f"(got {version!r})")
        ledger: PrivacyAccountant = from_plain(cls, content.get('ledger'))
        return ledger

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [
            ('released', 'protects', 'epsilon', 'delta', 'model', 'mechanism')
        ]
        for r in self.releases:
            g = r.guarantee
            epsilon = f'{g.epsilon:g}'
            if r.stability > 1 and g.unit == Unit.EDGES:
                epsilon = f'{r.stability} x {epsilon}'
            protects = g.unit.value if g.edges is None else (
                f'{g.unit.value}, {g.edges} edge(s)')
            rows.append((', '.join(r.fields), protects, epsilon,
                         f'{g.delta:g}', g.model.value, r.call))
        return rows

    def _notes(self) -> list[str]:
        notes: dict[str, None] = {}  # In order, and each of them once.
        for p in self.projections:
            notes[f'{p.mechanism}: one raw edge changes up to {p.stability} '
                  f'of the edges that are left'] = None
            for assumption in p.assumptions:
                notes[f'{p.mechanism}: for whole nodes, assumes that '
                      f'{assumption}'] = None
        for r in self.releases:
            if r.guarantee.claimed_epsilon is not None:
                notes[f'{r.call}: published as epsilon = '
                      f'{r.guarantee.claimed_epsilon:g}, which is a claim; '
                      f'{r.guarantee.epsilon:g} is proven'] = None
            if r.seed is not None:
                notes[f'{r.call}: seeded with {r.seed}, not secret: whoever '
                      f'knows the seed undoes the noise'] = None
            if r.public:
                names = ', '.join(what for what, _ in r.public)
                notes[f'{r.call}: takes as public: {names}'] = None
            if r.guarantee.model == Trust.JOINT:
                notes[f'{r.call}: what it tells about a node is for that node '
                      f'alone, and not covered when others see it'] = None
            for assumption in r.guarantee.assumptions:
                notes[f'{r.call}: assumes that {assumption}'] = None
        if len({r.graph for r in self.releases if r.graph is not None}) > 1:
            notes[f'assumes that {_PEOPLE}'] = None
        return list(notes)

    def _totals(self) -> list[str]:
        totals = []
        for unit in (Unit.FEATURES, Unit.LABELS, Unit.EDGES):
            public = self.public(unit)
            if public:
                totals.append(f"{unit}: taken as public by "
                              f"{', '.join(public)}")
            elif any(r.units(unit) and r.guarantee.epsilon > 0
                     for r in self.releases):
                delta = self.delta(unit)
                tail = f', delta = {delta:.3g}' if delta > 0 else ''
                totals.append(f'{unit}: epsilon = {self.epsilon(unit):g}{tail}')
            else:
                totals.append(f'{unit}: not released, 0 spent')
        return totals

    def __repr__(self) -> str:
        """Short: it stands inside of other objects."""
        spent = [total for total in self._totals() if '0 spent' not in total]
        return f"{self.__class__.__name__}({'; '.join(spent) or 'empty'})"

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ['  '.join(cell.ljust(width) for cell, width in zip(
            row, widths)).rstrip() for row in rows]
        lines.insert(1, '  '.join('-' * width for width in widths))
        lines += [f'= {total}' for total in self._totals()]
        lines += [f'! {note}' for note in self._notes()]
        return '\n'.join(lines)

    def _repr_html_(self) -> str:
        def row(cells: tuple[str, ...], tag: str) -> str:
            inner = ''.join(f'<{tag}>{escape(c)}</{tag}>' for c in cells)
            return f'<tr>{inner}</tr>'

        head, *body = self._rows()
        table = row(head, 'th') + ''.join(row(cells, 'td') for cells in body)
        totals = '<br>'.join(escape(total) for total in self._totals())
        notes = ''.join(f'<li>{escape(note)}</li>' for note in self._notes())
        return f'<table>{table}</table><p>{totals}</p><ul>{notes}</ul>'
