"""Private edges: what each part of NIP-GNN adds to plain votes of neighbours.

    python -m benchmarks.nip_edge_table --seeds 5

It goes on where it stopped, and writes nip_edge.json and nip_edge.md into the
folder --out. Features and labels are public. `+` rows are NIPGNN(unit='edge'):
NAP alone sums what the encoder says, for a network to read
(`aggregation='sage'`); ACA adds what it makes of the sums; TNIE weights the
noise by influence in the public edges, and does nothing if there are none.
Differences are taken seed by seed, on the same splits. Nothing is tuned in a
run. But what NIPGNN's layers read for edges, and how it is scaled, was settled
on these three graphs, by other splits and by earlier runs of this table: its
rows may be a little too good, and those of votes are not.
"""
import argparse
import json
from functools import lru_cache
from itertools import product
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import MLP
from tqdm import tqdm

from benchmarks.edge_learning_graphs import load
from benchmarks.seeds import mean
from torch_geometric_dp.nn import NAP
from torch_geometric_dp.nn.models import (
    NIPGNN,
    ClassSumClassifier,
    neighbour_votes,
    nip_gnn,
)
from torch_geometric_dp.nn.models.public_base import (
    default_base,
    public_beliefs,
)
from torch_geometric_dp.transforms import BoundDegree

GRAPHS = ('Caltech36', 'Amherst41', 'Cora')
SHARES = (1.0, 0.6)
EPSILONS = (1.0, 4.0)
FREE = 'encoder alone'
VOTES = 'plain votes'
VOTE_FORMS = {VOTES: 'auto', 'plain votes, both directions': 'both'}
RAW = 'NAP of raw rows, no encoder'
NIP = {
    '+ NAP with encoder': {'aggregation': 'sage'},
    '+ NAP with encoder, TNIE': {'aggregation': 'sage',
                                 'allocation': 'adaptive'},
    '+ NAP with encoder, ACA': {},
    '+ NAP with encoder, ACA, TNIE': {'allocation': 'adaptive'},
}
LIMIT = 'NIP-GNN without noise'
METHODS = (FREE, *VOTE_FORMS, RAW, *NIP, LIMIT)
NODE_EPSILONS, CAP = (4.0, 12.0), 10
NODE = ('raw rows', '64 random signs', 'class sums, half of epsilon',
        'class sums alone, all of epsilon')


def raw_rows(data, epsilon, classes, epochs=100):
    """A network on a node's own row and the noisy sums of its neighbours'."""
    private = data.get('edge_private')
    edges = data.edge_index
    parts = [data.x, NAP(epsilon, unit='edge')(
        data.x, edges if private is None else edges[:, private])]
    if private is not None:  # Public edges are free.
        u, v = edges[:, ~private]
        parts.append(torch.zeros_like(data.x).index_add(0, v, data.x[u]))
    x = torch.cat([(part - part.mean()) / part.std() for part in parts], dim=1)
    model = MLP([x.size(1), 64, classes], norm=None, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01,
                                 weight_decay=5e-4)
    mask = data.train_mask
    for _ in range(epochs):
        optimizer.zero_grad()
        cross_entropy(model(x[mask]), data.y[mask]).backward()
        optimizer.step()
    return model.eval()(x).argmax(dim=1)


@lru_cache(maxsize=1)
def graph_of(name, share, seed):
    return load(name, share, seed)


@lru_cache(maxsize=1)
def beliefs_of(name, share, seed):
    """What is public says: the same for all models and epsilons."""
    data = graph_of(name, share, seed)
    known = torch.where(data.train_mask, data.y, -1)
    public = nip_gnn.public_and_private(data, 'edge_private')[0]
    return public_beliefs(default_base(data.num_features,
                                       int(data.y.max()) + 1),
                          data.x, known, public)


def result(name, share, method, epsilon, seed):
    """The test accuracy of one cell for one seed."""
    data, belief = graph_of(name, share, seed), beliefs_of(name, share, seed)
    for module in (nip_gnn, neighbour_votes):  # Computed once.
        module.public_beliefs = lambda *args: belief.clone()
    shape = data.num_features, int(data.y.max()) + 1
    torch.manual_seed(seed)
    if method == FREE:
        out = belief.argmax(dim=1)
    elif method == RAW:
        out = raw_rows(data, epsilon, shape[1])
    else:
        if method in VOTE_FORMS:
            model = neighbour_votes.NeighbourVotes(*shape, epsilon,
                                                   VOTE_FORMS[method])
        else:
            model = NIPGNN(*shape, 1e6 if method == LIMIT else epsilon,
                           unit='edge', **NIP.get(method, {}))
        out = model.fit(data).predict(data)
        assert method == LIMIT or model.privacy.epsilon('edges') == epsilon
    return accuracy(out, data)


