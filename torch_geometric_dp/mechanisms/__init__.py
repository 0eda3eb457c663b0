"""The mathematics: tensors in, tensors out. Knows no :obj:`Data`."""
from torch_geometric_dp.mechanisms.randomized_response import (
    RandomizedResponse,
)

__all__ = [
    'RandomizedResponse',
]
