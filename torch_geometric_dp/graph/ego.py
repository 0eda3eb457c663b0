r"""The nodes that a node hears within some hops, and in how many such
subgraphs one node can be.

The *ego-subgraph* of :math:`v` with :math:`L` hops has all nodes from which a
path of at most :math:`L` edges leads to :math:`v`, and all edges into those of
them with a path of at most :math:`L - 1`. That is what :math:`L` layers of
message passing read to compute a row for :math:`v`; repetitions of an edge and
self-loops are left out.

**Lemma.** Let no node have more than :math:`D` edges that go out. Then a node
:math:`w` is in the ego-subgraphs of itself and of at most :math:`D + D^2 +
\dots + D^L` others. The subgraphs that it is not in do not depend on it, nor
on its edges.

*Proof.* :math:`w` is in the subgraph of :math:`v` if and only if a path of at
most :math:`L` edges leads from :math:`w` to :math:`v`. At most :math:`D^l`
nodes are at the end of a path of :math:`l` edges. An edge at :math:`w` is only
in subgraphs that have both of its ends, and :math:`w` is one of them. If
:math:`w` is not in the subgraph of :math:`v`, no path from it leads to
:math:`v` within :math:`L` edges, with or without :math:`w`'s own edges in the
graph, and the paths from all other nodes do not lead through :math:`w`. ∎

**Lemma (a node that is replaced).** Let :math:`w` get another row, and other
edges, at most :math:`k` of which come or go, in graphs that both keep to
:math:`D`. Then the subgraphs of :math:`w` and of at most :math:`M (1 + D +
\dots + D^{L-1})` others change, where :math:`M = \min(D + \lfloor k/2 \rfloor,
2 D)`; without a :math:`k`, :math:`M = 2 D`.

*Proof.* A subgraph that changes has :math:`w` in one of the two graphs. The
shortest path from :math:`w` does not come back to it, so only its first edge
can be another in the second graph. It leads to one of the nodes in :math:`N
\cup N'`, the ends of :math:`w`'s edges in the two graphs, from each of which at
most :math:`1 + \dots + D^{L-1}` are reached in :math:`L - 1` edges that are in
both. And :math:`|N \cup N'| = (|N| + |N'| + |N \triangle N'|)/2 \leq (2 D +
\min(k, 2 D))/2`. ∎
"""
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_dp._jit import jit
from torch_geometric_dp.graph.adjacency import distinct_edges

Ints = NDArray[np.int64]


def max_others(max_degree: int, hops: int, replaced: bool = False,
               edges: int | None = None) -> int:
    """How many ego-subgraphs change with a node, beside its own: the lemmas
    above.

    .. code-block:: python

        max_others(max_degree=5, hops=2)   # 30
    """
    beyond, layer = 0, 1
    for _ in range(hops):
        beyond, layer = beyond + layer, max_degree * layer
    if not replaced:
        return max_degree * beyond
    half = max_degree if edges is None else edges // 2
    return (max_degree + min(half, max_degree)) * beyond


class Subgraphs(NamedTuple):
    """Ego-subgraphs, one after the other, the node in the middle first.

    Args:
        nodes (Tensor): The nodes of all of them.
        first_node (Tensor): Where those of each start, and the end.
        edges (Tensor): Source and target, counted within each subgraph.
        first_edge (Tensor): Where those of each start, and the end.
    """
    nodes: Tensor
    first_node: Tensor
    edges: Tensor
    first_edge: Tensor


class EgoGraph:
    """A graph from which ego-subgraphs are taken.

    Args:
        edge_index (Tensor): The edges.
        num_nodes (int): The number of nodes.
        hops (int): The number of hops.

    .. code-block:: python

        graph = EgoGraph(data.edge_index, data.num_nodes, hops=2)
        graph.subgraphs(torch.tensor([0, 7])).first_node   # tensor([0, 2, 3])
    """
    def __init__(self, edge_index: Tensor, num_nodes: int, hops: int) -> None:
        edges = distinct_edges(edge_index, num_nodes).cpu()
        source, target = edges[:, edges[0] != edges[1]]
        self.hops = hops
        #: The largest number of edges that go out of, or come into, a node.
        self.degree = max(
            (int(end.bincount().max()) for end in (source, target)
             if len(end) > 0), default=0)
        self._source = source.numpy()
        self._first = np.zeros(num_nodes + 1, np.int64)
        np.cumsum(target.bincount(minlength=num_nodes).numpy(),
                  out=self._first[1:])
        self._place = np.full(num_nodes, -1, np.int64)

    def subgraphs(self, roots: Tensor) -> Subgraphs:
        """The ego-subgraphs of some nodes."""
        middle = roots.cpu().numpy().astype(np.int64, copy=False)
        none = np.empty(0, np.int64)
        starts = np.zeros((2, len(middle) + 1), np.int64)
        _grow(self._first, self._source, middle, self.hops, self._place,
              starts, none, none, none)
        nodes = np.empty(starts[0, -1], np.int64)
        edges = np.empty((2, starts[1, -1]), np.int64)
        _grow(self._first, self._source, middle, self.hops, self._place,
              starts, nodes, edges[0], edges[1])
        return Subgraphs(*map(torch.from_numpy, (nodes, starts[0], edges,
                                                 starts[1])))


@jit
def _grow(first: Ints, source: Ints, roots: Ints, hops: int, place: Ints,
          starts: Ints, nodes: Ints, tails: Ints, heads: Ints) -> None:
    # Once to count, with no room for nodes, and once to fill it. A node's place
    # in the subgraph is kept in `place`, which is -1 everywhere again after.
    queue = np.empty(place.size, np.int64)
    count = nodes.size == 0
    for i in range(roots.size):
        queue[0], place[roots[i]] = roots[i], 0
        size, edges, begin = 1, 0, 0
        for _ in range(hops):
            end = size
            for j in range(begin, end):
                for e in range(first[queue[j]], first[queue[j] + 1]):
                    node = source[e]
                    if place[node] < 0:
                        place[node] = size
                        queue[size] = node
                        size += 1
                    if not count:
                        tails[starts[1, i] + edges] = place[node]
                        heads[starts[1, i] + edges] = j
                    edges += 1
            begin = end
        if count:
            starts[0, i + 1] = starts[0, i] + size
            starts[1, i + 1] = starts[1, i] + edges
        for j in range(size):
            place[queue[j]] = -1
            if not count:
                nodes[starts[0, i] + j] = queue[j]
