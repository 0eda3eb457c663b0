import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from tests.conftest import FALSE_ALARM
from torch_geometric_dp.attacks import AttributeInference, ScoredReport
from torch_geometric_dp.mechanisms import RandomizedResponse
from torch_geometric_dp.noise import NoiseSource

pytest.importorskip('sklearn')


def random_graph(n=600, share=0.5, seed=0):
    """The first of three columns is binary, and nothing depends on it."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 3, generator=generator)
    x[:, 0] = (x[:, 0] < share).float()
    return Data(x=x, y=torch.randint(3, (n, ), generator=generator),
                edge_index=torch.randint(n, (2, n), generator=generator),
                train_mask=torch.rand(n, generator=generator) < 0.5)


def attack(**options):
    return AttributeInference(**dict(neighbours=False) | options)


def balanced(guess, truth):
    return np.mean([float((guess == truth)[truth == value].double().mean())
                    for value in truth.unique()])


def test_what_is_released_as_it_is_is_found():
    data = random_graph()
    for options in (dict(field='y'), dict(column=1, above=0.3),
                    dict(neighbours=True)):
        report = attack(**options).run(data, data)
        assert report['accuracy'] == report['balanced accuracy'] == 1
        if options == dict(field='y'):
            continue
        assert report['AUC'] == 1 and isinstance(report, ScoredReport)
        values = data.x[~data.train_mask, options.get('column', 0)]
        assert report.truth.tolist() == (values > 0.3).tolist()


@pytest.mark.parametrize('share', [0.5, 0.1])
def test_as_good_as_the_best_guess_from_randomised_response(share):
    # Nothing but the released value tells of the truth: the best guess is the
    # release itself or, where one value is rare, the other one.
    data = random_graph(n=3000, share=share)
    target = data.clone()
    target.x[:, 0] = RandomizedResponse(1.0, 2)(data.x[:, 0],
                                                NoiseSource.from_seed(0))
    target.x[:, 1:] = 0
    report = attack().run(target, data)
    hidden = ~data.train_mask
    truth, seen = data.x[hidden, 0], target.x[hidden, 0]
    best = seen if share == 0.5 else torch.zeros_like(seen)
    assert report['accuracy'] == pytest.approx(
        float((best == truth).double().mean()))
    assert report['balanced accuracy'] == pytest.approx(balanced(seen, truth))
    assert report['AUC'] == pytest.approx(balanced(seen, truth))
    assert report.baseline['balanced accuracy'] == 0.5
    assert report.baseline['AUC'] == 0.5


def test_noise_in_other_columns_does_not_hide_it():
    data = random_graph(400)
    data.x = torch.cat([data.x, torch.zeros(400, 60)], dim=1)
    target = Data(x=torch.rand(400, 63, generator=torch.Generator()
                               .manual_seed(1)))
    target.x[:, 0] = RandomizedResponse(1.0, 2)(data.x[:, 0],
                                                NoiseSource.from_seed(0))
    hidden = ~data.train_mask
    assert attack().run(target, data)['AUC'] == pytest.approx(
        balanced(target.x[hidden, 0], data.x[hidden, 0]))


def test_labels_by_randomised_response():
    data = random_graph(n=2000)
    target = Data(x=torch.zeros(2000, 1), y=RandomizedResponse(2.0, 3)(
        data.y, NoiseSource.from_seed(0)))
    report = attack(field='y').run(target, data)
    hidden = ~data.train_mask
    assert report['accuracy'] == pytest.approx(float(
        (target.y == data.y)[hidden].double().mean()))
    assert not isinstance(report, ScoredReport) and 'AUC' not in report.numbers
    # A graph without labels tells nothing of them, nor one that is withheld.
    for nothing in (attack(field='y', withhold=True).run(target, data),
                    attack(field='y').run(Data(x=target.x), data)):
        assert nothing.numbers == nothing.baseline


def test_rows_may_be_missing():
    data = random_graph()
    hidden = Data(y=data.y, train_mask=data.train_mask, num_nodes=600)
    for raw in (data, hidden):
        report = attack(field='y').run(Data(y=data.y), raw)
        assert report['accuracy'] == 1
    # Edges alone tell what known neighbours tell.
    alone = Data(edge_index=data.edge_index)
    for options in (dict(), dict(field='y')):
        report = attack(neighbours=True, **options).run(alone, data)
        assert report.numbers == report.baseline
    with pytest.raises(ValueError, match=r"'target' must have the nodes of "
                       r"'data', 600 rows in 'y' \(got 599\)"):
        attack(field='y').run(Data(y=data.y[1:]), data)


def test_other_columns_tell_it_too():
    data = random_graph()
    assert attack(withhold=True).run(data, data)['AUC'] < 0.7
    data.x[:, 2] = data.x[:, 0] + 0.1 * data.x[:, 1]
    report = attack(withhold=True).run(data, data)
    assert report['accuracy'] == 1
    # What takes two columns, no line can tell.
    sign = data.x[:, 1] > 0.5
    data.x[:, 2] = torch.where(data.x[:, 0] == sign, 0.8, 0.2)
    data.x[:, 2] += 0.1 * torch.rand(600, generator=torch.Generator()
                                     .manual_seed(1))
    assert attack(withhold=True).run(data, data)['accuracy'] > 0.95


def test_other_columns_than_the_raw_ones():
    data = random_graph()
    target = Data(x=data.x[:, [0, 1]])
    for withhold in (False, True):  # None of them is the attribute.
        report = attack(withhold=withhold).run(target, data)
        assert report['accuracy'] == 1


def test_noise_tells_nothing():
    # The area is a two-sample U-statistic of what is independent: Hoeffding.
    data, noise = random_graph(n=2000), random_graph(n=2000, seed=1)
    for neighbours in (False, True):
        report = attack(neighbours=neighbours).run(
            Data(x=noise.x, edge_index=noise.edge_index), data)
        few = min(report.truth.sum(), (~report.truth).sum())
        chance = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * few))
        assert abs(report['AUC'] - 0.5) < chance
        assert abs(report.baseline['AUC'] - 0.5) < chance
        assert report['accuracy'] > 0.4


def test_baselines():
    data = random_graph(share=0.8)
    hidden = ~data.train_mask
    report = attack().run(data, data)
    assert report.baseline['accuracy'] == pytest.approx(
        float(data.x[hidden, 0].mean()))
    # Where like is joined to like, neighbours that are known tell it already.
    order = data.x[:, 0].argsort()
    data.edge_index = torch.cat([torch.stack([order[:-k], order[k:]])
                                 for k in range(1, 9)], dim=1)
    report = attack(neighbours=True).run(
        Data(x=torch.zeros(600, 3), edge_index=data.edge_index), data)
    assert report.baseline['accuracy'] > 0.97
    assert report.numbers == report.baseline
    count = int(data.train_mask.sum())
    assert report.knew == (f"column 0 of 'x', for {count} of 600 nodes",
                           'the edges of the target')
    assert attack(column=1, above=0.5).run(data, data).knew == (
        f"whether column 1 of 'x' is above 0.5, for {count} of 600 nodes", )
    assert attack(field='y').run(data, data).knew == (
        f"'y', for {count} of 600 nodes", )


def test_released_rows_of_neighbours_are_used():
    # A node's own row is noise, but its neighbour's has the attribute.
    data, n = random_graph(), 600
    node = torch.arange(n)
    data.edge_index = torch.stack([node[::2], node[1::2]])
    target = Data(x=data.x.view(-1, 2, 3).flip(1).reshape(n, 3),
                  edge_index=data.edge_index)
    assert attack(neighbours=True).run(target, data)['accuracy'] > 0.97
    assert attack().run(target, data)['AUC'] < 0.65


def test_the_attacker_sees_no_more_than_he_says():
    data, other = random_graph(100), random_graph(100)
    target = data.clone()
    target.x[:, 0] += 0.5 * target.x[:, 1]
    hidden = (~data.train_mask).nonzero().view(-1)
    other.x[hidden, 0] = data.x[hidden.flip(0), 0]
    one, two = (attack(neighbours=True).run(target, raw)
                for raw in (data, other))
    assert np.array_equal(one.scores, two.scores)
    assert not np.array_equal(one.truth, two.truth)


def test_repeatable_and_changes_nothing():
    data = random_graph(100)
    target = Data(x=data.x.square() + 0.3 * random_graph(100, seed=2).x,
                  edge_index=data.edge_index)
    before, after = data.clone(), target.clone()
    one, two = (attack(neighbours=True).run(target, data) for _ in range(2))
    assert one == two and np.array_equal(one.scores, two.scores)
    for graph, copy in ((data, before), (target, after)):
        one, two = graph.to_dict(), copy.to_dict()
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in two)


def test_wrong_input_is_refused(graph):
    with pytest.raises(ValueError, match=r"'above' must be given, as 'x' holds "
                       r"more than integers \(got 0.0285714 in row 0\)"):
        attack(column=1).run(graph, graph)
    with pytest.raises(ValueError, match=r"'column' must lie below 3.*got 3\)"):
        attack(column=3, above=0.5).run(graph, graph)
    with pytest.raises(ValueError, match=r"'column' must be an integer"):
        attack(column=-1)
    for above in ('a', math.nan, math.inf):
        with pytest.raises(ValueError, match=r"'above' must be a finite"):
            attack(above=above)
    with pytest.raises(TypeError, match=r"'data' must have a dense tensor 'z'"):
        attack(field='z').run(graph, graph)
    with pytest.raises(ValueError, match=r"'target' must have the nodes of "
                       r"'data', 12 rows in 'x' \(got 11\)"):
        attack(field='y').run(Data(x=graph.x[1:]), graph)
    with pytest.raises(ValueError, match=r"12 rows in 'y' \(got 11\)"):
        attack(field='y').run(Data(x=graph.x, y=graph.y[1:]), graph)
    with pytest.raises(ValueError, match=r"'train_mask' must select two nodes "
                       r"at least .* \(got \{0.0: 8\}\)"):
        attack(above=9.0).run(graph, graph)
    with pytest.raises(ValueError, match=r"\(got \{0.0: 7, 1.0: 1\}\)"):
        attack(above=0.57).run(graph, graph)
    with pytest.raises(ValueError, match=r"'x' must have two values among the "
                       r"nodes that 'train_mask' leaves .* \(got 1 for all"):
        attack(above=0.3).run(graph, graph)
    graph.train_mask[:] = False
    with pytest.raises(ValueError, match=r"'train_mask' must select at least"):
        attack(field='y').run(graph, graph)


def test_repr():
    assert repr(AttributeInference()) == 'AttributeInference()'
    assert repr(AttributeInference('y', 1, 0.5, True, 'mine', False, 2)) == (
        "AttributeInference(field='y', column=1, above=0.5, withhold=True, "
        "known='mine', neighbours=False, seed=2)")


@settings(max_examples=3)
@given(st.data())
def test_odd_graphs(draw):
    n, d = draw.draw(st.integers(6, 12)), draw.draw(st.integers(1, 2))
    node = st.integers(0, n - 1)
    edges = draw.draw(st.lists(st.tuples(node, node), max_size=8))
    dtype = draw.draw(st.sampled_from([torch.float, torch.long, torch.bool]))
    x = (torch.arange(n * d) % 2).view(d, n).t()
    target = Data(x=torch.ones(n, d, dtype=dtype),
                  edge_index=torch.tensor(edges, dtype=torch.long)
                  .view(-1, 2).t(), num_nodes=n)
    mask = torch.arange(n) < 5
    mask[-1] = False
    x[-1, 0], x[-2, 0] = 0, 1
    mask[-2] = False
    mask[0] = True
    if int(mask.sum()) < 5:
        return
    report = AttributeInference().run(target, Data(x=x.to(dtype),
                                                   train_mask=mask))
    assert all(0 <= value <= 1 for value in report.numbers.values())
    assert len(report.scores) == int((~mask).sum())
