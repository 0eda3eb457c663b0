"""Whole models, with a ledger: :obj:`fit(data)`, :obj:`predict(data)`."""
from torch_geometric_dp.nn.models.class_sum_classifier import (
    ClassSumClassifier,
)
from torch_geometric_dp.nn.models.label_diffusion import LabelDiffusion
from torch_geometric_dp.nn.models.label_ensemble import LabelEnsemble
from torch_geometric_dp.nn.models.neighbour_votes import NeighbourVotes
from torch_geometric_dp.nn.models.nip_gnn import NIPGNN
from torch_geometric_dp.nn.models.rgnn import RGNN

__all__ = [
    'ClassSumClassifier',
    'LabelDiffusion',
    'LabelEnsemble',
    'NeighbourVotes',
    'NIPGNN',
    'RGNN',
]
