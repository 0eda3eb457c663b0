import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any, Optional

from torch_geometric_dp.accountant.composition import (
    compose,
    exact_sum,
    total_delta,
)
from torch_geometric_dp.accountant.guarantee import KINDS, Guarantee, Release
from torch_geometric_dp.accountant.tight import tight_epsilon


@dataclass(frozen=True)
class PrivacyAccountant:
    r"""The ledger that travels on a released graph as :obj:`data.privacy`: what
    was released, at what cost, and to whom.

    It is frozen. :meth:`spend` returns a new ledger, and whoever releases
    something assigns it to the released graph. One release counts once, however
    many copies of it meet.

    Epsilons of different kinds protect different things and are never added
    to each other, except where one person holds them all: ask for
    :obj:`epsilon('node', max_degree=...)`.

    Graphs with different identities (see :class:`PrivacyBudget`) are taken to
    hold different people: the cost is the largest among them. What has no
    identity may be about anybody, and adds up.

    Args:
        releases (tuple of Release, optional): The entries.
            (default: :obj:`()`)

    .. code-block:: python

        private = LabelRR(epsilon=1.0, num_classes=7)(data)
        print(private.privacy)               # the ledger, as a table
        private.privacy.epsilon('labels')    # 1.0
        PrivacyAccountant.from_json(private.privacy.to_json())
    """
    releases: tuple[Release, ...] = ()

    def __post_init__(self) -> None:
        known: dict[str, Release] = {}
        for release in self.releases:
            known.setdefault(release.release_id, release)
        object.__setattr__(self, 'releases', tuple(known.values()))

    @classmethod
    def of(cls, data: Any) -> 'PrivacyAccountant':
        """The ledger of a graph, or the merged one of a batch of graphs;
        an empty one if there is none.
        """
        ledgers = getattr(data, 'privacy', None)
        if not isinstance(ledgers, (list, tuple)):
            ledgers = [ledgers]
        return cls.merge(ledger for ledger in ledgers if ledger is not None)

    @classmethod
    def merge(cls, ledgers: Iterable['PrivacyAccountant'],
              ) -> 'PrivacyAccountant':
        """One ledger for several graphs that are used together."""
        return cls(tuple(r for ledger in ledgers for r in ledger.releases))

    def spend(self, release: Release) -> 'PrivacyAccountant':
        """A ledger with one more entry."""
        return PrivacyAccountant(self.releases + (release, ))

    def rewrite(self, release: Release, output: str,
                by: str) -> 'PrivacyAccountant':
        """A ledger in which :obj:`release` goes on as another output: what was
        released has been processed further, which costs nothing. Who did it is
        kept as the parameter :obj:`"processed"`: the noise is no longer the
        one that the other parameters tell of.
        """
        parameters = dict(release.parameters) | {'processed': by}
        new = replace(release, output=output,
                      parameters=tuple(parameters.items()))
        return PrivacyAccountant(
            tuple(new if r.release_id == release.release_id else r
                  for r in self.releases))

    def epsilon(self, kind: str, delta: Optional[float] = None,
                max_degree: Optional[int] = None,
                neighbours: str = 'add-remove', method: str = 'kov') -> float:
        r"""The privacy loss of one unit of :obj:`kind`.

        Args:
            kind (str): :obj:`"features"`, :obj:`"labels"`, :obj:`"edges"`, or
                :obj:`"node"`: one whole person, with all of these.
            delta (float, optional): The probability with which the loss may
                be larger. By default, the smallest for which anything is
                promised, :meth:`delta`. (default: :obj:`None`)
            max_degree (int, optional): For :obj:`"node"` when edges were
                released: the largest number of edges at one node, a public
                number. An edge release of epsilon costs a node
                :obj:`max_degree * epsilon`. (default: :obj:`None`)
            neighbours (str, optional): For :obj:`"node"`: whether a person's
                edges come or go (:obj:`"add-remove"`) or are exchanged for
                others (:obj:`"replace"`, which costs the edges twice).
                (default: :obj:`"add-remove"`)
            method (str, optional): How pairs of epsilon and delta compose:
                :obj:`"kov"` (optimal for what the pairs tell), or with the
                :obj:`accounting` extra :obj:`"rdp"` or :obj:`"pld"` (uses
                the shape of the noise). Pure epsilons at :obj:`delta=0`
                always add up. (default: :obj:`"kov"`)
        """
        if delta is None:
            delta = self.delta(kind, max_degree, neighbours)
        elif not 0 <= delta < 1:
            raise ValueError(f"'delta' must lie in [0, 1) (got {delta})")

        def loss(units: list[tuple[Release, int]]) -> float:
            if method == 'kov' or delta == 0:
                costs = [r.guarantee.group(size) for r, size in units]
                return compose(costs, delta)
            return tight_epsilon(units, delta, method)

        return max(map(loss, self._people(kind, max_degree, neighbours)))

    def delta(self, kind: str, max_degree: Optional[int] = None,
              neighbours: str = 'add-remove') -> float:
        """The smallest delta for which anything is promised to one unit of
        :obj:`kind`; 0 if all releases are pure.
        """
        return max(
            total_delta(r.guarantee.group(size)[1] for r, size in units)
            for units in self._people(kind, max_degree, neighbours))

    def claimed_epsilon(self, kind: str) -> float:
        """What the publications behind :obj:`calibration="paper"` would have
        claimed in place of :meth:`epsilon`.
        """
        return max(
            exact_sum(r.guarantee.epsilon if r.guarantee.claimed_epsilon is
                      None else r.guarantee.claimed_epsilon for r, _ in units)
            for units in self._people(kind, 1, 'add-remove'))

    def _people(self, kind: str, max_degree: Optional[int],
                neighbours: str) -> list[list[tuple[Release, int]]]:
        # What touches one unit of `kind`, for each graph that was released.
        if kind not in KINDS:
            raise ValueError(f"'kind' must be one of {KINDS} (got {kind!r})")
        graphs = defaultdict(list)
        for release in self.releases:
            size = release.units(kind, max_degree, neighbours)
            if size > 0:
                graphs[release.graph].append((release, size))
        anybody = graphs.pop(None, [])
        return [units + anybody for units in graphs.values()] or [anybody]

    def to_json(self) -> str:
        """The ledger as JSON, all numbers exact."""
        releases = [_to_plain(asdict(release)) for release in self.releases]
        return json.dumps({'version': 1, 'releases': releases}, indent=2,
                          allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> 'PrivacyAccountant':
        """The ledger that :meth:`to_json` wrote."""
        content = json.loads(text)
        if content.get('version') != 1:
            raise ValueError(f"'version' of a ledger must be 1 "
                             f"(got {content.get('version')!r})")
        releases = [_from_plain(release) for release in content['releases']]
        return cls(tuple(
            Release(**{**release, 'guarantee': Guarantee(
                **release['guarantee'])}) for release in releases))

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [
            ('released', 'protects', 'epsilon', 'delta', 'model', 'mechanism')
        ]
        for r in self.releases:
            g = r.guarantee
            rows.append((', '.join(r.fields), g.protects, f'{g.epsilon:g}',
                         f'{g.delta:g}', g.model, r.mechanism))
        return rows

    def _notes(self) -> list[str]:
        notes: dict[str, None] = {}  # In order, and each of them once.
        for r in self.releases:
            name = r.mechanism
            if r.guarantee.claimed_epsilon is not None:
                notes[f'{name}: published as epsilon = '
                      f'{r.guarantee.claimed_epsilon:g}, which is a claim; '
                      f'{r.guarantee.epsilon:g} is proven'] = None
            if r.seed is not None:
                notes[f'{name}: seeded with {r.seed}, not secret: who knows '
                      f'the seed undoes the noise'] = None
            for assumption in r.guarantee.assumptions:
                notes[f'{name}: assumes that {assumption}'] = None
        return list(notes)

    def _totals(self) -> list[str]:
        totals = []
        for kind in KINDS[:3]:
            if any(r.units(kind) and r.guarantee.epsilon > 0
                   for r in self.releases):
                delta = self.delta(kind)
                tail = f', delta = {delta:.3g}' if delta > 0 else ''
                totals.append(f'{kind}: epsilon = {self.epsilon(kind):g}{tail}')
            else:
                totals.append(f'{kind}: as they came, nothing was spent')
        return totals

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


def _to_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {'float': str(value)}  # JSON has no infinity.
    return value


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_plain(v) for v in value)
    if isinstance(value, dict) and value.keys() == {'float'}:
        return float(value['float'])
    if isinstance(value, dict):
        return {key: _from_plain(v) for key, v in value.items()}
    return value
