"""NIP-GNN, Equations 14 and 15."""
import math

import torch


def embeddings(h0, edge_index, hops, tau):
    """Node by node."""
    near = [[u] for u in range(len(h0))]  # Each node is its own neighbour.
    for v, u in edge_index.t().tolist():
        near[u].append(v)
    h = h0
    for _ in range(hops):
        new = torch.zeros_like(h0)
        for u in range(len(h0)):
            m = sum(h[v] / math.sqrt(len(near[u]) * len(near[v]))
                    for v in near[u])
            distance = float((m - h0[u]).norm())
            gamma = max(1 - tau / distance, 0.0) if distance > 0 else 0.0
            new[u] = (1 - gamma) * h0[u] + gamma * m
        h = new
    return h
