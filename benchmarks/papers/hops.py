import torch
from torch_geometric.utils import add_self_loops, coalesce, scatter


def neighbourhoods(edge_index, n):
    """The ends of all edges, each once, with an edge from each node to
    itself.
    """
    return coalesce(add_self_loops(edge_index.long(), num_nodes=n)[0])


def mean(x, ends):
    """The mean over each neighbourhood."""
    source, target = ends
    return scatter(x[source], target, dim=0, dim_size=len(x), reduce='mean')


def shares(categories, size, ends, hops):
    """How large a part of the neighbourhood has each value, hop after hop."""
    share = torch.nn.functional.one_hot(categories.long(), size).float()
    for _ in range(hops):
        share = mean(share, ends)
    return share