def node_result(name, method, epsilon, seed):
    """The same for whole nodes: what to sum under noise for a node."""
    data = graph_of(name, 1.0, seed)
    shape = data.num_features, int(data.y.max()) + 1
    torch.manual_seed(seed)
    if method == NODE[3]:
        model = ClassSumClassifier(*shape, epsilon).fit(data)
        return accuracy(model.predict(data), data)
    bounded, options, rest = BoundDegree(CAP)(data.clone()), {}, epsilon
    if method == NODE[1]:
        options = {'projection': 64}
    elif method == NODE[2]:
        rest = epsilon / 2
        options = {'encoder': torch.nn.Sequential(
            ClassSumClassifier(*shape, rest).fit(data),
            torch.nn.Softmax(dim=1))}
    model = NIPGNN(*shape, rest, CAP, **options).fit(bounded)
    assert model.privacy.epsilon('node') == epsilon
    return accuracy(model.predict(bounded), data)


def accuracy(out, data):
    return float((out == data.y)[data.test_mask].float().mean())


def cells():
    """All cells: graph, share of private edges, method, epsilon."""
    for name, share in product(GRAPHS, SHARES):
        for method in METHODS:
            for epsilon in (0.0, ) if method in (FREE, LIMIT) else EPSILONS:
                yield name, share, method, epsilon


def node_cells():
    return product(['Cora'], NODE, NODE_EPSILONS)


def key_of(*cell):
    return '|'.join(map(str, cell))


def against(results, name, share, epsilon, method):
    """A cell: the mean, and the mean difference to plain votes."""
    at = 0.0 if method in (FREE, LIMIT) else epsilon
    values = results.get(key_of(name, share, method, at))
    votes = results.get(key_of(name, share, VOTES, epsilon))
    if not values:
        return 'not run |'
    if method == VOTES or not votes:
        return f'{mean(values)} |'
    gain = [a - b for a, b in zip(values, votes)]
    return f'{mean(values)} | {"+" if sum(gain) > 0 else ""}{mean(gain)}'


def report(results):
    lines = ['# NIP-GNN for private edges, part by part', '',
             'Test accuracy in percent, with 95% intervals of the mean over '
             'seeds, and the difference to plain votes on the same splits. '
             'Epsilon is that of one edge, pure. NIPGNN was designed on these '
             'graphs: its rows may be a little too good. If all edges are '
             'private, rows with and without TNIE are the same model, and '
             'differ by chance only. `python -m benchmarks.nip_edge_table`',
             '']
    for name, share in product(GRAPHS, SHARES):
        which = 'all edges' if share == 1 else f'{share:.0%} of the edges'
        lines += [f'## {name}, {which} private', '',
                  '| | ' + ' | '.join(f'epsilon {e:g} | to votes'
                                      for e in EPSILONS) + ' |',
                  '|---' * (1 + 2 * len(EPSILONS)) + '|']
        lines += [f'| {method} | ' + ' | '.join(
            against(results, name, share, epsilon, method)
            for epsilon in EPSILONS) + ' |' for method in METHODS]
        lines.append('')
    lines += ['## Cora, whole nodes', '', f'What NAP sums; degrees are cut to '
              f'{CAP}. A tenth of the labels is for training.', '',
              '| | ' + ' | '.join(f'epsilon {e:g}' for e in NODE_EPSILONS)
              + ' |', '|---' * (1 + len(NODE_EPSILONS)) + '|']
    for method in NODE:
        row = [results.get(key_of('node', 'Cora', method, e))
               for e in NODE_EPSILONS]
        lines.append(f'| {method} | ' + ' | '.join(
            mean(values) if values else 'not run' for values in row) + ' |')
    return '\n'.join(lines) + '\n'


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--out', type=Path,
                        default=Path(__file__).parent / 'results')
    args = parser.parse_args(arguments)
    path = args.out / 'nip_edge.json'
    results = json.loads(path.read_text()) if path.exists() else {}
    work = [(seed, 'edge', cell) for cell in cells()
            for seed in range(args.seeds)]
    work += [(seed, 'node', cell) for cell in node_cells()
             for seed in range(args.seeds)]
    # Seeds of a graph together: what is public is computed once for them.
    work.sort(key=lambda item: (item[1], GRAPHS.index(item[2][0]),
                                item[0], -item[2][1] if item[1] == 'edge'
                                else 0))
    for seed, kind, cell in tqdm(work):
        key = key_of(*cell) if kind == 'edge' else key_of('node', *cell)
        values = results.setdefault(key, [])
        if len(values) > seed:
            continue
        run = result if kind == 'edge' else node_result
        values.append(round(run(*cell, seed), 6))
        path.write_text(json.dumps(results, indent=1, sort_keys=True) + '\n')
        (args.out / 'nip_edge.md').write_text(report(results))
    (args.out / 'nip_edge.md').write_text(report(results))


if __name__ == '__main__':
    main()
