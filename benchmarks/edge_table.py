"""GCN accuracy with released edges, against the private share of the edges (the
paper's Figure 7), at one epsilon.

    python -m benchmarks.edge_table --graphs digits cora --seeds 5

It goes on where it stopped, and writes edges.json, edges.md and
edges_<graph>.png into the folder --out. Features and labels are public here; a
tenth of the nodes is for training, a tenth for validation. Leaving out the
private edges costs nothing, and stands in every figure.
"""
import argparse
import json
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.utils import homophily
from tqdm import tqdm

from benchmarks.graphs import planetoid
from benchmarks.training import accuracy
from torch_geometric_dp import plot, transforms
from torch_geometric_dp.datasets import DigitsGraph

matplotlib.use('Agg')

SHARES = (0.1, 0.3, 0.6, 1.0)
OURS = 'EdgeRR'
NAMES = ('all edges', 'public edges only', 'no edges', OURS, 'EdgeRR, guided',
         'EdgeRR, polished', 'EdgeRand', 'LapGraph', 'privHRG')


def load(graph, share, seed):
    """A graph with a random share of private edges, and a split."""
    data = (DigitsGraph()[0] if graph == 'digits' else
            planetoid({'cora': 'Cora', 'pubmed': 'PubMed'}[graph]).clone())
    generator = torch.Generator().manual_seed(seed)
    up = data.edge_index[0] < data.edge_index[1]
    edge = data.edge_index[:, up]
    private = torch.rand(edge.size(1), generator=generator) < share
    data.edge_index = torch.cat([edge, edge.flip(0)], dim=1)
    data.edge_private = torch.cat([private, private])
    order = torch.randperm(data.num_nodes, generator=generator)
    tenth = data.num_nodes // 10
    parts = order[:tenth], order[tenth:2 * tenth], order[2 * tenth:]
    for name, part in zip(('train_mask', 'val_mask', 'test_mask'), parts):
        data[name] = torch.zeros(data.num_nodes, dtype=torch.bool)
        data[name][part] = True
    return data


def nearest(x, k=5):
    """Each node's nearest neighbours by the cosine of their features."""
    z, neighbours = F.normalize(x, dim=1), []
    for block in torch.arange(len(x)).split(2048):
        similar = z[block] @ z.t()
        similar[torch.arange(len(block)), block] = -1
        neighbours.append(similar.topk(k, dim=1).indices)
    ends = torch.cat(neighbours).view(-1)
    return torch.stack([torch.arange(len(x)).repeat_interleave(k), ends])


def result(graph, name, share, epsilon, seed):
    """Accuracy, and how many released edges join nodes of one class."""
    data = load(graph, share, seed)
    if name == 'public edges only':
        data.edge_index = data.edge_index[:, ~data.edge_private]
    elif name == 'no edges':
        data.edge_index = data.edge_index[:, :0]
    elif name != 'all edges':
        if name == 'privHRG':  # Knows no public edges.
            del data.edge_private
        if name == 'EdgeRR, guided':
            data.knn = nearest(data.x)
        transform = {
            OURS: lambda: transforms.EdgeRR(epsilon),
            'EdgeRR, guided': lambda: transforms.EdgeRR(epsilon, guide='knn'),
            'EdgeRR, polished': lambda: transforms.EdgeRR(epsilon, steps=400),
            'privHRG': lambda: transforms.EdgeRR(
                epsilon, dendrogram='joint', min_probability=0.0,
                min_signal=0.0, largest_merged=1),
            'EdgeRand': lambda: transforms.EdgeRand(epsilon),
            'LapGraph': lambda: transforms.LapGraph(epsilon),
        }[name]()
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # privHRG does not converge.
            data = transform(data)
        assert data.privacy.epsilon('edges') == epsilon
    released = data.edge_index
    if 'edge_private' in data and name.startswith(('Edge', 'Lap')):
        released = released[:, data.edge_private]
    same = homophily(released, data.y) if released.size(1) else float('nan')
    return accuracy(data, seed), same, released.size(1) / 2


def table(results, graph, seeds):
    lines = [f'### {graph}', '',
             '| | ' + ' | '.join(f'{share:g}' for share in SHARES) + ' |',
             '|---' * (len(SHARES) + 1) + '|']
    for name in NAMES:
        cells = []
        for share in SHARES:
            rows = results.get(f'{graph}|{name}|{share:g}', [])[:seeds]
            if not rows:
                cells.append('not run')
                continue
            values, same, count = (np.array(column) for column in zip(*rows))
            cell = (f'{100 * values.mean():.1f} ± '
                    f'{100 * plot.interval(values):.1f}')
            if name not in NAMES[:3]:
                cell += f' ({count.mean():.0f}, {np.nanmean(same):.2f})'
            cells.append(cell)
        lines.append(f'| {name} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--graphs', nargs='*', default=['digits', 'cora'])
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--epsilon', type=float, default=1.0)
    parser.add_argument('--leave-out', nargs='*', default=[], choices=NAMES,
                        help='rows not to run: EdgeRand makes millions of '
                        'edges, and takes most of the time')
    parser.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    store = args.out / 'edges.json'
    results = json.loads(store.read_text()) if store.exists() else {}
    cells = [(graph, name, share) for graph in args.graphs for name in NAMES
             for share in SHARES if name not in args.leave_out]
    for graph, name, share in tqdm(cells, desc='cells'):
        values = results.setdefault(f'{graph}|{name}|{share:g}', [])
        for seed in range(len(values), args.seeds):
            values.append(result(graph, name, share, args.epsilon, seed))
        store.write_text(json.dumps(results, indent=1))
    text = (f'# Private edges: GCN accuracy in percent at epsilon = '
            f'{args.epsilon:g}\n\nColumns: the share of private edges. Mean '
            f'and 95% interval over {args.seeds} seeds; in brackets the number '
            f'of '
            f'released edges, and the share of them that join nodes of one '
            f'class. privHRG knows no public edges.\nMade by `python -m '
            f'benchmarks.edge_table --seeds {args.seeds}`.\n\n')
    for graph in args.graphs:
        text += table(results, graph, args.seeds) + '\n'
        curves = {name: {share: [row[0] for row in
                                 results[f'{graph}|{name}|{share:g}']]
                         for share in SHARES} for name in NAMES
                  if f'{graph}|{name}|{SHARES[-1]:g}' in results}
        ax = plot.intervals(curves)
        ax.set(xlabel='private share of the edges', xscale='linear',
               title=f'GCN with released edges, {graph}, '
                     f'epsilon = {args.epsilon:g}')
        ax.figure.set_size_inches(9, 6)
        ax.figure.tight_layout()
        ax.figure.savefig(args.out / f'edges_{graph}.png', dpi=120)
    (args.out / 'edges.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
