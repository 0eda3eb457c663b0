import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_dp import PrivacyBudget, transforms
from torch_geometric_dp.accountant import GaussianNoise
from torch_geometric_dp.explain import HeteroScores

COLUMNS = ['Duchi', 'Hybrid', 'Laplace', 'Piecewise', 'PMSub', 'ThreeOutputs']
ROWS = ['DuchiMulti', 'Gaussian', 'MultiBit']


@pytest.mark.parametrize('name', COLUMNS + ROWS)
def test_family(graph, name):
    graph.privacy_budget = PrivacyBudget(epsilon=3.0, delta=1e-4)
    raw = graph.x.clone()
    transform = getattr(transforms, name)(3.0, (0.0, 1.0))
    assert repr(transform) == f"{name}(epsilon=3.0, bounds=(0.0, 1.0))"
    out = transform(graph)
    assert torch.equal(graph.x, raw)
    assert out.x.shape == raw.shape and out.x.dtype == raw.dtype
    assert torch.isfinite(out.x).all()
    assert torch.equal(transform(graph).x, out.x)
    delta = 1e-5 if name == 'Gaussian' else 0.0
    assert out.privacy.epsilon('features') == 3.0
    assert out.privacy.delta('features') == delta


@pytest.mark.parametrize('name', COLUMNS)
def test_scores_split_the_budget(graph, name):
    scores = HeteroScores(torch.tensor([1.0, 0.0, 3.0]), gamma=1.0,
                          public=True)
    transform = getattr(transforms, name)(4.0, (0.0, 1.0), scores=scores)
    epsilons = transform.mechanism(3).epsilons.tolist()
    assert epsilons == [pytest.approx(1.0), 0.0, pytest.approx(3.0)]
    assert torch.isfinite(transform(graph).x).all()


@pytest.mark.parametrize('name', COLUMNS + ROWS)
def test_unbiased_on_average(name):
    # 40,000 equal rows: means within six standard errors (2e-9).
    x = torch.tensor([[0.2, 0.5, 0.9]], dtype=torch.double).repeat(40000, 1)
    transform = getattr(transforms, name)(3.0, (0.0, 1.0), seed=0)
    mechanism = transform.mechanism(3)
    mean = transform(Data(x=x)).x.mean(dim=0)
    for column in range(3):
        value = float(x[0, column])
        spread = (mechanism.variance(value, column) / 40000)**0.5
        assert abs(float(mean[column]) - value) < 6 * spread + 1e-5


def test_gaussian_tells_its_noise(graph):
    out = transforms.Gaussian(1.0, (0.0, 1.0))(graph)
    event = out.privacy.releases[0].guarantee.event
    assert isinstance(event, GaussianNoise)
    assert event.multiplier == pytest.approx(3.7306, abs=1e-3)
    with pytest.raises(ValueError, match="'delta' must lie between 0 and 1"):
        transforms.Gaussian(1.0, (0.0, 1.0), delta=0.0)


def test_multi_bit_samples_as_asked(graph):
    transform = transforms.MultiBit(1.0, (-1.0, 1.0), num_sampled=2)
    assert (transform(graph).x == 0).sum(dim=1).tolist() == [1] * 12
    with pytest.raises(ValueError, match="'num_sampled' must be an integer"):
        transforms.MultiBit(1.0, (0.0, 1.0), num_sampled=0)
