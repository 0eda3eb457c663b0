"""Node-level privacy: NIP-GNN, and a smaller release that carries more.

    python examples/nip_gnn.py               # about a minute on two cores
    python examples/nip_gnn.py --epsilons 1 4 12 --max-degree 5

Handwritten digits are joined to similar ones (DigitsGraph). Whoever is in the
graph is protected as a whole, with pixels, label and edges. NIP-GNN releases a
noisy sum for every node. ClassSumClassifier releases one noisy sum for every
class, and predicts each node from its own row.
"""
import argparse
import math
import time

import matplotlib
import torch
from tqdm import tqdm

from torch_geometric_dp import PrivacyBudget
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.nn.models import NIPGNN, ClassSumClassifier
from torch_geometric_dp.transforms import BoundDegree

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402


def accuracy(model, data):
    right = model.predict(data) == data.y
    return float(right[data.test_mask].float().mean())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--epsilons', type=float, nargs='*',
                        default=[0.5, 1.0, 2.0, 4.0, 12.0])
    parser.add_argument('--delta', type=float, default=1e-5)
    parser.add_argument('--max-degree', type=int, default=10)
    parser.add_argument('--out', default='nip_gnn.png')
    args = parser.parse_args()
    start = time.time()
    data = DigitsGraph()[0]
    # Knows what was released, over all that follows, and has no cap.
    data.privacy_budget = PrivacyBudget(epsilon=math.inf)
    shape = data.num_features, 10
    bounded = BoundDegree(args.max_degree)(data.clone())
    most = data.y[data.train_mask].mode().values
    majority = float((data.y[data.test_mask] == most).float().mean())
    print(f'{data.num_nodes} nodes, {int(data.train_mask.sum())} of them for '
          f'training; the most frequent class is right in {majority:.1%}')
    curves = {'NIP-GNN': [], 'ClassSumClassifier, delta = 0': [],
              f'ClassSumClassifier, delta = {args.delta:g}': []}
    for epsilon in tqdm(args.epsilons):
        torch.manual_seed(0)
        models = (
            NIPGNN(*shape, epsilon, args.max_degree).fit(bounded),
            ClassSumClassifier(*shape, epsilon).fit(data),
            ClassSumClassifier(*shape, epsilon, args.delta).fit(data))
        for values, model in zip(curves.values(), models):
            values.append(accuracy(model, data))
            assert model.privacy.epsilon('node') == epsilon
    for name, values in curves.items():
        print(f'{name:35s}' + '  '.join(
            f'{e:g}: {v:.1%}' for e, v in zip(args.epsilons, values)))
    print(f'\nWhat the last of each cost:\n\n{models[0].privacy}\n\n'
          f'{models[2].privacy}\n')
    for name, values in curves.items():
        plt.plot(args.epsilons, values, marker='o', label=name)
    plt.axhline(majority, color='grey', ls='--', label='majority class')
    plt.xscale('log')
    plt.xlabel('epsilon of a whole node')
    plt.ylabel('test accuracy')
    plt.legend()
    plt.tight_layout()
    plt.savefig(args.out, dpi=120)
    print(f'{args.out}: accuracy against epsilon. '
          f'{time.time() - start:.0f} s in all')


if __name__ == '__main__':
    main()
