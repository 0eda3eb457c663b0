"""RGNN, Algorithm 3."""
import math

import torch

from benchmarks.papers.hops import mean, neighbourhoods, shares


def estimate(y, edge_index, classes, epsilon, hops, released):
    """The estimate as it is printed, by the inverse of the transition matrix,
    for neighbourhoods of which only a part is labelled; and where there is
    one.
    """
    ends = neighbourhoods(edge_index, len(y))
    share = shares(y.clamp(min=0), classes, ends, hops=0).double()
    share[~released] = 0
    for _ in range(hops):
        share = mean(share, ends)
    p = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    q = (1 - p) / (classes - 1)
    transition = torch.full((classes, classes), q, dtype=torch.double)
    transition.fill_diagonal_(p)
    mass = share.sum(dim=1, keepdim=True)
    return share / mass.clamp(min=1e-300) @ transition.inverse(), mass > 0
