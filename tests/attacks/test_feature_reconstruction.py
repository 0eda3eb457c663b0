import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from tests.conftest import FALSE_ALARM
from torch_geometric_dp import mechanisms
from torch_geometric_dp.attacks import FeatureReconstruction
from torch_geometric_dp.attacks.feature_reconstruction import pictures
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms import FeatureRR

ALONE = FeatureReconstruction(neighbours=False)


def random_graph(n=200, d=6, known=100, edges=400, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Data(x=torch.rand(n, d, generator=generator),
                edge_index=torch.randint(n, (2, edges), generator=generator),
                train_mask=torch.arange(n) < known)


def released(data, x):
    return Data(x=x, edge_index=data.edge_index)


@pytest.mark.parametrize('neighbours', [False, True])
def test_what_is_released_as_it_is_is_found(neighbours):
    data = random_graph(d=12, known=10)  # Fewer examples than columns.
    report = FeatureReconstruction(neighbours=neighbours).run(data, data)
    assert report['mean squared error'] < 1e-12
    assert report['variance explained'] == pytest.approx(1)
    assert report['correlation'] == pytest.approx(1)
    assert report['identified'] == 1
    assert report.baseline['mean squared error'] > 0.07
    assert torch.equal(report.raw, data.x[10:].double())
    assert torch.equal(report.released, report.raw)


def test_mixed_columns_are_found():
    data = random_graph()
    mixed = data.x @ torch.randn(6, 9, generator=torch.Generator()
                                 .manual_seed(1)) - 5
    report = ALONE.run(released(data, mixed), data)
    assert report['mean squared error'] < 1e-6 and report['identified'] == 1


def test_baselines_by_hand():
    data = random_graph(known=50)
    report = ALONE.run(data, data)
    known, hidden = data.x[:50].double(), data.x[50:].double()
    error = float((known.mean(dim=0) - hidden).square().mean())
    variance = float((hidden - hidden.mean(dim=0)).square().mean())
    assert report.baseline == {
        'mean squared error': pytest.approx(error),
        'variance explained': pytest.approx(1 - error / variance),
        'correlation': 0.0, 'identified': 1 / 150}
    assert torch.allclose(report.guessed, known.mean(dim=0).expand(150, 6))


def test_noise_tells_nothing():
    # Given the release and the known rows, what is found does not depend on the
    # other rows, which are uniform in [0, 1]. By Hoeffding's inequality, its
    # product with them is as large with probability FALSE_ALARM at the most.
    data = random_graph(n=1200, known=600)
    noise = torch.rand(data.x.shape, generator=torch.Generator().manual_seed(1))
    report = ALONE.run(released(data, noise), data)
    centre = data.x[:600].double().mean(dim=0)
    a = report.reconstructed - centre
    gain = float((report.guessed - report.raw).square().sum() -
                 (report.reconstructed - report.raw).square().sum())
    widths = float(a.abs().sum(dim=1).square().sum())
    chance = math.sqrt(math.log(1 / FALSE_ALARM) / 2 * widths)
    assert gain <= (2 * chance + 2 * float((a * (0.5 - centre)).sum()) -
                    float(a.square().sum()))
    # And learning from noise does little harm.
    assert report['mean squared error'] < (
        1.02 * report.baseline['mean squared error'])
    # Whose row is whose is a random permutation: k or more right guesses have
    # a probability of at most 1/k!.
    assert 1 / math.factorial(10) < FALSE_ALARM
    assert report['identified'] * 600 < 10


def bayes(mechanism, values, prior, x):
    # The exact posterior mean of each released value, column by column.
    outputs = mechanism.distribution(values[0])[0]
    joint = np.array([p * mechanism.distribution(v)[1]
                      for v, p in zip(values, prior)])
    code = (np.array(values) @ joint) / joint.sum(axis=0)
    place = np.abs(x.numpy()[..., None] - outputs).argmin(-1)
    return torch.from_numpy(code[place])


@pytest.mark.parametrize('epsilon, bins', [(1.0, 2), (3.0, 4)])
def test_as_good_as_the_exact_posterior_mean(epsilon, bins):
    # One column with a skewed prior over the middles of the bins.
    rng = np.random.RandomState(0)
    values = [(i + 0.5) / bins for i in range(bins)]
    prior = np.exp(-3.0 * np.array(values))
    prior /= prior.sum()
    x = torch.from_numpy(rng.choice(values, p=prior, size=(4000, 1)))
    mechanism = mechanisms.FeatureRR(epsilon, (0.0, 1.0), bins)
    noisy = mechanism(x, NoiseSource.from_seed(0))
    data = Data(x=x, train_mask=torch.arange(4000) < 2000)
    report = ALONE.run(Data(x=noisy), data)
    oracle = bayes(mechanism, values, prior, noisy[2000:])
    best = float((oracle - x[2000:]).square().mean())
    assert report['mean squared error'] < 1.05 * best
    # It is no better, either. With found and oracle fixed, the raw values have
    # the oracle as their mean, and lie in [0, 1]: by Hoeffding's inequality.
    shift = report.reconstructed - oracle
    chance = 2 * math.sqrt(math.log(1 / FALSE_ALARM) / 2 *
                           float(shift.square().sum())) / 2000
    assert report['mean squared error'] > (
        best + float(shift.square().mean()) - chance)
    # The obvious ways are worse: the release itself, and its unbiased value.
    unbiased = mechanisms.FeatureRR(epsilon, (0.0, 1.0), bins, 'unbiased')(
        x, NoiseSource.from_seed(0))
    for way in (noisy, unbiased):
        assert report['mean squared error'] < float(
            (way - x)[2000:].square().mean())


def test_as_good_as_the_exact_posterior_mean_of_whole_rows():
    # Twelve rows of ten columns, and nothing else: no line tells them apart.
    rng = np.random.RandomState(1)
    domain = rng.randint(0, 2, (12, 10))
    x = torch.from_numpy(domain[rng.randint(0, 12, 2000)] / 2 + 0.25)
    mechanism = mechanisms.FeatureRR([1.5] * 10, (0.0, 1.0), 2)
    noisy = mechanism(x, NoiseSource.from_seed(0))
    matrix, bins = mechanism.transition_matrix(), (noisy.numpy() > 0.5) * 1
    likely = np.prod([matrix[domain[:, j]][:, bins[:, j]] for j in range(10)],
                     axis=0)
    oracle = (likely / likely.sum(axis=0)).T @ (domain / 2 + 0.25)
    best = float((torch.from_numpy(oracle) - x)[1000:].square().mean())
    report = ALONE.run(Data(x=noisy), Data(
        x=x, train_mask=torch.arange(2000) < 1000))
    assert report['mean squared error'] < 1.05 * best
    columns = bayes(mechanism, [0.25, 0.75], [0.5, 0.5], noisy[1000:])
    assert report['mean squared error'] < 0.7 * float(
        (columns - x[1000:]).square().mean())


def test_neighbours_help_where_like_is_joined_to_like():
    # Pairs of twins; about half of all nodes are known.
    data = random_graph(n=300)
    data.x[150:] = data.x[:150]
    node = torch.arange(300)
    data.edge_index = torch.stack([node, node.roll(150)])
    data.train_mask = torch.rand(300, generator=torch.Generator()
                                 .manual_seed(3)) < 0.5
    noise = random_graph(n=300, seed=1).x
    alone = ALONE.run(released(data, noise), data)
    report = FeatureReconstruction().run(released(data, noise), data)
    assert alone['variance explained'] < 0.05
    assert report['variance explained'] > 0.2
    assert report.baseline['variance explained'] > 0.2
    assert alone.knew == (f'the raw features of {int(data.train_mask.sum())} '
                          f'of 300 nodes', )
    assert report.knew == (*alone.knew, 'the edges of the target')


def test_released_rows_and_edges_tell_more_than_either():
    data = DigitsGraph()[0]
    data.train_mask = torch.arange(data.num_nodes) % 2 > 0
    noisy = FeatureRR(128.0, bounds=(0.0, 1.0), seed=0)(data)
    alone, both = ALONE.run(noisy, data), FeatureReconstruction().run(noisy,
                                                                      data)
    assert both['identified'] > both.baseline['identified'] + 0.1
    assert both['identified'] > alone['identified'] + 0.1
    assert both['mean squared error'] < 0.9 * min(
        both.baseline['mean squared error'], alone['mean squared error'])


def test_noise_does_not_hide_what_edges_tell():
    data = DigitsGraph()[0]
    data.train_mask = torch.arange(data.num_nodes) % 2 > 0
    noise = released(data, torch.rand(
        data.x.shape, generator=torch.Generator().manual_seed(0)))
    report = FeatureReconstruction().run(noise, data)
    assert report.baseline['identified'] > 0.5
    assert report.numbers == pytest.approx(report.baseline)


def test_equal_rows_share_one_point():
    data = random_graph(n=100, known=50)
    data.x[50:] = data.x[50:60].repeat(5, 1)
    report = ALONE.run(data, data)
    assert report['identified'] == pytest.approx(1 / 5)


def test_the_attacker_sees_no_more_than_he_says():
    data, other = random_graph(), random_graph()
    other.x[100:] = torch.rand(100, 6, generator=torch.Generator()
                               .manual_seed(9))
    noisy = released(data, data.x + 0.3 * random_graph(seed=5).x)
    for neighbours in (False, True):
        attack = FeatureReconstruction(neighbours=neighbours)
        one, two = attack.run(noisy, data), attack.run(noisy, other)
        assert torch.equal(one.reconstructed, two.reconstructed)
        assert torch.equal(one.guessed, two.guessed)
        assert one.numbers != two.numbers


def test_without_neighbours_edges_do_not_matter():
    data = random_graph()
    noisy = released(data, data.x + 0.3 * random_graph(seed=5).x)
    one = ALONE.run(noisy, data)
    noisy.edge_index = random_graph(seed=8).edge_index
    assert torch.equal(one.reconstructed, ALONE.run(noisy, data).reconstructed)


def test_repeatable_and_changes_nothing():
    data = random_graph()
    target = released(data, data.x.square() + 0.1 * random_graph(seed=5).x)
    before, after = data.clone(), target.clone()
    state = torch.random.get_rng_state()
    one = FeatureReconstruction(seed=3).run(target, data)
    two = FeatureReconstruction(seed=3).run(target, data)
    assert one == two and torch.equal(one.reconstructed, two.reconstructed)
    three = FeatureReconstruction(seed=4).run(target, data)
    assert not torch.equal(one.reconstructed, three.reconstructed)
    assert torch.equal(state, torch.random.get_rng_state())
    for graph, copy in ((data, before), (target, after)):
        one, two = graph.to_dict(), copy.to_dict()
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in two)


