import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from tests.audit.promises import promise
from torch_geometric_dp import mechanisms, transforms
from torch_geometric_dp.audit import canaries
from torch_geometric_dp.audit.canaries import (
    EveryPair,
    LonePairs,
    Rows,
    numbers,
)
from torch_geometric_dp.explain import HeteroScores
from torch_geometric_dp.graph.pairs import from_pairs, to_pairs
from torch_geometric_dp.nn import NAP, NAPConv

COINS = np.array([True, False, False, True, True])


def of(target, data=None):
    return canaries(target, target.guarantee, data)


def differences(canary):
    """What one coin changes in the raw graph, for each of the coins."""
    raw = canary.graph(COINS)
    for i in range(len(COINS)):
        coins = COINS.copy()
        coins[i] = ~coins[i]
        yield i, raw, canary.graph(coins)


def test_features():
    low, high = [-1.0, 0.0, 2.0], [1.0, 5.0, 3.0]
    pairs = of(transforms.FeatureRR(1.0, (low, high)))
    assert [pair.one.tolist() for pair in pairs] == [
        low, [-1.0, 5.0, 2.0], [0.0, 2.5, 2.5], [0.0, 0.0, 2.0], low]
    assert pairs.pop(1).other.tolist() == [1.0, 0.0, 3.0]
    assert all(pair.other.tolist() == high for pair in pairs)
    assert len(of(transforms.FeatureRR(1.0, (0.0, 1.0)))) == 4
    assert len(of(transforms.FeatureRR(1.0, ([0.0], [1.0])))) == 3
    for i, one, other in differences(pairs[0]):
        assert (one.x != other.x).any(dim=1).nonzero().tolist() == [[i]]
    out = pairs[0].outcomes(pairs[0].graph(COINS), 5)
    assert np.array_equal(out, np.where(COINS[:, None], low, high))


def test_what_is_to_be_clipped():
    inside, *_ = of(transforms.Laplace(1.0, (0.0, 2.0)))
    beyond, *_ = of(transforms.Laplace(1.0, (0.0, 2.0), clip=True))
    assert inside.one.tolist() == [0, 0] and inside.other.tolist() == [2, 2]
    assert beyond.one.tolist() == [-2, -2] and beyond.other.tolist() == [4, 4]


def test_what_is_no_number_is_a_value():
    canary = Rows('x', torch.zeros(3), torch.ones(3))
    out = canary.outcomes(Data(x=torch.tensor([[torch.nan, torch.inf,
                                                -torch.inf]])), 1)
    assert np.isfinite(out).all() and len(np.unique(out)) == 3


def test_features_are_never_out_of_bounds():
    # 0.1 is above 0.1 in single precision.
    transform = transforms.Duchi(1.0, (-0.1, 0.1))
    for canary in of(transform):
        transform(canary.graph(COINS))


def test_numbers_of_columns():
    scores = HeteroScores([1.0] * 4, [1.0] * 4, public=True)
    for transform, columns in (
            (transforms.Duchi(1.0, (0.0, 1.0)), 2),
            (transforms.Duchi(1.0, (0.0, [1.0] * 5)), 5),
            (transforms.Duchi(1.0, (0.0, 1.0), scores), 4),
            (transforms.MultiBit(1.0, (0.0, 1.0), 3), 6),
            (transforms.MultiBit(1.0, (0.0, 1.0)), 2),
            (transforms.GRRFS(1.0, 3, 2), 6),
            (transforms.GRRFS(1.0, 3, (2, 3, 4)), 3)):
        assert transform.num_features == columns
        assert of(transform)[0].graph(COINS).x.size(1) == columns
    wide = of(transforms.Duchi(1.0, (0.0, 1.0)), Data(x=torch.rand(3, 7)))
    assert wide[0].one.numel() == 7
    assert canaries(transform, num_features=3)[0].one.numel() == 3


def test_categories():
    canary, _, middle, _ = of(transforms.GRRFS(1.0, 1, (2, 5)))
    assert canary.other.tolist() == [1.0, 4.0]
    assert middle.one.tolist() == [0.0, 2.0]


