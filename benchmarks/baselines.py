"""What NIP-GNN is compared with: models with and without privacy. Those with
privacy are `fit(data, epsilon, delta, seed) -> model`, and a model goes from a
graph to the scores of all classes; on the graph that it was fitted to, that
releases nothing more.

DP-SGD is Opacus's (`pip install 'torch_geometric_dp[dpsgd]'`). Its noise is
drawn in floats, which the mechanisms of this package never do; it stands here
for comparison only.
"""
import warnings
from functools import lru_cache

import torch
import torch.nn.functional as F

from benchmarks.training import accuracy
from torch_geometric_dp.nn import NAP
from torch_geometric_dp.transforms import BoundDegree

EPOCHS, BATCHES, HIDDEN = 15, 8, 64  # Batches in an epoch.


def majority(data):
    """The most frequent class among the training labels, which is not private
    but for a few votes.
    """
    return data.y[data.train_mask].mode().values.expand(data.num_nodes)


def mlp(data, seed):
    """The accuracy of a network that sees rows alone, without privacy."""
    alone = data.clone()
    alone.edge_index = alone.edge_index[:, :0]
    return accuracy(alone, seed)


def gcn(data, seed):
    """The accuracy of a GCN that sees everything, without privacy."""
    return accuracy(data, seed)


def dp_mlp(data, epsilon, delta, seed):
    """Two dense layers, by DP-SGD."""
    noise = noise_multiplier(epsilon, delta, EPOCHS * BATCHES)
    net = _dp_sgd(F.normalize(data.x, dim=1), data, noise, seed)

    @torch.no_grad()
    def model(other):
        return net(F.normalize(other.x, dim=1))

    return model


def gap(data, epsilon, delta, seed, max_degree=10, hops=1):
    """Aggregation perturbation after GAP: an encoder by DP-SGD, noisy sums of
    its output, and a classifier by DP-SGD. The three compose by their privacy
    loss distributions. A third of epsilon goes into the sums. On another graph,
    sums are released again, which costs the nodes of that graph.
    """
    bound = BoundDegree(max_degree)
    sums = NAP(epsilon / 3, max_degree, delta=delta / 10, hops=hops)
    noise = noise_multiplier(epsilon, delta, 2 * EPOCHS * BATCHES,
                             sums.guarantee.event.multiplier)
    encoder = _dp_sgd(F.normalize(data.x, dim=1), data, noise, seed)

    @torch.no_grad()
    def rows(other):
        h = encoder[1](encoder[0](F.normalize(other.x, dim=1)))
        h = F.normalize(h, dim=1)
        noisy = F.normalize(sums(h, bound(other.clone()).edge_index), dim=1)
        return torch.cat([h, noisy], dim=1)

    net = _dp_sgd(rows(data), data, noise, seed)

    @torch.no_grad()
    def model(other):
        return net(rows(other))

    return model


def _dp_sgd(x, data, noise, seed):
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(seed)
    classes = int(data.y.max()) + 1
    model = torch.nn.Sequential(torch.nn.Linear(x.size(1), HIDDEN),
                                torch.nn.ReLU(),
                                torch.nn.Linear(HIDDEN, classes))
    loader = DataLoader(TensorDataset(x[data.train_mask],
                                      data.y[data.train_mask]),
                        batch_size=-(-int(data.train_mask.sum()) // BATCHES))
    assert len(loader) == BATCHES  # What the noise was computed for.
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # On secure randomness, and hooks.
        private, optimizer, loader = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=loader,
            noise_multiplier=noise, max_grad_norm=1.0)
        for _ in range(EPOCHS):
            for rows, y in loader:
                optimizer.zero_grad()
                if len(y):
                    F.cross_entropy(private(rows), y).backward()
                    optimizer.step()
    return model.eval()


@lru_cache
def noise_multiplier(epsilon, delta, steps, gaussian=None):
    """The noise of DP-SGD that leaves (epsilon, delta), with or without one
    Gaussian release of a known multiplier beside it.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld
    step = 1e-2 if epsilon > 2 else 1e-3  # Rounded up: on the safe side.

    def loss(noise):
        total = pld.from_gaussian_mechanism(
            noise, value_discretization_interval=step,
            sampling_prob=1 / BATCHES).self_compose(steps)
        if gaussian is not None:
            total = total.compose(pld.from_gaussian_mechanism(
                gaussian, value_discretization_interval=step))
        return total.get_epsilon_for_delta(delta)

    low, high = 0.3, 20.0
    if loss(high) > epsilon:
        raise ValueError(f'No noise is enough for epsilon = {epsilon}')
    while high / low > 1.01:
        middle = (low * high)**0.5
        low, high = (low, middle) if loss(middle) <= epsilon else (middle, high)
    return high

