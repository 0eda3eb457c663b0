"""Layers for private and for released graphs."""
from torch_geometric_dp.nn.aca import ACA
from torch_geometric_dp.nn.nap import NAP
from torch_geometric_dp.nn.nap_conv import NAPConv
from torch_geometric_dp.nn.tnie import TNIE

__all__ = [
    'ACA',
    'NAP',
    'NAPConv',
    'TNIE',
]