def test_wrong_input_is_refused():
    data = random_graph()
    with pytest.raises(ValueError, match=r"'target' must have the nodes of "
                       r"'data', 200 rows in 'x' \(got 199\)"):
        ALONE.run(Data(x=data.x[1:]), data)
    with pytest.raises(ValueError, match=r"'picture' must have as many pixels "
                       r"as 'x' has columns, which are 6 \(got \(2, 2\)\)"):
        FeatureReconstruction(picture=(2, 2)).run(data, data)
    with pytest.raises(ValueError, match=r"'picture' must be a height and"):
        FeatureReconstruction(picture=(2, 2, 2))
    with pytest.raises(ValueError, match=r"'picture' must be .* \(got 8\)"):
        FeatureReconstruction(picture=8)
    with pytest.raises(ValueError, match=r"'picture\[0\]' must be an integer"):
        FeatureReconstruction(picture=(0, 6))
    with pytest.raises(ValueError, match=r"'seed' must be an integer"):
        FeatureReconstruction(seed=-1)
    with pytest.raises(TypeError, match=r"'nobody' must be a boolean tensor"):
        FeatureReconstruction(known='nobody').run(data, data)
    data.edge_index[0, 0] = 200
    with pytest.raises(ValueError, match=r"'edge_index'.*199"):
        FeatureReconstruction().run(data, data)