def test_labels():
    canary, every, hidden, lone = of(transforms.LabelRR(1.0, 3,
                                                        mask='train_mask'))
    data = canary.graph(COINS)
    assert data.y.tolist() == [0, 1, 1, 0, 0] and data.train_mask.all()
    assert data.y.dtype == torch.long
    assert not hidden.graph(COINS).train_mask.any()
    assert every.graph(COINS).y.tolist() == [0, 2, 0, 0, 1]
    assert every.graph(COINS).train_mask.all()
    multi, _ = of(transforms.LabelRR(1.0, 3), Data(y=torch.zeros(9, 3).long()))
    assert multi.graph(COINS).y.sum(dim=1).tolist() == [0, 3, 3, 0, 0]
    # Labels that the mask does not select are public here.
    assert len(of(transforms.LabelRR(1.0, 2, 'train_mask',
                                     keep_unmasked=True))) == 2
    for coin in (True, False):
        y = lone.graph(np.array([coin])).y
        assert y.tolist() == [int(not coin)] + [0] * 7


def test_classes_are_told_apart_with_their_turn():
    _, canary, _ = of(transforms.LabelRR(1.0, 100))
    assert len(canary.classes) == 16 and canary.classes[[0, -1]].tolist() == [
        0, 99]
    raw = canary.graph(np.ones(20, np.bool_))
    assert raw.y[:17].tolist() == [*canary.classes.tolist(), 0]
    for _, one, other in differences(canary):
        assert int((one.y != other.y).sum()) == 1
    assert len(np.unique(canary.outcomes(raw, 20))) == 16


def test_rows_are_looked_at_in_all_fields():
    canary = Rows('x', torch.zeros(2), torch.ones(2))
    data = canary.graph(COINS)
    data.other = torch.from_numpy(COINS)
    assert canary.outcomes(data, 5)[:, 0].tolist() == COINS.tolist()
    assert canary.outcomes(data, 5).shape == (5, 3)


def test_releases_are_looked_at_as_a_whole():
    empty = numbers(Data(num_nodes=3))
    seen = [numbers(Data(num_nodes=3, **fields)) for fields in (
        {}, {'m': 5}, {'m': 6}, {'m': torch.ones(2)}, {'m': torch.ones(3)},
        {'m': torch.ones(50)}, {'m': torch.arange(50) == 49})]
    assert np.array_equal(seen[0], empty)
    assert len({part.tobytes() for part in seen}) == len(seen)
    # Without single numbers, only what they sum up to.
    one, other = (Data(x=torch.arange(3) == i) for i in (0, 1))
    assert not np.array_equal(numbers(one), numbers(other))
    assert np.array_equal(numbers(one, ('x', )), numbers(other, ('x', )))


def test_edges():
    dense, lone, *_ = of(transforms.EdgeRand(1.0, private='secret'))
    assert isinstance(dense, EveryPair) and isinstance(lone, LonePairs)
    for canary in (dense, lone, LonePairs()):
        for _, one, other in differences(canary):
            change = np.setxor1d(to_pairs(one.edge_index),
                                 to_pairs(other.edge_index))
            assert len(change) == 1 and one.num_nodes == other.num_nodes
        raw = canary.graph(COINS)
        assert raw.is_undirected()
        assert canary.outcomes(raw, 5)[:, 0].tolist() == COINS.tolist()
    # The change is private, and all that is public stays.
    for _, one, other in differences(lone):
        assert torch.equal(one.edge_index[:, ~one.secret],
                           other.edge_index[:, ~other.secret])
        assert int(abs(one.secret.sum() - other.secret.sum())) == 2
        assert int(one.secret.sum()) == 2 * COINS.sum()
    assert lone.outcomes(lone.graph(COINS), 5)[:, 1].tolist() == [18, 16, 16,
                                                                  18, 18]


def test_edges_that_are_replaced():
    canary, *_ = of(transforms.DegreePreservingRR(1.0, relation='replace'))
    for i, one, other in differences(canary):
        change = np.setxor1d(to_pairs(one.edge_index),
                             to_pairs(other.edge_index))
        assert change.tolist() == [2 * i, 2 * i + 1]
        assert one.num_edges == other.num_edges == 2 * len(COINS)
    out = canary.outcomes(canary.graph(COINS), 5)
    assert np.array_equal(out, np.stack([COINS, ~COINS], axis=1))


@pytest.mark.parametrize('relation', ['add-remove', 'replace'])
def test_edges_that_are_alone(relation):
    *_, edge, loop = of(transforms.DegreePreservingRR(1.0,
                                                      relation=relation))
    edges = {(canary, coin): canary.graph(np.array([coin])).edge_index.tolist()
             for canary in (edge, loop) for coin in (True, False)}
    other = relation == 'replace'
    assert edges[edge, True] == [[0, 4], [4, 0]]
    assert edges[edge, False] == ([[1, 5], [5, 1]] if other else [[], []])
    assert edges[loop, True] == [[0, 0], [0, 0]]
    assert edges[loop, False] == ([[1, 1], [1, 1]] if other else [[], []])
    raw = edge.graph(np.array([True]))
    assert edge.outcomes(raw, 1)[0, :4].tolist() == [0, -1, 1, -1]


