"""Which columns matter, and which of them are sensitive."""
from torch_geometric_dp.explain.feature_importance import feature_importance
from torch_geometric_dp.explain.feature_sensitivity import feature_sensitivity
from torch_geometric_dp.explain.hetero_scores import HeteroScores

__all__ = [
    'feature_importance',
    'feature_sensitivity',
    'HeteroScores',
]
