"""Who was in the training graph: NIP-GNN's Table 4, beside models that have no
privacy, and beside what epsilon itself rules out.

    python -m benchmarks.member_table --graphs cora citeseer --seeds 5

It goes on where it stopped, and writes members.json, members.md and members.png
into the folder --out. Half of the nodes, drawn with the seed, are the
attacker's own. Half of the others are members: the model is trained on their
subgraph, and asked about the graph of members and others. So every model has a
quarter of all nodes to train on.
"""
import argparse
import json
from functools import lru_cache, partial
from pathlib import Path

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN
from tqdm import tqdm

from benchmarks import baselines
from benchmarks.nip_table import (
    CAP,
    DELTA,
    EPOCHS,
    GRAPHS,
    HOPS,
    NARROW,
    NIP,
    OURS,
    PROJECTION,
    graph_of,
)
from benchmarks.seeds import mean
from torch_geometric_dp.attacks import MembershipInference
from torch_geometric_dp.nn.models import NIPGNN, ClassSumClassifier
from torch_geometric_dp.nn.models.nip_gnn import public_signs
from torch_geometric_dp.plot import interval
from torch_geometric_dp.transforms import BoundDegree

matplotlib.use('Agg')

EPSILON = 4.0
SHADOWS = {'one': 1, 'four': 4}
NUMBERS = ('balanced accuracy', 'AUC', 'TPR at 1% FPR')
CONTROLS = ('majority class', 'list of its rows')
FREE = {'MLP, overfitted': {'edges': False},
        'GCN, overfitted': {'edges': True},
        'GCN, regularised': {'edges': True, 'width': 32, 'epochs': 60,
                             'dropout': 0.5, 'weight_decay': 5e-4}}
PRIVATE = ('DP-MLP', 'GAP-style', f'{OURS}, pure', OURS)
THEIRS = ('DP-SAGE', 'DPDGC')  # Published, and not built here.
METHODS = (*CONTROLS, *FREE, *PRIVATE, 'NIP-GNN', 'NIP-GNN, paper',
           'w/o A-a')
PUBLISHED = {  # Table 4, with its intervals; DP-MLP and GAP are theirs.
    'cora': {'DP-SAGE': '50.09 ± 1.06', 'DPDGC': '49.58 ± 1.44',
             'DP-MLP': '49.78 ± 3.03', 'GAP-style': '50.12 ± 2.17',
             'w/o A-a': '50.21 ± 1.91', 'NIP-GNN': '49.95 ± 1.30'},
    'citeseer': {'DP-SAGE': '49.15 ± 1.45', 'DPDGC': '50.76 ± 0.57',
                 'DP-MLP': '51.18 ± 0.77', 'GAP-style': '48.04 ± 1.41',
                 'w/o A-a': '49.98 ± 1.32', 'NIP-GNN': '49.01 ± 0.25'},
    'lastfm': {'DP-SAGE': '49.42 ± 0.36', 'DPDGC': '49.50 ± 0.89',
               'DP-MLP': '50.67 ± 0.57', 'GAP-style': '48.99 ± 0.69',
               'w/o A-a': '50.25 ± 1.39', 'NIP-GNN': '48.23 ± 0.33'},
    'facebook': {'DP-SAGE': '50.09 ± 2.03', 'DPDGC': '49.58 ± 1.44',
                 'DP-MLP': '51.32 ± 1.26', 'GAP-style': '50.12 ± 2.17',
                 'w/o A-a': '49.18 ± 1.14', 'NIP-GNN': '48.01 ± 1.30'},
}


def majority(graph, classes):
    """How frequent each class is, for everybody."""
    shares = graph.y.bincount(minlength=classes) / graph.num_nodes
    return lambda other: shares.expand(other.num_nodes, classes)


def list_of_rows(graph, classes):
    """The class of each row that is on the list, and the same for all others:
    what leaks everything.
    """
    known = {row.numpy().tobytes(): int(y) for row, y in zip(graph.x, graph.y)}

    def model(other):
        out = torch.zeros(other.num_nodes, classes)
        for i, row in enumerate(other.x):
            y = known.get(row.numpy().tobytes())
            if y is not None:
                out[i, y] = 10.0
        return out

    return model


