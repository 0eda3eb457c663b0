"""python -m benchmarks.compare old.json new.json: what has become worse?

Ratios, exponents and memory are compared, never times. It ends with 1 if one of
ours is worse: a speed that has lost more than 30% against a peer, a cost that
has grown by more than 30% (memory: and 16 MiB, which is what a process has by
chance), an exponent that has grown by more than 0.1. What is missing in one of
the two is said, and so is another machine, on which ratios are others, too. A
quick run has other sizes, and is compared with another quick one alone.
"""
import argparse
import sys
from pathlib import Path

if __name__ == '__main__':  # Also as a file, by `python benchmarks/compare.py`.
    sys.path[0] = str(Path(__file__).parents[1])

from benchmarks.harness import Growth, Row
from benchmarks.store import load

WORSE, CHANCE, STEEPER = 0.3, 16, 0.1
COSTS = 'MiB', 'times'  # Units of facts; less is better.


def measures(suites):
    """What is compared, by suite, task and name."""
    return {(suite + ' (quick)' * run.quick, row.task, row.name,
             getattr(row, 'against', '')): row
            for suite, run in suites.items() for row in run.rows
            if is_measure(row)}


def is_measure(row):
    """Whether it is compared: not what is in seconds, nor a limit's growth."""
    if isinstance(row, Growth):
        return row.most is not None
    return isinstance(row, Row) or row.unit.startswith(COSTS)


def worsened(old, new):
    """In what way, or nothing. What is not a number is no better than any."""
    if isinstance(old, Row):
        if not new.ratio >= (1 - WORSE) * old.ratio:
            return f'{old.ratio:.3g} times, and now {new.ratio:.3g}'
    elif isinstance(old, Growth):
        if not new.value <= old.value + STEEPER:
            return f'an exponent of {old.value:.3f}, and now {new.value:.3f}'
    elif not new.value <= (1 + WORSE) * old.value + CHANCE * (
            old.unit == 'MiB'):
        return f'{old.value:,.3g} {old.unit}, and now {new.value:,.3g}'
    return None


def compare(old, new):
    """Lines to print: what is worse, and what is missing; and how many
    measures both have.
    """
    old, new = measures(old), measures(new)
    worse, missing = [], []
    for key, row in old.items():
        if key not in new:
            missing.append(f'only in the old one: {shown(key)}')
        elif (change := worsened(row, new[key])) is not None:
            worse.append(f'WORSE: {shown(key)}: {change}')
    missing += [f'only in the new one: {shown(key)}'
                for key in new if key not in old]
    return worse, missing, len(old.keys() & new.keys())


def machines(old, new):
    """A line for what the machines differ in."""
    facts = [{fact for suite in suites.values()
              for fact in suite.machine.items()} for suites in (old, new)]
    if facts[0] == facts[1]:
        return []
    lists = [', '.join(f'{name} {value}' for name, value in sorted(
        part, key=str)) for part in (facts[0] - facts[1], facts[1] - facts[0])]
    return [f"not the same machine: {' / '.join(lists)}"]


def shown(key):
    suite, task, name, against = key
    return f'{suite}: {task}: {name}' + (f' against {against}' if against
                                         else '')


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.compare', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('old', type=Path)
    parser.add_argument('new', type=Path)
    args = parser.parse_args(arguments)
    for path in (args.old, args.new):
        if not path.exists():
            parser.error(f'there is no file {path}')
    old, new = load(args.old), load(args.new)
    worse, missing, common = compare(old, new)
    print('\n'.join([*machines(old, new), *missing, *worse,
                     f'{common} measures in both, {len(worse)} of them worse, '
                     f'{len(missing)} in one alone']))
    if common == 0:
        print('nothing to compare')
    return 1 if worse or common == 0 else 0


if __name__ == '__main__':
    sys.exit(main())
