"""python -m benchmarks [suite ...] [--quick] [--json FILE] [--report FOLDER]:
measures, and prints ratios.
"""
import argparse
import datetime
import multiprocessing
import resource
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from benchmarks import SUITES, harness, report
from benchmarks.machine import machine
from benchmarks.store import Suite, load, merge, save


def main():
    parser = argparse.ArgumentParser(prog='python -m benchmarks',
                                     description=harness.__doc__)
    parser.add_argument('suites', nargs='*', choices=[[], *SUITES],
                        help=f'which to run (default: all of {list(SUITES)})')
    parser.add_argument('--quick', action='store_true',
                        help='smaller, in less than two minutes; neither the '
                        'numbers nor the verdicts are those of a full run')
    parser.add_argument('--json', type=Path, metavar='FILE',
                        help='where to store what was measured; other suites '
                        'in that file stay as they are')
    parser.add_argument('--report', type=Path, metavar='FOLDER',
                        help='where to write RESULTS.md and growth.png, about '
                        'all that is stored')
    args = parser.parse_args()
    names = args.suites or SUITES
    stored = load(args.json) if args.json else {}
    if args.quick:
        print('A quick run: smaller inputs, fewer repeats. Neither the numbers '
              'nor the verdicts are those of a full run.')
        if any(name in stored and not stored[name].quick for name in names):
            parser.error(f"{args.json} holds full runs, which a quick one "
                         f"must not replace: store it elsewhere")
    for name in names:  # Once, and not in each of the processes.
        import_module(f'benchmarks.{name}')
    begin, facts, failed = time.perf_counter(), machine(), []
    for name in names:
        print(f'== {name}{" (quick)" if args.quick else ""}', flush=True)
        start, worked = time.perf_counter(), processor_time()
        rows = in_a_process(name, args.quick)
        seconds = time.perf_counter() - start
        print(f'   {seconds:.0f} s, {processor_time() - worked:.0f} s of the '
              f'processor', flush=True)
        if rows is None:
            failed.append(name)
            continue
        date = datetime.date.today().isoformat()
        stored = merge(stored, {name: Suite(tuple(rows), facts, date,
                                            round(seconds, 1), args.quick)})
        if args.json is not None:  # Now, in case that a later one fails.
            args.json.parent.mkdir(parents=True, exist_ok=True)
            save(args.json, stored)
    print(f'{"Quick run, " if args.quick else ""}{len(names)} suites in '
          f'{time.perf_counter() - begin:.0f} s, {processor_time():.0f} s of '
          f'the processor')
    if failed:
        sys.exit(f'failed: {", ".join(failed)}')
    if args.report is not None:
        report.write(stored, args.report)


def processor_time():
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_a_process(name, quick):
    """The rows of a suite, printed as they come, or nothing if it failed. In a
    process of its own: what one suite leaves in memory, or how many threads it
    has started, is nothing to the next one.
    """
    context = multiprocessing.get_context('fork')
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(name, quick, theirs))
    process.start()
    theirs.close()
    rows = []
    try:
        while (row := ours.recv()) is not None:
            print(row, flush=True)
            rows.append(row)
    except EOFError:  # It ended before it was done, and has said why.
        rows = None
    process.join()
    return rows


def measure(name, quick, end):
    try:
        for row in import_module(f'benchmarks.{name}').run(quick=quick):
            end.send(row)
        end.send(None)
    except Exception:
        traceback.print_exc()


if __name__ == '__main__':
    main()
