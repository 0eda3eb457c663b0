import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from tests.audit.promises import promise
from torch_geometric_dp import transforms
from torch_geometric_dp.audit.two_graphs import TwoGraphs
from torch_geometric_dp.nn import NAP


def changed(graph, key, value):
    other = graph.clone()
    other[key] = value
    return other


def test_two_graphs(graph):
    x = graph.x.clone()
    x[4] = 0.0
    canary = TwoGraphs(graph, changed(graph, 'x', x), promise('features'))
    assert torch.equal(canary.graph(np.array([True])).x, graph.x)
    out = canary.outcomes(graph, 1)
    assert np.allclose(out[:, :3], graph.x[4])
    # Whatever else there is.
    left = changed(graph, 'left_behind', x[4])
    assert not np.array_equal(out, canary.outcomes(left, 1))
    edges = torch.cat([graph.edge_index, torch.tensor([[0, 5], [5, 0]])], 1)
    canary = TwoGraphs(graph, changed(graph, 'edge_index', edges),
                       promise('edges'))
    assert canary.outcomes(graph, 1)[0, :4].tolist() == [0, 4, 4, 12]
    # A layer: the rows of both nodes, and of those that hear them.
    assert canary.outcomes(graph.x, 1).shape == (1, 3 * 6)


def test_graphs_that_are_no_neighbours(graph):
    x = graph.x.clone()
    x[[2, 4]] = 0.0
    both = torch.arange(12) == 5
    for key, value, unit, message in (
            ('x', x, 'features', r"one unit of 'features'.*got 2 rows of 'x'"),
            ('x', x, 'node', "one unit of 'node'"),
            ('x', graph.x + both.view(-1, 1), 'labels', "got 1 rows of 'x'"),
            ('x', graph.x, 'features', 'got 0 rows'),
            ('y', (graph.y + 1) % 3, 'features', "12 of 'y'"),
            ('x', graph.x[:-1], 'features', "must have 12 nodes")):
        neighbour = changed(graph, key, value)
        if unit == 'labels':  # One label, and a row as well.
            neighbour.y = (neighbour.y + both) % 3
        if 'nodes' in message:
            neighbour = Data(x=value)
        with pytest.raises(ValueError, match=message):
            TwoGraphs(graph, neighbour, promise(unit))


def joined(graph, *pairs, without=()):
    """The graph with some more edges, and without those of some nodes."""
    gone = torch.isin(graph.edge_index, torch.tensor(without)).any(dim=0)
    new = torch.tensor(pairs, dtype=torch.long).view(-1, 2).t()
    return changed(graph, 'edge_index', torch.cat(
        [graph.edge_index[:, ~gone], new, new.flip(0)], dim=1))


def test_what_is_public_must_be_the_same(graph):
    labels = transforms.LabelRR(1.0, 3, mask='train_mask')
    y = graph.y.clone()
    y[2] = 0
    other = changed(graph, 'y', y)
    TwoGraphs(graph, other, labels.guarantee, labels)
    other.train_mask = ~other.train_mask
    with pytest.raises(ValueError, match="'train_mask' must be the same"):
        TwoGraphs(graph, other, labels.guarantee, labels)
    del other.train_mask
    with pytest.raises(ValueError, match="'train_mask' must be the same"):
        TwoGraphs(graph, other, labels.guarantee, labels)
    y = graph.y.clone()
    y[11] = 0
    with pytest.raises(ValueError, match=r"that 'train_mask' selects.*got rows "
                       r".11"):
        TwoGraphs(graph, changed(graph, 'y', y), labels.guarantee, labels)
    edges = transforms.EdgeRand(1.0)
    graph.edge_private = torch.arange(24) % 12 < 6
    private, public = (graph.edge_subgraph(torch.arange(24) % 12 != gone)
                       for gone in (0, 7))
    TwoGraphs(graph, private, edges.guarantee, edges)
    with pytest.raises(ValueError, match="the public edges of 'data', which "
                       "'edge_private' does not select"):
        TwoGraphs(graph, public, edges.guarantee, edges)


def test_self_loops_and_directions_are_no_pairs(graph):
    # But they are edges: what differs in them and in a pair is no neighbour.
    one = joined(graph, (0, 5))
    for edge in ([3, 3], [3, 8]):
        new = torch.tensor(edge).view(2, 1)
        data, other = (changed(g, 'edge_index', torch.cat(
            [g.edge_index, *part], dim=1)) for g, part in (
                (graph, [new]), (one, [new.flip(0)] if edge[1] > 3 else [])))
        with pytest.raises(ValueError, match="'edge_index' must have the same "
                           "self-loops"):
            TwoGraphs(data, other, promise('edges'))


def test_edges_that_are_replaced(graph):
    one, other = joined(graph, (0, 5)), joined(graph, (3, 8))
    added = transforms.DegreePreservingRR(1.0)
    replaced = transforms.DegreePreservingRR(1.0, relation='replace')
    TwoGraphs(graph, one, added.guarantee, added)
    TwoGraphs(one, other, replaced.guarantee, replaced)
    for data, target in ((graph, replaced), (other, added)):
        with pytest.raises(ValueError, match="in one unit of 'edges'"):
            TwoGraphs(data, one, target.guarantee, target)
    with pytest.raises(ValueError, match='which is replaced by another'):
        TwoGraphs(graph, joined(graph, (0, 5), (3, 8)), replaced.guarantee)


def test_nodes_that_come_and_go(graph):
    gone = joined(graph, without=[4])
    gone.x[4] = 0.0
    moved = joined(graph, (4, 8), without=[4])
    added, replaced = (NAP(1.0, 4, relation=relation)
                       for relation in ('add-remove', 'replace'))
    TwoGraphs(graph, gone, added.guarantee, added)
    TwoGraphs(moved, gone, added.guarantee, added)
    TwoGraphs(graph, moved, replaced.guarantee, replaced)
    for other in (moved, joined(graph, (4, 8))):  # It stays, with other edges.
        with pytest.raises(ValueError, match="one unit of 'node', with all of "
                           "its edges"):
            TwoGraphs(graph, other, added.guarantee, added)


def test_what_cannot_be_compared(graph):
    graph.num_nodes = 12
    with pytest.raises(TypeError, match="'neighbour' must be a 'Data'.*got "
                       "'HeteroData'"):
        TwoGraphs(graph, HeteroData(), promise('features'))
    for x, got in ((torch.rand(12, 4), r'\[12, 4\]'), (None, 'None')):
        with pytest.raises(ValueError, match=rf"'x' must have the shape "
                           rf"\[12, 3\] in 'neighbour'.*got {got}"):
            TwoGraphs(graph, changed(graph, 'x', x), promise('features'))
