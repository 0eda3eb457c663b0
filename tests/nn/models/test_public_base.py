import torch
import torch.nn.functional as F

from torch_geometric_dp.nn.models import public_base
from torch_geometric_dp.nn.models.public_base import (
    default_base,
    neighbours_by_features,
    public_beliefs,
)


def test_nobody_is_judged_by_a_model_that_saw_the_label(monkeypatch):
    # Rows are names: whoever has seen a label knows it, and nobody else.
    monkeypatch.setattr(public_base, '_EPOCHS', 200)
    y = torch.arange(40) % 2
    known = torch.where(torch.arange(40) < 30, y, -1)
    belief = public_beliefs(default_base(40, 2), torch.eye(40), known,
                            torch.empty(2, 0).long())
    assert float(belief.exp().max()) < 0.95
    assert torch.allclose(belief.exp().sum(dim=1), torch.ones(40), atol=1e-4)


def test_public_edges_help(monkeypatch):
    monkeypatch.setattr(public_base, '_EPOCHS', 40)
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 2
    x = F.one_hot(y, 2) + 2.0 * torch.randn(120, 2, generator=generator)
    known = torch.where(torch.arange(120) < 60, y, -1)
    ring = torch.arange(120)
    edges = torch.cat([torch.stack([ring, (ring + 2 * i) % 120])
                       for i in range(1, 8)], dim=1)

    def right(edges):
        belief = public_beliefs(default_base(2, 2), x, known, edges)
        return float((belief.argmax(dim=1) == y)[60:].float().mean())

    assert right(edges) > right(edges[:, :0]) + 0.1


def test_neighbours_by_features_are_the_nearest():
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(60, 8, generator=generator) < 0.4).float() + 0.01
    edges, similarity = neighbours_by_features(x)
    weight = torch.log(61 / (1 + (x != 0).sum(dim=0)))
    rows = F.normalize(x * weight, dim=1)
    expected = rows @ rows.t() - 3 * torch.eye(60)
    assert edges[1].tolist() == [i for i in range(60) for _ in range(15)]
    best = expected.sort(dim=1, descending=True).values[:, :15]
    assert torch.allclose(similarity.view(60, 15), best.clamp(min=0), atol=1e-5)
    assert (edges[0] != edges[1]).all()


def test_only_the_best_rows_are_judged_by_all_folds(monkeypatch):
    trained = []

    def train(base, x, known, nodes):
        # Whoever is not among the nodes is judged rightly, by the best rows.
        trained.append((float(x[0, 0]), len(nodes)))
        right = F.one_hot(known.clamp(min=0), 2).float()
        return right if x[0, 0] == 1.0 else 1.0 - right

    monkeypatch.setattr(public_base, '_train', train)
    monkeypatch.setattr(public_base, '_ENOUGH', 20)
    monkeypatch.setattr(public_base, '_views', lambda x, edges: [
        torch.full((60, 2), float(i)) for i in range(3)])
    known = torch.arange(60) % 2
    known[50:] = -1
    belief = public_beliefs(default_base(2, 2), torch.zeros(60, 2), known,
                            torch.empty(2, 0).long())
    # Folds of ten: two of them for all rows, and the others for the best.
    assert trained == [(i, 40) for i in (0, 0, 1, 1, 2, 2, 1, 1, 1)]
    assert torch.equal(belief.argmax(dim=1)[:50], known[:50])
