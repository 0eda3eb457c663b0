"""How much of a graph's structure is left after its private edges are released,
against the private share of the edges (the paper's Figure 11), at one epsilon.

    python -m benchmarks.structure_table --graphs cora digits
    python -m benchmarks.structure_table --graphs cora digits --again EdgeRR

It goes on where it stopped, and writes structure.json, structure.md and
structure_<graph>.png into the folder --out; --again forgets the results of
mechanisms that have changed. Three baselines cost nothing: to leave the private
edges out, to leave all edges out, and to join every pair of nodes, so that a
walk may be anywhere after one step.
"""
import argparse
import json
import warnings
from pathlib import Path

import matplotlib
import torch
from torch_geometric.utils import homophily
from tqdm import tqdm

from benchmarks.edge_table import RELEASES, load
from benchmarks.seeds import mean
from torch_geometric_dp import plot, transforms
from torch_geometric_dp.metrics import degree_distance, random_walk_distance

matplotlib.use('Agg')

SHARES = (0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
MECHANISMS = {
    'EdgeRR': transforms.EdgeRR,
    'EdgeRand': transforms.EdgeRand,
    'LapGraph': transforms.LapGraph,
    'privHRG': RELEASES['privHRG'],
}
PUBLIC, NONE, ALL = 'public edges only', 'no edges', 'every pair'
NAMES = (*MECHANISMS, PUBLIC, NONE, ALL)
# A million edges or more: a walk on them takes a quarter of a minute.
FEWER_SEEDS = {'EdgeRand': 2, NONE: 1, ALL: 1}
# Each with its unit, and how many digits to print.
MEASURES = {
    'RMS distance of the random walks, times 1,000': (1000.0, 2),
    'Distance of the degrees': (1.0, 2),
    'Edge homophily': (1.0, 2),
    'Edges': (1.0, 0),
}


def release(data, name, epsilon):
    """The edges that somebody without the private ones gets to see."""
    if name == PUBLIC:
        return data.edge_index[:, ~data.edge_private]
    if name == NONE:
        return data.edge_index[:, :0]
    if name == ALL:
        pairs = torch.combinations(torch.arange(data.num_nodes)).t()
        return torch.cat([pairs, pairs.flip(0)], dim=1)
    data = data.clone()
    if name == 'privHRG':  # Knows no public edges.
        del data.edge_private
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # privHRG does not converge.
        out = MECHANISMS[name](epsilon)(data)
    assert out.privacy.epsilon('edges') == epsilon
    return out.edge_index


def result(graph, name, share, epsilon, seed):
    """The measures of one cell for one seed, in their order."""
    data = load(graph, share, seed)
    edges, nodes = release(data, name, epsilon), data.num_nodes
    return (random_walk_distance(data.edge_index, edges, nodes),
            degree_distance(data.edge_index, edges, nodes),
            homophily(edges, data.y) if edges.size(1) else float('nan'),
            edges.size(1) / 2)


def shares_of(name):
    return SHARES[-1:] if name in (NONE, ALL) else SHARES


def seeds_of(name, seeds):
    return min(seeds, FEWER_SEEDS.get(name, seeds))


def rows_of(results, graph, name, share, epsilon):
    # Where the share makes no difference, one cell stands for all.
    share = share if share in shares_of(name) else SHARES[-1]
    return results.setdefault(f'{graph}|{name}|{share:g}|{epsilon:g}', [])


def table(results, graph, epsilon, seeds):
    lines = []
    for column, (measure, (unit, digits)) in enumerate(MEASURES.items()):
        lines += [f'{measure}:', '',
                  '| | ' + ' | '.join(f'{share:g}' for share in SHARES) + ' |',
                  '|---' * (len(SHARES) + 1) + '|']
        for name in NAMES:
            cells = []
            for share in SHARES:
                rows = rows_of(results, graph, name, share, epsilon)
                values = [unit * row[column]
                          for row in rows[:seeds_of(name, seeds)]]
                cells.append(_cell(values, digits))
            lines.append(f'| {name} | ' + ' | '.join(cells) + ' |')
        lines.append('')
    return '\n'.join(lines)


def _cell(values, digits):
    if not values:
        return 'not run'
    values = [value for value in values if value == value]  # No edges: NaN.
    if not values:
        return '-'
    return mean(values, digits, factor=1)


def figure(results, graph, epsilon, seeds, path):
    def distances(name, share):
        rows = rows_of(results, graph, name, share, epsilon)
        return [row[0] for row in rows[:seeds_of(name, seeds)]]

    curves = {name: {share: distances(name, share) for share in SHARES
                     if distances(name, share)}
              for name in (*MECHANISMS, PUBLIC)}
    levels = {name: distances(name, SHARES[-1])[0] for name in (NONE, ALL)
              if distances(name, SHARES[-1])}
    ax = plot.intervals(curves, levels)
    ax.set(xlabel='private share of the edges', yscale='log',
           ylabel='RMS distance of random walks, up to 4 hops',
           title=f'Structure after the release, {graph}, '
                 f'epsilon = {epsilon:g}')
    ax.figure.set_size_inches(9, 6)
    ax.legend(fontsize='small', loc='lower right')
    ax.figure.tight_layout()
    ax.figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--graphs', nargs='*', default=['cora', 'digits'])
    parser.add_argument('--seeds', type=int, default=10)
    parser.add_argument('--epsilon', type=float, default=1.0)
    parser.add_argument('--again', nargs='*', default=[], choices=NAMES,
                        help='rows to run again from the start')
    parser.add_argument('--leave-out', nargs='*', default=[], choices=NAMES,
                        help='rows not to run: EdgeRand takes most of the '
                        'time')
    parser.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    store = args.out / 'structure.json'
    results = json.loads(store.read_text()) if store.exists() else {}
    cells = [(graph, name, share) for graph in args.graphs for name in NAMES
             for share in shares_of(name) if name not in args.leave_out]
    for graph, name, share in tqdm(cells, desc='cells'):
        rows = rows_of(results, graph, name, share, args.epsilon)
        if name in args.again:
            rows.clear()
        for seed in range(len(rows), seeds_of(name, args.seeds)):
            rows.append(result(graph, name, share, args.epsilon, seed))
        store.write_text(json.dumps(results, indent=1))
    text = (f'# Private edges: what is left of the structure at epsilon = '
            f'{args.epsilon:g}\n\nColumns: the share of private edges. Mean '
            f'and 95% interval over {args.seeds} seeds, or '
            f'{FEWER_SEEDS["EdgeRand"]} for EdgeRand, which makes so many '
            f'edges that each walk is slow. The distances are those from the '
            f'raw graph: less is better. EdgeRR, EdgeRand and LapGraph keep '
            f'public edges as they are; privHRG knows none. (The paper shows '
            f'EdgeRand and LapGraph with all edges private: the last column.) '
            f'"{PUBLIC}", "{NONE}" and "{ALL}" cost nothing.\n'
            f'Made by `python -m benchmarks.structure_table --graphs '
            f'{" ".join(args.graphs)} --seeds {args.seeds}`.\n\n')
    for graph in args.graphs:
        text += (f'### {graph}\n\n' +
                 table(results, graph, args.epsilon, args.seeds) + '\n')
        figure(results, graph, args.epsilon, args.seeds,
               args.out / f'structure_{graph}.png')
    (args.out / 'structure.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
