"""Mechanisms that break their promise, each by one common mistake, and what is
right in their place.
"""
import torch
from torch_geometric.transforms import BaseTransform

from torch_geometric_dp import mechanisms, transforms
from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.nn import NAP


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


class MissingFactor(NAP):
    """Counts the sums that hear a node, and forgets its own."""
    def _scale(self, x, edges, weight):
        return super()._scale(x, edges, weight) / 2


class Unclipped(NAP):
    """Sums rows as they are, whatever their norm."""
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.mechanism.to_steps = _to_steps


def _to_steps(x):
    return (x.double() * 2**20).round()


class UnclippedLaplace(transforms.Laplace):
    """Lets values pass that are out of bounds."""
    def write(self, store, field, source):
        raw = store[field]
        clipped = raw.clamp(*self.bounds)
        super().write(store, field, source)
        store[field] = store[field] + (raw - clipped)
