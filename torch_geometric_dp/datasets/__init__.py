"""Graphs that are at hand everywhere."""
from torch_geometric_dp.datasets.digits_graph import DigitsGraph

__all__ = [
    'DigitsGraph',
]
