"""What was promised, what it cost, and to whom. Knows no tensors."""
from torch_geometric_dp.accountant.budget import (
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.accountant.guarantee import Guarantee, Release
from torch_geometric_dp.accountant.ledger import PrivacyAccountant

__all__ = [
    'Guarantee',
    'Release',
    'PrivacyAccountant',
    'PrivacyBudget',
    'PrivacyBudgetExceeded',
]
