"""GCN accuracy with released edges: against the private share of the edges at
epsilon = 1, and against epsilon where 60% of them are private (the paper's
Figure 7).

    python -m benchmarks.edge_table --graphs digits cora pubmed --seeds 5

It goes on where it stopped, and writes edges.json, edges.md and
edges_<graph>.png into the folder --out. Features and labels are public here; a
tenth of the nodes is for training, a tenth for validation. What costs nothing
stands in every table: no edges, the public ones, and the public ones with each
node's nearest neighbours by its features.
"""
import argparse
import json
import warnings
from functools import lru_cache
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.utils import coalesce, homophily
from tqdm import tqdm

from benchmarks.graphs import planetoid, split_by_tenths
from benchmarks.seeds import mean
from benchmarks.training import accuracy
from torch_geometric_dp import plot, transforms
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.nn import NAP

matplotlib.use('Agg')

SHARES, EPSILON = (0.1, 0.3, 0.6, 1.0), 1.0
EPSILONS, SHARE = (0.5, 1.0, 2.0, 4.0, 8.0), 0.6
COLUMNS = 32  # Of what NAP sums up.
FREE = ('all edges', 'no edges', 'public edges only',
        'public edges, neighbours by features')
MOST_EDGES = 1_000_000  # Beyond, a GCN takes minutes, and learns nothing.
ONE_SEED = ('EdgeRand', )  # Millions of edges.


def sums_over_private_edges(epsilon):
    """Keeps public edges; private ones serve for one noisy sum over each
    node's neighbours, of the principal components of the public features, which
    become further features.
    """
    def release(data):
        layer, out = NAP(epsilon, unit='edge'), data.clone()
        rows = F.normalize(principal_components(data.x), p=1, dim=1)
        sums = layer(rows, data.edge_index[:, data.edge_private])
        out.x = torch.cat([data.x, sums], dim=1)
        out.edge_index = data.edge_index[:, ~data.edge_private]
        out.edge_private = data.edge_private[~data.edge_private]
        out.privacy = layer.privacy
        return out
    return release


def principal_components(x):
    """The first columns of the features, turned to their main axes."""
    x = x - x.mean(dim=0)
    _, axes = torch.linalg.eigh(x.t() @ x)
    return x @ axes[:, -COLUMNS:]


RELEASES = {
    'EdgeRR': transforms.EdgeRR,
    'EdgeRR, guided': lambda epsilon: transforms.EdgeRR(epsilon, guide='knn'),
    'EdgeRand': lambda epsilon: transforms.EdgeRand(epsilon,
                                                    max_edges=MOST_EDGES),
    'LapGraph': transforms.LapGraph,
    'DegreePreservingRR': lambda epsilon: transforms.DegreePreservingRR(
        epsilon, max_edges=MOST_EDGES),
    'NAP': sums_over_private_edges,
    # Xiao et al. draw the dendrogram from private edges, and keep all blocks.
    'privHRG': lambda epsilon: transforms.EdgeRR(
        epsilon, dendrogram='joint', min_probability=0.0, min_signal=0.0,
        largest_merged=1),
}


@lru_cache
def raw(graph):
    """A graph with edges in both directions, and its nodes' nearest neighbours
    by features.
    """
    data = (DigitsGraph()[0] if graph == 'digits' else
            planetoid({'cora': 'Cora', 'pubmed': 'PubMed'}[graph]).clone())
    data.knn = nearest(data.x)
    return data


def load(graph, share, seed):
    """A graph with a random share of private edges, and a split."""
    data = raw(graph).clone()
    generator = torch.Generator().manual_seed(seed)
    up = data.edge_index[0] < data.edge_index[1]
    edge = data.edge_index[:, up]
    private = torch.rand(edge.size(1), generator=generator) < share
    data.edge_index = torch.cat([edge, edge.flip(0)], dim=1)
    data.edge_private = torch.cat([private, private])
    split_by_tenths(data, generator)
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


def edges_for_free(name, data):
    """What nobody has to pay for; and all edges, which nobody may see."""
    if name == 'all edges':
        return data.edge_index
    if name == 'no edges':
        return data.edge_index[:, :0]
    public = data.edge_index[:, ~data.edge_private]
    if name == 'public edges only':
        return public
    edges = torch.cat([public, data.knn, data.knn.flip(0)], dim=1)
    return coalesce(edges)


def result(graph, name, share, epsilon, seed):
    """Accuracy, how many released edges join nodes of one class, and how many
    there are; nothing if there are too many.
    """
    data = load(graph, share, seed)
    if name in FREE:
        data.edge_index = edges_for_free(name, data)
        return accuracy(data, seed), None, None
    if name == 'privHRG':  # Knows no public edges.
        del data.edge_private
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # privHRG does not converge.
        try:
            data = RELEASES[name](epsilon)(data)
        except ValueError as error:
            if 'max_edges' in str(error):
                return None
            raise
    assert data.privacy.epsilon('edges') == epsilon
    released = data.edge_index
    if 'edge_private' in data:
        released = released[:, data.edge_private]
    same = homophily(released, data.y) if released.size(1) else None
    return accuracy(data, seed), same, released.size(1) / 2


