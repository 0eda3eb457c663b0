import warnings
from typing import Any

import torch
from torch import Tensor

from torch_geometric_dp._validate import check_epsilon, check_integer
from torch_geometric_dp.mechanisms import ClassSums
from torch_geometric_dp.nn.models.private_model import PrivateModel
from torch_geometric_dp.nn.models.training import check_fitted
from torch_geometric_dp.release import Part

# Fixed numbers, the same for every graph: chosen once, on public graphs.
_STEPS = 8  # Where there are rows enough.
_ROWS_PER_COLUMN = 2  # So many are enough.
_FIRST = 0.5  # The share of the class sums, if gradients follow.
_SHRINK = 0.5  # Towards the mean of all classes, James-Stein's would be 1.
_RIDGE, _GRADIENT_RIDGE = 3.0, 8.0  # In deviations of the noise.
_RATE, _MOMENTUM = 0.25, 0.5


class ClassSumClassifier(PrivateModel):
    r"""A linear classifier with node-level privacy, computed from one noisy sum
    of rows for each class.

    The rows of a class, each with a norm of one, are summed, and noise is
    added, once: a matrix of :math:`d \times c` numbers, each of them over many
    nodes, needs much less noise than a row for every node. From the noisy sums
    :math:`\mathbf{S}`, whose noise has the deviation :math:`\sigma`, come the
    shares :math:`\pi_k` of the classes, what class :math:`k` would have of word
    :math:`j` if all classes were alike, :math:`E_{jk} = \pi_k \sum_l S_{jl}`,
    and the weights

    .. math::
        W_{jk} = f_j \frac{S_{jk} - E_{jk}}{\max(E_{jk}, 0) + 3 \sigma}, \quad
        f_j = \max \Big(1 - \frac{(c - 1) \sigma^2}
        {2 \sum_k (S_{jk} - E_{jk})^2}, \, 0 \Big).

    That is how much more often than on average a word occurs, as in naive
    Bayes, but shrunk where noise could have done it. With Gaussian noise, and
    at least two nodes for each column, half of the budget goes into seven steps
    of gradient descent on the same weights (with momentum, and on clipped
    errors), each of them a sum of the same kind.

    A node's class is predicted from its own row and from what was released.
    That costs nothing, as long as the prediction goes to the node itself: who
    sees it learns about that node's row, and about nobody else. Edges are never
    read. The proof stands in
    :mod:`torch_geometric_dp.mechanisms.class_sums`.

    Args:
        in_channels (int): The number of columns of :obj:`x`.
        num_classes (int): The number of classes, a public number.
        epsilon (float): The privacy loss of one node, with its row, its label
            and its edges.
        delta (float, optional): The probability with which the loss may be
            larger. If given, the noise is Gaussian, and there is much less of
            it for long rows; otherwise it is Laplace noise.
            (default: :obj:`None`)
        steps (int, optional): The number of releases: the class sums and the
            gradients that follow. By default, 8 with Gaussian noise and at
            least two nodes for each column, and 1 otherwise.
            (default: :obj:`None`)
        mask (str, optional): The boolean node field that selects the nodes to
            learn from. (default: :obj:`"train_mask"`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    Shapes:
        - **input:** a graph with features :obj:`x` that are not negative
          :math:`(|\mathcal{V}|, F)`, dense or sparse, and classes :obj:`y`
          :math:`(|\mathcal{V}|)`.
        - **output:** classes :math:`(|\mathcal{V}|)`.

    .. code-block:: python

        model = ClassSumClassifier(4, num_classes=7, epsilon=4.0, delta=1e-5)
        classes = model.fit(data).predict(data)
        model.privacy.epsilon('node')   # 4.0
    """
    weight: Tensor
    bias: Tensor
    fitted: Tensor

    def __init__(self, in_channels: int, num_classes: int, epsilon: float,
                 delta: float | None = None, steps: int | None = None,
                 mask: str = 'train_mask', seed: int | None = None) -> None:
        super().__init__(check_integer('num_classes', num_classes, 2), mask,
                         seed)
        self.in_channels = check_integer('in_channels', in_channels, 1)
        self.epsilon = check_epsilon(epsilon)
        self.delta = delta
        self.steps = steps if steps is None else check_integer('steps', steps,
                                                               1)
        self._mechanism(1)  # Refuses an epsilon and a delta that are wrong.
        self.register_buffer('weight', torch.zeros(in_channels, num_classes))
        self.register_buffer('bias', torch.zeros(num_classes))
        self.register_buffer('fitted', torch.tensor(False))

    def reset_parameters(self) -> None:
        """Forgets what was learned, but not what was spent."""
        self.weight = torch.zeros_like(self.weight)
        self.bias = torch.zeros_like(self.bias)
        self.fitted.fill_(False)

    def _mechanism(self, steps: int) -> ClassSums:
        shares = (1.0, ) if steps == 1 else (
            _FIRST, *[(1 - _FIRST) / (steps - 1)] * (steps - 1))
        return ClassSums(self.epsilon, self.in_channels, self.num_classes,
                         self.delta, shares)

    def fit(self, data: Any) -> 'ClassSumClassifier':
        """Releases the sums, and computes the weights from them."""
        mask, y = self.labels(data)
        steps = self.steps or (
            _STEPS if self.delta is not None and
            data.num_nodes >= _ROWS_PER_COLUMN * self.in_channels else 1)
        mechanism, node = self._mechanism(steps), mask.nonzero().view(-1)
        x, y = _rows(self.features(data, self.in_channels), node), y[node]
        if (x.values() < 0).any():
            raise ValueError("'x' must not be negative: how often a word "
                             "occurs, and how large a class is, is read off "
                             "sums. Split such columns into two")
        public = self.steps is None and self.delta is not None
        part = Part(self, PrivateModel, mechanism.guarantee, ('x', 'y'),
                    (('num_nodes', None), ) if public else ())
        source = self.admit(data, [part], [
            ('x', (x.crow_indices(), x.col_indices(), x.values())),
            ('y', (y, ))]).source

        rows = mechanism.rows(x)
        votes = torch.nn.functional.one_hot(y.long(),
                                            self.num_classes).double()
        sums = mechanism.release(rows, mechanism.votes(votes), source)
        weight, self.bias, expected = linear_weights(sums,
                                                     mechanism.deviation())
        if steps > 1:
            noise = mechanism.deviation(1)
            rate = _RATE / (expected + _GRADIENT_RIDGE * noise)
            evidence, velocity = _evidence(x), 0 * weight
        for step in range(1, steps):
            error = votes - (evidence @ weight + self.bias).softmax(dim=1)
            gradient = mechanism.release(rows, mechanism.votes(error), source,
                                         step)
            velocity = _MOMENTUM * velocity + gradient
            weight = weight + rate * velocity
        self.weight = weight.to(self.weight.dtype)
        self.bias = self.bias.to(self.weight.dtype)
        self.fitted.fill_(True)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """The scores of all classes, for each row on its own."""
        check_fitted(self)
        out: Tensor = _evidence(x) @ self.weight + self.bias
        return out

    @torch.no_grad()
    def predict(self, data: Any) -> Tensor:
        """The most likely class of each node, from its own row."""
        out: Tensor = self(self.features(data, self.in_channels)).argmax(dim=1)
        return out


