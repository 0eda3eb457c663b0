"""python -m benchmarks.report: RESULTS.md and growth.png once more, from what
is stored, without measuring anything.
"""
import argparse
import sys
from pathlib import Path

import numpy as np

from benchmarks import SUITES, goals
from benchmarks.harness import Fact, Growth, Row, verdict
from benchmarks.store import load

STORE = Path('benchmarks/results/speed.json')
FULL = f'python -m benchmarks --json {STORE} --report benchmarks'
QUICK = ('**This is a quick run**: smaller inputs and fewer repeats. Neither '
         'the numbers nor the verdicts are those of a full run, and the goals '
         'are left out.\n\n')


def write(suites, folder):
    """RESULTS.md, and the figure that is in it; then ends the program with an
    error if a goal could not be judged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'RESULTS.md').write_text(markdown(suites))
    figure(suites, folder / 'growth.png')
    print(f'wrote {folder / "RESULTS.md"} and {folder / "growth.png"}')
    if not is_quick(suites):
        holes = goals.missing(goals.Stored(suites))
        if holes:
            sys.exit('not stored, though a goal needs it:\n' +
                     '\n'.join(dict.fromkeys(holes)))


def is_quick(suites):
    return any(suite.quick for suite in suites.values())


def markdown(suites):
    suites = {name: suites[name] for name in SUITES if name in suites}
    quick = is_quick(suites)
    text = ('# Results\n\n' + QUICK * quick +
            f'Made by `{FULL}`, which runs all suites, or by the same command '
            f'with names of suites, which replaces theirs. '
            f'Accuracies and audits come from the tables in [results](results),'
            f' which say how they were made.\n\n'
            f'Everything is a ratio that was measured in one run, in turn, as '
            f'the median over repeats with the quartiles in brackets: more is '
            f'faster. (In `hrg`, two repeats of ours, which are in brackets, '
            f'lie around one of `fit_hrg`.) The limit is the cheapest work that'
            f' anybody must do: as many secure random bits as the result holds,'
            f' one sparse product a hop, one write an edge. One thread and '
            f'processor time, but for what is said to be in seconds, the '
            f'several chains of `hrg`, and the memory in `scale`, which is '
            f'that of all threads.\n\n')
    text += machines(suites)
    if not quick:
        text += '## Goals\n\n' + goals.markdown(goals.Stored(suites)) + '\n'
    for name, suite in suites.items():
        text += f'## Suite {name}\n\n' + tables(suite.rows)
    return text + growth_table(suites) + memory_table(suites)


def machines(suites):
    """Each machine once, with the suites that ran on it."""
    text, seen = '## Machine\n\n', []
    for suite in suites.values():
        if suite.machine not in seen:
            seen.append(suite.machine)
    for machine in seen:
        runs = [f'`{name}` ({suite.date}, {suite.seconds:.0f} s)'
                for name, suite in suites.items() if suite.machine == machine]
        text += table(['', ''], [[key, str(value)]
                                 for key, value in machine.items()])
        text += 'Suites: ' + ', '.join(runs) + '.\n\n'
    return text


def table(head, rows):
    lines = ['| ' + ' | '.join(head) + ' |', '|---' * len(head) + '|']
    lines += ['| ' + ' | '.join(row) + ' |' for row in rows]
    return '\n'.join(lines) + '\n\n'


def tables(rows):
    """Ratios, then other numbers."""
    ratios = [[row.task, row.name, f'{row.rate:.3g}',
               row.against + ' (limit)' * row.limit,
               f'{row.ratio:.3g} [{row.low:.3g}, {row.high:.3g}]',
               goal('at least', row.goal), verdict(row.met)]
              for row in rows if isinstance(row, Row)]
    facts = [[row.task, row.name, f'{row.value:,.5g} {row.unit}',
              goal('at least', row.least) + goal('at most', row.most),
              verdict(row.met)]
             for row in rows if type(row) is Fact and row.unit != 'MiB']
    text = table(['task', 'ours', 'items a second', 'against', 'times',
                  'goal', ''], ratios) if ratios else ''
    return text + (table(['task', '', 'found', 'goal', ''], facts) if facts
                   else '')


def goal(word, bound):
    return '' if bound is None else f'{word} {bound:,.5g}'


def of_kind(suites, wanted):
    return [row for suite in suites.values() for row in suite.rows
            if wanted(row)]


def growth_table(suites):
    found = of_kind(suites, lambda row: isinstance(row, Growth))
    if not found:
        return ''
    rows = [[row.task, row.name,
             f'{row.value:.3f} [{row.low:.3f}, {row.high:.3f}]',
             ', '.join(f'{size:,}' for size in row.sizes),
             goal('at most', None if row.most is None
                  else round(row.most, 3)), verdict(row.met)]
            for row in found]
    return ('## Growth\n\nThe exponent of time against items, which are those '
            'of input and output together: the slope of a line through the '
            'points, both axes in logarithms, by the fastest of all repeats, '
            'which was disturbed least; in brackets the lowest and the highest '
            'slope by the fastest of any half of them, or more. (That of the '
            'chain is by the median, with the quartiles of single repeats.) '
            'Where there is a limit, its own slope stands beside ours: memory '
            'and its caches are the same for both. For private sums and for '
            'reconstructions, the neighbours of a node have numbers near its '
            'own.\n\n![Growth](growth.png)\n\n' +
            table(['task', '', 'exponent', 'items', 'goal', ''], rows))


def memory_table(suites):
    found = of_kind(suites, lambda row: type(row) is Fact
                    and row.unit == 'MiB')
    if not found:
        return ''
    rows = [[row.task, row.name, f'{row.value:,.0f} MiB',
             goal('at most', row.most), verdict(row.met)] for row in found]
    return ('## Memory\n\nThe most that was resident, in a process of its own; '
            'in all means with input, output and Python itself.\n\n' +
            table(['task', '', 'found', 'goal', ''], rows))


def figure(suites, path):
    """Time against items, a panel for each task."""
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    panels = {}
    for row in of_kind(suites, lambda row: isinstance(row, Growth)):
        panels.setdefault(row.task.removesuffix(', time against items'),
                          []).append(row)
    columns = 3
    lines = -(-len(panels) // columns)
    fig, axes = plt.subplots(max(lines, 1), columns, squeeze=False,
                             figsize=(4.6 * columns, 3.4 * max(lines, 1)))
    for ax in axes.flat[len(panels):]:
        ax.set_axis_off()
    for ax, (task, rows) in zip(axes.flat, panels.items()):
        for row, style in zip(rows, ('o-', 's--')):
            sizes, seconds = np.array(row.sizes), np.array(row.seconds)
            [dots] = ax.plot(sizes, seconds, style[0],
                             color='C0' if style == 'o-' else 'gray')
            middle = np.exp(np.log(sizes).mean()), np.exp(
                np.log(seconds).mean())
            fit = middle[1] * (sizes / middle[0])**row.value
            ax.plot(sizes, fit, style[1:], color=dots.get_color(),
                    label=f'{row.name}: {row.value:.2f}')
        ax.set(xscale='log', yscale='log', title=task, ylabel='seconds',
               xlabel='items in and out')
        ax.set_xticks(sizes, map(short, sizes))
        ax.minorticks_off()
        if 'nodes' in task and 'against' in task:
            allowed = np.log(sizes) / np.log(sizes[0]) * seconds[0]
            ax.plot(sizes, allowed, ':', color='gray', label='log n')
            ax.set(xlabel='nodes', ylabel='nanoseconds a step',
                   title='a step of the chain')
            # All of it lies within a decade, where there would be no tick.
            ax.set_yticks(seconds, [f'{each * 1e9:.0f}' for each in seconds])
        ax.title.set_fontsize(10)
        ax.legend(fontsize='small', title='exponent')
        ax.grid(alpha=0.3)
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    plt.close(fig)


def short(size):
    """10,000,000 as 10M."""
    for unit, sign in ((1e6, 'M'), (1e3, 'k')):
        if size >= unit:
            return f'{size / unit:.3g}{sign}'
    return f'{size:g}'


def main(arguments=None):
    parser = argparse.ArgumentParser(prog='python -m benchmarks.report',
                                     description=__doc__)
    parser.add_argument('--json', type=Path, default=STORE)
    parser.add_argument('--report', type=Path, default=Path('benchmarks'))
    args = parser.parse_args(arguments)
    if not args.json.exists():
        parser.error(f'there is no file {args.json}')
    write(load(args.json), args.report)


if __name__ == '__main__':
    sys.exit(main())
