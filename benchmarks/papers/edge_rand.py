"""EdgeRand, of LinkTeller: a matrix of all pairs."""
import torch


def pairs(edge_index, n, flip):
    """A coin for each cell above the diagonal, which flips it."""
    edges = torch.zeros(n, n, dtype=torch.bool)
    edges[edge_index[0], edge_index[1]] = True
    flips = torch.rand(n, n) < flip
    return (edges ^ flips).triu(1).nonzero().t()
