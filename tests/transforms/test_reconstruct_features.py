
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

from benchmarks.papers.reconstruct_features import estimates
from torch_geometric_dp import PrivacyAccountant, PrivacyBudget
from torch_geometric_dp.graph.propagation import mean_adjacency
from torch_geometric_dp.transforms import (
    GRRFS,
    FeatureRR,
    ReconstructFeatures,
    reconstruct_features,
)

SIZES = [2, 5, 3, 2, 2, 4, 3]
OUTPUTS = ['soft', 'hard', 'expectation']


def random_graph(nodes, edges, sizes, seed=0, dtype=torch.long):
    generator = torch.Generator().manual_seed(seed)
    x = torch.stack([torch.randint(0, size, (nodes, ), generator=generator)
                     for size in sizes], dim=1)
    return Data(x=x.to(dtype), edge_index=torch.randint(
        0, nodes, (2, edges), generator=generator))


def project(row):
    """Onto the simplex, by trying how many entries stay positive."""
    ordered = sorted(row, reverse=True)
    shifts = [(sum(ordered[:count]) - 1) / count
              for count in range(1, len(row) + 1)]
    shift = [s for s, value in zip(shifts, ordered) if value > s][-1]
    return [max(value - shift, 0) for value in row]


def algorithm_2(data, sizes, m, epsilon_x, hops, output):
    """The estimates as they are printed, in the form that is asked for."""
    out = []
    for size, estimate in zip(sizes, estimates(
            data.x, data.edge_index, sizes, m, epsilon_x, hops)):
        if output == 'hard':
            out.append(estimate.argmax(dim=1, keepdim=True).double())
        elif output == 'expectation':
            out.append((estimate * torch.arange(size)).sum(1, keepdim=True))
        else:
            near = torch.tensor([project(row) for row in estimate.tolist()])
            out.append(near[:, 1:] if size == 2 else near)
    return torch.cat(out, dim=1).double()


@pytest.mark.parametrize('cells', [1, 2**22])
@pytest.mark.parametrize('output', OUTPUTS)
@pytest.mark.parametrize('hops', [0, 1, 3])
def test_algorithm_2(hops, output, cells, monkeypatch):
    if cells == 1:  # As many blocks as there may be.
        monkeypatch.setattr(reconstruct_features, '_CELLS', 1)
        monkeypatch.setattr(reconstruct_features, '_LEAST_COLUMNS', 1)
    graph = random_graph(40, 70, SIZES, dtype=torch.double)
    noisy = GRRFS(9.0, 3, SIZES, seed=0)(graph)
    transform = ReconstructFeatures(hops, output)
    told = '' if output == 'soft' else f", output='{output}'"
    assert repr(transform) == f"ReconstructFeatures(hops={hops}{told})"
    kept = noisy.x.clone()
    out = transform(noisy)
    assert torch.equal(noisy.x, kept)
    expected = algorithm_2(noisy, SIZES, 3, 3.0, hops, output)
    assert out.x.shape == expected.shape
    if output == 'hard':  # Equal shares may be told apart by rounding.
        assert (out.x == expected).double().mean() > 0.95
        if hops == 0:
            assert torch.equal(out.x, noisy.x)
    else:
        assert torch.allclose(out.x, expected, atol=1e-4)


@pytest.mark.parametrize('dtype', [torch.float, torch.long, torch.uint8,
                                   torch.bool, torch.float16, torch.double])
@pytest.mark.parametrize('output', OUTPUTS)
def test_types(dtype, output):
    graph = random_graph(30, 60, [2] * 5, dtype=dtype)
    noisy = GRRFS(5.0, 2, 2, seed=0)(graph)
    out = ReconstructFeatures(2, output)(noisy).x
    kind = torch.double if dtype == torch.double else torch.float
    assert out.dtype == (dtype if output == 'hard' else kind)
    expected = algorithm_2(noisy, [2] * 5, 2, 2.5, 2, output)
    if output != 'hard':
        assert torch.allclose(out.double(), expected, atol=1e-4)
    if output == 'soft':
        assert out.min() >= 0 and out.max() <= 1 and out.shape == (30, 5)


def test_unbiased():
    # 100 releases of one graph with mixed sizes: the mean of the estimates is
    # what the hops make of the true features. Six standard deviations each.
    graph = random_graph(30, 60, SIZES, dtype=torch.double)
    graph.x[:, 1] = 4  # A constant column,
    graph.x[:5] = 0  # and rows of zeros.
    hop = mean_adjacency(graph.edge_index, 30).to_dense().double()
    truth = hop @ hop @ graph.x
    release = GRRFS(8.0, 4, SIZES, seed=0)
    transform = ReconstructFeatures(2, 'expectation')
    found = torch.stack([transform(release(graph)).x for _ in range(100)])
    error = (found.mean(dim=0) - truth) / (found.std(dim=0) / 10)
    assert error.abs().max() < 6
    assert found.std(dim=0).min() > 0


