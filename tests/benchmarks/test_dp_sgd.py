import pytest
import torch

from benchmarks import dp_sgd_cost
from benchmarks.dp_sgd import dp_sgd

pytest.importorskip('dp_accounting')


@pytest.mark.parametrize('hops, max_degree', [(0, 5), (1, 1)])
def test_one_class_for_each_node(graph, hops, max_degree):
    classes = dp_sgd(graph, 8.0, 1e-5, 0, hops, max_degree)
    assert classes.shape == (12, ) and set(classes.tolist()) <= {0, 1, 2}
    assert torch.equal(classes, dp_sgd(graph, 8.0, 1e-5, 0, hops, max_degree))


def test_report_tells_what_is_missed():
    row = {'plain': 1e-3, 'dp': 4e-3, 'nodes': 5, 'bytes': 2e6,
           'plain bytes': 1e6}
    text = dp_sgd_cost.report({
        'models': {'GCN': {8: row}, 'MLP': {8: {**row, 'dp': 6e-3}}},
        'opacus': {8: None}})
    assert '| GCN | 8 | 5 | 1.0 | 4.0 | 4.0 | 2 | 1 |' in text
    assert 'GCN: 4.0, met; MLP: 6.0, missed.' in text
    assert 'Opacus is not installed.' in text
