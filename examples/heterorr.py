"""HeteroRR as a whole: features and private edges released under one budget.

    python examples/heterorr.py                        # two minutes or so
    python examples/heterorr.py --dataset cora
    python examples/heterorr.py --dataset ppi --seeds 1      # takes hours

FeatureRR releases every node's row, EdgeRR the private edges of every graph. A
GCN is trained on what was released: once for each epsilon of a row, at one
epsilon of an edge, and the other way round (the paper's Figures 13 and 14).
Leaving out the private edges, or all, costs nothing, and neither does joining
nodes that are two steps apart in what was released: noisy features need many
neighbours. One more baseline spends nothing at all.

Several graphs, as in PPI, are released one by one, each of them with a budget
and a ledger of its own, and are trained on in batches. Labels are public unless
--epsilon-labels gives them an epsilon, too.
"""
import argparse
import time
import warnings
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import matplotlib
import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from heterorr_edges import load, mark_private, mean, with_edges
from torch_geometric.datasets import PPI
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN
from tqdm import tqdm

from torch_geometric_dp import PrivacyAccountant, PrivacyBudget, plot
from torch_geometric_dp.transforms import EdgeRR, FeatureRR, LabelRR

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402

FEATURES, FEATURES_FIXED = (4.0, 16.0, 64.0), 64.0
EDGES, EDGES_FIXED = (0.5, 1.0, 4.0), 1.0
BOTH, PUBLIC, NONE = ('FeatureRR and EdgeRR', 'FeatureRR, public edges only',
                      'FeatureRR, no edges')
TWO_HOPS = ', two hops'
RAW, NOTHING = 'raw graph', 'noise for features, public edges only'


@dataclass
class Task:
    """Graphs with masks for training, validation and test, and what is public
    about them.
    """
    graphs: list
    num_classes: int
    bounds: Any
    note: str
    two_hops: bool = True  # Whether all pairs two steps apart are not too many.


def digits():
    return Task([split(load('digits'))], 10, (0.0, 1.0),
                'The edges were computed from the pixels: the public ones tell '
                'more about these than the ledger can know')


