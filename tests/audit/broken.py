"""Mechanisms that break their promise, each by one common mistake, and what is
right in their place.
"""
import math
import zlib

import numpy as np
import torch
from torch_geometric.transforms import BaseTransform

from torch_geometric_dp import mechanisms, transforms
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.graph.pairs import (
    contains,
    pair_numbers,
    to_pairs,
)
from torch_geometric_dp.nn import NAP
from torch_geometric_dp.noise import NoiseSource


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
        return Guarantee(self.epsilon, Unit.FEATURES, Relation.REPLACE)

    def canaries(self, data=None):
        return mechanisms.row_pairs(*([bound] * 2 for bound in self.bounds))

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
    def write(self, field, source):
        raw = field.store.x
        clipped = raw.clamp(*self.bounds)
        out = super().write(field, source)
        field.store.x = field.store.x + (raw - clipped)
        return out


class LessNoiseInside(transforms.Laplace):
    """Takes most of the noise off rows that are at no bound."""
    def write(self, field, source):
        raw = field.store.x
        out = super().write(field, source)
        noisy = field.store.x
        inside = ((raw > 0) & (raw < 1)).all(dim=1, keepdim=True)
        field.store.x = torch.where(inside, (3 * raw + noisy) / 4, noisy)
        return out


class _Noisy(BaseTransform):
    # Laplace noise for two columns from 0 to 1, on a grid.
    guarantee = Guarantee(1.0, Unit.FEATURES, Relation.REPLACE)

    def canaries(self, data=None):
        return mechanisms.row_pairs([0.0, 0.0], [1.0, 1.0])

    def forward(self, data):
        noise = self.generator(data.x).laplace(0.0, self.scale(data.x),
                                               data.x.shape)
        data.x = data.x + torch.from_numpy(noise.round(3))
        return data

    def generator(self, x):
        return np.random

    def scale(self, x):
        return 2.0


class RangeOfTheData(_Noisy):
    """Scales the noise by the range that the data happen to have."""
    def scale(self, x):
        return 2.0 * float(x.max() - x.min())


class SeedFromTheData(_Noisy):
    """Always the same noise for the same data."""
    def generator(self, x):
        return np.random.RandomState(zlib.crc32(x.numpy().tobytes()))


class LeavesRows(transforms.Laplace):
    """Leaves the raw rows in another field."""
    def forward(self, data):
        raw = data.x
        data = super().forward(data)
        data.x_raw = raw
        return data


class NoNoiseWithoutEdges(transforms.Laplace):
    """Forgets nodes that have no edges."""
    def forward(self, data):
        raw, edges = data.x, data.edge_index
        data = super().forward(data)
        if edges is not None:
            alone = ~torch.isin(torch.arange(data.num_nodes), edges)
            data.x[alone] = raw[alone].to(data.x.dtype)
        return data


class ColumnThatIsNotZero(_Noisy):
    """Randomised response on one column, chosen among those that are not zero
    if there are some.
    """
    def forward(self, data):
        weight = (data.x > 0).double()
        weight[weight.sum(dim=1) == 0] = 1.0
        sent = torch.multinomial(weight, 1)
        bit = torch.bernoulli(data.x.gather(1, sent))
        keep = torch.rand(sent.shape) < 1 / (1 + math.exp(-1.0))
        out = torch.full_like(data.x, -1.0)
        data.x = out.scatter(1, sent, torch.where(keep, bit, 1 - bit))
        return data


class NeverTheLastClass(transforms.LabelRR):
    """No label is exchanged for the last class."""
    def write(self, field, source):
        raw, last = field.store.y, self.num_classes - 1
        out = super().write(field, source)
        field.store.y[(field.store.y == last) & (raw != last)] = 0
        return out


class ClassesOfTheData(transforms.LabelRR):
    """Takes the classes that occur for all that there are."""
    def _mechanism(self, y):
        if y.max() == 0:
            return mechanisms.RandomizedResponse(64.0, 2)
        return mechanisms.RandomizedResponse(self.epsilon, int(y.max()) + 1)


class HiddenLabelsStay(transforms.LabelRR):
    """Releases what the mask selects, and leaves all else as it is."""
    def write(self, field, source):
        raw, store = field.store.y, field.store
        out = super().write(field, source)
        store.y = torch.where(store[self.mask], store.y, raw)
        return out


class _Changed(transforms.EdgeRand):
    # Does something else with the edges that were drawn.
    def forward(self, data):
        raw = data.clone()
        data = super().forward(data)
        data.edge_index = self.change(raw, data)
        data.edge_private = torch.ones(data.num_edges, dtype=torch.bool)
        return data

    def change(self, raw, data):
        return data.edge_index


class TrueEdgesFirst(_Changed):
    """The order tells which edges are true."""
    def change(self, raw, data):
        true = contains(to_pairs(raw.edge_index), pair_numbers(
            data.edge_index))
        return data.edge_index[:, np.argsort(~true, kind='stable')]


class AttributesStay(_Changed):
    """Leaves the attributes of the raw edges."""
    def change(self, raw, data):
        data.edge_attr = raw.get('edge_attr')
        return data.edge_index


class SelfLoopsStay(_Changed):
    """A self-loop is no pair, and stays."""
    def change(self, raw, data):
        loop = raw.edge_index[0] == raw.edge_index[1]
        return torch.cat([data.edge_index, raw.edge_index[:, loop]], dim=1)


class LeavesStay(_Changed):
    """Never drops the only edge of a node."""
    def change(self, raw, data):
        degree = torch.bincount(raw.edge_index[0], minlength=raw.num_nodes)
        leaf = (degree[raw.edge_index] == 1).any(dim=0)
        return torch.cat([data.edge_index, raw.edge_index[:, leaf]],
                         dim=1).unique(dim=1)


class ExactCount(_Changed):
    """Says how many edges there were."""
    def change(self, raw, data):
        data.num_private = raw.num_edges
        return data.edge_index


class SeedOfALayer(NAP):
    """Always the same noise for the same data."""
    def draw(self, x, edges, weight, source):
        return super().draw(x, edges, weight, NoiseSource.from_seed(0))
