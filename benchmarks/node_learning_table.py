"""Learning about whole people: test accuracy against a node's epsilon, where
rows, labels and edges are all private.

    python -m benchmarks.node_learning_table
    python -m benchmarks.node_learning_table --graphs Amherst41 --seeds 3

It goes on where it stopped, and writes node_learning.json, node_learning.md and
node_learning.png into the folder --out. After a change of a method, run its
cells again with --again. Settings are the same for all graphs, and nothing is
chosen on test labels in a run.
"""
import warnings

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch

from benchmarks import baselines, resumable
from benchmarks.dp_descent import dp_descent
from benchmarks.dp_sgd import dp_sgd
from benchmarks.dpdgc import dpdgc
from benchmarks.edge_learning_graphs import DENSE, GRAPHS, load
from benchmarks.edge_learning_table import majority, mlp, score
from benchmarks.machine import machine
from benchmarks.node_gap import node_gap
from benchmarks.seeds import mean
from torch_geometric_dp import plot
from torch_geometric_dp.nn.models import (
    NIPGNN,
    ClassSumClassifier,
    NeighbourVotes,
)
from torch_geometric_dp.transforms import BoundDegree

matplotlib.use('Agg')

EPSILONS = (2.0, 4.0, 8.0, 16.0)
DELTA = 1e-5  # Below one over the number of nodes, for all graphs here.
CAP, FEW = 100, 10  # Of degrees, for votes, and for what hears rows.
NO_NOISE = 1e5  # An epsilon at which there is nearly none.
CLASS_SUMS = 'ClassSumClassifier, no edges'
VOTES = {'votes, 1 edge': dict(edges=1), 'votes, 5 edges': dict(edges=5),
         f'votes, all edges, at most {CAP}': dict(max_degree=CAP)}
FIRST = next(iter(VOTES))


def classes(data):
    return int(data.y.max()) + 1


def cut(data, cap, seed):
    return BoundDegree(cap, on_excess='drop', seed=seed)(data)


def class_sums(data, epsilon, seed):
    model = ClassSumClassifier(data.num_features, classes(data), epsilon,
                               DELTA, relation='replace', seed=seed).fit(data)
    assert model.privacy.epsilon('node', relation='replace') == epsilon
    return score(data, model.predict(data))


def votes(**unit):
    def run(data, epsilon, seed):
        if 'max_degree' in unit:
            data = cut(data, CAP, seed)
        model = NeighbourVotes(data.num_features, classes(data), epsilon,
                               unit='node', delta=DELTA, seed=seed, **unit)
        out = model.fit(data).predict(data)
        how = dict(edges=unit['edges']) if 'edges' in unit else dict(
            relation='replace')
        assert model.privacy.epsilon('node', **how) == epsilon
        return score(data, out)
    return run


def nip_gnn(data, epsilon, seed):
    """With an encoder that is paid for: half of epsilon each."""
    torch.manual_seed(seed)
    encoder = ClassSumClassifier(data.num_features, classes(data), epsilon / 2,
                                 DELTA, seed=seed).fit(data)
    model = NIPGNN(data.num_features, classes(data), epsilon / 2, FEW,
                   encoder=encoder, seed=seed)
    data = cut(data, FEW, seed)
    return score(data, model.fit(data).predict(data))


FREE = {
    'majority class': majority,
}
PRIVATE = {
    'DP gradient descent, linear, no edges': lambda data, epsilon, seed: score(
        data, dp_descent(data, epsilon, DELTA, seed, sensitivity=2.0)),
    'DP-SGD, MLP, no edges': lambda data, epsilon, seed: score(
        data, dp_sgd(data, epsilon, DELTA, seed, 0, FEW)),
    f'DP-SGD, SAGE, at most {FEW} edges': lambda data, epsilon, seed: score(
        data, dp_sgd(data, epsilon, DELTA, seed, 1, FEW)),
    f'GAP-style, at most {FEW} edges': lambda data, epsilon, seed: score(
        data, node_gap(data, epsilon, DELTA, seed, FEW)),
    'DPDGC-style, 1 edge': lambda data, epsilon, seed: score(
        data, dpdgc(data, epsilon, DELTA, seed, 1)),
    f'NIP-GNN, at most {FEW} edges': nip_gnn,
    CLASS_SUMS: class_sums,
    **{name: votes(**unit) for name, unit in VOTES.items()},
}
WITHOUT = {
    'MLP, no privacy': mlp,
    'votes, no privacy': lambda data, epsilon, seed: votes(edges=1)(
        data, NO_NOISE, seed),
    'GCN, no privacy': lambda data, epsilon, seed: baselines.gcn(data, seed),
}
METHODS = {**FREE, **PRIVATE, **WITHOUT}
MAIN = ('majority class', CLASS_SUMS, *VOTES, 'MLP, no privacy')


def cells(graphs, methods, epsilons):
    order = [name for name in MAIN if name in methods]
    order += [name for name in methods if name not in MAIN]
    for name in order:
        for graph in graphs:
            for epsilon in epsilons if name in PRIVATE else (None, ):
                yield graph, name, epsilon


def result(graph, name, epsilon, seed):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return METHODS[name](load(graph, 1.0, seed), epsilon, seed)


def key(graph, name, epsilon):
    return str((graph, name, epsilon))


def found(results, *cell):
    return results.get(key(*cell), [])


def here(results):
    return [graph for graph in GRAPHS if any(
        found(results, graph, name, epsilon) for name in METHODS
        for epsilon in (None, *EPSILONS))]


