import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data, HeteroData

from benchmarks.papers.reconstruct_labels import estimate as algorithm_3
from torch_geometric_dp import (
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.transforms import EdgeRand, LabelRR, ReconstructLabels


def random_graph(nodes, edges, classes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    return Data(y=torch.randint(0, classes, (nodes, ), generator=generator),
                edge_index=torch.cat([edge_index, edge_index.flip(0)], dim=1),
                train_mask=torch.rand(nodes, generator=generator) < 0.5)


def test_reconstruct_labels(graph):
    noisy = LabelRR(1.0, 3, 'train_mask', seed=0)(graph)
    kept = noisy.y.clone()
    transform = ReconstructLabels(hops=1)
    assert repr(transform) == 'ReconstructLabels(hops=1)'
    out = transform(noisy)
    assert torch.equal(noisy.y, kept) and 'y_soft' not in noisy
    assert out.y.dtype == torch.long and out.y_soft.shape == (12, 3)
    # Outside the mask there is no label, but an estimate where one is near.
    assert (out.y[8:] == -1).all() and (out.y[:8] >= 0).all()
    total = out.y_soft.sum(dim=1)
    assert torch.allclose(total[:9], torch.ones(9))
    assert total[9] == total[10] == 0 and total[11] == pytest.approx(1)
    assert out.privacy.epsilon('labels') == 1.0


@pytest.mark.parametrize('hops', [0, 1, 5])
@pytest.mark.parametrize('classes, epsilon', [(2, 0.5), (7, 3.0)])
def test_algorithm_3(hops, classes, epsilon):
    graph = random_graph(60, 80, classes)
    noisy = LabelRR(epsilon, classes, 'train_mask', seed=0)(graph)
    out = ReconstructLabels(hops)(noisy)
    estimate, reached = algorithm_3(noisy.y, noisy.edge_index, classes,
                                    epsilon, hops, graph.train_mask)
    mask = graph.train_mask
    # The first of the most frequent ones, unless rounding decides.
    gap = estimate.max(dim=1).values - estimate.gather(
        1, out.y.clamp(min=0).view(-1, 1)).view(-1)
    assert gap[mask].max() < 1e-4
    if hops == 0:
        assert torch.equal(out.y, noisy.y)
    # The nearest distribution: no step towards a corner comes any closer.
    soft = out.y_soft.double()
    assert (soft[~reached.view(-1)] == 0).all()
    soft, estimate = soft[reached.view(-1)], estimate[reached.view(-1)]
    assert torch.allclose(soft.sum(dim=1), torch.ones(len(soft)).double())
    slope = estimate - soft
    best = slope.max(dim=1).values - (slope * soft).sum(dim=1)
    assert best.max() < 1e-4 and soft.min() >= 0


def test_unbiased():
    # Binary labels on one clique, so that the estimate is the share of ones;
    # 200 releases, six standard deviations.
    nodes = torch.arange(40)
    edge_index = torch.cartesian_prod(nodes, nodes).t()
    graph = Data(y=(nodes % 4 == 0).long(), edge_index=edge_index,
                 train_mask=nodes < 20)
    release = LabelRR(3.0, 2, 'train_mask', seed=0)
    found = torch.stack([ReconstructLabels(2)(release(graph)).y_soft[0, 1]
                         for _ in range(200)])
    assert found.min() > 0 and found.max() < 1  # So the projection is idle.
    assert abs(found.mean() - 0.25) < 6 * found.std() / 200**0.5


def test_labels_that_were_kept_are_not_taken_for_released(graph):
    release = LabelRR(1.0, 3, 'train_mask', keep_unmasked=True, seed=0)
    noisy = release(graph)
    assert noisy.privacy.releases[0].parameter('kept_outside') == 'train_mask'
    out = ReconstructLabels(2)(noisy)
    assert torch.equal(out.y[8:], graph.y[8:])
    estimate, reached = algorithm_3(
        torch.where(graph.train_mask, noisy.y, -1), graph.edge_index, 3, 1.0,
        2, graph.train_mask)
    best = estimate[:8].max(dim=1).values
    assert torch.allclose(estimate[:8].gather(1, out.y[:8, None])[:, 0], best,
                          atol=1e-4)
    assert torch.equal(out.y_soft.sum(dim=1) > 0, reached.view(-1))


@pytest.mark.parametrize('dtype', [torch.float, torch.long, torch.bool])
def test_multi_label(dtype):
    graph = random_graph(50, 100, 2)
    graph.y = (torch.rand(50, 4, generator=torch.Generator().manual_seed(0)) <
               0.5).to(dtype)
    mask = None if dtype == torch.bool else 'train_mask'
    noisy = LabelRR(8.0, 4, mask, seed=0)(graph)
    out = ReconstructLabels(2)(noisy)
    released = (noisy.y >= 0).all(dim=1)
    assert out.y.dtype == noisy.y.dtype and out.y_soft.shape == (50, 4)
    for label in range(4):
        estimate, reached = algorithm_3(noisy.y[:, label].long(),
                                        noisy.edge_index, 2, 2.0, 2, released)
        soft = estimate[:, 1].clamp(0, 1) * reached.view(-1)
        assert torch.allclose(out.y_soft[:, label].double(), soft, atol=1e-4)
        sure = released & ((soft - 0.5).abs() > 1e-3)
        assert torch.equal(out.y[sure, label].bool(), soft[sure] > 0.5)
    assert torch.equal(out.y[~released], noisy.y[~released])


def test_a_column_of_labels(graph):
    graph.y = graph.y.view(-1, 1)
    noisy = LabelRR(1.0, 3, 'train_mask', seed=0)(graph)
    out = ReconstructLabels(2)(noisy)
    assert out.y.shape == noisy.y.shape == (12, 1)
    estimate, reached = algorithm_3(noisy.y.view(-1), graph.edge_index, 3, 1.0,
                                    2, graph.train_mask)
    best = estimate[:8].max(dim=1).values
    assert torch.allclose(estimate[:8].gather(1, out.y[:8])[:, 0], best,
                          atol=1e-4)
    assert torch.equal(out.y_soft.sum(dim=1) > 0, reached.view(-1))


def test_it_costs_nothing_and_is_known_again(graph):
    graph.privacy_budget = PrivacyBudget(labels=1.0)
    noisy = LabelRR(1.0, 3)(graph)
    out = ReconstructLabels(2)(noisy)
    again = LabelRR(5.0, 3)(out)
    assert again.privacy.epsilon('labels') == 1.0
    assert graph.privacy_budget.spent.epsilon('labels') == 1.0
    with pytest.raises(ValueError) as info:
        ReconstructLabels(3)(out)
    assert str(info.value) == (
        "'y' must be as it was released: it no longer has the noise of "
        "LabelRR(epsilon=1.0, num_classes=3) (got the output of "
        "ReconstructLabels(hops=2))")
    with pytest.raises(ValueError, match="got the output of LabelRR.epsilon=5"):
        ReconstructLabels(3)(again)
    # True labels are not taken for released ones.
    out.y = noisy.y = graph.y
    with pytest.raises(ValueError, match="'y' must be as it was released"):
        LabelRR(1.0, 3)(out)
    with pytest.raises(ValueError, match="'y' must be what LabelRR.* released"):
        ReconstructLabels(2)(noisy)


def test_a_budget_for_edges_does_not_take_them_as_public(graph):
    for edges in (1.0, math.inf):
        graph.privacy_budget = PrivacyBudget(labels=1.0, edges=edges)
        noisy = LabelRR(1.0, 3)(graph)
        if edges == 1.0:
            with pytest.raises(PrivacyBudgetExceeded,
                               match="ReconstructLabels takes 'edges' as "):
                ReconstructLabels(2)(noisy)
            # What was released before is read by everybody.
            noisy = EdgeRand(1.0)(noisy)
        out = ReconstructLabels(2)(noisy)
        assert out.privacy.epsilon('edges') == edges


def test_raw_edges_are_taken_as_public(graph):
    noisy = LabelRR(1.0, 3)(graph)
    out = ReconstructLabels(2)(noisy)
    assert out.privacy.releases[0].public == (
        ("'edge_index', read by ReconstructLabels", 'edges'), )
    assert noisy.privacy.epsilon('edges') == 0
    assert out.privacy.epsilon('edges') == math.inf
    assert out.privacy.epsilon('labels') == 1.0
    # Whoever merges the two has read them, too; a release of edges does not
    # take that back, but if it comes before, it is all that is read.
    for ledgers in itertools.permutations([noisy.privacy, out.privacy]):
        both = PrivacyAccountant.merge(ledgers)
        assert both.epsilon('edges') == math.inf
        assert both.epsilon('labels') == 1.0
    assert EdgeRand(2.0)(out).privacy.epsilon('edges') == math.inf
    first = ReconstructLabels(2)(EdgeRand(2.0)(noisy))
    assert first.privacy.epsilon('edges') == 2.0


def test_bad_input(graph):
    with pytest.raises(ValueError) as info:
        ReconstructLabels()(graph)
    assert str(info.value) == (
        "'privacy' must hold a release of 'y' by 'LabelRR', which tells what "
        "noise is in it (got none of it)")
    graph.train_mask = torch.zeros(12).bool()
    nobody = LabelRR(1.0, 3, 'train_mask')(graph)
    with pytest.raises(ValueError) as info:
        ReconstructLabels()(nobody)
    assert str(info.value) == ("'y' must hold at least one released label "
                               "(got unlabelled nodes only)")
    noisy = LabelRR(1.0, 3)(graph)
    noisy.y = (noisy.y + 1) % 3
    with pytest.raises(ValueError, match="'y' must be what LabelRR.* released: "
                       "the ledger tells of other values"):
        ReconstructLabels()(noisy)
    # One label for the whole graph.
    whole = LabelRR(1.0, 3)(Data(y=torch.tensor([1]), x=graph.x,
                                 edge_index=graph.edge_index))
    with pytest.raises(ValueError, match="'edge_index' must hold nodes from 0 "
                       "to 0"):
        ReconstructLabels()(whole)


def test_hetero_data_and_batches():
    data = HeteroData()
    data['paper'].y = torch.arange(10) % 4
    data['paper', 'cites', 'paper'].edge_index = torch.randint(0, 10, (2, 30))
    noisy = LabelRR(2.0, 4)(data)
    out = ReconstructLabels(2)(noisy)
    estimate, _ = algorithm_3(
        noisy['paper'].y, data['paper', 'cites', 'paper'].edge_index, 4, 2.0,
        2, torch.ones(10, dtype=torch.bool))
    best = estimate.max(dim=1).values
    assert torch.allclose(estimate.gather(1, out['paper'].y[:, None])[:, 0],
                          best, atol=1e-4)
    graphs = [LabelRR(2.0, 4)(random_graph(9, 20, 4, i)) for i in range(3)]
    batch = ReconstructLabels(2)(Batch.from_data_list(graphs))
    assert torch.equal(batch.y_soft, torch.cat(
        [ReconstructLabels(2)(one).y_soft for one in graphs]))


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(0, 20), st.integers(0, 6),
       st.integers(2, 9), st.floats(0.1, 10))
def test_any_graph(nodes, edges, hops, classes, epsilon):
    graph = random_graph(nodes, edges, classes)
    graph.train_mask[0] = True
    noisy = LabelRR(epsilon, classes, 'train_mask')(graph)
    out = ReconstructLabels(hops)(noisy)
    assert ((out.y >= 0) == graph.train_mask).all()
    assert (out.y < classes).all() and torch.isfinite(out.y_soft).all()
    total = out.y_soft.sum(dim=1)
    assert (((total - 1).abs() < 1e-4) | (total == 0)).all()
    assert (total[graph.train_mask] > 0).all()
