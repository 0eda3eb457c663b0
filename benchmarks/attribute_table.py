"""A sensitive attribute inferred from released graphs: what the release tells,
beside what its neighbours tell already.

    python -m benchmarks.attribute_table --seeds 5

It goes on where it stopped, and writes attributes.json, attributes.md and
attributes.png into the folder --out. German and Student are left out where
`TORCH_GEOMETRIC_DP_DATA` is not set.
"""
import argparse
import json
import os
from functools import lru_cache
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from tqdm import tqdm

from benchmarks import rgnn_graphs
from benchmarks.seeds import mean
from torch_geometric_dp import plot
from torch_geometric_dp.attacks import AttributeInference
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.transforms import GRRFS, FeatureRR, LabelRR

matplotlib.use('Agg')

EPSILONS = (1.0, 8.0, 64.0)
LABEL_EPSILONS = (0.5, 1.0, 2.0)
SAMPLED = 10  # Columns of GRRFS.

# The graph, what is inferred, and from what.
TASKS = {
    'German, gender': ('german', dict(column=0), 'rows'),
    'German, credit risk': ('german', dict(field='y'), 'labels'),
    'Student, sex': ('student', dict(column=1), 'rows'),
    'Digits, a pixel above 0.5': ('digits', dict(column=28, above=0.5),
                                  'pixels'),
    'Digits, the digit': ('digits', dict(field='y', withhold=True), 'pixels'),
}
WITH = {False: 'without edges', True: 'with edges'}


@lru_cache
def graph(name):
    return DigitsGraph()[0] if name == 'digits' else rgnn_graphs.graph(name)


def hide(data):
    """Nothing is known of the rows: labels alone are released."""
    data = data.clone()
    del data.x
    return data


def releases(kind, seed):
    """Transforms by name and true epsilon, of a row or of a label."""
    out = {}
    if kind == 'labels':
        for e in LABEL_EPSILONS:
            rr = LabelRR(e, 2, seed=seed)
            out['LabelRR', e] = lambda data, rr=rr: rr(hide(data))
        out['raw labels', None] = hide
        return out
    for e in EPSILONS:
        out['FeatureRR', e] = FeatureRR(e, bounds=(0.0, 1.0), seed=seed)
        if kind == 'rows':
            out['GRRFS', e] = GRRFS(e, SAMPLED, 2, seed=seed)
    out['raw rows', None] = lambda data: data
    return out


def result(task, name, epsilon, neighbours, withhold, seed):
    where, options, kind = TASKS[task]
    data = rgnn_graphs.split(graph(where), seed)
    attack = AttributeInference(**options | withhold, neighbours=neighbours,
                                seed=seed)
    report = attack.run(releases(kind, seed)[name, epsilon](data), data)
    return {'numbers': dict(report.numbers), 'baseline': dict(report.baseline)}


def cells(tasks):
    for task in tasks:
        kind = TASKS[task][2]
        for name, epsilon in releases(kind, 0):
            for neighbours in WITH:
                yield task, name, epsilon, neighbours, {}
                if kind == 'rows' and name == 'raw rows':
                    yield task, name, epsilon, neighbours, dict(withhold=True)


def key(task, name, epsilon, neighbours, withhold):
    parts = [task, name, str(epsilon), WITH[neighbours]]
    return '|'.join(parts + ['withheld'] * bool(withhold))


def table(results, task, seeds):
    names = list(results[key(*next(cells([task])))][0]['numbers'])
    lines = ['| release | epsilon | ' + ' | '.join(names) + ' |',
             '|---' * (2 + len(names)) + '|']
    for neighbours, way in WITH.items():
        mine = [each for each in cells([task]) if each[3] == neighbours]
        guess = 'neighbours' if neighbours else 'majority'
        lines.append(row(results, mine[0], f'*nothing ({guess}), {way}*',
                         names, 'baseline', seeds))
        for each in mine:
            title = f'{each[1]}, {way}'
            if each[4]:
                title += ', the column itself withheld'
            lines.append(row(results, each, title, names, 'numbers', seeds))
    return '\n'.join(lines) + '\n'


def row(results, each, title, names, side, seeds):
    found = results[key(*each)][:seeds]
    shown = []
    for name in names:
        shown.append(mean([run[side][name] for run in found]))
    epsilon = '' if side == 'baseline' or each[2] is None else f'{each[2]:g}'
    return f'| {title} | {epsilon} | ' + ' | '.join(shown) + ' |'


def figure(results, tasks, seeds, path):
    _, axes = plt.subplots(2, -(-len(tasks) // 2), squeeze=False,
                           figsize=(4.5 * -(-len(tasks) // 2), 8))
    for ax in axes.flat[len(tasks):]:
        ax.set_axis_off()
    for ax, task in zip(axes.flat, tasks):
        number = list(results[key(*next(cells([task])))][0]['numbers'])
        number = 'AUC' if 'AUC' in number else number[0]
        curves, levels = {}, {}
        for each in cells([task]):
            if each[4]:
                continue
            runs = results[key(*each)][:seeds]
            way = WITH[each[3]]
            levels[f'nothing, {way}'] = float(np.mean(
                [run['baseline'][number] for run in runs]))
            if each[2] is None:
                continue
            curves.setdefault(f'{each[1]}, {way}', {})[each[2]] = [
                run['numbers'][number] for run in runs]
        plot.intervals(curves, levels, ax)
        # Room for the legend, below what guessing reaches.
        two = number == 'AUC'
        ax.set(ylabel=f'{number} of the attack', title=task,
               ylim=(0.1 if two else 0, 1.03))
        ax.legend(fontsize='x-small',
                  loc='lower right' if two else 'center left')
    axes[0, 0].figure.tight_layout()
    axes[0, 0].figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--tasks', nargs='*', choices=TASKS, default=[
        task for task, (where, _, _) in TASKS.items() if where == 'digits' or
        'TORCH_GEOMETRIC_DP_DATA' in os.environ])
    parser.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tasks = args.tasks
    store = args.out / 'attributes.json'
    results = json.loads(store.read_text()) if store.exists() else {}
    for each in tqdm(list(cells(tasks)), desc='cells'):
        runs = results.setdefault(key(*each), [])
        for seed in range(len(runs), args.seeds):
            runs.append(result(*each, seed))
        store.write_text(json.dumps(results, indent=1))
    figure(results, tasks, args.seeds, args.out / 'attributes.png')
    text = (f'# Sensitive attributes inferred from released graphs\n\n'
            f'In percent; mean and 95% interval over {args.seeds} seeds, each '
            f'with its own noise and its own half of the nodes whose attribute '
            f'is known. Epsilon is the true one, of a node\'s whole row or, '
            f'for LabelRR, of its label; for labels, rows are not released at '
            f'all. GRRFS samples {SAMPLED} columns. *Nothing* is an attacker '
            f'without the release: what stands above it is leaked by the '
            f'release.\nMade by `python -m benchmarks.attribute_table --seeds '
            f'{args.seeds} --tasks '
            f'{" ".join(json.dumps(task) for task in tasks)}`.\n\n'
            f'![What is inferred](attributes.png)\n')
    for task in tasks:
        text += f'\n## {task}\n\n{table(results, task, args.seeds)}'
    (args.out / 'attributes.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
