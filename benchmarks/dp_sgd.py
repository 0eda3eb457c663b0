"""DP-SGD for the tables: a small network of rows, or one that hears neighbours.

The same numbers for all graphs, chosen on the validation nodes of Cora and
Amherst41. The number of classes is public. Rows are divided by their norm, each
by itself.

What is private are the weights. With hops, a prediction reads the raw rows of
neighbours, which no noise protects: such rows tell what the training is worth,
not what may be shown.
"""
import copy

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

from torch_geometric_dp.nn import make_private
from torch_geometric_dp.transforms import BoundDegree

WIDTH, LR, CLIP = 32, 0.1, 1.0
RATE, EPOCHS = 1.0, 20  # All of them, in every step.


def train(data, epsilon, delta, seed, hops=0, max_degree=None, width=WIDTH,
          lr=LR, rate=RATE, epochs=EPOCHS, clip=CLIP):
    """A trained model, what it is given, and the training."""
    data = copy.copy(data)
    classes = int(data.y.max()) + 1
    data.x = F.normalize(data.x.float(), dim=1)
    if hops > 0:
        data = BoundDegree(max_degree, seed=seed)(data)
    torch.manual_seed(seed)
    columns = data.x.size(1)
    model = GraphSAGE(columns, width, hops, classes) if hops > 0 else (
        torch.nn.Sequential(torch.nn.Linear(columns, width), torch.nn.ReLU(),
                            torch.nn.Linear(width, classes)))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    private = make_private(
        model, optimizer, data, epsilon=epsilon, delta=delta, epochs=epochs,
        hops=hops, max_degree=max_degree if hops else None, sample_rate=rate,
        max_grad_norm=clip, seed=seed)
    return private.fit(), data


def dp_sgd(data, epsilon, delta, seed, hops=0, max_degree=None):
    """The classes that a model predicts which was trained under node-level
    privacy, a node added or removed; hops=0 is a network of rows.
    """
    private, data = train(data, epsilon, delta, seed, hops, max_degree)
    with torch.no_grad():
        given = (data.x, data.edge_index) if hops > 0 else (data.x, )
        return private.model(*given).argmax(dim=1)
