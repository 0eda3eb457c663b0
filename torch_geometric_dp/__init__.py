"""Differential privacy for graph neural networks, native to PyTorch Geometric.
"""
from torch_geometric_dp import pyg
from torch_geometric_dp.accountant import (
    Guarantee,
    PrivacyAccountant,
    Relation,
    Release,
    Unit,
)
from torch_geometric_dp.vault import (
    ContentChanged,
    PrivacyBudget,
    PrivacyBudgetExceeded,
    VaultError,
)

__version__ = '0.1.0'

pyg.install()

__all__ = [
    'ContentChanged',
    'Guarantee',
    'PrivacyAccountant',
    'PrivacyBudget',
    'PrivacyBudgetExceeded',
    'Relation',
    'Release',
    'Unit',
    'VaultError',
]
