"""Release a graph under differential privacy, and train on it.

    python examples/quickstart.py            # under a minute on two cores

Handwritten digits are joined to similar ones (DigitsGraph). Each node releases
its pixels by FeatureRR and its label by LabelRR; a two-layer GCN is trained on
the raw and on the released graph, and both are tested on the true labels. The
true labels are read for nothing else: the released model stops early by the
released labels of its validation nodes. Then the other way round: some edges
are private, pixels and training labels are public, and neighbours vote.
"""
import argparse
import time

import matplotlib
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN
from torch_geometric.transforms import Compose
from tqdm import tqdm

from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.nn.models import NeighbourVotes
from torch_geometric_dp.nn.models.public_base import (
    default_base,
    public_beliefs,
)
from torch_geometric_dp.transforms import FeatureRR, LabelRR

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402

EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0)


def train(data, epochs=100):
    """Predicted classes of all nodes; reads nothing but `data`."""
    torch.manual_seed(0)
    model = GCN(data.num_features, 64, num_layers=2, out_channels=10,
                dropout=0.5)
    # Free, since `x` is released: all columns on one scale.
    x = (data.x - data.x.mean(dim=0)) / data.x.std(dim=0).clamp(min=1e-6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01,
                                 weight_decay=5e-4)
    best, prediction = -1.0, None
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        out = model(x, data.edge_index)[data.train_mask]
        F.cross_entropy(out, data.y[data.train_mask]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            guess = model(x, data.edge_index).argmax(dim=1)
        right = guess[data.val_mask] == data.y[data.val_mask]
        if right.float().mean() > best:
            best, prediction = right.float().mean(), guess
    return prediction


def without_votes(data, edge_index):
    """What is public says, before any vote."""
    known = torch.where(data.train_mask, data.y, -1)
    return public_beliefs(default_base(64, 10), data.x, known,
                          edge_index).argmax(dim=1)


def accuracy(prediction, data):
    test = data.test_mask
    return float((prediction[test] == data.y[test]).float().mean())


def figure(data, private, rows, raw, majority, path):
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    epsilons, accuracies, kept = zip(*rows)
    left.plot(epsilons, accuracies, 'o-', label='GCN on the released graph')
    left.plot(epsilons, kept, 's:', color='gray', label='labels kept as is')
    left.axhline(raw, color='green', label='GCN on the raw graph')
    left.axhline(majority, color='red', ls='--', label='majority class')
    left.set(xlabel='epsilon of one label', ylabel='share right',
             ylim=(0, 1.02), title='What privacy costs')
    left.legend(loc='lower right', bbox_to_anchor=(1.0, 0.12))

    nodes = data.train_mask.nonzero().view(-1)[:24].tolist()
    canvas = torch.ones(4 * 9, 6 * 9)
    for i, node in enumerate(nodes):
        top, start = i // 6 * 9, i % 6 * 9
        canvas[top:top + 8, start:start + 8] = 1 - data.x[node].view(8, 8)
        same = data.y[node] == private.y[node]
        right.text(start + 6.3, top + 7.3, int(private.y[node]), fontsize=11,
                   color='green' if same else 'red', weight='bold')
    right.imshow(canvas, cmap='gray')
    right.set_axis_off()
    right.set_title(f'Digits and released labels, epsilon = {epsilons[2]:g}')
    fig.tight_layout()
    fig.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--figure', default='quickstart.png')
    args = parser.parse_args()
    start = time.perf_counter()

    data = DigitsGraph()[0]
    # What may ever be released of this graph, over all that follows.
    data.privacy_budget = PrivacyBudget(features=64.0, labels=sum(EPSILONS))
    # The same release every time, and charged once.
    features = FeatureRR(epsilon=64.0, bounds=(0.0, 1.0), decode='unbiased')
    data.known = data.train_mask | data.val_mask
    print(f'{data.num_nodes} digits, {data.num_edges // 2} edges\n')

    rows, releases = [], {}
    for epsilon in tqdm(EPSILONS, desc='release and train'):
        release = Compose([
            features,
            LabelRR(epsilon, num_classes=10, mask='known'),
        ])
        private = release(data)
        same = (private.y == data.y)[data.known].float().mean()
        rows.append((epsilon, accuracy(train(private), data), float(same)))
        releases[epsilon] = private

    raw = accuracy(train(data), data)
    frequent = data.y[data.known].mode().values
    majority = accuracy(frequent.expand_as(data.y), data)
    print('\nTest accuracy of a two-layer GCN (pixels at epsilon = 64, labels '
          'as given)')
    print(f'  raw graph, no privacy    {raw:.3f}')
    for epsilon, acc, same in rows:
        print(f'  epsilon = {epsilon:<4g}           {acc:.3f}   '
              f'({same:.0%} of the labels kept)')
    print(f'  majority class           {majority:.3f}')

    print('\nTest accuracy if edges are private, and pixels and training '
          'labels public')
    for title, edges in (
            ('no edges', data.edge_index[:, :0]),
            ('public edges only', data.edge_index[:, ~data.edge_private])):
        print(f'  {title:<23}  '
              f'{accuracy(without_votes(data, edges), data):.3f}')
    other = DigitsGraph()[0]  # Whose owner protects edges, and nothing else.
    other.privacy_budget = PrivacyBudget(edges=1.0)
    model = NeighbourVotes(64, num_classes=10, epsilon=1.0).fit(other)
    print(f'  votes, epsilon = 1       '
          f'{accuracy(model.predict(other), other):.3f}   (30% of the edges '
          f'are private)')

    print('\nThe ledger of one release (private.privacy)')
    print(releases[2.0].privacy)
    print('\nThe budget after all of them (data.privacy_budget)')
    print(data.privacy_budget)
    figure(data, releases[2.0], rows, raw, majority, args.figure)
    print(f'\nFigure saved as {args.figure} '
          f'({time.perf_counter() - start:.0f} s in all)')


if __name__ == '__main__':
    main()
