"""What LinkTeller finds of the private edges behind a served GCN: without
privacy, and with edges that were released.

    python -m benchmarks.link_table --graphs digits cora --seeds 5

It goes on where it stopped, and writes links_<graph>.json, links.md and
links.png into the folder --out. A GCN of two layers is trained on the served
edges, and answers with its logits, or with probabilities. Features and labels
are public, and so are the edges outside of the private share.
"""
import argparse
import json
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN
from torch_geometric.utils import index_to_mask
from tqdm import tqdm

from benchmarks.edge_table import load
from benchmarks.seeds import mean
from torch_geometric_dp import plot, transforms
from torch_geometric_dp.attacks import LinkTeller
from torch_geometric_dp.attacks.link_teller import similarities
from torch_geometric_dp.graph.pairs import (
    contains,
    pair_numbers,
    to_pairs,
)

matplotlib.use('Agg')

SHARES = (0.3, 1.0)
EPSILONS = (0.1, 0.25, 0.5, 1.0)
PROBES = 600
RAW = ('all edges', 'all edges, probabilities')
FREE = 'public edges only'
RELATIVE = ', relative'  # Influence, to that of nodes on themselves.
RELEASES = {
    'EdgeRR': (transforms.EdgeRR, EPSILONS),
    'EdgeRR, guided': (lambda epsilon: transforms.EdgeRR(epsilon, guide='knn'),
                       (1.0, )),
    'LapGraph': (transforms.LapGraph, (1.0, 8.0)),
    # Below, a GCN drowns in edges.
    'EdgeRand': (transforms.EdgeRand, (8.0, )),
}
MAIN = (RAW[0], FREE, 'EdgeRR')
NUMBERS = ('AUC', 'precision at the true density', 'TPR at 1% FPR')
FAR = 'AUC of far pairs'
# Half of the private edges, by a coin for each, is not in the graph at all.
HALVED = (('all edges', 0.3, None), ('EdgeRR', 0.3, 0.1), ('EdgeRR', 0.3, 1.0))
PUBLISHED = ('HeteroRR prints, for FLICKR-MIR, an AUC of 0.91 without privacy, '
             'and of 0.52 to 0.54 with EdgeRR at epsilon in [0.1, 1].')


def cells():
    """The names, shares and epsilons of all rows."""
    for share in SHARES:
        yield RAW[0], share, None
        if share < 1:  # Without public edges, no node sees another.
            yield RAW[1], share, None
            yield FREE, share, None
        for name, (_, epsilons) in RELEASES.items():
            yield from ((name, share, epsilon) for epsilon in epsilons)
        yield RAW[0] + RELATIVE, share, None
        if share < 1:
            yield RAW[1] + RELATIVE, share, None
            yield FREE + RELATIVE, share, None
        yield 'EdgeRR' + RELATIVE, share, 1.0


def served(data, name, epsilon):
    """The graph that the server trains on, and holds."""
    if name in RAW:
        return data
    if name == FREE:
        out = data.clone()
        out.edge_index = data.edge_index[:, ~data.edge_private]
        return out
    out = RELEASES[name][0](epsilon)(data)
    assert out.privacy.epsilon('edges') == epsilon
    return out


