"""RGNN end to end: release features and labels, reconstruct, train, predict.

    python examples/rgnn.py                  # about a minute on two cores
    python examples/rgnn.py --graph cora --backbone GAT --epsilon-y 3

Every node releases its features by GRRFS and, unless it is a test node, its
label by LabelRR; the edges are public. RGNN reconstructs both from the
neighbourhoods. Beside it stand the same GNN on the noisy data, LabelDiffusion,
which reads no features, and the most frequent class. The true labels are read
once, to test.

The digits need no download. Other graphs come from the folder
`TORCH_GEOMETRIC_DP_DATA`, or are downloaded by PyTorch Geometric.
"""
import argparse
import os
import shutil
import time
from pathlib import Path

import torch
from torch_geometric import nn
from torch_geometric.datasets import CitationFull, Planetoid
from torch_geometric.transforms import Compose

from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.nn.models import RGNN, LabelDiffusion
from torch_geometric_dp.transforms import (
    GRRFS,
    Discretize,
    GroupColumns,
    LabelRR,
    ReconstructFeatures,
)

GRAPHS = {'cora': (Planetoid, 'Cora', 25),
          'citeseer': (Planetoid, 'CiteSeer', 70),
          'dblp': (CitationFull, 'DBLP', 50)}


def load(name, bins):
    """A graph, what each node does before its release, and the number of
    values of a column.
    """
    if name == 'digits':
        return DigitsGraph()[0], Discretize((0.0, 1.0), bins), bins
    kind, title, size = GRAPHS[name]
    root = Path('.cache') / kind.__name__
    source = os.environ.get('TORCH_GEOMETRIC_DP_DATA')
    if source is not None:  # PyG writes beside the files: copy them first.
        for raw in (Path(source) / kind.__name__).rglob('raw'):
            target = root / raw.relative_to(Path(source) / kind.__name__)
            if not target.exists():
                shutil.copytree(raw, target)
    data = kind(str(root), title)[0]
    data.x = (data.x > 0).float()
    return data, GroupColumns(size), 2


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--graph', choices=['digits', *GRAPHS],
                        default='digits')
    parser.add_argument('--backbone', choices=['GraphSAGE', 'GCN', 'GAT'],
                        default='GraphSAGE')
    parser.add_argument('--epsilon-x', type=float, default=1.0,
                        help='of one column that a node reports')
    parser.add_argument('--epsilon-y', type=float, default=1.0,
                        help='of a label')
    parser.add_argument('--sampled', type=int, default=10,
                        help='columns that a node reports')
    parser.add_argument('--bins', type=int, default=2,
                        help='values of a pixel')
    parser.add_argument('--hops', type=int, default=4)
    parser.add_argument('--alpha', type=float, default=1.0)
    parser.add_argument('--epochs', type=int, default=100)
    args = parser.parse_args()
    start = time.time()

    data, prepare, values = load(args.graph, args.bins)
    n, classes = data.num_nodes, int(data.y.max()) + 1
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    parts = order.split([n // 2, n // 4, n - n // 2 - n // 4])
    for name, part in zip(('train_mask', 'val_mask', 'test_mask'), parts):
        data[name] = torch.zeros(n, dtype=torch.bool)
        data[name][part] = True
    data.released = ~data.test_mask
    epsilon = args.sampled * args.epsilon_x
    data.privacy_budget = PrivacyBudget(epsilon=epsilon + args.epsilon_y)

    release = Compose([
        prepare,
        GRRFS(epsilon, args.sampled, domain_sizes=values),
        LabelRR(args.epsilon_y, classes, mask='released'),
    ])
    private = release(data)
    print(f'{args.graph}: {n} nodes, {private.num_features} columns, '
          f'{classes} classes\n\n{private.privacy}\n')

    def rgnn(reconstruct):
        torch.manual_seed(0)
        hops = args.hops if reconstruct else None
        # A column with more than two values is reconstructed as several.
        seen = ReconstructFeatures(hops)(private) if reconstruct else private
        gnn = getattr(nn, args.backbone)(seen.num_features, 16, 2, classes,
                                         dropout=0.5)
        model = RGNN(gnn, hops, hops, args.alpha if reconstruct else 0.0,
                     epochs=args.epochs)
        return model.fit(private).predict(private)

    def majority():
        released = private.y[private.released]
        return torch.full((n, ), int(released.bincount().argmax()))

    rows = {'most frequent class': majority,
            f'{args.backbone} on the noisy data': lambda: rgnn(False),
            f'RGNN with {args.backbone}': lambda: rgnn(True),
            'LabelDiffusion (no features)':
            lambda: LabelDiffusion().fit(private).predict(private)}
    print('Test accuracy')
    for name, predict in rows.items():
        right = (predict() == data.y)[data.test_mask].float().mean()
        print(f'  {name:34s} {float(right):.3f}', flush=True)
    print(f'\n{time.time() - start:.0f} seconds')


if __name__ == '__main__':
    main()
