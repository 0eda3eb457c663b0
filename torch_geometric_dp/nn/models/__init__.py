"""Whole models, with a ledger: :obj:`fit(data)`, :obj:`predict(data)`."""
from torch_geometric_dp.nn.models.class_sum_classifier import (
    ClassSumClassifier,
)
from torch_geometric_dp.nn.models.nip_gnn import NIPGNN

__all__ = [
    'ClassSumClassifier',
    'NIPGNN',
]
