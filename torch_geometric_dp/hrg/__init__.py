"""Hierarchical random graphs: dendrograms, and chains that draw them. Knows no
:obj:`Data`.
"""
from torch_geometric_dp.hrg.chain import Chains
from torch_geometric_dp.hrg.convergence import split_r_hat
from torch_geometric_dp.hrg.dendrogram import Dendrogram
from torch_geometric_dp.hrg.likelihood import private_weight, sensitivity
from torch_geometric_dp.hrg.release import BlockCounts, Blocks
from torch_geometric_dp.hrg.start import metis_dendrogram, random_dendrogram

__all__ = [
    'BlockCounts',
    'Blocks',
    'Chains',
    'Dendrogram',
    'metis_dendrogram',
    'private_weight',
    'random_dendrogram',
    'sensitivity',
    'split_r_hat',
]
