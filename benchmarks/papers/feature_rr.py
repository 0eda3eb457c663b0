import numpy as np


def transition_matrix(epsilon, k):
    """HeteroRR, Algorithm 1: the probability of each bin, given the bin."""
    t, u = np.mgrid[:k, :k]
    weights = np.exp(-np.abs(u - t) * epsilon / (k - 1))
    return weights / weights.sum(axis=1, keepdims=True)