def table(results, graph):
    counts = {len(found(results, graph, name, epsilon)) for name in METHODS
              for epsilon in (None, *EPSILONS)} - {0}
    split = '75/10/15%' if graph in DENSE else '10/10/80%'
    text = (f"## {graph}\n\n{'/'.join(map(str, sorted(counts)))} seeds, "
            f"{split} of the nodes for training, validation and testing.\n\n"
            f'| | no epsilon | ' + ' | '.join(f'epsilon {e:g}'
                                              for e in EPSILONS)
            + ' |\n' + '|---' * (len(EPSILONS) + 2) + '|\n')
    for name in METHODS:
        row = [found(results, graph, name, epsilon)
               for epsilon in (None, *EPSILONS)]
        if any(row):
            label = f'**{name}**' if name in VOTES else name
            text += f'| {label} | ' + ' | '.join(
                mean(values) if values else '' for values in row) + ' |\n'
    return text + '\n'


def goals(results):
    """At epsilon 8: schools above 75 with one edge; nowhere below what reads
    no edges, but for the spread of both.
    """
    text = ('| at epsilon 8 | ClassSumClassifier | ' + ' | '.join(VOTES)
            + ' | above 75 (1 edge) | below ClassSumClassifier |\n'
            + '|---' * (len(VOTES) + 4) + '|\n')
    for graph in here(results):
        rows = [found(results, graph, name, 8.0)
                for name in (CLASS_SUMS, *VOTES)]
        if not all(rows):
            continue
        base, *ours = rows
        low = [name for name, values in zip(VOTES, ours)
               if np.mean(values) + plot.interval(values)
               < np.mean(base) - plot.interval(base)] if len(base) > 1 else []
        school = ('yes' if np.mean(ours[0]) > 0.75 else 'no'
                  ) if graph in DENSE else ''
        text += (f'| {graph} | ' + ' | '.join(map(mean, rows))
                 + f" | {school} | {', '.join(low) or 'no'} |\n")
    return text + '\n'


def figure(results):
    graphs = here(results)
    columns = min(4, len(graphs))
    rows = -(-len(graphs) // columns)
    fig, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.6 * rows),
                             squeeze=False)
    handles = {}
    for ax, graph in zip(axes.flat, graphs):
        curves = {name: {e: found(results, graph, name, e) for e in EPSILONS
                         if found(results, graph, name, e)}
                  for name in (CLASS_SUMS, *VOTES)}
        levels = {name: np.mean(found(results, graph, name, None)
                                or [float('nan')])
                  for name in ('majority class', 'MLP, no privacy',
                               'votes, no privacy')}
        plot.intervals(curves, levels, ax=ax)
        ax.set(title=graph)
        handles.update(zip(*ax.get_legend_handles_labels()[::-1]))
        ax.get_legend().remove()
    for ax in axes.flat[len(graphs):]:
        ax.remove()
    fig.legend(handles.values(), handles.keys(), loc='lower center',
               ncols=min(4, len(handles)), frameon=False)
    fig.tight_layout(rect=(0, 0.5 / rows / 3.6 + 0.03, 1, 1))
    return fig


def report(results):
    versions = ', '.join(f'{k} {v}' for k, v in machine().items()
                         if k in ('python', 'torch', 'torch-geometric'))
    text = (
        f'# Whole people: test accuracy in percent\n\nMean and 95% t-interval '
        f'over seeds, each with its own split, shuffled node numbers and '
        f'noise. Rows, labels and edges are private, delta is {DELTA:g}, who '
        f'is in the training set is public. Epsilon is for a person whose row '
        f'and label are replaced: with 1 or 5 edges that change, or with all '
        f'of them, at most {CAP} or {FEW}, where degrees were cut before, and '
        f'neighbouring graphs are compared after that. For NIP-GNN and DP-SGD '
        f'it is for a person who comes or goes, which is the weaker promise, '
        f'in their favour. GAP-style and DPDGC-style are our own, with noise '
        f'that their promise needs. Predictions are for the person whom they '
        f'are about (joint privacy); those of DP-SGD with edges read the raw '
        f'rows of neighbours, which it does not cover, in its favour. Empty: '
        f'not run.\nMade by `python -m benchmarks.node_learning_table`, with '
        f'{versions}.\n\n![accuracy](node_learning.png)\n\n## Goals\n\n'
        f'{goals(results)}')
    for graph in here(results):
        text += table(results, graph)
    return text + PUBLISHED


PUBLISHED = """\
## Published

What others have published for whole people, on another school of the same kind,
and what their epsilon is in our unit, stands in [published.md](published.md).
"""


def write(results, out):
    (out / 'node_learning.md').write_text(report(results))
    fig = figure(results)
    fig.savefig(out / 'node_learning.png', dpi=110)
    plt.close(fig)


def main(arguments=None):
    parser = resumable.parser(__doc__, GRAPHS, EPSILONS)
    parser.add_argument('--methods', nargs='*', default=list(METHODS),
                        choices=METHODS)
    parser.add_argument('--again', nargs='*', default=[], choices=METHODS,
                        help='methods whose cells are run again')
    args = parser.parse_args(arguments)
    store = args.out / 'node_learning.json'
    results = resumable.load(store)
    todo = list(cells(args.graphs, args.methods, args.epsilons))
    for cell in todo:
        if cell[1] in args.again:
            results.pop(key(*cell), None)
    resumable.fill(results, store, todo, key, result, args.seeds)
    if results:
        write(results, args.out)


if __name__ == '__main__':
    torch.set_num_threads(1)
    main()
