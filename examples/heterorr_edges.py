"""HeteroRR's edges end to end: mark, release, train, and count the cost.

    python examples/heterorr_edges.py        # a minute or so on two cores
    python examples/heterorr_edges.py --graph cora

A random share of the edges is private. EdgeRR releases these and keeps the
others; a GCN is trained on the raw edges, on the released ones, on the public
ones alone, and on none. The last two cost nothing, so a release has to beat
them. Features and labels are public here; a tenth of the nodes has a label.

Cora's files are taken from the folder TORCH_GEOMETRIC_DP_DATA if it is set; PyG
downloads them otherwise.
"""
import argparse
import os
import shutil
import time
from pathlib import Path

import matplotlib
import torch
import torch.nn.functional as F
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GCN
from torch_geometric.utils import to_undirected
from tqdm import tqdm

from torch_geometric_dp import PrivacyBudget, plot
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.transforms import EdgeRR

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402

EPSILONS = (0.5, 1.0, 2.0, 4.0)
RAW, PUBLIC, NONE = 'raw edges', 'public edges only', 'no edges'


def load(name):
    """A graph whose edges stand there in both directions."""
    if name == 'digits':
        return DigitsGraph()[0]
    # PyG writes what it makes of the files beside them.
    root = Path('.cache') / 'Planetoid'
    if (folder := os.environ.get('TORCH_GEOMETRIC_DP_DATA')) is not None:
        shutil.copytree(Path(folder) / 'Planetoid' / 'Cora' / 'raw',
                        root / 'Cora' / 'raw', dirs_exist_ok=True)
    return Planetoid(str(root), 'Cora')[0]


def mark_private(data, share, generator):
    """The graph with a random share of its undirected edges marked as private.
    An edge is so in both directions.
    """
    data = data.clone()
    edge = to_undirected(data.edge_index, num_nodes=data.num_nodes)
    edge = edge[:, edge[0] < edge[1]]
    chosen = torch.randperm(edge.size(1), generator=generator)
    private = torch.zeros(edge.size(1), dtype=torch.bool)
    private[chosen[:round(share * edge.size(1))]] = True
    data.edge_index = torch.cat([edge, edge.flip(0)], dim=1)
    data.edge_private = torch.cat([private, private])
    return data


def with_edges(data, columns):
    """The graph with some of its edges, and no other change."""
    data = data.clone()
    data.edge_index = data.edge_index[:, columns]
    del data.edge_private
    return data


def split(data, seed):
    """A tenth of the nodes for training, a tenth for validation."""
    order = torch.randperm(data.num_nodes,
                           generator=torch.Generator().manual_seed(seed))
    tenth = data.num_nodes // 10
    return order[:tenth], order[tenth:2 * tenth], order[2 * tenth:]


