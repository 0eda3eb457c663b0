"""NIP-GNN, section 4.2."""
import torch


def sums(x, edge_index, order=1, clip=1.0):
    """Clipped rows, summed over the distinct neighbours of each node, without
    noise.
    """
    out = torch.zeros_like(x)
    for source, target in set(map(tuple, edge_index.t().tolist())):
        norm = x[source].norm(order)
        out[target] += x[source] * min(1.0, clip / float(norm.clamp(1e-9)))
    return out


def weights(a, rank, cap):
    """Equation 11, word by word, for an adjacency matrix."""
    degree = a.sum(0)
    return [min((min(rank[u] / sum(rank[j] for j in range(len(a)) if a[k, j]) *
                     (cap - degree[k]) + 1, cap / degree[k])
                 for k in range(len(a)) if a[u, k]), default=1.0)
            for u in range(len(a))]
