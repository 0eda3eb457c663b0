"""A table about whole people that goes on where it stopped."""
import json

import numpy as np
import pytest
import torch

from benchmarks import node_learning_table as table
from torch_geometric_dp.datasets import DigitsGraph


@pytest.fixture
def digits(monkeypatch):
    def load(graph, share, seed):
        data = DigitsGraph()[0]
        generator = torch.Generator().manual_seed(seed)
        part = torch.rand(data.num_nodes, generator=generator)
        data.train_mask, data.val_mask = part < 0.75, part < 0
        data.test_mask = part >= 0.75
        return data

    monkeypatch.setattr(table, 'load', load)


def test_the_table_goes_on(digits, tmp_path, monkeypatch):
    names = ['majority class', table.CLASS_SUMS, *table.VOTES]
    arguments = ['--graphs', 'Cora', '--epsilons', '8', '--methods', *names,
                 '--out', str(tmp_path), '--seeds']
    table.main([*arguments, '1'])
    store = tmp_path / 'node_learning.json'
    one = json.loads(store.read_text())
    assert set(one) == {table.key('Cora', name, 8.0 if name in table.PRIVATE
                                  else None) for name in names}
    table.main([*arguments, '2'])
    two = json.loads(store.read_text())
    assert all(two[cell][:1] == values and len(two[cell]) == 2
               for cell, values in one.items())
    text = (tmp_path / 'node_learning.md').read_text()
    assert '## Cora' in text and '2 seeds' in text
    assert np.mean(two[table.key('Cora', table.CLASS_SUMS, 8.0)]) > 0.5


def test_goals():
    results = {}
    for name in (table.CLASS_SUMS, *table.VOTES):
        for graph, value in (('Caltech36', 0.8), ('Cora', 0.5)):
            results[table.key(graph, name, 8.0)] = [value, value + 0.01]
    results[table.key('Cora', table.FIRST, 8.0)] = [0.1, 0.11]
    rows = table.goals(results).splitlines()
    assert rows[2].endswith('| yes | no |')
    assert rows[3].endswith(f'|  | {table.FIRST} |')
