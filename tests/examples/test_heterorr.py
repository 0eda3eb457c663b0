"""HeteroRR's examples on graphs of the shape of PPI: several of them, with 50
standardised features and 121 labels.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from torch_geometric_dp import PrivacyAccountant, PrivacyBudgetExceeded
from torch_geometric_dp.transforms import EdgeRR, FeatureRR, LabelRR

pytest.importorskip('matplotlib')
metrics = pytest.importorskip('sklearn.metrics')

EXAMPLES = Path(__file__).parents[2] / 'examples'
BUDGET = {'features': 64.0, 'edges': 1.0, 'labels': 8.0}
BOUNDS = (-1.0, 1.0)


@pytest.fixture
def heterorr(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import heterorr
    return heterorr


@pytest.fixture
def graphs():
    """Two graphs for training, one for validation and one for test; ten nodes
    of the second are for test, too.
    """
    generator = torch.Generator().manual_seed(0)
    out = []
    for nodes, part in ((30, 'train'), (40, 'train'), (35, 'val'),
                        (25, 'test')):
        edge = torch.randint(nodes, (2, 5 * nodes), generator=generator)
        x = torch.randn(nodes, 50, generator=generator)
        # Labels that can be learnt.
        y = (x @ torch.randn(50, 121, generator=torch.Generator().manual_seed(
            1)) > 0).float()  # As in PPI.
        data = Data(x=x, y=y, edge_index=edge)
        for name in ('train', 'val', 'test'):
            data[f'{name}_mask'] = torch.full((nodes, ), name == part)
        out.append(data)
    out[1].train_mask[30:], out[1].test_mask[30:] = False, True
    return out


def undirected(edge_index):
    return {(min(edge), max(edge)) for edge in edge_index.t().tolist()
            if edge[0] != edge[1]}


@pytest.mark.parametrize('share', [0.0, 0.05, 0.1, 0.2, 1.0])
def test_the_private_share_is_honoured(heterorr, graphs, share):
    for raw, data in zip(graphs, heterorr.prepare(graphs, share, BUDGET)):
        pairs = undirected(raw.edge_index)
        private = undirected(data.edge_index[:, data.edge_private])
        public = undirected(data.edge_index[:, ~data.edge_private])
        # No edge is lost, and none is private in one direction alone.
        assert private | public == pairs and not private & public
        assert data.num_edges == 2 * len(pairs)
        assert len(private) == round(share * len(pairs))
        assert 'edge_private' not in raw and 'privacy_budget' not in raw


def test_one_release_and_one_ledger_for_each_graph(heterorr, graphs):
    raw = heterorr.prepare(graphs, 0.2, BUDGET)
    features = FeatureRR(64.0, BOUNDS, decode='unbiased', clip=True)
    transforms = features, EdgeRR(1.0), LabelRR(8.0, 121, mask='known')
    released = heterorr.release(raw, *transforms)
    ids = set()
    for before, after in zip(raw, released):
        ledger = after.privacy
        assert len(ledger.releases) == 3
        assert [ledger.epsilon(kind) for kind in BUDGET] == list(
            BUDGET.values())
        assert [before.privacy_budget.remaining(k) for k in BUDGET] == [0] * 3
        ids |= {release.release_id for release in ledger.releases}
        assert not torch.equal(before.x, after.x)
        # Public edges stay, and the labels of test nodes are not released.
        public = before.edge_index[:, ~before.edge_private]
        assert undirected(public) == undirected(
            after.edge_index[:, ~after.edge_private])
        assert bool((after.y[after.test_mask] == -1).all())
        assert bool(((after.y == 0) | (after.y == 1))[~after.test_mask].all())
    assert len(ids) == 3 * len(raw)

    # The same arguments again: the same release, at no cost.
    again = features, EdgeRR(1.0), LabelRR(8.0, 121, mask='known')
    for one, two in zip(released, heterorr.release(raw, *again)):
        assert torch.equal(one.x, two.x) and one.privacy == two.privacy
        assert torch.equal(one.edge_index, two.edge_index)
    for another in (EdgeRR(0.5), EdgeRR(1.0).renew()):
        with pytest.raises(PrivacyBudgetExceeded):
            heterorr.release(raw, another)


def test_new_releases_for_each_graph(heterorr, graphs):
    raw = heterorr.prepare(graphs, 0.2, {'edges': 2.0})
    transform = EdgeRR(1.0)
    heterorr.renew(raw, transform)
    first = heterorr.release(raw, transform)
    heterorr.renew(raw, transform)
    for before, one, two in zip(raw, first, heterorr.release(raw, transform)):
        assert before.privacy_budget.remaining('edges') == 0.0
        assert one.privacy != two.privacy


def test_batches_keep_ledgers(heterorr, graphs):
    raw = heterorr.prepare(graphs, 0.2, BUDGET)
    released = heterorr.release(raw, FeatureRR(64.0, BOUNDS, clip=True),
                                EdgeRR(1.0))
    seen = []
    for batch in DataLoader(released, batch_size=2):
        ledger = PrivacyAccountant.of(batch)
        # Two graphs hold different nodes, so the larger epsilon counts.
        assert len(ledger.releases) == 4
        assert ledger.epsilon('features') == 64.0
        assert ledger.epsilon('edges') == 1.0
        seen += [data.privacy for data in batch.to_data_list()]
    assert seen == [data.privacy for data in released]


def test_micro_f1(heterorr):
    # By hand: 2 true positives, 1 false positive, 2 false negatives.
    y = torch.tensor([[1, 0, 1], [0, 1, 1]])
    guess = torch.tensor([[1, 1, 0], [0, 1, 0]])
    assert heterorr.micro_f1(guess, y) == pytest.approx(4 / 7)
    assert heterorr.micro_f1(torch.zeros_like(y), torch.zeros_like(y)) == 0.0
    generator = torch.Generator().manual_seed(0)
    for share in (0.1, 0.5, 0.9):
        guess, y = (torch.rand(2, 60, 121, generator=generator) < share).long()
        assert heterorr.micro_f1(guess, y) == pytest.approx(
            metrics.f1_score(y.numpy(), guess.numpy(), average='micro'))
    guess, y = torch.randint(7, (2, 100), generator=generator)
    assert heterorr.micro_f1(guess, y) == pytest.approx(
        metrics.f1_score(y.numpy(), guess.numpy(), average='micro'))


def test_the_score_is_that_of_all_graphs_together(heterorr, graphs):
    generator = torch.Generator().manual_seed(0)
    guesses = [(torch.rand(data.y.shape, generator=generator) < 0.5).long()
               for data in graphs]
    # The nodes for training: all of the first graph, 30 of the second.
    y, guess = (torch.cat([one, two[:30]]).numpy() for one, two in
                ((graphs[0].y, graphs[1].y), guesses[:2]))
    assert heterorr.score(guesses, graphs, 'train_mask') == pytest.approx(
        metrics.f1_score(y, guess, average='micro'))


def test_training_reads_what_it_may(heterorr, graphs):
    for data in graphs:  # Random edges would only blur the features.
        data.edge_index = data.edge_index[:, :0]
    guesses = heterorr.predict(graphs, 121, seed=0, epochs=20)
    assert [g.shape for g in guesses] == [data.y.shape for data in graphs]
    ones = [torch.ones_like(data.y) for data in graphs]
    for mask in ('train_mask', 'test_mask'):
        assert (heterorr.score(guesses, graphs, mask)
                > heterorr.score(ones, graphs, mask))
    # The labels of test nodes make no difference.
    for data in graphs:
        data.y = torch.where(data.test_mask[:, None], 1 - data.y, data.y)
    again = heterorr.predict(graphs, 121, seed=0, epochs=20)
    assert all(torch.equal(one, two) for one, two in zip(guesses, again))


@pytest.mark.parametrize('labels', [None, 200.0])
def test_the_whole_comparison(heterorr, graphs, labels, tmp_path, capsys):
    task = heterorr.Task(graphs, 121, BOUNDS, 'Small', two_hops=labels is None)
    path = tmp_path / 'figure.png'
    heterorr.run(task, argparse.Namespace(
        dataset='ppi', shares=[0.05, 0.2], seeds=1, epochs=2,
        epsilon_labels=labels, figure=str(path)))
    text = capsys.readouterr().out
    assert path.stat().st_size > 0
    assert '4 graph(s), 130 nodes, 50 features' in text
    assert '5% of the edges private: test micro-F1' in text
    assert '= features: epsilon = 64' in text
    assert '= edges: epsilon = 1' in text
    assert ('= labels: epsilon = 200' in text) == (labels is not None)
    assert 'takes as public: num_nodes' in text
    # All that was planned, and no more, was spent.
    assert 'PrivacyBudget(features=0 of 84' in text


def test_ppi_through_its_own_class(heterorr, tmp_path, monkeypatch):
    # The files that PyG's class reads, with two graphs for each part.
    monkeypatch.chdir(tmp_path)
    raw = tmp_path / '.cache' / 'PPI' / 'raw'
    raw.mkdir(parents=True)
    rng = np.random.RandomState(0)
    for part in ('train', 'valid', 'test'):
        ring = [{'source': g + i, 'target': g + (i + 1) % 6}
                for g in (0, 6) for i in range(6)]
        (raw / f'{part}_graph.json').write_text(json.dumps({
            'directed': False, 'multigraph': False, 'graph': {},
            'nodes': [{'id': i} for i in range(12)], 'links': ring}))
        np.save(raw / f'{part}_graph_id.npy', np.repeat([1, 2], 6))
        np.save(raw / f'{part}_feats.npy', rng.randn(12, 50))
        np.save(raw / f'{part}_labels.npy', rng.randint(2, size=(12, 121)))
    task = heterorr.ppi()
    assert len(task.graphs) == 6 and task.num_classes == 121
    for i, data in enumerate(task.graphs):
        assert data.x.shape == (6, 50) and data.y.shape == (6, 121)
        assert [bool(data[f'{name}_mask'].all()) for name in
                ('train', 'val', 'test')] == [i // 2 == k for k in range(3)]
    for data in heterorr.prepare(task.graphs, 0.5, BUDGET):
        assert int(data.edge_private.sum()) == 6 and data.num_edges == 12


def test_heterorr_edges(heterorr, tmp_path, capsys):
    import heterorr_edges
    path = tmp_path / 'figure.png'
    heterorr_edges.main(['--shares', '0.5', '--epsilons', '1', '--seeds', '1',
                         '--figure', str(path)])
    text = capsys.readouterr().out
    assert path.stat().st_size > 0
    assert '= edges: epsilon = 1' in text
    assert 'PrivacyBudget(edges=0 of 1 left)' in text
    for baseline in ('public edges only, epsilon = 0', 'no edges, epsilon = 0'):
        assert baseline in text