def accuracy(data, seed, epochs=60):
    """Test accuracy, at the epoch with the best validation accuracy."""
    train, val, test = split(data, seed)
    torch.manual_seed(seed)
    model = GCN(data.num_features, 32, num_layers=2,
                out_channels=int(data.y.max()) + 1, dropout=0.5)
    x = (data.x - data.x.mean(dim=0)) / data.x.std(dim=0).clamp(min=1e-6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02,
                                 weight_decay=5e-4)
    best, result = -1.0, 0.0
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        out = model(x, data.edge_index)[train]
        F.cross_entropy(out, data.y[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = model(x, data.edge_index).argmax(dim=1) == data.y
        if right[val].float().mean() > best:
            best = right[val].float().mean()
            result = float(right[test].float().mean())
    return result


def expected_edges(transform, data):
    """How many edges EdgeRR would release, at the most, before it does. For the
    owner of the graph alone: the number depends on private edges.
    """
    once = data.edge_index[0] < data.edge_index[1]
    private = int((once & data.edge_private).sum())
    return transform.expected_edges(data.num_nodes, private)


def accuracies(data, seeds, bar):
    """Of a graph that is the same for all seeds."""
    values = []
    for seed in range(seeds):
        values.append(accuracy(data, seed))
        bar.update()
    return values


def curve(data, epsilons, seeds, bar):
    """The accuracies, and one of the releases, for each epsilon."""
    values, releases = {}, {}
    for epsilon in epsilons:
        values[epsilon] = []
        for seed in range(seeds):
            # A new release for each seed, which is paid for.
            releases[epsilon] = EdgeRR(epsilon).renew()(data)
            values[epsilon].append(accuracy(releases[epsilon], seed))
            bar.update()
    return values, releases


def mean(values):
    half = f' ± {plot.interval(values):.3f}' if len(values) > 1 else ''
    return f'{sum(values) / len(values):.3f}{half}'


def figure(results, graph, path):
    fig, axes = plt.subplots(1, len(results), sharey=True, squeeze=False,
                             figsize=(1.5 + 4 * len(results), 4.4))
    for ax, (share, (values, levels)) in zip(axes[0], results.items()):
        plot.intervals({'EdgeRR': values}, {
            name: sum(level) / len(level)
            for name, level in levels.items()}, ax)
        ax.set(xlabel='epsilon of one private edge', ylabel='',
               title=f'{share:.0%} of the edges private')
        ax.get_legend().remove()
    axes[0][0].set_ylabel('test accuracy')
    fig.suptitle(f'GCN with released edges, {graph}')
    fig.legend(*axes[0][0].get_legend_handles_labels(), loc='lower center',
               ncols=4)
    fig.tight_layout(rect=(0, 0.07, 1, 1))
    fig.savefig(path, dpi=120)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--graph', choices=['digits', 'cora'],
                        default='digits')
    parser.add_argument('--shares', type=float, nargs='+',
                        default=[0.3, 0.6, 1.0],
                        help='private shares of the edges')
    parser.add_argument('--epsilons', type=float, nargs='+', default=EPSILONS)
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--figure', default='heterorr_edges.png')
    args = parser.parse_args(arguments)
    start = time.perf_counter()

    raw = load(args.graph)
    print(f'{args.graph}: {raw.num_nodes} nodes, {raw.num_edges // 2} edges')
    if args.graph == 'digits':
        print("The edges were computed from the pixels, which are public here: "
              "a demonstration, and no secret")
    print('Edges that EdgeRR will release, at the most and on average (for the '
          'owner: no release)')
    results, releases, graphs = {}, {}, {}
    for share in args.shares:
        data = mark_private(raw, share, torch.Generator().manual_seed(0))
        # What may ever be released of this graph, over all that follows.
        data.privacy_budget = PrivacyBudget(
            edges=args.seeds * sum(args.epsilons))
        graphs[share] = data
        most = [f'{expected_edges(EdgeRR(epsilon), data):.0f} at epsilon = '
                f'{epsilon:g}' for epsilon in args.epsilons]
        print(f'  {int(data.edge_private.sum()) // 2} private: '
              f'{", ".join(most)}')
    size = (2 + len(graphs) * (1 + len(args.epsilons))) * args.seeds
    with tqdm(total=size, desc='release and train') as bar:
        raw_edges = accuracies(with_edges(data, slice(None)), args.seeds, bar)
        no_edges = accuracies(with_edges(data, slice(0)), args.seeds, bar)
        for share, data in graphs.items():
            public = with_edges(data, ~data.edge_private)
            levels = {RAW: raw_edges, NONE: no_edges,
                      PUBLIC: accuracies(public, args.seeds, bar)}
            values, releases[share] = curve(data, args.epsilons, args.seeds,
                                            bar)
            results[share] = values, levels

    for share, (values, levels) in results.items():
        print(f'\n{share:.0%} of the edges private: test accuracy of a '
              f'two-layer GCN, mean and 95% interval of {args.seeds} seed(s)')
        for name, level in levels.items():
            cost = 'no privacy' if name == RAW else 'epsilon = 0'
            print(f'  {name + ", " + cost:32s} {mean(level)}')
        for epsilon in values:
            drawn = int(releases[share][epsilon].edge_private.sum()) // 2
            print(f'  {f"EdgeRR, epsilon = {epsilon:g}":32s} '
                  f'{mean(values[epsilon])}   ({drawn} edges released)')

    shown = args.shares[0], args.epsilons[len(args.epsilons) // 2]
    print(f'\nThe ledger of one release ({shown[0]:.0%} private)')
    print(releases[shown[0]][shown[1]].privacy)
    print('\nThe budget after all releases of that graph')
    print(graphs[shown[0]].privacy_budget)
    figure(results, args.graph, args.figure)
    print(f'\nFigure saved as {args.figure} '
          f'({time.perf_counter() - start:.0f} s in all)')


if __name__ == '__main__':
    main()
