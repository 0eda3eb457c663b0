"""Layers and losses for graphs that were released under differential privacy.
"""
from torch_geometric_dp.nn.forward_corrected_loss import ForwardCorrectedLoss
from torch_geometric_dp.nn.proportion_loss import ProportionLoss, metis_bags

__all__ = [
    'ForwardCorrectedLoss',
    'metis_bags',
    'ProportionLoss',
]