def cora():
    """Words, embedded by a truncated SVD of a fifth of the rows, which are
    public and leave the graph.
    """
    data = load('cora')
    order = torch.randperm(data.num_nodes,
                           generator=torch.Generator().manual_seed(0))
    public = data.x[order[:data.num_nodes // 5]]
    projection = torch.linalg.svd(public, full_matrices=False)[2][:32].t()
    data = data.subgraph(order[data.num_nodes // 5:])
    data.x = data.x @ projection
    bounds = tuple((public @ projection).quantile(q, dim=0)
                   for q in (0.01, 0.99))
    return Task([split(data)], 7, bounds,
                'A fifth of the rows is public: it gave embedding and bounds')


def ppi():
    """Columns are standardised, so one standard deviation to either side holds
    most of each; a wider range would have more noise.
    """
    graphs = []
    for part in ('train', 'val', 'test'):
        for data in PPI('.cache/PPI', part):
            for name in ('train', 'val', 'test'):
                data[f'{name}_mask'] = torch.full((data.num_nodes, ),
                                                  name == part)
            graphs.append(data)
    return Task(graphs, 121, (-1.0, 1.0),
                'Each ledger speaks for one graph. The graphs are tissues of '
                'one organism: a protein that is in several of them loses the '
                'sum of their epsilons', two_hops=False)


def split(data):
    """A tenth of the nodes for training, a tenth for validation."""
    order = torch.randperm(data.num_nodes,
                           generator=torch.Generator().manual_seed(1))
    tenth = data.num_nodes // 10
    parts = order[:tenth], order[tenth:2 * tenth], order[2 * tenth:]
    for name, part in zip(('train_mask', 'val_mask', 'test_mask'), parts):
        data[name] = torch.zeros(data.num_nodes, dtype=torch.bool)
        data[name][part] = True
    return data


def prepare(graphs, share, budget):
    """The raw graphs: private edges are marked, and each graph has a budget,
    which caps all that follows.
    """
    generator = torch.Generator().manual_seed(0)
    graphs = [mark_private(data, share, generator) for data in graphs]
    for data in graphs:
        data.known = data.train_mask | data.val_mask
        data.privacy_budget = PrivacyBudget(**budget)
    return graphs


def release(graphs, *transforms):
    """One release for each graph; its ledger goes with it."""
    compose = T.Compose([t for t in transforms if t is not None])
    return [compose(data) for data in graphs]


def renew(graphs, *transforms):
    """New releases, which are paid for. Whatever a transform is combined with
    later, it returns the same one of a graph, for free.
    """
    for transform in transforms:
        for data in graphs:
            transform.renew()(data)


def public_only(graphs):
    return [with_edges(data, ~data.edge_private) for data in graphs]


def micro_f1(guess, y):
    """2 TP / (2 TP + FP + FN), over all nodes and labels. Where a node has one
    label out of several, that is the accuracy.
    """
    if y.dim() == 1:
        return float((guess == y).float().mean())
    positives = int((guess == 1).sum() + (y == 1).sum())
    return 2 * int(((guess == 1) & (y == 1)).sum()) / max(1, positives)


def score(guesses, graphs, mask):
    """Micro-F1 of the nodes that a mask selects, in all graphs together."""
    return micro_f1(torch.cat([g[d[mask]] for g, d in zip(guesses, graphs)]),
                    torch.cat([d.y[d[mask]] for d in graphs]))


def predict(graphs, num_classes, seed, epochs):
    """Predicted labels of each graph, at the epoch with the best validation
    score. Reads nothing but `graphs`.
    """
    torch.manual_seed(seed)
    many = graphs[0].y.dim() == 2
    model = GCN(graphs[0].num_features, 256 if many else 64, num_layers=2,
                out_channels=num_classes, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01,
                                 weight_decay=0.0 if many else 5e-4)
    # Free, since `x` is released: all columns on one scale.
    rows = torch.cat([data.x for data in graphs])
    center, scale = rows.mean(dim=0), rows.std(dim=0).clamp(min=1e-6)
    loader = DataLoader([d for d in graphs if d.train_mask.any()],
                        batch_size=2, shuffle=True)

    def run(data):
        return model((data.x - center) / scale, data.edge_index)

    best, result = -1.0, None
    for _ in range(epochs):
        model.train()
        for batch in loader:
            out, y = run(batch)[batch.train_mask], batch.y[batch.train_mask]
            loss = (F.binary_cross_entropy_with_logits(out, y.float()) if many
                    else F.cross_entropy(out, y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            outs = [run(data) for data in graphs]
        guesses = [(out > 0).long() if many else out.argmax(dim=1)
                   for out in outs]
        value = score(guesses, graphs, 'val_mask')
        if value > best:
            best, result = value, guesses
    return result


def two_hops(graphs):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # PyG's product of sparse matrices.
        return [T.TwoHop()(data) for data in graphs]


def compare(graphs, task, args, bar):
    """Scores against both epsilons, those of the baselines, and one release.
    Everything is released once for each seed.
    """
    against_f = defaultdict(lambda: defaultdict(list))
    against_e = defaultdict(lambda: defaultdict(list))
    levels = defaultdict(list)
    for seed in range(args.seeds):
        def trained(released, seed=seed):
            guesses = predict(released, task.num_classes, seed, args.epochs)
            bar.update()
            return score(guesses, graphs, 'test_mask')  # By the true labels.

        def enter(curves, name, epsilon, released, trained=trained):
            curves[name][epsilon].append(trained(released))
            if task.two_hops:
                curves[name + TWO_HOPS][epsilon].append(
                    trained(two_hops(released)))

        features = {e: FeatureRR(e, task.bounds, decode='unbiased', clip=True)
                    for e in FEATURES}
        edges = {e: EdgeRR(e) for e in EDGES}
        labels = (None if args.epsilon_labels is None else LabelRR(
            args.epsilon_labels, task.num_classes, mask='known'))
        renew(graphs, *features.values(), *edges.values(),
              *([] if labels is None else [labels]))

        levels[RAW].append(trained(graphs))
        noise = public_only(release(graphs, labels))
        for data in noise:
            data.x = torch.rand_like(data.x)
        levels[NOTHING].append(trained(noise))
        for e, transform in features.items():
            released = release(graphs, transform, edges[EDGES_FIXED], labels)
            enter(against_f, BOTH, e, [with_edges(data, slice(None))
                                       for data in released])
            rows = release(graphs, transform, labels)
            enter(against_f, PUBLIC, e, public_only(rows))
            against_f[NONE][e].append(trained([with_edges(data, slice(0))
                                               for data in rows]))
            if e == FEATURES_FIXED:
                shown = released
        for e, transform in edges.items():
            if e != EDGES_FIXED:
                released = release(graphs, features[FEATURES_FIXED], transform,
                                   labels)
                enter(against_e, BOTH, e, [with_edges(data, slice(None))
                                           for data in released])
    for name in against_e:
        against_e[name][EDGES_FIXED] = against_f[name][FEATURES_FIXED]
    return against_f, against_e, levels, shown


def report(share, against_f, against_e, levels, metric):
    print(f'\n{share:.0%} of the edges private: test {metric}, mean and 95% '
          f'interval')
    print(f'  {RAW + ", no privacy":56s}{mean(levels[RAW])}')
    print(f'  {NOTHING + ", both at epsilon = 0":56s}{mean(levels[NOTHING])}')
    for curves, epsilons, title in (
            (against_f, FEATURES, f'epsilon of a row (of an edge: '
             f'{EDGES_FIXED:g}, where EdgeRR is)'),
            (against_e, EDGES, f'epsilon of an edge (of a row: '
             f'{FEATURES_FIXED:g})')):
        print(f'  {title:56s}' + ''.join(f'{e:<16g}' for e in epsilons))
        for name, values in curves.items():
            print(f'    {name:54s}' + ''.join(f'{mean(values[e]):16s}'
                                              for e in epsilons))


def figure(results, dataset, metric, path):
    fig, axes = plt.subplots(len(results), 2, sharey='row', squeeze=False,
                             figsize=(10.5, 1.0 + 3.6 * len(results)))
    for row, (share, (against_f, against_e, levels, _)) in zip(
            axes, results.items()):
        free = {name: sum(values) / len(values)
                for name, values in levels.items()}
        plot.intervals(against_f, free, row[0])
        # What spends nothing on edges is flat on the right, in its colour.
        plot.intervals({name: against_e.get(name) or dict.fromkeys(
            EDGES, values[FEATURES_FIXED])
            for name, values in against_f.items()}, free, row[1])
        row[0].set(xlabel='epsilon of a row', ylabel=metric,
                   title=f'{share:.0%} of the edges private, at epsilon = '
                         f'{EDGES_FIXED:g} of an edge')
        row[1].set(xlabel='epsilon of an edge', ylabel='',
                   title=f'at epsilon = {FEATURES_FIXED:g} of a row')
        for ax in row:
            ax.get_legend().remove()
    fig.suptitle(f'GCN on released features and edges, {dataset}')
    fig.legend(*axes[0][0].get_legend_handles_labels(), loc='lower center',
               ncols=3, fontsize='small')
    fig.tight_layout(rect=(0, 0.75 / fig.get_size_inches()[1], 1, 1))
    fig.savefig(path, dpi=120)


def run(task, args):
    """The whole comparison, for graphs of any number and kind."""
    start = time.perf_counter()
    many = task.graphs[0].y.dim() == 2
    metric = 'micro-F1' if many else 'accuracy'
    print(f'{args.dataset}: {len(task.graphs)} graph(s), '
          f'{sum(data.num_nodes for data in task.graphs)} nodes, '
          f'{task.graphs[0].num_features} features. {task.note}.')
    budget = {'features': args.seeds * sum(FEATURES),
              'edges': args.seeds * sum(EDGES)}
    if args.epsilon_labels is not None:
        budget['labels'] = args.seeds * args.epsilon_labels
    both = len(FEATURES) + len(EDGES) - 1
    size = (2 + both + 2 * len(FEATURES) +
            task.two_hops * (both + len(FEATURES)))
    results = {}
    with tqdm(total=len(args.shares) * args.seeds * size,
              desc='release and train') as bar:
        for share in args.shares:
            graphs = prepare(task.graphs, share, budget)
            results[share] = compare(graphs, task, args, bar)

    for share, (against_f, against_e, levels, _) in results.items():
        report(share, against_f, against_e, levels, metric)
    released = results[args.shares[-1]][-1]
    print(f'\nThe ledger of one release, of the first graph '
          f'({args.shares[-1]:.0%} private)')
    print(released[0].privacy)
    every = PrivacyAccountant.merge(data.privacy for data in released)
    totals = {kind: every.epsilon(kind)
              for kind in ('features', 'labels', 'edges')}
    print('\nThe largest among the ledgers of all graphs: ' +
          ', '.join(f'{kind} {total:g}' for kind, total in totals.items()))
    print('The budget of the first graph after all releases\n'
          f'{graphs[0].privacy_budget}')
    figure(results, args.dataset, metric, args.figure)
    print(f'\nFigure saved as {args.figure} '
          f'({time.perf_counter() - start:.0f} s in all)')


TASKS = {'digits': digits, 'cora': cora, 'ppi': ppi}
SHARES = {'digits': [0.6], 'cora': [0.6], 'ppi': [0.05, 0.1, 0.2]}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--dataset', choices=list(TASKS), default='digits')
    parser.add_argument('--shares', type=float, nargs='+',
                        help='private shares of the edges')
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--epochs', type=int, default=50)
    parser.add_argument('--epsilon-labels', type=float,
                        help='epsilon of the labels of a node (default: they '
                        'are public)')
    parser.add_argument('--figure', default='heterorr.png')
    args = parser.parse_args(arguments)
    args.shares = args.shares or SHARES[args.dataset]
    run(TASKS[args.dataset](), args)


if __name__ == '__main__':
    main()