def trained(data, seed, epochs=100):
    """A GCN without privacy, as everybody trains it, and its accuracy."""
    torch.manual_seed(seed)
    model = GCN(data.num_features, 16, 2, int(data.y.max()) + 1, dropout=0.5,
                cached=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01,
                                 weight_decay=5e-4)
    train = data.train_mask
    for _ in range(epochs):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        F.cross_entropy(out[train], data.y[train]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = model(data.x, data.edge_index).argmax(dim=1) == data.y
    return model, float(right[data.test_mask].float().mean())


def attacked(data, name, epsilon, seed):
    """What is served, how accurate it is, the attack, and what it found."""
    what = name.removesuffix(RELATIVE)
    graph = served(data, what, epsilon)
    model, accuracy = trained(graph, seed)

    def target(x):
        out = model(x, graph.edge_index)
        return out.softmax(dim=1) if what == RAW[1] else out

    attack = LinkTeller(PROBES, relative=what != name, seed=seed)
    return graph, accuracy, attack, attack.run(target, data)


def result(graph, name, share, epsilon, seed):
    """All numbers of one attack."""
    data = load(graph, share, seed)
    graph, accuracy, attack, report = attacked(data, name, epsilon, seed)
    pairs, truth = attack.candidates(data)
    near = near_in_public(data, pairs)
    alike = similarity(data, pairs)
    found, private = (to_pairs(part.edge_index[:, part.edge_private])
                      for part in (graph if epsilon else data, data))
    return {**report.numbers, 'baseline': dict(report.baseline),
            'accuracy': accuracy, 'edges': int(truth.sum()),
            'pairs': len(truth), 'near': float(near[truth].mean()),
            FAR: auc(truth[~near], report.scores[~near]),
            f'baseline {FAR}': auc(truth[~near], alike[~near]),
            'released': len(found) if epsilon else None,
            'true': int(contains(private, found).sum()) if epsilon else None}


def like_with_like(graph, name, share, epsilon, seed):
    """The AUC of private edges in the graph against private edges that were
    taken out of it by a coin: they are alike in all else.
    """
    data = load(graph, share, seed)
    coin = torch.Generator().manual_seed(1000 + seed)  # Not that of `load`.
    out = torch.rand(data.num_edges // 2, generator=coin) < 0.5
    out = torch.cat([out, out]) & data.edge_private
    withheld = to_pairs(data.edge_index[:, out])
    data.edge_index = data.edge_index[:, ~out]
    data.edge_private = data.edge_private[~out]
    _, _, attack, report = attacked(data, name, epsilon, seed)
    pairs, truth = attack.candidates(data)
    alike = truth | contains(withheld, pair_numbers(pairs))
    return {'AUC': auc(truth[alike], report.scores[alike]),
            'in': int(truth.sum()), 'out': int((alike & ~truth).sum())}


def similarity(data, pairs):
    """What the baseline has for each of the pairs."""
    nodes = pairs.unique()
    public = to_pairs(data.edge_index[:, ~data.edge_private])
    places = torch.searchsorted(nodes, pairs)
    return similarities(data.x, public, nodes)[pair_numbers(places)]


def near_in_public(data, pairs):
    """Which pairs are joined by two public edges."""
    edges, near = data.edge_index[:, ~data.edge_private], []
    order = edges[0].argsort(stable=True)
    neighbours = edges[1][order].split(
        edges[0].bincount(minlength=data.num_nodes).tolist())
    for u in pairs[1].unique().tolist():
        reached = torch.cat([neighbours[w] for w in neighbours[u].tolist()] +
                            [torch.empty(0, dtype=torch.long)])
        mask = index_to_mask(reached, data.num_nodes)
        near.append(mask[pairs[0][pairs[1] == u]])
    # Pairs stand in the order of their larger node.
    return torch.cat(near).numpy()


def auc(truth, scores):
    from sklearn.metrics import roc_auc_score
    return float(roc_auc_score(truth, scores)) if truth.any() else None


def entry(values, digits=3):
    values = [value for value in values if value is not None]
    return mean(values, digits, factor=1) if values else ''


def table(results, share):
    rows = {cell: results[str(cell)] for cell in cells() if cell[1] == share
            and results.get(str(cell))}
    some = next(iter(rows.values()))
    text = (f'### {share:.0%} of the edges private\n\n'
            f'{np.mean([row["edges"] for row in some]):.0f} private edges '
            f'among {np.mean([row["pairs"] for row in some]):,.0f} pairs.\n\n'
            '| served | epsilon | seeds | ' + ' | '.join(NUMBERS) + f' | {FAR} '
            '| released, of them true | accuracy |\n' + '|---' * 9 + '|\n')
    for (name, _, epsilon), values in rows.items():
        shown = [entry([value[key] for value in values]) for key in NUMBERS]
        released = '' if epsilon is None else (
            f'{np.mean([value["released"] for value in values]):.0f}, '
            f'{np.mean([value["true"] for value in values]):.1f}')
        text += (f'| {name} | {"" if epsilon is None else f"{epsilon:g}"} '
                 f'| {len(values)} | ' + ' | '.join(shown) +
                 f' | {entry([value[FAR] for value in values])} | {released} '
                 f'| {entry([100 * v["accuracy"] for v in values], 1)} |\n')
    free = [entry([value['baseline'][key] for value in some])
            for key in NUMBERS]
    free.append(entry([value[f'baseline {FAR}'] for value in some]))
    text += (f'| *no target: similarity alone* | | {len(some)} | ' +
             ' | '.join(free) + ' | | |\n')
    if share < 1:
        text += (f'\nOf the private edges, '
                 f'{np.mean([row["near"] for row in some]):.0%} join nodes '
                 f'with a public neighbour in common.\n')
    return text + '\n'


def halves(results):
    """Like with like, beside what no attack exceeds on average: one edge in
    the place of another is a change of two.
    """
    text = (f'### Like with like, {HALVED[0][1]:.0%} of the edges private\n\n'
            '| served | epsilon | AUC | at most |\n|---|---|---|---|\n')
    for cell in HALVED:
        epsilon = cell[-1]
        rows = results[f'half {cell}']
        most = 1 / (1 + np.exp(-2 * epsilon)) if epsilon else 1.0
        text += (f'| {cell[0]} | {"" if epsilon is None else f"{epsilon:g}"} '
                 f'| {entry([row["AUC"] for row in rows])} | {most:.3f} |\n')
    return text + '\n'


def figure(results):
    fig, axes = plt.subplots(len(results), len(SHARES), sharey=True,
                             figsize=(12, 4.2 * len(results)), squeeze=False)
    for row, (graph, cell) in zip(axes, results.items()):
        for ax, share in zip(row, SHARES):
            curves = {name: {epsilon: [value['AUC'] for value in
                                       cell[str((name, share, epsilon))]]
                             for epsilon in epsilons}
                      for name, (_, epsilons) in RELEASES.items()}
            raw, free = (cell.get(str((name, share, None)))
                         for name in (RAW[0], FREE))
            levels = {RAW[0]: [value['AUC'] for value in raw],
                      'no target': [value['baseline']['AUC'] for value in raw]}
            if free:  # The last, so that the others look alike everywhere.
                levels[FREE] = [value['AUC'] for value in free]
            levels = {name: np.mean(values) for name, values in levels.items()}
            plot.intervals(curves, levels, ax=ax)
            ax.set(title=f'{graph}, {share:.0%} of the edges private',
                   xlabel='epsilon of one private edge', ylim=(0.45, 1.01),
                   ylabel='AUC of LinkTeller' if ax is row[0] else '')
            ax.legend(fontsize='small', loc='center left',
                      bbox_to_anchor=(1, 0.5))
    fig.tight_layout()
    return fig


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--graphs', nargs='*', default=['digits', 'cora'])
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--few', type=int, default=5,
                        help=f'seeds of all but {", ".join(MAIN)}')
    parser.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    stored = {}
    for graph in args.graphs:
        store = args.out / f'links_{graph}.json'
        stored[graph] = json.loads(store.read_text()) if store.exists() else {}
        todo = [(measure, f'{half}{cell}', cell, seed)
                for seed in range(args.seeds)
                for measure, half, some in ((result, '', cells()),
                                            (like_with_like, 'half ', HALVED))
                for cell in some if seed < args.few or cell[0] in MAIN]
        for measure, key, cell, seed in tqdm(todo, desc=graph):
            values = stored[graph].setdefault(key, [])
            if len(values) <= seed:
                values.append(measure(graph, *cell, seed))
                store.write_text(json.dumps(stored[graph], indent=1))
    text = (f'# Private edges behind a served GCN: LinkTeller\n\n'
            f'Mean and 95% interval over seeds, each with a private share, a '
            f'model and {PROBES} probed nodes of its own; only pairs without a '
            f'public edge are suspected. "{FAR}": those without a public '
            f'neighbour in common. Epsilon is that of one private edge. The '
            f'server answers with logits unless it says probabilities. '
            f'"Relative" is an attack beyond the paper, which compares '
            f'influence with that of nodes on themselves.\n'
            f'{PUBLISHED}\n\n'
            f'"Public edges only" is a target that has seen no private edge: '
            f'what is found there is told by the public edges. "Like with '
            f'like" leaves homophily and public edges out of account: a coin '
            f'for each private edge decides whether it is in the graph, and '
            f'the AUC is that of edges which are against edges which are not; '
            f'without a leak it is 0.5, and with epsilon it is at most '
            f'1 / (1 + exp(-2 epsilon)) on average. "EdgeRR, guided" shapes '
            f'its dendrogram by the nearest neighbours in the features, too, '
            f'which are public here. On the digits these are nearly the edges '
            f'themselves: what is found there is told by the features, and '
            f'"no target" finds more.\n\n'
            f'Made by `python -m benchmarks.link_table`.\n\n'
            f'![AUC](links.png)\n\n')
    for graph, results in stored.items():
        text += f'## {graph}\n\n' + ''.join(table(results, share)
                                            for share in SHARES)
        text += halves(results)
    (args.out / 'links.md').write_text(text)
    figure(stored).savefig(args.out / 'links.png', dpi=110)
    print(text)


if __name__ == '__main__':
    main()
