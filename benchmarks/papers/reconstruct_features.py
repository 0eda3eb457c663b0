"""RGNN, Algorithm 2 with Equation 2."""
import math

from benchmarks.papers.hops import neighbourhoods, shares


def estimates(x, edge_index, sizes, m, epsilon_x, hops, columns=None):
    """One column at a time: how often each of its values occurs near each node,
    as an estimate without bias. The columns are all, or the first few.
    """
    d, ends = len(sizes), neighbourhoods(edge_index, len(x))
    for i, size in enumerate(sizes[:columns]):
        share = shares(x[:, i], size, ends, hops)
        e = math.exp(epsilon_x)
        p, q = e / (e + size - 1), 1 / (e + size - 1)
        yield d * share / (m * (p - q)) + (m - d - m * size * q) / (
            m * size * (p - q))
