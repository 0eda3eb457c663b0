"""How much of a graph's structure a release has kept. They read the raw graph:
what they return is no release.
"""
import math

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, degree

from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.graph.pairs import check_edge_index

_BLOCK = 2**22  # Entries of a dense block: 32 MiB.


def random_walk_distance(edge_index_a: Tensor, edge_index_b: Tensor,
                         num_nodes: int, hops: int = 4) -> float:
    r"""The root mean square distance of two graphs' random walks,

    .. math::
        \sqrt{\frac{1}{K N^2} \sum_{k=1}^{K} \lVert P_a^k - P_b^k \rVert_F^2},

    where :math:`P_{uv}` is the probability that a walk at :math:`u` goes to
    :math:`v` next: it takes one of the edges of :math:`u`, all equally likely,
    and stays where there are none. Edges that are listed twice count once.

    It is exact, and needs the time of :math:`K` sparse products with all
    :math:`N` rows, a block of which is dense at a time.

    Args:
        edge_index_a (torch.Tensor): The edges of one graph.
        edge_index_b (torch.Tensor): The edges of the other.
        num_nodes (int): The number of nodes :math:`N` of both.
        hops (int, optional): The longest walk :math:`K`.
            (default: :obj:`4`)

    .. code-block:: python

        private = EdgeRand(epsilon=8.0)(data)
        random_walk_distance(data.edge_index, private.edge_index, 30)   # 0.
    """
    check_integer('num_nodes', num_nodes, 1)
    check_integer('hops', hops, 1)
    steps = [_steps(_edges(edge_index, num_nodes, name), num_nodes)
             for edge_index, name in ((edge_index_a, 'edge_index_a'),
                                      (edge_index_b, 'edge_index_b'))]
    total, size = 0.0, max(1, _BLOCK // num_nodes)
    for start in range(0, num_nodes, size):
        rows = torch.arange(start, min(num_nodes, start + size))
        walks = torch.zeros(num_nodes, len(rows), dtype=torch.double)
        walks[rows, rows - start] = 1.0  # A column for each walk's start.
        a = b = walks
        for _ in range(hops):
            a, b = steps[0] @ a, steps[1] @ b
            total += float((a - b).pow_(2).sum())
    return math.sqrt(total / hops) / num_nodes


def degree_distance(edge_index_a: Tensor, edge_index_b: Tensor,
                    num_nodes: int) -> float:
    r"""The distance of two graphs' degrees: the 1-Wasserstein distance of the
    two distributions, that is, the mean difference between the :math:`i`-th
    largest degrees of the two graphs. A degree is the number of nodes that a
    node has an edge to.

    Args:
        edge_index_a (torch.Tensor): The edges of one graph.
        edge_index_b (torch.Tensor): The edges of the other.
        num_nodes (int): The number of nodes of both.

    .. code-block:: python

        path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        degree_distance(path, path[:, :2], num_nodes=3)   # 0.6666...
    """
    check_integer('num_nodes', num_nodes, 1)
    a, b = (degree(_edges(edge_index, num_nodes, name)[0], num_nodes,
                   torch.double).sort().values
            for edge_index, name in ((edge_index_a, 'edge_index_a'),
                                     (edge_index_b, 'edge_index_b')))
    return float((a - b).abs().mean())


def _edges(edge_index: Tensor, num_nodes: int, name: str) -> Tensor:
    check_edge_index(edge_index, num_nodes, name)
    edges: Tensor = coalesce(edge_index.detach().cpu().long())
    return edges


def _steps(edge_index: Tensor, num_nodes: int) -> Tensor:
    # The transposed matrix of one step, as columns are multiplied by it.
    out = degree(edge_index[0], num_nodes, torch.double)
    stay = (out == 0).nonzero().view(1, -1).expand(2, -1)
    edges = torch.cat([edge_index, stay], dim=1)
    weight = 1.0 / out.clamp(min=1.0)[edges[0]]
    return torch.sparse_coo_tensor(edges.flip(0), weight,
                                   (num_nodes, num_nodes),
                                   check_invariants=True).coalesce()
