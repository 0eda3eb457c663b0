r"""DPDGC (Chien, Chen, Pan, Li, Ozgur and Milenkovic, 2023), in its style and
with noise that its promise needs: a node is replaced, its row and its label,
and at most k of the pairs of it and others are flipped. No cap on degrees.

Edges and features are decoupled. With the adjacency :math:`A`:

1. Weights :math:`W`, one row for each node, are learnt from rows of :math:`A`
   and labels alone, by gradient descent with noise on the loss of
   :math:`\mathrm{softmax}(A W)`, one step from zero; then each row of
   :math:`W` has norm 1. (The paper has many small steps, more columns than
   classes, and a fixed projection. On validation labels, two steps are worse
   than one by 16 to 29 points on dense graphs, since each has more noise.)
2. :math:`A W` is released with Gaussian noise.
3. A classifier on features and on that, of norm 1 each, is trained by gradient
   descent with noise.

**Noise.** :math:`W` is released when :math:`A W` is computed, so that it is the
same for both neighbours. Each flipped pair moves the row of the other end by 1,
and the node's own row by 1: :math:`\sqrt{k + k^2}`. (The paper has
:math:`\sqrt k`: the node's own row is not counted.) In the first part, the
gradients of the node and of k others change, by at most 2 each, and they can
all point the same way: :math:`2 (k + 1)`. (The paper's code has
:math:`2 \sqrt{k + 1}`.) In the last part, only the node's own: 2. Multipliers
compose as in `benchmarks.node_gap`, a third for each part. The paper's code
adds far less, see `benchmarks.published`. Noise is drawn in floats, for
comparison only.
"""
import math

import torch
import torch.nn.functional as F

from benchmarks.gap import multiplier
from benchmarks.node_gap import (
    PARTS,
    adjacency,
    descend,
    noise,
    side_by_side,
)


def sensitivity(edges):
    """Of the product of the adjacency and rows of norm 1."""
    return math.sqrt(edges + edges**2)


def gradient(matrix, y, train, classes):
    """The sum of the gradients of the training nodes at zero, each of norm at
    most 1: that of a node has a row for each of its neighbours.
    """
    error = 1 / classes - F.one_hot(y, classes).float()
    degree = matrix.crow_indices().diff()
    norm = error.norm(dim=1) * degree.sqrt()
    error = error / norm.clamp(min=1.0)[:, None] * train[:, None]
    return matrix.t() @ error


def dpdgc(data, epsilon, delta, seed, edges):
    """The classes of all nodes."""
    generator = torch.Generator().manual_seed(seed)
    classes = int(data.y.max()) + 1
    m = multiplier(epsilon, delta, PARTS)
    matrix = adjacency(data)
    weight = gradient(matrix, data.y, data.train_mask, classes)
    weight = weight + noise(weight.shape, 2 * (edges + 1) * m, generator)
    hidden = matrix @ F.normalize(-weight, dim=1)
    hidden = hidden + noise(hidden.shape, m * sensitivity(edges), generator)
    rows = side_by_side(data.x.float(), hidden)
    weight = descend(rows, data.y, data.train_mask, classes, m, generator)
    return (rows @ weight).argmax(dim=1)
