"""Training under a promise to whole nodes: any model, step by step."""
from torch_geometric_dp.nn.training.make_private import make_private
from torch_geometric_dp.nn.training.private_training import PrivateTraining

__all__ = [
    'make_private',
    'PrivateTraining',
]
