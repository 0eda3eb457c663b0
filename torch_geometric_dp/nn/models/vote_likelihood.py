r"""What noisy votes say about a node's class.

A node of class :math:`k` that hears :math:`m` neighbours gets about
:math:`\mu_{kj} = m A_{kj}` votes for class :math:`j`, with :math:`A` the chance
that a neighbour of a node of class :math:`k` votes for :math:`j`; their number
is a Poisson variable, and Laplace noise of a known scale comes on top. So the
density of what is seen is

.. math::
    f(s; \mu) = \sum_{n \geq 0} \frac{e^{-\mu} \mu^n}{n!} \cdot
    \frac{1}{2b} e^{-|s - n| / b}.

Neither :math:`m` nor :math:`A` is known. Both are estimated from the noisy
votes by expectation and maximisation, together with the classes of all nodes,
where those that are public stay as they are. All of this is post-processing.
"""
import math

import numpy as np
import torch
from torch import Tensor

from torch_geometric_dp._typing import Array

_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
                   256, 384, 512, 768, 1024], np.float64)
_MEANS = 96  # Between which densities are interpolated.
_POINTS = 2000
_LEAST = 0.05  # Of the scale, where there is no noise.
_SMOOTH = 0.02  # Of what a neighbour votes, for all classes alike.
_ROUNDS = 8
_LEARNT_FROM = 20_000  # So many nodes are enough.


class VoteLikelihood:
    """The law of noisy votes, learnt from them.

    Args:
        votes (torch.Tensor): The noisy votes, a row for each node.
        prior (torch.Tensor): The logarithms of the chances of all classes,
            before any vote.
        known (torch.Tensor): The classes that are public, and -1 for all
            others.
        scale (float): The scale of the Laplace noise, in votes.

    .. code-block:: python

        votes = torch.tensor([[4.0, 0.2], [0.1, 3.0]])
        law = VoteLikelihood(votes, torch.zeros(2, 2), torch.tensor([0, 1]),
                             scale=0.5)
        law(votes).argmax(dim=1)   # tensor([0, 1])
    """
    def __init__(self, votes: Tensor, prior: Tensor, known: Tensor,
                 scale: float) -> None:
        self.scale = max(scale, _LEAST)
        seen = votes.double().numpy()
        most = float(np.quantile(seen.sum(axis=1), 0.99))
        self.sizes = _SIZES[:np.searchsorted(
            _SIZES, max(4.0, 2 * most), side='right')]
        self.share = np.full(len(self.sizes), 1 / len(self.sizes))
        self._tabulate(float(seen.min()), float(seen.max()))
        step = -(-len(seen) // _LEARNT_FROM)
        self._learn(seen[::step], prior.double().numpy()[::step],
                    known.numpy()[::step])

    def _tabulate(self, low: float, high: float) -> None:
        # The logarithm of the density, for some means and some values.
        top = float(self.sizes[-1])
        self.means = top * np.linspace(0, 1, _MEANS)**2
        counts = np.arange(top + 10 * math.sqrt(top) + 10)
        chance = _poisson(counts, self.means)
        self.low = low
        self.step = max((high - low) / (_POINTS - 1), 1e-9)
        points = low + self.step * np.arange(_POINTS + 1)
        density = np.exp(-np.abs(points[:, None] - counts) / self.scale) @ (
            chance / (2 * self.scale))
        self.table: Array = np.log(density + 1e-30)

    def _learn(self, seen: Array, prior: Array, known: Array) -> None:
        classes = np.eye(prior.shape[1])
        public = known >= 0
        belief = np.exp(prior)
        for _ in range(_ROUNDS):
            belief[public] = classes[known[public]]
            votes = np.maximum(belief.T @ seen, 0.0) + 1e-9
            votes /= votes.sum(axis=1, keepdims=True)
            self.affinity = (1 - _SMOOTH) * votes + _SMOOTH / len(classes)
            joint = self._joint(seen)
            belief = _softmax(_log_sum(joint) + prior)
            belief[public] = classes[known[public]]
            share = (belief[:, :, None] * _softmax(joint)).sum(axis=(0, 1))
            self.share = (share + 1e-3) / (share + 1e-3).sum()

    def _joint(self, seen: Array) -> Array:
        # For each node, class and number of neighbours.
        place = (seen - self.low) / self.step
        first = np.clip(place.astype(np.int64), 0, _POINTS - 1)
        part = np.clip(place - first, 0.0, 1.0)
        out = np.zeros((len(seen), len(self.affinity), len(self.sizes)))
        for j in range(seen.shape[1]):
            mean = np.sqrt(self.sizes * self.affinity[:, j, None]
                           / self.means[-1]) * (_MEANS - 1)
            column = np.minimum(mean.astype(np.int64), _MEANS - 2)
            weight = mean - column
            law = (self.table[:, column] * (1 - weight)
                   + self.table[:, column + 1] * weight)
            out += (law[first[:, j]] * (1 - part[:, j, None, None])
                    + law[first[:, j] + 1] * part[:, j, None, None])
        out += np.log(self.share)
        return out

    def __call__(self, votes: Tensor) -> Tensor:
        """The logarithm of the likelihood of each class."""
        seen = votes.double().numpy()
        out = [_log_sum(self._joint(seen[start:start + 4096]))
               for start in range(0, len(seen), 4096)]
        return torch.from_numpy(np.concatenate(out)).float()


def _poisson(counts: Array, means: Array) -> Array:
    # A row for each number of votes, a column for each mean.
    factorial = torch.lgamma(torch.from_numpy(counts) + 1.0).numpy()
    logs = counts[:, None] * np.log(np.maximum(means, 1e-300))
    out: Array = np.exp(logs - means - factorial[:, None])
    return out


def _log_sum(joint: Array) -> Array:
    most = joint.max(axis=-1)
    total: Array = most + np.log(np.exp(joint - most[..., None]).sum(axis=-1))
    return total


def _softmax(x: Array) -> Array:
    out = np.exp(x - x.max(axis=-1, keepdims=True))
    total: Array = out / out.sum(axis=-1, keepdims=True)
    return total
