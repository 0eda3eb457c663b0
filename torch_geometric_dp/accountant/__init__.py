"""What was promised, what it cost, and to whom. Knows no tensors."""
from torch_geometric_dp.accountant.conversion import changes
from torch_geometric_dp.accountant.entry import Projection, Release
from torch_geometric_dp.accountant.events import (
    GaussianNoise,
    LaplaceNoise,
    SampledGaussianNoise,
)
from torch_geometric_dp.accountant.guarantee import Guarantee
from torch_geometric_dp.accountant.ledger import PrivacyAccountant
from torch_geometric_dp.accountant.unit import Relation, Trust, Unit

__all__ = [
    'changes',
    'GaussianNoise',
    'Guarantee',
    'LaplaceNoise',
    'PrivacyAccountant',
    'Projection',
    'Relation',
    'Release',
    'SampledGaussianNoise',
    'Trust',
    'Unit',
]
