"""GCN accuracy against epsilon for FeatureRR and its family (the paper's
Figure 6), and the expected error of all of them (Figure 10).

    python -m benchmarks.feature_table --seeds 10

It goes on where it stopped, and writes features.json, features.md,
features_<graph>.png and expected_error.png into the folder --out.
"""
import argparse
import json
from pathlib import Path

import matplotlib
import numpy as np
import torch
from scipy import stats
from torch_geometric.nn import MLP
from tqdm import tqdm

from benchmarks.graphs import EMBEDDING, GRAPHS
from benchmarks.seeds import mean
from benchmarks.training import accuracy
from torch_geometric_dp import mechanisms, plot, transforms
from torch_geometric_dp.explain import (
    HeteroScores,
    feature_importance,
    feature_sensitivity,
)
from torch_geometric_dp.noise import NoiseSource

matplotlib.use('Agg')

EPSILONS = (4.0, 16.0, 32.0, 64.0, 128.0)
OURS = 'FeatureRR, importance'
MECHANISMS = {
    OURS: ('FeatureRR', dict(decode='unbiased'), 1.0),
    'FeatureRR, importance and sensitivity': ('FeatureRR', dict(
        decode='unbiased'), 0.5),
    'FeatureRR, homogeneous': ('FeatureRR', dict(decode='unbiased'), None),
    'FeatureRR, 16 bins, as published': ('FeatureRR', dict(bins=16), 0.5),
    'Duchi': ('Duchi', {}, None),
    'Duchi, whole rows': ('DuchiMulti', {}, None),
    'Piecewise': ('Piecewise', {}, None),
    'Hybrid': ('Hybrid', {}, None),
    'Three outputs': ('ThreeOutputs', {}, None),
    'PM-SUB': ('PMSub', {}, None),
    'Multi-bit (LPGNN)': ('MultiBit', {}, None),
    'Laplace': ('Laplace', {}, None),
    'Gaussian, delta = 1e-5': ('Gaussian', {}, None),
}
FREE = ('raw features', 'no edges, raw features', 'noise for features',
        'majority class')


def scores_of(task, seed, gamma):
    """From public rows alone: a head is trained on them and explained."""
    torch.manual_seed(seed)
    public = task.public
    head = MLP([public.num_features, 32, int(public.y.max()) + 1], norm=None)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    low, high = (torch.as_tensor(b) for b in task.bounds)
    public = public.clone()
    public.x = (public.x - low) / (high - low)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(public.x), public.y).backward()
        optimizer.step()
    return HeteroScores(
        feature_importance(head, public),
        feature_sensitivity(task.encoder, task.raw, task.sensitive), gamma,
        public=True)


def result(graph, name, epsilon, seed):
    """The accuracy of one cell for one seed."""
    task = GRAPHS[graph](seed)
    data = task.private
    if name == 'raw features':
        return accuracy(data, seed)
    if name == 'noise for features':  # A GCN still knows who is who.
        data.x = torch.randn(data.x.shape,
                             generator=torch.Generator().manual_seed(seed))
        return accuracy(data, seed)
    if name == 'no edges, raw features':
        data.edge_index = data.edge_index[:, :0]
        return accuracy(data, seed)
    if name == 'majority class':
        most = data.y[data.train_mask].mode().values
        return float((data.y[data.test_mask] == most).float().mean())
    cls, options, gamma = MECHANISMS[name]
    if gamma is not None:
        options = dict(options, scores=scores_of(task, seed, gamma))
    transform = getattr(transforms, cls)(epsilon, task.bounds, clip=True,
                                         **options)
    out = transform(data)
    assert out.privacy.epsilon('features') == epsilon
    return accuracy(out, seed)


