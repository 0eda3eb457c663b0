"""Differential privacy for graph neural networks, native to PyTorch Geometric.
"""
from torch_geometric_dp import pyg
from torch_geometric_dp.accountant import (
    Guarantee,
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
    Release,
)

__version__ = '0.1.0'

pyg.install()

__all__ = [
    'Guarantee',
    'Release',
    'PrivacyAccountant',
    'PrivacyBudget',
    'PrivacyBudgetExceeded',
]
