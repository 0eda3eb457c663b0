"""RGNN, Algorithm 1: a choice of m columns, randomised response there, and
uniform values elsewhere.
"""
import itertools
import math

import numpy as np


def release(x, size, m, epsilon_x):
    """A choice for each row, then column by column, with noise that is neither
    secret nor exact.
    """
    n, d = x.shape
    keep = math.exp(epsilon_x) / (math.exp(epsilon_x) + size - 1)
    chosen = np.zeros((n, d), bool)
    for row in range(n):
        chosen[row, np.random.choice(d, m, replace=False)] = True
    out = np.empty_like(x)
    for i in range(d):
        other = (x[:, i] + np.random.randint(1, size, n)) % size
        response = np.where(np.random.rand(n) < keep, x[:, i], other)
        out[:, i] = np.where(chosen[:, i], response,
                             np.random.randint(0, size, n))
    return out


def law(sizes, m, epsilon_x):
    """The probability of each release, given each row, over all rows."""
    rows = list(itertools.product(*map(range, sizes)))
    e, matrix = math.exp(epsilon_x), np.zeros((len(rows), len(rows)))
    choices = list(itertools.combinations(range(len(sizes)), m))
    for chosen in choices:
        for (i, row), (j, out) in itertools.product(enumerate(rows),
                                                    enumerate(rows)):
            p = 1.0
            for c, size in enumerate(sizes):
                if c not in chosen:
                    p /= size
                else:
                    p *= (e if row[c] == out[c] else 1.0) / (e + size - 1)
            matrix[i, j] += p / len(choices)
    return matrix
