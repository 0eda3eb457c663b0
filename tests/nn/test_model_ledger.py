import math

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from torch_geometric_dp import PrivacyAccountant
from torch_geometric_dp.nn import NAPConv, model_ledger
from torch_geometric_dp.nn.models import ClassSumClassifier
from torch_geometric_dp.transforms import EdgeRand, LabelRR


def test_counts_nothing_twice(graph):
    private = LabelRR(1.0, 3)(graph)
    conv = NAPConv(3, 3, 4.0, max_degree=2)
    model = torch.nn.Sequential(conv, torch.nn.ModuleDict({'again': conv}))
    for _ in range(3):
        conv(private.x, private.edge_index)
    ledger = model_ledger(model, private)
    assert len(ledger.releases) == 2
    assert ledger.epsilon('node') == 5.0
    assert ledger.epsilon('labels') == 1.0
    # What the graph already tells of is not added.
    private.privacy = ledger
    assert model_ledger(model, private) == ledger


def test_raw_labels(graph):
    # Row 11: trained on raw labels, and no word of it.
    model = GCN(3, 8, num_layers=1, out_channels=3)
    model.convs[0] = NAPConv(3, 3, 4.0, max_degree=2)
    model(graph.x, graph.edge_index)
    ledger = model_ledger(model, graph)
    assert 'labels: taken as public by GCN' in str(ledger)
    assert ledger.epsilon('labels') == math.inf
    assert ledger.epsilon('node') == math.inf
    assert ledger.epsilon('edges') == model.convs[0].privacy.epsilon('edges')
    assert PrivacyAccountant.from_json(ledger.to_json()) == ledger
    # Without labels, and with labels of another name.
    assert model_ledger(model, graph, labels=None) == model.convs[0].privacy
    graph.target = graph.y
    assert model_ledger(model, graph, 'target').releases[-1].fields == (
        'target', )
    with pytest.raises(ValueError, match="'z' is missing.*labels=None"):
        model_ledger(model, graph, 'z')


def test_labels_that_were_put_back(graph):
    private = LabelRR(1.0, 3)(graph)
    private.y = graph.y
    ledger = model_ledger(GCN(3, 3, num_layers=1), private)
    assert ledger.epsilon('labels') == math.inf


def test_models_that_release_labels_themselves():
    data = Data(x=torch.rand(40, 3), y=torch.arange(40) % 2,
                edge_index=torch.tensor([[0, 1], [1, 0]]),
                train_mask=torch.ones(40, dtype=torch.bool))
    data = EdgeRand(1.0)(data)
    model = ClassSumClassifier(3, 2, 2.0).fit(data)
    ledger = model_ledger(model, data)
    assert ledger.epsilon('labels') == 4.0
    assert len(ledger.releases) == 2
