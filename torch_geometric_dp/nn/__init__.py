"""Layers and losses for private and for released graphs."""
from torch_geometric_dp.nn.aca import ACA
from torch_geometric_dp.nn.check_private import check_private
from torch_geometric_dp.nn.forward_corrected_loss import ForwardCorrectedLoss
from torch_geometric_dp.nn.model_ledger import model_ledger
from torch_geometric_dp.nn.nap import NAP
from torch_geometric_dp.nn.nap_conv import NAPConv
from torch_geometric_dp.nn.proportion_loss import ProportionLoss, metis_bags
from torch_geometric_dp.nn.tnie import TNIE
from torch_geometric_dp.nn.training import PrivateTraining, make_private

__all__ = [
    'ACA',
    'check_private',
    'ForwardCorrectedLoss',
    'make_private',
    'metis_bags',
    'model_ledger',
    'NAP',
    'NAPConv',
    'PrivateTraining',
    'ProportionLoss',
    'TNIE',
]
