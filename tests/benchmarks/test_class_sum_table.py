import numpy as np
import torch
from torch_geometric.data import Data

from benchmarks import class_sum_table as table
from benchmarks.dp_descent import RATE, STEPS, dp_descent


def test_generated_rows():
    data = table.words(20, 100, 0.5, nodes=400)
    assert data.x.shape == (400, 100) and data.y.max() == 9
    assert abs(float(data.x.sum(dim=1).mean()) - 20) < 1
    assert 0.25 < float((data.y == 0).float().mean()) < 0.45
    data = table.signed(300)
    assert data.x.min() < 0 < data.x.max() and data.y.max() == 5
    assert set(table.CHOSEN_ON) < set(table.GRAPHS)


def test_verdict():
    one, two = [0.5, 0.51, 0.49], [0.8, 0.82, 0.81]
    assert not table.falls([one, two, two])
    assert table.falls([one, two, one])
    assert not table.falls([one, [v - 0.01 for v in one]])
    assert table.falls([two, one])  # Not only next to each other.


def test_cells_and_report(monkeypatch):
    monkeypatch.setattr(table, 'graph_of', lambda name: table.words(
        15, 40, 1.0, nodes=200, classes=3))
    monkeypatch.setattr(table, 'EPSILONS', (1.0, 32.0))
    table.sparse_of.cache_clear()
    results = {}
    for cell in table.cells(['Cora']):
        results[table.key_of(cell)] = [table.result(*cell, seed)
                                       for seed in (0, 1)]
    table.sparse_of.cache_clear()
    assert len(results) == 2 + 3 * 2
    assert np.mean(results['Cora|Gaussian|32']) > 0.6
    text = table.report(results, 2)
    assert '### Cora' in text and 'not run' not in text
    assert text.count('| yes |') + text.count('| no |') == 3


def test_descent_against_a_loop():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(40, 5, generator=generator)
    y = torch.arange(40) % 2
    x[:, 0] += y
    data = Data(x=x, y=y, train_mask=torch.arange(40) < 30)
    row = torch.cat([0.9**0.5 * x / x.norm(dim=1, keepdim=True),
                     torch.full((40, 1), 0.1**0.5)], dim=1)
    weight = torch.zeros(6, 2)
    for _ in range(STEPS):
        step = torch.zeros(6, 2)
        for node in range(30):
            error = torch.eye(2)[y[node]] - (row[node] @ weight).softmax(0)
            step += torch.outer(row[node], error / max(1, error.norm()))
        weight += RATE * step / 30
    out = dp_descent(data, 1e6, 1e-5, seed=0)
    same = out == (row @ weight).argmax(dim=1)
    assert same.sum() >= 38  # Steps are long, and rounding is seen.
    # Where noise is all there is, seeds differ.
    noisy = [dp_descent(data, 0.01, 1e-5, seed) for seed in (0, 0, 1)]
    assert torch.equal(noisy[0], noisy[1])
    assert not torch.equal(noisy[0], noisy[2])
