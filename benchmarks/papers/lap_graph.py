"""LapGraph, of LinkTeller: a matrix of all pairs."""
import numpy as np


def pairs(edge_index, n, epsilon, count_share=0.01):
    """Laplace noise on each cell above the diagonal; as many of the largest as
    a noisy count says.
    """
    cells = np.zeros((n, n))
    cells[edge_index[0], edge_index[1]] = 1
    cells = np.triu(np.maximum(cells, cells.T), 1)
    wanted = round(cells.sum() + np.random.laplace(
        scale=1 / (count_share * epsilon)))
    upper = np.triu_indices(n, 1)
    noisy = cells[upper] + np.random.laplace(
        scale=1 / ((1 - count_share) * epsilon), size=len(upper[0]))
    largest = np.argpartition(-noisy, wanted)[:wanted]
    return np.stack([upper[0][largest], upper[1][largest]])
