from collections import defaultdict
from itertools import combinations, product

import pytest
import torch
from torch_geometric.nn import GCNConv, SAGEConv

from torch_geometric_dp.graph.ego import EgoGraph, max_others

DEGREE = 2


def all_graphs(directed):
    """Of four or five nodes, none with more than two edges."""
    nodes = 4 if directed else 5
    pairs = [(u, v) for u, v in product(range(nodes), repeat=2)
             if (u != v if directed else u < v)]
    for size in range(nodes * DEGREE + 1):
        for edges in combinations(pairs, size):
            both = edges if directed else edges + tuple(
                (v, u) for u, v in edges)
            out, into = ([edge[i] for edge in both] for i in (0, 1))
            if all(end.count(v) <= DEGREE for end in (out, into)
                   for v in range(nodes)):
                yield frozenset(both), nodes


def signatures(edges, nodes, hops):
    """What the example of each node is made of: nodes and edges."""
    index = torch.tensor(sorted(edges), dtype=torch.long).view(-1, 2).T
    graph = EgoGraph(index, nodes, hops)
    assert graph.degree <= DEGREE
    node, first, edge, start = graph.subgraphs(torch.arange(nodes))
    node, edge = node.tolist(), edge.tolist()
    out = []
    for v in range(nodes):
        own = node[first[v]:first[v + 1]]
        assert own[0] == v
        links = range(start[v], start[v + 1])
        out.append((frozenset(own), frozenset(
            (own[edge[0][e]], own[edge[1][e]]) for e in links)))
    return out


def reached(edges, w, hops):
    front = {w}
    for _ in range(hops):
        front |= {v for u, v in edges if u in front}
    return front


@pytest.mark.parametrize('directed', [False, True])
@pytest.mark.parametrize('hops', [1, 2])
def test_no_node_is_in_more_subgraphs_than_proven(directed, hops):
    # Over all small graphs: whose example changes with a node that goes, or
    # that gets other edges; its row is in all subgraphs that have the node.
    found = [(edges, nodes, signatures(edges, nodes, hops))
             for edges, nodes in all_graphs(directed)]
    gone, most = max_others(DEGREE, hops), 0
    groups = defaultdict(list)
    for edges, nodes, signs in found:
        for v, (own, _) in enumerate(signs):
            assert own == {u for u in range(nodes)
                           if v in reached(edges, u, hops)}
        others = sum(0 in own for own, _ in signs) - 1
        assert others <= gone
        most = max(most, others)
        rest = frozenset(edge for edge in edges if 0 not in edge)
        groups[rest].append((edges, signs))
    # Small graphs have no more nodes.
    assert most == min(gone, nodes - 1)
    reached_bound = set()
    for members in groups.values():
        for (one, first), (two, second) in combinations(members, 2):
            flips = len({frozenset(edge) for edge in one ^ two})
            changed = sum(a != b or 0 in a[0]
                          for a, b in list(zip(first, second))[1:])
            bound = max_others(DEGREE, hops, True, flips)
            assert changed <= bound <= max_others(DEGREE, hops, True)
            reached_bound |= {flips} if changed == bound else set()
            # What has no part in it does not change.
            for a, b in zip(first, second):
                assert a == b or 0 in a[0] | b[0]
    if hops == 1:
        assert {1, 2, 4} <= reached_bound if not directed else reached_bound


def test_numbers_of_the_lemmas():
    assert max_others(10, 1) == 10
    assert max_others(10, 2) == 110
    assert max_others(10, 0) == 0
    assert max_others(10, 2, replaced=True) == 220
    assert max_others(10, 2, replaced=True, edges=1) == 110
    assert max_others(10, 2, replaced=True, edges=5) == 12 * 11
    assert max_others(10, 2, replaced=True, edges=99) == 220


@pytest.mark.parametrize('conv, more', [(SAGEConv, 0), (GCNConv, 1)])
def test_a_subgraph_has_all_that_layers_read(conv, more):
    # A layer that divides by the degrees of both ends reads one hop more.
    torch.manual_seed(0)
    edges = torch.randint(0, 40, (2, 90))
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    x = torch.randn(40, 3)
    one, two = conv(3, 4), conv(4, 2)

    def run(x, edge_index):
        return two(one(x, edge_index).relu(), edge_index)

    whole, roots = run(x, edges).detach(), torch.arange(40)

    def differs(hops):
        parts = EgoGraph(edges, 40, hops).subgraphs(roots)
        worst = 0.0
        for v in range(40):
            node = parts.nodes[parts.first_node[v]:parts.first_node[v + 1]]
            edge = parts.edges[:, parts.first_edge[v]:parts.first_edge[v + 1]]
            out = run(x[node], edge)[0].detach()
            worst = max(worst, float((out - whole[v]).abs().max()))
        return worst

    assert differs(2 + more) < 1e-5
    assert differs(1 + more) > 1e-2


def test_repetitions_and_self_loops_are_left_out():
    edges = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])
    parts = EgoGraph(edges, 3, 1).subgraphs(torch.tensor([1, 2]))
    assert parts.nodes.tolist() == [1, 0, 2]
    assert parts.edges.tolist() == [[1], [0]]
    assert parts.first_edge.tolist() == [0, 1, 1]
