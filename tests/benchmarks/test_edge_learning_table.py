"""Graphs of schools, and a table that goes on where it stopped."""
import json

import numpy as np
import pytest
import torch

from benchmarks import edge_learning_graphs as graphs
from benchmarks import edge_learning_table as table


@pytest.fixture
def school(tmp_path, monkeypatch):
    """A school of 200 people, two class years, and some that are left out."""
    state = np.random.RandomState(0)
    rows = state.randint(0, 3, (200, 7))
    rows[:, graphs.YEAR] = 2004 + np.arange(200) % 2
    rows[:7, graphs.YEAR] = 0
    rows[7:10, graphs.YEAR] = 1990
    pairs = np.unique(np.sort(state.randint(0, 200, (2, 900)), axis=0), axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    folder = tmp_path / 'facebook100'
    folder.mkdir()
    np.savez(folder / 'Caltech36.npz', edges=pairs.T, attributes=rows)
    monkeypatch.setenv('TORCH_GEOMETRIC_DP_DATA', str(tmp_path))
    monkeypatch.setitem(graphs.LEAST, 'Caltech36', 10)
    graphs.raw.cache_clear()
    yield rows, pairs
    graphs.raw.cache_clear()


def test_school(school):
    rows, pairs = school
    data = graphs.raw('Caltech36')
    assert data.num_nodes == 190
    assert data.y.tolist() == [year - 2004
                               for year in rows[10:, graphs.YEAR]]
    # Each of five attributes is one of three values.
    assert data.x.shape == (190, 15)
    assert (data.x.view(190, 5, 3).argmax(dim=2).numpy()
            == rows[10:, :5]).all()
    inside = pairs[:, (pairs >= 10).all(axis=0)] - 10
    assert data.num_edges == 2 * inside.shape[1]
    assert {tuple(pair) for pair in inside.T.tolist()} == {
        (u, v) for u, v in data.edge_index.t().tolist() if u < v}


def test_load(school):
    plain, data = graphs.raw('Caltech36'), graphs.load('Caltech36', 0.6, 1)
    masks = data.train_mask, data.val_mask, data.test_mask
    assert [int(mask.sum()) for mask in masks] == [142, 19, 29]
    assert (torch.stack(masks).sum(dim=0) == 1).all()
    # Other numbers, the same graph: as many edges for each pair of classes.
    assert not torch.equal(plain.y, data.y)

    def classes(graph):
        return (2 * graph.y[graph.edge_index[0]]
                + graph.y[graph.edge_index[1]]).bincount().tolist()

    assert classes(plain) == classes(data)
    # Both directions of an edge are private, or public.
    half = data.num_edges // 2
    assert torch.equal(data.edge_private[:half], data.edge_private[half:])
    assert 0.5 < float(data.edge_private.float().mean()) < 0.7
    assert 'edge_private' not in graphs.load('Caltech36', 1.0, 1)


def test_table_goes_on(tmp_path, monkeypatch):
    calls = []

    def result(graph, share, name, epsilon, seed):
        calls.append((graph, name, epsilon, seed))
        if name == 'EdgeRand':
            return None
        return 0.5 + 0.01 * seed + (0.3 if name == table.VOTES else 0.0)

    monkeypatch.setattr(table, 'result', result)
    arguments = ['--graphs', 'Rice31', 'Cora', '--methods', 'main', 'EdgeRand',
                 '--epsilons', '0.5', '1', '4', '--out', str(tmp_path)]
    table.main([*arguments, '--seeds', '2'])
    first = len(calls)
    assert calls.count(('Rice31', table.VOTES, 1.0, 1)) == 1
    # Too many edges are so for all seeds.
    assert calls.count(('Rice31', 'EdgeRand', 1.0, 1)) == 0
    table.main([*arguments, '--seeds', '2', '--again', 'GAP'])
    assert {name for _, name, _, _ in calls[first:]} == {'GAP'}
    results = json.loads((tmp_path / 'edge_learning.json').read_text())
    assert results[table.key('Cora', 1.0, 'GAP', 4.0)] == [0.5, 0.51]
    text = (tmp_path / 'edge_learning.md').read_text()
    assert '| Rice31 | 80.5 | 159.4%: yes | +30.0, +30.0: yes |' in text
    assert '| EdgeRand |  | too many edges |' in text
    assert (tmp_path / 'edge_learning.png').exists()


def test_best_free_way_waits_for_all():
    results = {table.key('Cora', 1.0, name, None): [0.1 * i, 0.1 * i]
               for i, name in enumerate(table.FREE)
               if table.runs(name, 1.0)}
    last = list(table.FREE)[-1]
    assert table.best_free(results, 'Cora', 1.0) == (last, [0.5, 0.5])
    del results[table.key('Cora', 1.0, last, None)]
    assert table.best_free(results, 'Cora', 1.0) == ('not run', [])


def test_public_edges_are_needed_where_there_are_some():
    names = {name for _, _, name, _ in table.cells(
        ['Cora'], [1.0], table.METHODS, [1.0])}
    assert not names & set(table.NEED_PUBLIC)
    names = {name for _, _, name, _ in table.cells(
        ['Cora'], [0.6], table.METHODS, [1.0])}
    assert names >= set(table.NEED_PUBLIC)


@pytest.mark.parametrize('name', [
    name for name in table.METHODS
    if table.runs(name, 0.6) and not name.endswith(table.WRONG)])
def test_methods_run(school, name):
    value = table.result('Caltech36', 0.6, name, 1.0, 0)
    assert value is None or 0 <= value <= 1
