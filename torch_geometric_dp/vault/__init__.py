"""Budgets, and what they remember: keys, charges, and what noise is bound to.
Knows no tensors.
"""
from torch_geometric_dp.vault.budget import (
    ContentChanged,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.vault.store import SQLiteStore, Store

__all__ = [
    'ContentChanged',
    'PrivacyBudget',
    'PrivacyBudgetExceeded',
    'SQLiteStore',
    'Store',
]
