"""Releases of a graph's private fields, as PyG transforms."""
from torch_geometric_dp.transforms.bound_degree import BoundDegree
from torch_geometric_dp.transforms.columns import (
    Duchi,
    Hybrid,
    Laplace,
    Piecewise,
    PMSub,
    SquareWave,
    ThreeOutputs,
)
from torch_geometric_dp.transforms.degree_preserving_rr import (
    DegreePreservingRR,
)
from torch_geometric_dp.transforms.discretize import Discretize
from torch_geometric_dp.transforms.duchi_multi import DuchiMulti
from torch_geometric_dp.transforms.edge_rand import EdgeRand
from torch_geometric_dp.transforms.edge_rr import EdgeRR
from torch_geometric_dp.transforms.feature_rr import FeatureRR
from torch_geometric_dp.transforms.gaussian import Gaussian
from torch_geometric_dp.transforms.group_columns import GroupColumns
from torch_geometric_dp.transforms.grrfs import GRRFS
from torch_geometric_dp.transforms.label_rr import LabelRR
from torch_geometric_dp.transforms.lap_graph import LapGraph
from torch_geometric_dp.transforms.multi_bit import MultiBit
from torch_geometric_dp.transforms.publish import Publish
from torch_geometric_dp.transforms.reconstruct_features import (
    ReconstructFeatures,
)
from torch_geometric_dp.transforms.reconstruct_labels import ReconstructLabels

__all__ = [
    'BoundDegree',
    'DegreePreservingRR',
    'Discretize',
    'Duchi',
    'DuchiMulti',
    'EdgeRand',
    'EdgeRR',
    'FeatureRR',
    'Gaussian',
    'GroupColumns',
    'GRRFS',
    'Hybrid',
    'LabelRR',
    'LapGraph',
    'Laplace',
    'MultiBit',
    'Piecewise',
    'PMSub',
    'Publish',
    'ReconstructFeatures',
    'ReconstructLabels',
    'SquareWave',
    'ThreeOutputs',
]
