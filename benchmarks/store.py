"""Results in a file: a suite that is run again replaces its own rows, and
nobody else's.
"""
import json
from dataclasses import asdict, dataclass

from benchmarks.harness import Fact, Growth, Row

KINDS = {kind.__name__: kind for kind in (Row, Fact, Growth)}


@dataclass(frozen=True)
class Suite:
    """One run of a suite: its rows, when and on what it was measured, how long
    it took, and whether it was a quick one.
    """
    rows: tuple
    machine: dict
    date: str
    seconds: float
    quick: bool


def load(path):
    """All suites of a file by name; none, where there is no file."""
    if not path.exists():
        return {}
    return {name: Suite(**{**suite, 'rows': tuple(map(_row, suite['rows']))})
            for name, suite in json.loads(path.read_text()).items()}


def _row(fields):
    fields = dict(fields)
    return KINDS[fields.pop('kind')](**fields)


def save(path, suites):
    text = json.dumps({
        name: {**asdict(suite), 'rows': [{'kind': type(row).__name__,
                                          **asdict(row)}
                                         for row in suite.rows]}
        for name, suite in suites.items()}, indent=1)
    path.write_text(text + '\n')


def merge(old, new):
    """What was there, with what is new in its place. A quick run does not take
    the place of a long one.
    """
    for name, suite in new.items():
        if suite.quick and name in old and not old[name].quick:
            raise ValueError(f"the suite '{name}' must not be a quick run: "
                             f"what is stored is a full one")
    return {**old, **new}