def test_more_hops_come_closer():
    # Two groups of nodes, each with features of its own.
    nodes = torch.arange(400)
    source, target = torch.randint(0, 400, (2, 8000),
                                   generator=torch.Generator().manual_seed(0))
    same = source % 2 == target % 2
    graph = Data(x=(nodes % 2).float().view(-1, 1).repeat(1, 20),
                 edge_index=torch.stack([source[same], target[same]]))
    noisy = GRRFS(10.0, 10, 2, seed=0)(graph)
    errors = [(ReconstructFeatures(hops)(noisy).x - graph.x).abs().mean()
              for hops in (0, 1, 4)]
    assert errors[0] > 0.3 > errors[1] > 0.1 > errors[2]
    hard = ReconstructFeatures(4, 'hard')(noisy)
    assert (hard.x == graph.x).float().mean() > 0.99


@pytest.mark.parametrize('make', [
    lambda data: to_torch_csr_tensor(data.edge_index, size=(40, 40)).t(),
    lambda data: to_torch_coo_tensor(data.edge_index.flip(0), size=(40, 40)),
    lambda data: to_torch_csr_tensor(data.edge_index.flip(0), size=(40, 40)),
])
def test_sparse_adjacency(make):
    graph = random_graph(40, 100, SIZES)
    noisy = GRRFS(9.0, 3, SIZES)(graph)
    expected = ReconstructFeatures(3)(noisy).x
    noisy.adj_t = make(noisy)
    del noisy.edge_index
    assert torch.equal(ReconstructFeatures(3)(noisy).x, expected)


def test_torch_sparse_adjacency():
    pytest.importorskip('torch_sparse')
    graph = random_graph(40, 100, SIZES)
    noisy = GRRFS(9.0, 3, SIZES)(graph)
    expected = ReconstructFeatures(3)(noisy).x
    sparse = ToSparseTensor(layout=None)(noisy)
    assert 'edge_index' not in sparse
    assert torch.equal(ReconstructFeatures(3)(sparse).x, expected)


def test_it_costs_nothing_and_is_known_again():
    graph = random_graph(40, 100, [2] * 6)
    budget = graph.privacy_budget = PrivacyBudget(features=4.0)
    noisy = GRRFS(4.0, 2, 2)(graph)
    out = ReconstructFeatures(2, 'hard')(noisy)
    assert out.privacy.epsilon('features') == 4.0
    assert noisy.privacy.releases[0].processed is None
    assert out.privacy.releases[0].processed == (
        "ReconstructFeatures(hops=2, output='hard')")
    assert PrivacyAccountant.from_json(out.privacy.to_json()) == out.privacy
    # A release of it is post-processing.
    again = GRRFS(1.0, 2, 2)(out)
    assert again.privacy.epsilon('features') == 4.0
    assert budget.spent.epsilon('features') == 4.0
    # But other features are not, and are refused.
    for x in (graph.x, 1 - out.x):
        with pytest.raises(ValueError, match="'x' must be as it was released"):
            GRRFS(4.0, 2, 2)(Data(x=x, privacy=out.privacy))


def test_only_once():
    noisy = GRRFS(4.0, 2, 2)(random_graph(40, 100, [2] * 6))
    out = ReconstructFeatures(2, 'hard')(noisy)
    with pytest.raises(ValueError) as info:
        ReconstructFeatures(3, 'hard')(out)
    assert str(info.value) == (
        "'x' must be as it was released: it no longer has the noise of "
        "GRRFS(epsilon=4.0, num_sampled=2, domain_sizes=2) (got the output of "
        "ReconstructFeatures(hops=2, output='hard'))")
    # Nor after more noise, which the ledger's parameters know nothing of.
    with pytest.raises(ValueError, match="got the output of GRRFS.epsilon=1.0"):
        ReconstructFeatures(3)(GRRFS(1.0, 2, 2)(noisy))


def test_missing_ledger():
    graph = random_graph(40, 100, [2] * 6)
    with pytest.raises(ValueError) as info:
        ReconstructFeatures()(graph)
    assert str(info.value) == (
        "'privacy' must hold a release of 'x' by 'GRRFS', which tells what "
        "noise is in it (got none of it)")
    other = FeatureRR(1.0, (0.0, 1.0), bins=2)(graph)
    with pytest.raises(ValueError, match=r"\(got FeatureRR\(epsilon=1.0"):
        ReconstructFeatures()(other)


