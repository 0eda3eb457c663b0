"""Mechanisms that break their promise, each by one common mistake, and what is
right in their place.
"""
import math

import numpy as np
import torch
from torch_geometric.transforms import BaseTransform

from torch_geometric_dp import mechanisms, transforms
from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.noise import (
    NoiseSource,
    discrete_laplace,
    uniform_integers,
)

STEPS = 2**20


class HalvedLaplace(transforms.Laplace):
    """Half of the noise that epsilon asks for."""
    def mechanism(self, num_features):
        epsilons = [2 * e for e in self.epsilons(num_features)]
        return mechanisms.Laplace(epsilons, self.bounds)


class HalvedGaussian(transforms.Gaussian):
    """Half of the noise that epsilon and delta ask for."""
    def mechanism(self, num_features):
        mechanism = super().mechanism(num_features)
        mechanism.sigma /= 2
        return mechanism


class HalvedEdgeRR(transforms.EdgeRR):
    """Half of the noise that epsilon asks for, in the counts."""
    def _split(self):
        return 0.0, 2 * self.epsilon


class WholeEpsilonForEveryColumn(transforms.Duchi):
    """Forgets to split epsilon over the columns."""
    def mechanism(self, num_features):
        return mechanisms.Duchi([self.epsilon] * num_features, self.bounds)


class FloatLaplace(BaseTransform):
    """The Laplace mechanism as it stands in the books, in floating point."""
    def __init__(self, epsilon, bounds=(0.0, 1.0)):
        self.epsilon = epsilon
        self.bounds = bounds

    @property
    def guarantee(self):
        return Guarantee(self.epsilon, 'features', "one row is replaced")

    def forward(self, data):
        width = self.bounds[1] - self.bounds[0]
        scale = width * data.x.size(1) / self.epsilon
        noise = torch.distributions.Laplace(0.0, scale).sample(data.x.shape)
        data.x = data.x + noise
        return data

    def __repr__(self):
        return f'{type(self).__name__}(epsilon={self.epsilon})'


class TheoremOne(BaseTransform):
    """Randomised response on some columns, uniform values elsewhere (GRR-FS),
    with the epsilon that Theorem 1 of RGNN claims, or with the true one.
    """
    def __init__(self, epsilon, num_sampled, domain_sizes, claim, seed):
        self.epsilon = epsilon
        self.num_sampled = num_sampled
        self.domain_sizes = domain_sizes
        self.claim = claim
        self.seed = seed
        self._source = NoiseSource.from_seed(seed)
        self._calls = 0

    @property
    def guarantee(self):
        amplified = math.log(1 + math.expm1(self.epsilon) / 2)  # m / d = 1/2
        return Guarantee(self.epsilon, 'features', "one row is replaced",
                         claimed_epsilon=amplified if self.claim else None)

    def forward(self, data):
        self._calls += 1
        source = self._source.derive(self._calls)
        n, d = data.x.shape
        response = mechanisms.RandomizedResponse(
            self.epsilon / self.num_sampled, self.domain_sizes)
        noisy = response(data.x, source.derive('response'))
        lots = uniform_integers(source.derive('lots'), 2**60, (n, d))
        chosen = lots.argsort(axis=1).argsort(axis=1) < self.num_sampled
        other = uniform_integers(source.derive('other'), self.domain_sizes,
                                 (n, d))
        data.x = torch.where(torch.from_numpy(chosen), noisy,
                             torch.from_numpy(other).float())
        return data

    def __repr__(self):
        return (f'{type(self).__name__}(epsilon={self.epsilon}, '
                f'num_sampled={self.num_sampled}, claim={self.claim})')


class NeighbourSum(torch.nn.Module):
    """Sums of rows with an L1 norm of at most one over neighbours, with integer
    Laplace noise on a grid, for a node that comes or goes.
    """
    unit = 'node'

    def __init__(self, epsilon, max_degree, seed=0):
        super().__init__()
        self.epsilon = epsilon
        self.max_degree = max_degree
        self.seed = seed
        self._source = NoiseSource.from_seed(seed)
        self._calls = 0

    @property
    def guarantee(self):
        return Guarantee(self.epsilon, self.unit, "one unit comes or goes",
                         model='central')

    def sensitivity(self, edges, num_nodes):
        # A node's own sum, and one row in each of those that hear it.
        return torch.full((num_nodes, ), 2.0 * self.max_degree)

    def forward(self, x, edge_index):
        self._calls += 1
        norm = x.abs().sum(dim=1, keepdim=True).clamp(min=1.0)
        rows = (x / norm * STEPS).round().double()
        sums = torch.zeros_like(rows).index_add(0, edge_index[1],
                                                rows[edge_index[0]])
        noise = np.zeros(rows.shape)
        sensitivity = self.sensitivity(edge_index, len(x)).numpy()
        for level in np.unique(sensitivity):
            at = sensitivity == level
            noise[at] = discrete_laplace(
                self._source.derive(self._calls, str(level)),
                STEPS * float(level) / self.epsilon, (int(at.sum()), x.size(1)))
        return (sums + torch.from_numpy(noise)) / STEPS

    def __repr__(self):
        return (f'{type(self).__name__}(epsilon={self.epsilon}, '
                f'max_degree={self.max_degree})')


class EdgeSum(NeighbourSum):
    """The same for an edge that comes or goes, in both directions."""
    unit = 'edges'

    def sensitivity(self, edges, num_nodes):
        return torch.full((num_nodes, ), 2.0)


class MissingFactor(NeighbourSum):
    """Counts the sums that hear a node, and forgets its own."""
    def sensitivity(self, edges, num_nodes):
        return torch.full((num_nodes, ), 1.0 * self.max_degree)


class EquationEleven(NeighbourSum):
    """The scales of NIP-GNN's Eq. 11 as published, for nodes of one influence:
    they are computed from the private degrees.
    """
    def sensitivity(self, edges, num_nodes):
        source, target = edges
        degree = torch.bincount(source, minlength=num_nodes).double()
        # Over the neighbours v_k of a node, the least of two terms.
        share = torch.minimum(
            (self.max_degree - degree) / degree + 1, self.max_degree / degree)
        beta = torch.ones(num_nodes).double().scatter_reduce(
            0, target, share[source], 'amin', include_self=False)
        return 2.0 * self.max_degree / beta
