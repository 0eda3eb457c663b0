"""Releases of a graph's private fields, as PyG transforms."""
from torch_geometric_dp.transforms.label_rr import LabelRR

__all__ = [
    'LabelRR',
]
