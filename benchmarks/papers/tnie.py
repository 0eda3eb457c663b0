"""NIP-GNN, Equations 6 to 8."""
import math

import torch


def influence(layer, x, edge_index):
    """Node by node, with the parameters of a layer."""
    near = [[] for _ in range(len(x))]
    for v, u in edge_index.t().tolist():
        near[u].append(v)
    h = layer.mlp(x).view(-1)
    for _ in range(layer.hops):
        h = torch.stack([sum((h[v] / math.sqrt(len(near[u]) * len(near[v]))
                              for v in near[u]), torch.zeros(()))
                         for u in range(len(x))])
    log_degree = torch.tensor([math.log(max(len(each), 1)) for each in near])
    return torch.sigmoid(layer.slope * log_degree + layer.shift) * h