def linear_weights(sums: Tensor,
                   deviation: float) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, the logarithms of the classes' shares, and what each class would
    have of each column if all were alike, from noisy sums.
    """
    size = sums.sum(dim=0).clamp(min=1.0)
    share = size / size.sum()
    expected = sums.sum(dim=1, keepdim=True) * share
    excess = sums - expected
    square = excess.square().sum(dim=1, keepdim=True)
    by_chance = _SHRINK * (sums.size(1) - 1) * deviation**2
    factor = (1 - by_chance / square.clamp(min=1e-30)).clamp(min=0)
    expected = expected.clamp(min=0)
    weight = factor * excess / (expected + _RIDGE * deviation)
    return weight, share.log(), expected


def _rows(x: Tensor, node: Tensor) -> Tensor:
    # The rows of some nodes, in one form whatever the one of the input: what is
    # computed from equal values is equal, to the last bit.
    x = x.detach() if x.layout == torch.strided else x.detach().to_sparse()
    x = x.index_select(0, node).to_sparse().coalesce().double()
    kept = x.values() != 0
    with warnings.catch_warnings():  # That such tensors are in beta state.
        warnings.simplefilter('ignore')
        return torch.sparse_coo_tensor(
            x.indices()[:, kept], x.values()[kept], x.shape,
            check_invariants=False, is_coalesced=True).to_sparse_csr()


def _evidence(x: Tensor) -> Tensor:
    # Each row, scaled such that a row of words has a one for each word. It
    # depends on nothing but the row.
    if x.layout != torch.strided:
        x = x.to_sparse().coalesce()
        row, zero = x.indices()[0], x.values().new_zeros(x.size(0))
        total = zero.scatter_add(0, row, x.values().abs())
        square = zero.scatter_add(0, row, x.values()**2)
        scale = (total / square.clamp(min=1e-30))[row]
        return torch.sparse_coo_tensor(x.indices(), x.values() * scale,
                                       x.shape, check_invariants=False,
                                       is_coalesced=True)
    square = x.square().sum(dim=1, keepdim=True)
    return x * x.abs().sum(dim=1, keepdim=True) / square.clamp(min=1e-30)
