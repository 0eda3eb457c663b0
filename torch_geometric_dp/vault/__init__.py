"""Budgets, and what they remember: keys, charges, and what noise is bound to.
Knows no tensors.
"""
from torch_geometric_dp.vault.budget import (
    ContentChanged,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.vault.postgres import PostgresStore
from torch_geometric_dp.vault.sqlite import SQLiteStore
from torch_geometric_dp.vault.store import Store, VaultError
from torch_geometric_dp.vault.vault import Vault

__all__ = [
    'ContentChanged',
    'PostgresStore',
    'PrivacyBudget',
    'PrivacyBudgetExceeded',
    'SQLiteStore',
    'Store',
    'Vault',
    'VaultError',
]