def network(graph, classes, edges, width=64, epochs=80, dropout=0.0,
            weight_decay=0.0):
    """Two layers, without privacy; by default, until nothing is left to
    learn.
    """
    def inputs(other):
        return (F.normalize(other.x, dim=1),
                other.edge_index if edges else other.edge_index[:, :0])

    net = GCN(graph.num_features, width, 2, classes, dropout=dropout)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02,
                                 weight_decay=weight_decay)
    rows = inputs(graph)
    for _ in range(epochs):
        optimizer.zero_grad()
        F.cross_entropy(net(*rows), graph.y).backward()
        optimizer.step()
    net.eval()
    return lambda other: net(*inputs(other))


def class_sums(graph, classes, delta):
    model = ClassSumClassifier(graph.num_features, classes, EPSILON, delta)
    model.fit(graph)
    assert model.privacy.epsilon('node') == EPSILON
    return lambda other: model(other.x)


def nip(graph, classes, calibration, options):
    """The graph that is asked about is released anew, and the weights are those
    that were trained. That costs the nodes that are asked about, and tells
    nothing about who is a member.
    """
    def build(released, epochs):
        cap = CAP
        if calibration == 'paper':  # Read off private data, as published.
            cap = max(1, int(released.edge_index[0].bincount().max()))
        model = NIPGNN(PROJECTION, classes, EPSILON, cap, hops=HOPS,
                       epochs=epochs, calibration=calibration, **options)
        return model.fit(BoundDegree(cap)(released))

    trained = build(graph.clone(), EPOCHS)
    spent = (trained.privacy.epsilon('node') if calibration == 'proven' else
             trained.privacy.claimed_epsilon('node'))
    assert spent == EPSILON

    def model(other):
        other = other.clone()
        other.y = torch.zeros(other.num_nodes, dtype=torch.long)
        other.train_mask = torch.ones(other.num_nodes, dtype=torch.bool)
        deployed = build(other, 0)
        deployed.load_state_dict(trained.state_dict())
        return deployed()

    return model


def dp_sgd(graph, classes, train):
    # Weights start anew in each model: the attacker has not seen the target's.
    assert int(graph.y.max()) + 1 == classes
    return train(graph, EPSILON, DELTA, int(torch.randint(2**31, ())))


def recipe(method, classes):
    """How a model is trained: from a graph to a model."""
    name = method.removesuffix(', paper')
    calibration = 'proven' if name == method else 'paper'
    fit, options = {
        'majority class': (majority, {}),
        'list of its rows': (list_of_rows, {}),
        'DP-MLP': (dp_sgd, {'train': baselines.dp_mlp}),
        'GAP-style': (dp_sgd, {'train': baselines.gap}),
        OURS: (class_sums, {'delta': DELTA}),
        f'{OURS}, pure': (class_sums, {'delta': None}),
        **{key: (network, value) for key, value in FREE.items()},
        **{key: (nip, {'calibration': calibration, 'options': value})
           for key, value in NIP.items()},
    }[name]
    return partial(fit, classes=classes, **options)


def columns(method):
    """To how many columns the rows are mapped by public random signs; all, if
    none.
    """
    if method.startswith(('NIP', 'w/o')):
        return PROJECTION
    return NARROW if method in (*FREE, *PRIVATE[:2]) else None


@lru_cache(maxsize=3)
def form(name, count):
    data = graph_of(name).clone()
    if count is not None:
        data.x = data.x @ public_signs(data.num_features, count)
    return data


def once(fit):
    """The one shadow is the first of the four, so it is trained once."""
    models = {}

    def remembered(graph):
        key = graph.x.numpy().tobytes()
        if key not in models:
            models[key] = fit(graph)
        return models[key]

    return remembered


