"""HeteroRR's features end to end: train, explain, score, release, retrain.

    python examples/heterorr_features.py     # about a minute on two cores

A fifth of the digits is public. A classifier is trained on these, Captum says
which pixels matter to it, and the upper half of the picture plays the part of
what is sensitive. With these scores, FeatureRR splits each private node's
epsilon over the pixels; a GCN is trained on what was released.
"""
import argparse

import matplotlib
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN, MLP
from tqdm import tqdm

from torch_geometric_dp import PrivacyBudget, plot
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.explain import (
    HeteroScores,
    feature_importance,
    feature_sensitivity,
)
from torch_geometric_dp.transforms import FeatureRR

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402

EPSILONS = (16.0, 64.0, 256.0)


def fit(model, inputs, data, epochs=100):
    """Predicted classes, at the epoch with the best validation accuracy."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01,
                                 weight_decay=5e-4)
    best, prediction = -1.0, None
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        out = model(*inputs)[data.train_mask]
        F.cross_entropy(out, data.y[data.train_mask]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            guess = model(*inputs).argmax(dim=1)
        right = (guess == data.y)[data.val_mask].float().mean()
        if right > best:
            best, prediction = right, guess
    return prediction


def gcn_accuracy(data):
    torch.manual_seed(0)
    x = (data.x - data.x.mean(dim=0)) / data.x.std(dim=0).clamp(min=1e-6)
    guess = fit(GCN(64, 64, 2, 10, dropout=0.5), (x, data.edge_index), data)
    return float((guess == data.y)[data.test_mask].float().mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--figure', default='heterorr_features.png')
    args = parser.parse_args()
    torch.manual_seed(0)

    data = DigitsGraph()[0]
    order = torch.randperm(data.num_nodes)
    public = data.subgraph(order[:data.num_nodes // 5])
    private = data.subgraph(order[data.num_nodes // 5:])
    # With many labels, a GCN needs no features on this graph; so, few labels.
    private.train_mask &= torch.rand(private.num_nodes) < 0.1
    print(f'{public.num_nodes} public digits, {private.num_nodes} private ones '
          f'({int(private.train_mask.sum())} with a label)')

    # All of this reads public rows only.
    head = MLP([64, 64, 10], norm=None)
    fit(head, (public.x, ), public)
    scores = HeteroScores(
        importance=feature_importance(head, public),
        sensitivity=feature_sensitivity(torch.nn.Identity(), public.x,
                                        sensitive=list(range(32))),
        gamma=0.5, public=True)
    print(f'scores: {scores}')

    # What may ever be released of it: four releases for each epsilon.
    private.privacy_budget = PrivacyBudget(features=4 * sum(EPSILONS))
    rows = [('raw features', gcn_accuracy(private))]
    noise = private.clone()
    noise.x = torch.rand_like(private.x)
    rows.append(('noise for features, epsilon = 0', gcn_accuracy(noise)))
    pictures = {'raw': private.x}
    splits = {'one share for all pixels': None,
              'importance and sensitivity': scores,
              'importance alone': scores.with_gamma(1.0)}
    for epsilon in tqdm(EPSILONS, desc='release and train'):
        for name, split in splits.items():
            release = FeatureRR(epsilon, bounds=(0.0, 1.0), scores=split,
                                decode='unbiased')
            released = release(private)
            rows.append((f'epsilon = {epsilon:g}, {name}',
                         gcn_accuracy(released)))
        show = FeatureRR(epsilon, bounds=(0.0, 1.0), decode='posterior')
        pictures[f'epsilon = {epsilon:g}'] = show(private).x

    print('\nTest accuracy of a two-layer GCN (labels and edges are public)')
    for name, value in rows:
        print(f'  {name:45s} {value:.3f}')
    print('\nThe ledger of the last release')
    print(released.privacy)
    figure(scores, pictures, private.y, args.figure)
    print(f'\nFigure saved as {args.figure}')


def figure(scores, pictures, y, path):
    fig = plt.figure(figsize=(11, 4.6))
    left, right = fig.subplots(1, 2, width_ratios=[1, 1.4])
    plot.scores(scores, ax=left)
    nodes = [int((y == digit).nonzero()[0]) for digit in range(10)]
    canvas = torch.ones(9 * len(pictures), 90)
    for row, (name, x) in enumerate(pictures.items()):
        low, high = x.min(), x.max()
        for column, node in enumerate(nodes):
            image = 1 - (x[node] - low) / (high - low)
            canvas[9 * row:9 * row + 8, 9 * column:9 * column + 8] = (
                image.view(8, 8))
        right.text(-1, 9 * row + 4, name, ha='right', va='center')
    right.imshow(canvas, cmap='gray')
    right.set_axis_off()
    right.set_title('Ten digits and their releases')
    fig.tight_layout()
    fig.savefig(path, dpi=120)


if __name__ == '__main__':
    main()
