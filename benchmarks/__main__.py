"""python -m benchmarks [suite ...] [--json FILE]: measures, prints ratios."""
import argparse
from pathlib import Path

from benchmarks import (
    edges,
    features,
    harness,
    hrg,
    labels,
    layers,
    noise,
    reconstruction,
)

SUITES = {'noise': noise, 'labels': labels, 'features': features, 'hrg': hrg,
          'edges': edges, 'reconstruction': reconstruction, 'layers': layers}


def main():
    parser = argparse.ArgumentParser(prog='python -m benchmarks',
                                     description=harness.__doc__)
    parser.add_argument('suites', nargs='*', choices=[[], *SUITES],
                        help=f'which to run (default: all of {list(SUITES)})')
    parser.add_argument('--json', type=Path, help='where to store the result')
    args = parser.parse_args()
    rows = []
    for name in args.suites or SUITES:
        print(f'== {name}')
        for row in SUITES[name].run():
            rows.append(row)
            print(row, flush=True)
        if hasattr(SUITES[name], 'memory'):
            task, extra, most = SUITES[name].memory()
            print(f'{task}: {extra / 2**20:.0f} MiB beyond input and output '
                  f'(goal: at most {most})')
    if args.json is not None:
        args.json.write_text(harness.to_json(rows))


if __name__ == '__main__':
    main()