def halves(data, seed):
    """A copy with the attacker's nodes and, among the others, the members."""
    data, half = data.clone(), data.num_nodes // 2
    order = torch.randperm(data.num_nodes,
                           generator=torch.Generator().manual_seed(seed))
    for name, part in (('shadow_mask', order[:half]),
                       ('train_mask', order[half:half + half // 2])):
        data[name] = torch.zeros(data.num_nodes, dtype=torch.bool)
        data[name][part] = True
    return data


def result(name, method, seed):
    """What the attacks find for one seed, and how good the model is."""
    torch.manual_seed(seed)
    data = halves(form(name, columns(method)), seed)
    classes = int(data.y.max()) + 1
    fit, answers = once(recipe(method, classes)), []
    trained = fit(data.subgraph(data.train_mask))

    def target(graph):  # Answers once, and then the same to everybody.
        if not answers:
            answers.append(trained(graph))
        return answers[0]

    found = {}
    for shadows, count in SHADOWS.items():
        report = MembershipInference(fit, num_shadows=count,
                                     seed=seed).run(target, data)
        found |= {f'{shadows}|{key}': report[key] for key in NUMBERS}
        found |= {f'{shadows}|{key}|control': report.baseline[key]
                  for key in NUMBERS}
    member = data.train_mask[~data.shadow_mask]
    right = (answers[0].argmax(dim=1) == data.y[~data.shadow_mask]).float()
    return found | {'train': float(right[member].mean()),
                    'test': float(right[~member].mean())}


def table(results, name, seeds):
    head = ['', 'published', 'accuracy', 'AUC', 'TPR at 1% FPR',
            'accuracy, 4 shadows', 'AUC, 4 shadows', 'TPR, 4 shadows',
            'control', 'right on members', 'right on others']
    lines = ['| ' + ' | '.join(head) + ' |', '|---' * len(head) + '|']
    keys = [*(f'{shadows}|{key}' for shadows in SHADOWS for key in NUMBERS),
            'four|balanced accuracy|control', 'train', 'test']
    for method in METHODS:
        rows = results.get(f'{name}|{method}', [])
        if not rows:
            continue
        printed = PUBLISHED.get(name, {}).get(method, '')
        label = method if len(rows) >= seeds else f'{method} ({len(rows)})'
        lines.append(f'| {label} | {printed} | ' +
                     ' | '.join(mean([row[key] for row in rows])
                                for key in keys) + ' |')
    for method in THEIRS:
        printed = PUBLISHED.get(name, {}).get(method, '')
        lines.append(f'| *{method}* | {printed} |' + ' |' * len(keys))
    limits = [MembershipInference.bounds(EPSILON, DELTA)[key]
              for key in NUMBERS]
    limits = [f'{100 * value:.1f}' for value in limits]
    lines.append(f'| any attack at epsilon = {EPSILON:g}, at most | | ' +
                 ' | '.join(2 * limits) + ' | 50 | | |')
    return '\n'.join(lines) + '\n'


def figure(results, graphs, path):
    """Accuracy and TPR of the attack, and the accuracy of the model."""
    import matplotlib.pyplot as plt
    fig, axes = plt.subplots(len(graphs), 3, figsize=(13, 4.2 * len(graphs)),
                             squeeze=False, sharex='col', sharey='row')
    limits = MembershipInference.bounds(EPSILON, DELTA)
    panels = (('balanced accuracy', 'balanced accuracy of the attack'),
              ('TPR at 1% FPR', 'members found at 1% false alarms'))
    for row, name in zip(axes, graphs):
        shown = [m for m in METHODS if results.get(f'{name}|{m}')]
        place = np.arange(len(shown))
        for ax, (key, label) in zip(row, panels):
            for i, shadows in enumerate(SHADOWS):
                values = [[100 * each[f'{shadows}|{key}']
                           for each in results[f'{name}|{m}']] for m in shown]
                ax.errorbar([np.mean(v) for v in values],
                            place + 0.24 * i - 0.12,
                            xerr=np.nan_to_num([interval(v) for v in values]),
                            fmt='o', ms=4, capsize=2, color=f'C{i}',
                            label=f'{shadows} shadow{"s" * i}')
            chance = 50 if key == 'balanced accuracy' else 1
            ax.axvline(chance, color='gray', ls=':', label='guessing')
            ax.axvline(100 * limits[key], color='gray', ls='--',
                       label=f'most at epsilon = {EPSILON:g}')
            ax.set_xlabel(f'{label} in percent')
            ax.tick_params(labelbottom=True)
        printed = PUBLISHED.get(name, {})
        at = [i for i, m in enumerate(shown) if m in printed]
        row[0].plot([float(printed[shown[i]].split()[0]) for i in at], at,
                    'kx', ms=6, zorder=5, label='published')
        row[2].barh(place, [100 * np.mean([
            each['test'] for each in results[f'{name}|{m}']]) for m in shown],
            color='lightgray')
        row[2].set_xlabel('test accuracy of the model in percent')
        row[2].tick_params(labelbottom=True)
        row[0].set_yticks(place, [m.replace('w/o', 'NIP-GNN w/o')
                                  for m in shown])
        row[0].invert_yaxis()
        row[0].set_title(name, loc='left')
    axes[0, 0].legend(fontsize='small', loc='center right',
                      bbox_to_anchor=(0.9, 0.4))
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--graphs', nargs='*', default=['cora', 'citeseer'],
                        choices=GRAPHS)
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--methods', nargs='*', default=METHODS,
                        choices=METHODS, help='none: write what is there')
    parser.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    store = args.out / 'members.json'
    results = json.loads(store.read_text()) if store.exists() else {}
    todo = [(name, method, seed) for name in args.graphs
            for seed in range(args.seeds) for method in args.methods]
    for name, method, seed in tqdm(todo, desc='cells'):
        rows = results.setdefault(f'{name}|{method}', [])
        if len(rows) <= seed:
            rows.append(result(name, method, seed))
            store.write_text(json.dumps(results, indent=1))
    graphs = [name for name in GRAPHS
              if any(key.startswith(f'{name}|') for key in results)]
    text = (
        f'# Who was in the training graph, at epsilon = {EPSILON:g}\n\n'
        f'All numbers in percent: mean and 95% interval (Student) over '
        f'{args.seeds} seeds; in brackets, over how many, where fewer. Half of '
        f'the nodes are the attacker\'s own, a quarter are members, a quarter '
        f'are not; all by lot. "Accuracy" is that of the attack on members and '
        f'others, half and half: guessing gets 50. Without "4 shadows", it is '
        f'the attack of the paper (train on subgraph, test on full graph) with '
        f'one shadow model. "Control" is the attack with 4 shadows on a model '
        f'that saw none of the candidates. "Right on members" and "right on '
        f'others" is how often the model itself is right about them.\n\n'
        f'"List of its rows" leaks all, on purpose, and the majority class '
        f'(the shares of the classes) next to nothing; these and the next '
        f'three have no privacy. "Paper" is the published calibration of '
        f'NIP-GNN, for which nothing is proven. '
        f'Delta is {DELTA:g} for DP-MLP, GAP-style and {OURS}, and zero for '
        f'the others with privacy. Networks see {NARROW} random combinations '
        f'of the columns, and NIP-GNN sees {PROJECTION}. Published: as '
        f'printed in Table 4, for models that are not ours; '
        f'{" and ".join(THEIRS)} were not built here. For LastFM and Facebook, '
        f'which were not attacked here, it prints 48.0 to 51.3.\n\n'
        f'**How to read it.** A model that predicts noise has nothing to give '
        f'away: 50 beside a test accuracy below the majority class says '
        f'nothing about privacy. And 50 is not what epsilon = {EPSILON:g} '
        f'proves: the last row is.\n\n'
        f'Made by `python -m benchmarks.member_table --seeds {args.seeds}`.'
        f'\n\n![What the attack finds](members.png)\n\n')
    for name in graphs:
        text += f'### {name}\n\n{table(results, name, args.seeds)}\n'
    (args.out / 'members.md').write_text(text)
    figure(results, graphs, args.out / 'members.png')
    print(text)


if __name__ == '__main__':
    main()