def test_two_releases_of_one_field():
    graph = random_graph(40, 100, [2] * 6)
    one, two = GRRFS(1.0, 2, 2)(graph), GRRFS(2.0, 2, 2)(graph)
    one.privacy = PrivacyAccountant.merge([one.privacy, two.privacy])
    with pytest.raises(ValueError, match="'privacy' must hold one release of "
                       "'x'"):
        ReconstructFeatures()(one)


def test_bad_input():
    noisy = GRRFS(4.0, 2, 2)(random_graph(40, 100, [2] * 6))
    wrong = noisy.clone()
    wrong.x = 1 - wrong.x
    with pytest.raises(ValueError, match="'x' must be what GRRFS.* released: "
                       "the ledger tells of other values"):
        ReconstructFeatures()(wrong)
    wrong = noisy.clone()
    wrong.edge_index[0, 3] = 40
    with pytest.raises(ValueError, match="'edge_index' must hold nodes from 0 "
                       "to 39"):
        ReconstructFeatures()(wrong)
    del noisy.edge_index
    with pytest.raises(ValueError, match="'edge_index' is missing: neighbours "
                       "are what noise is averaged over"):
        ReconstructFeatures()(noisy)
    with pytest.raises(ValueError, match="'hops' must be an integer of at "
                       "least 0"):
        ReconstructFeatures(-1)
    with pytest.raises(ValueError, match="'output' must be one of"):
        ReconstructFeatures(2, 'mean')


def test_hetero_data():
    data = HeteroData()
    data['paper'].x = torch.arange(50).view(10, 5) % 2
    data['author'].x = torch.arange(12).view(4, 3) % 2
    data['paper', 'cites', 'paper'].edge_index = torch.randint(0, 10, (2, 30))
    data['author', 'writes', 'paper'].edge_index = torch.tensor([[3], [9]])
    data['author', 'knows', 'author'].edge_index = torch.tensor([[3], [1]])
    noisy = GRRFS(4.0, 2, 2)(data)
    out = ReconstructFeatures(2)(noisy)
    for name, edge in (('paper', 'cites'), ('author', 'knows')):
        plain = Data(x=noisy[name].x,
                     edge_index=data[name, edge, name].edge_index)
        expected = algorithm_2(plain, [2] * plain.num_features, 2, 2.0, 2,
                               'soft')
        assert torch.allclose(out[name].x.double(), expected, atol=1e-4)
    assert GRRFS(1.0, 1, 2)(ReconstructFeatures(1, 'hard')(
        noisy)).privacy.epsilon('features') == 4.0


def test_batch():
    graphs = [random_graph(10 + i, 30, [2] * 4, i) for i in range(3)]
    noisy = [GRRFS(4.0, 2, 2)(graph) for graph in graphs]
    out = ReconstructFeatures(2)(Batch.from_data_list(noisy))
    for one, expected in zip(out.to_data_list(),
                             map(ReconstructFeatures(2), noisy)):
        assert torch.equal(one.x, expected.x)
        assert one.privacy == expected.privacy


def test_a_part_of_what_was_released():
    # Nobody can tell it from something raw: the whole goes first.
    noisy = GRRFS(4.0, 2, 2)(random_graph(40, 100, [2] * 6))
    with pytest.raises(ValueError, match="'x' must be what GRRFS"):
        ReconstructFeatures(2)(noisy.subgraph(torch.arange(20)))
    out = ReconstructFeatures(2)(noisy)
    part = out.subgraph(torch.arange(20))
    assert torch.equal(part.x, out.x[:20]) and part.privacy == out.privacy


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(0, 20), st.integers(0, 5),
       st.lists(st.integers(2, 6), min_size=1, max_size=30),
       st.sampled_from(OUTPUTS))
def test_any_graph(nodes, edges, hops, sizes, output):
    # Also with more columns than nodes, and without edges.
    graph = random_graph(nodes, edges, sizes)
    out = ReconstructFeatures(hops, output)(GRRFS(2.0, 1, sizes)(graph))
    width = sum(size if size > 2 and output == 'soft' else 1 for size in sizes)
    assert out.x.shape == (nodes, width)
    assert torch.isfinite(out.x).all()


def test_no_nodes():
    graph = Data(x=torch.empty(0, 3), edge_index=torch.empty(2, 0).long())
    out = ReconstructFeatures(2)(GRRFS(1.0, 1, [2, 3, 2])(graph))
    assert out.x.shape == (0, 5)