@pytest.mark.parametrize('relation, change', [('add-remove', 3),
                                                ('replace', 6)])
def test_nodes_whose_edges_are_released(relation, change):
    transform = transforms.DegreePreservingRR(1.0, unit='node', max_degree=3,
                                              relation=relation)
    canary, = of(transform)
    one, other = (canary.graph(np.array([side])) for side in (True, False))
    assert one.num_nodes == other.num_nodes
    changed = from_pairs(np.setxor1d(to_pairs(one.edge_index),
                                     to_pairs(other.edge_index)))
    assert changed.size(1) == change and (changed[0] == 0).all()
    for graph in (one, other):
        transform(graph.clone())  # No node has too many edges.
    degree = torch.bincount(one.edge_index[0])
    assert degree[:4].tolist() == [3, 3, 3, 3]
    assert canary.outcomes(one, 1)[0, :2].tolist() == [3, 0]
    assert canary.outcomes(other, 1)[0, :2].tolist() == [0, change - 3]


def layer_change(canary):
    """The L1 distance of exact sums over neighbours, for one coin."""
    def sums(data):
        x = torch.nn.functional.normalize(data.x, p=1)
        return torch.zeros_like(x).index_add(0, data.edge_index[1],
                                             x[data.edge_index[0]])

    return {round(float((sums(one) - sums(other)).abs().sum()), 6)
            for _, one, other in differences(canary)}


def test_stars_reach_the_sensitivity():
    node, single, alone = of(NAP(1.0, max_degree=3))
    assert alone.copies == 1 and alone.star == node.star
    assert layer_change(node) == {6.0} and layer_change(single) == {2.0}
    edge, _ = of(NAP(1.0, unit='edge'))
    assert layer_change(edge) == {2.0}
    replaced, *_ = of(NAP(1.0, max_degree=3, relation='replace'))
    assert layer_change(replaced) == {12.0}
    exchanged, _ = of(NAP(1.0, unit='edge', relation='replace'))
    assert layer_change(exchanged) == {4.0}
    for _, one, other in differences(exchanged):  # And nothing but an edge.
        assert torch.equal(one.x, other.x)
    # Of a node that is not there, not even the row is.
    rows = node.graph(COINS).x.view(5, -1, 2).abs().sum(dim=2)
    assert (rows[:, 0] > 0).tolist() == COINS.tolist()
    assert (rows[:, 1:] > 1).all()  # To be clipped.
    for canary in (node, edge, replaced, exchanged):
        data = canary.graph(COINS)
        assert data.num_nodes == canary.star.num_nodes * 5
        for ends in data.edge_index:
            degree = torch.bincount(ends, minlength=data.num_nodes)
            assert degree.max() == canary.star.leaves
        assert canary.outcomes(data.x, 5).shape == (
            5, 2 * canary.star.num_nodes)


def test_layers_that_know_their_columns():
    for target, data, columns in (
            (NAP(1.0, 3), None, 2), (NAPConv(5, 2, 1.0, 3), None, 5),
            (NAPConv(-1, 2, 1.0, 3), None, 1),
            (NAPConv(-1, 2, 1.0, 3), Data(x=torch.rand(4, 7)), 7)):
        assert of(target, data)[0].graph(COINS).x.size(1) == columns


def test_unknown_targets():
    class Strange:
        guarantee = promise('node')

    with pytest.raises(ValueError, match="'data' and 'neighbour' must be given:"
                       " no worst pair is known for Strange"):
        of(Strange())
    with pytest.raises(ValueError, match="LabelRR, which protects 'features'"):
        canaries(transforms.LabelRR(1.0, 2), promise('features'))


class Own:
    guarantee = promise('labels')

    def canaries(self, data=None):
        return [mechanisms.LabelPair(3, 5)]


def test_what_is_told_is_enough():
    canary, lone = of(Own())
    assert canary.graph(COINS).y.tolist() == [3, 5, 5, 3, 3]
    assert lone.graph(COINS[1:2]).y.tolist() == [5] + [3] * 7
