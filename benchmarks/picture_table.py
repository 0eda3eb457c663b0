"""Digits reconstructed from what FeatureRR releases (the paper's Figure 8): how
near, how readable, and whose.

    python -m benchmarks.picture_table --seeds 5

It goes on where it stopped, and writes pictures.json, pictures.md and
pictures_*.png into the folder --out.
"""
import argparse
import json
from math import inf
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.neighbors import KNeighborsClassifier
from tqdm import tqdm

from benchmarks.seeds import mean
from torch_geometric_dp import plot
from torch_geometric_dp.attacks import FeatureReconstruction
from torch_geometric_dp.attacks.feature_reconstruction import pictures
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.transforms import FeatureRR

matplotlib.use('Agg')

EPSILONS = (1.0, 8.0, 32.0, 64.0, 128.0, 256.0, inf)
SHOWN = (1.0, 8.0, 64.0, 128.0, 256.0, inf)
NAMES = ('mean squared error', 'variance explained', 'correlation',
         'identified', 'read')
WITH = {False: 'released rows', True: 'released rows and edges'}


def graph(share, seed):
    data = DigitsGraph()[0]
    order = torch.randperm(data.num_nodes,
                           generator=torch.Generator().manual_seed(seed))
    data.train_mask = torch.zeros(data.num_nodes, dtype=torch.bool)
    data.train_mask[order[:round(share * data.num_nodes)]] = True
    return data


def release(data, epsilon, seed):
    if epsilon == inf:
        return data
    return FeatureRR(epsilon, bounds=(0.0, 1.0), seed=seed)(data)


def read(data, rows):
    """The share of pictures that are read as the right digit, by the five known
    ones that are most like them; how pale they are does not matter.
    """
    known = data.train_mask
    centre = data.x[known].double().mean(dim=0)
    reader = KNeighborsClassifier(5, metric='cosine')
    reader.fit(data.x[known].double() - centre, data.y[known])
    # What says nothing at all is read as something.
    shift = 1e-9 * torch.ones_like(centre)
    return reader.score(rows - centre + shift, data.y[~known])


def result(epsilon, neighbours, share, seed):
    data = graph(share, seed)
    attack = FeatureReconstruction(neighbours=neighbours, picture=(8, 8),
                                   seed=seed)
    report = attack.run(release(data, epsilon, seed), data)
    return {'numbers': dict(report.numbers) |
            {'read': read(data, report.reconstructed)},
            'baseline': dict(report.baseline) |
            {'read': read(data, report.guessed)}}


def key(epsilon, neighbours, share):
    return f'{epsilon:g}|{WITH[neighbours]}|{share:g}'


def cell(values, name):
    factor = 1 if name == 'mean squared error' else 100
    return mean(values, 4 if factor == 1 else 1, factor)


def table(results, neighbours, share, seeds):
    lines = ['| epsilon | a pixel | mean squared error | variance explained, % '
             '| correlation, % | identified, % | read, % |', '|---' * 7 + '|']
    rows = [(f'{e:g}' if e < inf else 'raw', f'{e / 64:.3g}' if e < inf else
             '', 'numbers', e) for e in EPSILONS]
    for title, pixel, side, e in [('*without the target*', '', 'baseline',
                                   EPSILONS[0]), *rows]:
        found = results[key(e, neighbours, share)][:seeds]
        cells = [cell([run[side][name] for run in found], name)
                 for name in NAMES]
        lines.append(f'| {title} | {pixel} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def picture_figure(share, path):
    """One of each digit, raw, and what is made of it at some epsilons."""
    data = graph(share, seed=0)
    labels = data.y[~data.train_mask]
    chosen = [int((labels == digit).nonzero()[0]) for digit in range(10)]
    shown = {}
    for epsilon in SHOWN:
        name = 'raw' if epsilon == inf else f'$\\varepsilon$ = {epsilon:g}'
        released = release(data, epsilon, seed=0)
        for neighbours in (False, True):
            report = FeatureReconstruction(
                neighbours=neighbours, picture=(8, 8)).run(released, data)
            if not shown:
                shown['raw pictures'] = report.raw[chosen]
                shown['mean of the known'] = report.guessed[chosen]
            if epsilon == SHOWN[0] and neighbours:
                shown['edges alone'] = report.guessed[chosen]
            if not neighbours:
                shown[f'{name}: released'] = report.released[chosen]
            way = 'with edges' if neighbours else 'reconstructed'
            shown[f'{name}: {way}'] = report.reconstructed[chosen]
    ax = plt.subplots(figsize=(8, 15))[1]
    pictures(shown, (8, 8), ax)
    ax.set_title(f'Digits from FeatureRR; {share:.0%} of them are known')
    ax.figure.savefig(path, dpi=110, bbox_inches='tight')


def curve_figure(results, shares, seeds, path):
    _, axes = plt.subplots(1, 3, figsize=(15, 4.5))
    shown = {'mean squared error': 'mean squared error',
             'identified': 'share of digits that are identified',
             'read': 'share of digits that are read'}
    for ax, name in zip(axes, shown):
        curves, levels = {}, {}
        for share in shares:
            for neighbours, way in WITH.items():
                curves[f'{way}, {share:.0%} known'] = {
                    e: [run['numbers'][name] for run in
                        results[key(e, neighbours, share)][:seeds]]
                    for e in EPSILONS if e < inf}
        for neighbours, way in {False: 'mean of the known',
                                True: 'edges alone'}.items():
            levels[f'{way}, {shares[0]:.0%} known'] = float(np.mean([
                run['baseline'][name] for run in
                results[key(EPSILONS[0], neighbours, shares[0])][:seeds]]))
        plot.intervals(curves, levels, ax)
        ax.set(ylabel=shown[name], xlabel='epsilon of a picture')
        ax.get_legend().remove()
    axes[0].legend(fontsize='small')
    axes[0].figure.suptitle('Digits reconstructed from FeatureRR')
    axes[0].figure.tight_layout()
    axes[0].figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--shares', type=float, nargs='*', default=[0.5],
                        help='of the nodes, known to the attacker')
    parser.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    store = args.out / 'pictures.json'
    results = json.loads(store.read_text()) if store.exists() else {}
    cells = [(e, neighbours, share) for share in args.shares for e in EPSILONS
             for neighbours in WITH]
    for each in tqdm(cells, desc='cells'):
        runs = results.setdefault(key(*each), [])
        for seed in range(len(runs), args.seeds):
            runs.append(result(*each, seed))
        store.write_text(json.dumps(results, indent=1))
    picture_figure(args.shares[0], args.out / 'pictures_digits.png')
    curve_figure(results, args.shares, args.seeds,
                 args.out / 'pictures_curves.png')
    text = (f'# Digits reconstructed from FeatureRR\n\n'
            f'Epsilon is that of one whole picture of 64 pixels, in the local '
            f'model. Mean and 95% interval over {args.seeds} seeds, each with '
            f'its own known nodes and its own noise. *Identified*: the right '
            f'one out of the raw pictures of all nodes that are attacked. '
            f'*Read*: the five known pictures that are most like it show the '
            f'right digit.\nMade by `python -m benchmarks.picture_table '
            f'--seeds {args.seeds}`.\n\n![Error, identified and read]'
            f'(pictures_curves.png)\n\n![Digits, released and reconstructed]'
            f'(pictures_digits.png)\n')
    for share in args.shares:
        for neighbours, way in WITH.items():
            text += (f'\n## {way.capitalize()}, {share:.0%} of the nodes known'
                     f'\n\n{table(results, neighbours, share, args.seeds)}')
    (args.out / 'pictures.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
