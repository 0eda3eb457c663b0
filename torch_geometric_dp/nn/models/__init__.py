"""Whole models, to be fitted to a released graph."""
from torch_geometric_dp.nn.models.label_diffusion import LabelDiffusion
from torch_geometric_dp.nn.models.rgnn import RGNN

__all__ = [
    'LabelDiffusion',
    'RGNN',
]