def table(results, graph):
    lines = [f'### {graph}', '',
             '| | ' + ' | '.join(f'{e:g}' for e in EPSILONS) + ' |',
             '|---' * (len(EPSILONS) + 1) + '|']
    for name in FREE:
        cell = mean(results[f'{graph}|{name}|0'])
        lines.append(f'| {name} (epsilon {"inf" if "raw" in name else 0}) | ' +
                     ' | '.join([cell] * len(EPSILONS)) + ' |')
    for name in MECHANISMS:
        cells = [mean(results[f'{graph}|{name}|{e:g}']) for e in EPSILONS]
        lines.append(f'| {name} | ' + ' | '.join(cells) + ' |')
    for other in ('FeatureRR, homogeneous', None):
        cells = []
        for e in EPSILONS:
            ours = results[f'{graph}|{OURS}|{e:g}']
            rival = other or max(
                (n for n in MECHANISMS if not n.startswith('FeatureRR')),
                key=lambda n, e=e: np.mean(results[f'{graph}|{n}|{e:g}']))
            theirs = results[f'{graph}|{rival}|{e:g}']
            test = stats.ttest_rel(ours, theirs)
            cells.append(f'{100 * (np.mean(ours) - np.mean(theirs)):+.1f} '
                         f'(p = {test.pvalue:.1g})' +
                         ('' if other else f', {rival}'))
        title = other or 'the best of the others'
        lines.append(f'| *{OURS}* less {title} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def error_figure(path):
    """Exact expected errors, and the means of 20,000 draws on top."""
    epsilons = [0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0]
    values = np.linspace(-1, 1, 41)

    def one_column(cls, **options):
        return lambda e: cls(e, num_features=1, **options)

    makers = {
        'FeatureRR': lambda e: mechanisms.FeatureRR(e, decode='posterior'),
        'FeatureRR, 16 bins': lambda e: mechanisms.FeatureRR(e, bins=16),
        'Duchi': mechanisms.Duchi, 'Piecewise': mechanisms.Piecewise,
        'Hybrid': mechanisms.Hybrid, 'Three outputs': mechanisms.ThreeOutputs,
        'PM-SUB': mechanisms.PMSub, 'Laplace': mechanisms.Laplace,
        'Gaussian, delta = 1e-5': one_column(mechanisms.Gaussian),
        'Multi-bit (LPGNN)': one_column(mechanisms.MultiBit),
    }
    x = torch.tensor(values).repeat(20000 // len(values)).view(-1, 1)
    draws = {name: [float((make(e)(x, NoiseSource.from_os()) - x).abs().mean())
                    for e in epsilons] for name, make in makers.items()}
    ax = plot.expected_error(makers, epsilons, values, draws)
    ax.set_title('Lines: exact. Dots: 20,000 draws')
    ax.figure.set_size_inches(8, 5)
    ax.figure.tight_layout()
    ax.figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.
                                     RawDescriptionHelpFormatter)
    parser.add_argument('--graphs', nargs='*', default=list(GRAPHS))
    parser.add_argument('--seeds', type=int, default=10)
    parser.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    store = args.out / 'features.json'
    results = json.loads(store.read_text()) if store.exists() else {}
    error_figure(args.out / 'expected_error.png')

    cells = [(graph, name, e) for graph in args.graphs
             for name, es in ([(f, (0, )) for f in FREE] +
                              [(m, EPSILONS) for m in MECHANISMS])
             for e in es]
    for graph, name, epsilon in tqdm(cells, desc='cells'):
        values = results.setdefault(f'{graph}|{name}|{epsilon:g}', [])
        for seed in range(len(values), args.seeds):
            values.append(result(graph, name, epsilon, seed))
        store.write_text(json.dumps(results, indent=1))

    text = (f'# FeatureRR and its family: GCN accuracy in percent\n\n'
            f'Columns: the true epsilon of one node\'s whole row, in the local '
            f'model. Mean and 95% interval over {args.seeds} seeds; paired '
            f't-tests. Bounds, scores and, for Cora, a truncated SVD to '
            f'{EMBEDDING} columns come from a fifth of the nodes, which are '
            f'public and in no graph that is trained or tested on. Labels and '
            f'edges are public here.\nMade by `python -m '
            f'benchmarks.feature_table --seeds {args.seeds}`.\n\n')
    for graph in args.graphs:
        text += table(results, graph) + '\n'
        curves = {name: {e: results[f'{graph}|{name}|{e:g}'][:args.seeds]
                         for e in EPSILONS} for name in MECHANISMS}
        levels = {name: float(np.mean(results[f'{graph}|{name}|0']))
                  for name in FREE}
        ax = plot.intervals(curves, levels)
        ax.set_title(f'GCN on released features, {graph}')
        ax.figure.set_size_inches(9, 6)
        ax.figure.tight_layout()
        ax.figure.savefig(args.out / f'features_{graph}.png', dpi=120)
    (args.out / 'features.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