def test_repr():
    assert repr(FeatureReconstruction(picture=(8, 8))) == (
        'FeatureReconstruction(picture=(8, 8))')


@settings(max_examples=5)
@given(st.data())
def test_odd_graphs(draw):
    n = draw.draw(st.integers(6, 12))
    d, width = draw.draw(st.integers(1, 3)), draw.draw(st.integers(1, 3))
    node = st.integers(0, n - 1)
    edges = draw.draw(st.lists(st.tuples(node, node), max_size=8))
    generator = torch.Generator().manual_seed(n)
    x = torch.randint(0, 2, (n, d), generator=generator)
    dtype = draw.draw(st.sampled_from(
        [torch.float, torch.double, torch.long, torch.bool]))
    target = Data(
        x=torch.randint(0, 3, (n, width), generator=generator).to(dtype),
        edge_index=torch.tensor(edges, dtype=torch.long).view(-1, 2).t())
    report = FeatureReconstruction().run(target, Data(
        x=x.to(dtype), train_mask=torch.arange(n) < 5))
    assert report.reconstructed.shape == (n - 5, d)
    assert report.reconstructed.isfinite().all()
    assert 0 <= report['identified'] <= 1
    assert report['mean squared error'] >= 0
    assert abs(report['correlation']) <= 1 + 1e-9


def test_pictures():
    pytest.importorskip('matplotlib').use('Agg')
    data = random_graph()
    report = FeatureReconstruction(picture=(3, 2)).run(data, data)
    ax = report.plot()
    page = ax.images[0].get_array()
    assert page.shape == (4 * 4 - 1, 10 * 3 - 1)
    assert np.allclose(page[:3, 3:5], data.x[101].view(3, 2))
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        'raw', 'released', 'reconstructed', 'without the target']
    assert ax.get_title() == 'FeatureReconstruction'
    # What has other columns is no picture.
    other = released(data, data.x[:, :5])
    ax = FeatureReconstruction(picture=(3, 2)).run(other, data).plot()
    assert len(ax.get_yticklabels()) == 3
    ax = pictures({'one': torch.ones(2, 4)}, (2, 2))
    assert ax.images[0].get_array().shape == (2, 5)


def test_scatter():
    pytest.importorskip('matplotlib').use('Agg')
    data = random_graph()
    ax = ALONE.run(data, data).plot()
    dots = ax.collections[1].get_offsets()
    assert dots.shape == (600, 2)
    assert np.allclose(dots[:, 0], dots[:, 1])
    assert ax.get_title() == 'FeatureReconstruction'
