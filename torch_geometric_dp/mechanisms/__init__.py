"""The mathematics: tensors in, tensors out. Knows no :obj:`Data`."""
from torch_geometric_dp.mechanisms.class_sums import ClassSums
from torch_geometric_dp.mechanisms.degree_preserving_rr import (
    DegreePreservingRR,
)
from torch_geometric_dp.mechanisms.dpsgd import DPSGD
from torch_geometric_dp.mechanisms.duchi import Duchi
from torch_geometric_dp.mechanisms.duchi_multi import DuchiMulti
from torch_geometric_dp.mechanisms.edge_rand import EdgeRand
from torch_geometric_dp.mechanisms.edge_votes import EdgeVotes
from torch_geometric_dp.mechanisms.feature_rr import FeatureRR
from torch_geometric_dp.mechanisms.frequency import (
    frequency_estimate,
    frequency_variance,
    simplex_projection,
)
from torch_geometric_dp.mechanisms.gaussian import Gaussian
from torch_geometric_dp.mechanisms.grrfs import GRRFS
from torch_geometric_dp.mechanisms.hybrid import Hybrid
from torch_geometric_dp.mechanisms.lap_graph import LapGraph
from torch_geometric_dp.mechanisms.laplace import Laplace
from torch_geometric_dp.mechanisms.mechanism import (
    EdgePair,
    EveryLabel,
    LabelPair,
    Mechanism,
    NodeEdges,
    RowPair,
    Star,
    WorstCase,
    largest_loss,
    row_pairs,
)
from torch_geometric_dp.mechanisms.multi_bit import MultiBit
from torch_geometric_dp.mechanisms.neighbour_sum import (
    NeighbourSum,
    paper_weights,
)
from torch_geometric_dp.mechanisms.node_votes import NodeVotes
from torch_geometric_dp.mechanisms.piecewise import Piecewise
from torch_geometric_dp.mechanisms.pm_sub import PMSub
from torch_geometric_dp.mechanisms.randomized_response import (
    RandomizedResponse,
)
from torch_geometric_dp.mechanisms.square_wave import SquareWave
from torch_geometric_dp.mechanisms.three_outputs import ThreeOutputs

__all__ = [
    'ClassSums',
    'DegreePreservingRR',
    'DPSGD',
    'Duchi',
    'DuchiMulti',
    'EdgePair',
    'EdgeRand',
    'EdgeVotes',
    'EveryLabel',
    'FeatureRR',
    'frequency_estimate',
    'frequency_variance',
    'Gaussian',
    'GRRFS',
    'Hybrid',
    'LabelPair',
    'LapGraph',
    'Laplace',
    'largest_loss',
    'Mechanism',
    'MultiBit',
    'NeighbourSum',
    'NodeEdges',
    'NodeVotes',
    'paper_weights',
    'Piecewise',
    'PMSub',
    'RandomizedResponse',
    'row_pairs',
    'RowPair',
    'simplex_projection',
    'SquareWave',
    'Star',
    'ThreeOutputs',
    'WorstCase',
]