def cells():
    """Names, shares and epsilons; what does not depend on one has `None`."""
    for name in FREE:
        shares = (None, ) if name in FREE[:2] else SHARES
        yield from ((name, share, None) for share in shares)
    for name in RELEASES:
        shares = (None, ) if name == 'privHRG' else SHARES
        yield from ((name, share, EPSILON) for share in shares)
        share = None if name == 'privHRG' else SHARE
        yield from ((name, share, epsilon) for epsilon in EPSILONS
                    if epsilon != EPSILON)


def find(results, graph, name, share, epsilon):
    """The results of a cell, whatever it does not depend on."""
    for key in ((share, epsilon), (None, epsilon), (share, None),
                (None, None)):
        rows = results.get(str((graph, name, *key)))
        if rows is not None:
            return rows
    return []


def shown(rows):
    if not rows:
        return 'not run'
    if rows[0] is None:
        return 'too many edges'
    values, same, count = zip(*rows)
    cell = mean(values)
    if count[0]:  # NAP releases none.
        alike = [s for s in same if s is not None] or [float('nan')]
        cell += f' ({np.mean(count):.0f}, {np.mean(alike):.2f})'
    return cell


def table(results, graph):
    seeds = len(find(results, graph, 'EdgeRR', SHARE, EPSILON))
    text = f'## {graph}, {seeds} seeds\n\n'
    for title, columns in (
            (f'epsilon = {EPSILON:g}, by the private share of the edges',
             {f'{share:g}': (share, EPSILON) for share in SHARES}),
            (f'{SHARE:.0%} of the edges private, by epsilon',
             {f'{epsilon:g}': (SHARE, epsilon) for epsilon in EPSILONS})):
        text += (f'| {title} | ' + ' | '.join(columns) + ' |\n' +
                 '|---' * (len(columns) + 1) + '|\n')
        for name in (*FREE, *RELEASES):
            row = [shown(find(results, graph, name, *key))
                   for key in columns.values()]
            text += f'| {name} | ' + ' | '.join(row) + ' |\n'
        text += '\n'
    return text


def figure(results, graph):
    fig, (left, right) = plt.subplots(1, 2, figsize=(13, 5.5), sharey=True)

    def curve(name, points):
        found = {x: [row[0] for row in find(results, graph, name, *key) if row]
                 for x, key in points.items()}
        return {x: values for x, values in found.items() if values}

    shares = {share: (share, EPSILON) for share in SHARES}
    epsilons = {epsilon: (SHARE, epsilon) for epsilon in EPSILONS}
    names = (*FREE[2:], *RELEASES)
    plot.intervals({name: curve(name, shares) for name in names},
                   {name: np.mean(curve(name, shares)[SHARE])
                    for name in FREE[:2]}, ax=left)
    left.set(xlabel='private share of the edges', xscale='linear',
             title=f'{graph}, epsilon = {EPSILON:g}')
    plot.intervals({name: curve(name, epsilons) for name in names},
                   {name: np.mean(curve(name, epsilons)[EPSILON])
                    for name in FREE[:2]}, ax=right)
    right.set(ylabel='', title=f'{graph}, {SHARE:.0%} of the edges private')
    left.get_legend().remove()
    right.legend(fontsize='small', loc='center left', bbox_to_anchor=(1, 0.5))
    fig.tight_layout()
    return fig


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--graphs', nargs='*',
                        default=['digits', 'cora', 'pubmed'])
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    store = args.out / 'edges.json'
    results = json.loads(store.read_text()) if store.exists() else {}
    todo = [(graph, *cell) for graph in args.graphs for cell in cells()]
    for cell in tqdm(todo, desc='cells'):
        values = results.setdefault(str(cell), [])
        graph, name, share, epsilon = cell
        seeds = 1 if name in ONE_SEED else args.seeds
        for seed in range(len(values), seeds):
            values.append(result(graph, name, share or SHARE, epsilon, seed))
            store.write_text(json.dumps(results, indent=1))
    text = (f'# Private edges: GCN accuracy in percent\n\nMean and 95% '
            f'interval over seeds ({", ".join(ONE_SEED)}: one seed); in '
            f'brackets the number of released edges, and the share of them '
            f'that join nodes of one class. Epsilon is that of one private '
            f'edge, and true. privHRG knows no public edges. "Too many edges": '
            f'more than {MOST_EDGES:,}.\nMade by `python -m '
            f'benchmarks.edge_table`.\n\n')
    for graph in args.graphs:
        text += table(results, graph)
        figure(results, graph).savefig(args.out / f'edges_{graph}.png', dpi=110)
    (args.out / 'edges.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
