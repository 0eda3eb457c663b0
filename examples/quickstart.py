"""Release a graph's labels under differential privacy, and train on them.

    python examples/quickstart.py            # under a minute on two cores

Handwritten digits are joined to similar ones (DigitsGraph). Each node reports
its training label by randomised response; a two-layer GCN is trained on the raw
and on the released graph, and both are tested on the true labels. The true
labels are read for nothing else: the released model stops early by the released
labels of its validation nodes.
"""
import argparse
import time

import matplotlib
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv
from tqdm import tqdm

from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.transforms import LabelRR

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402

EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0)


class GCN(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels)
        self.conv2 = GCNConv(hidden_channels, out_channels)

    def forward(self, x, edge_index):
        x = F.dropout(x, 0.2, self.training)
        x = self.conv1(x, edge_index).relu()
        return self.conv2(F.dropout(x, 0.5, self.training), edge_index)


def train(data, epochs=100):
    """Predicted classes of all nodes; reads nothing but `data`."""
    torch.manual_seed(0)
    model = GCN(data.num_features, 64, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01,
                                 weight_decay=5e-4)
    best, prediction = -1.0, None
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)[data.train_mask]
        F.cross_entropy(out, data.y[data.train_mask]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            guess = model(data.x, data.edge_index).argmax(dim=1)
        right = guess[data.val_mask] == data.y[data.val_mask]
        if right.float().mean() > best:
            best, prediction = right.float().mean(), guess
    return prediction


def accuracy(prediction, data):
    test = data.test_mask
    return float((prediction[test] == data.y[test]).float().mean())


def figure(data, private, rows, raw, majority, path):
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    epsilons, accuracies, kept = zip(*rows)
    left.plot(epsilons, accuracies, 'o-', label='GCN on released labels')
    left.plot(epsilons, kept, 's:', color='gray', label='labels kept as is')
    left.axhline(raw, color='green', label='GCN on raw labels')
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
    # What may ever be released of this graph's labels, over all that follows.
    data.privacy_budget = PrivacyBudget(labels=sum(EPSILONS))
    data.known = data.train_mask | data.val_mask
    print(f'{data.num_nodes} digits, {data.num_edges // 2} edges\n')

    rows, releases = [], {}
    for epsilon in tqdm(EPSILONS, desc='release and train'):
        private = LabelRR(epsilon, num_classes=10, mask='known')(data)
        same = (private.y == data.y)[data.known].float().mean()
        rows.append((epsilon, accuracy(train(private), data), float(same)))
        releases[epsilon] = private

    raw = accuracy(train(data), data)
    frequent = data.y[data.known].mode().values
    majority = accuracy(frequent.expand_as(data.y), data)
    print('\nTest accuracy of a two-layer GCN')
    print(f'  raw labels, no privacy   {raw:.3f}')
    for epsilon, acc, same in rows:
        print(f'  epsilon = {epsilon:<4g}           {acc:.3f}   '
              f'({same:.0%} of the labels kept)')
    print(f'  majority class           {majority:.3f}')

    print('\nThe ledger of one release (private.privacy)')
    print(releases[2.0].privacy)
    print('\nThe budget after all of them (data.privacy_budget)')
    print(data.privacy_budget)
    figure(data, releases[2.0], rows, raw, majority, args.figure)
    print(f'\nFigure saved as {args.figure} '
          f'({time.perf_counter() - start:.0f} s in all)')


if __name__ == '__main__':
    main()
