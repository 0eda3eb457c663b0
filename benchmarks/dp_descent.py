"""The plain baseline of every table at the node level: 16 full-batch steps of
gradient descent on a linear model over all columns, with Gaussian noise. The
constants are the same for all graphs; they were chosen on Cora, CiteSeer and
PubMed.

Noise is drawn in floats, which the mechanisms of this package never do; it
stands here for comparison only.
"""
import math
import warnings

import torch

from torch_geometric_dp.mechanisms.gaussian import gaussian_scale

STEPS, RATE = 16, 64.0
CONSTANT = 0.1  # The part of a row's squared norm that is the intercept's.


def dp_descent(data, epsilon, delta, seed, sensitivity=1.0):
    """The classes of all nodes. A node that comes or goes is hidden; for one
    that is replaced, the sensitivity is two.
    """
    generator = torch.Generator().manual_seed(seed)
    classes = int(data.y.max()) + 1
    x, back = rows(data.x)
    own = data.train_mask.float().view(-1, 1)
    truth = torch.nn.functional.one_hot(data.y, classes).float()
    scale = sensitivity * math.sqrt(STEPS) * gaussian_scale(
        epsilon, delta, 2.0**26, 1) / 2.0**26
    size = max(int(own.sum()), 1)  # Taken as public.
    weight, bias = torch.zeros(x.size(1), classes), torch.zeros(classes)
    part = math.sqrt(CONSTANT)
    for _ in range(STEPS):
        error = own * (truth - (x @ weight + part * bias).softmax(dim=1))
        error = error / error.norm(dim=1, keepdim=True).clamp(min=1.0)
        noise = scale * torch.randn(len(weight) + 1, classes,
                                    generator=generator)
        weight = weight + RATE / size * (back @ error + noise[:-1])
        bias = bias + RATE / size * (part * error.sum(dim=0) + noise[-1])
    return (x @ weight + part * bias).argmax(dim=1)


def rows(x):
    """Rows with a norm that leaves room for the constant, as a sparse matrix,
    and its transpose.
    """
    with warnings.catch_warnings():  # That such tensors are in beta state.
        warnings.simplefilter('ignore')
        x = x.to_sparse_csr()
        row = torch.arange(len(x)).repeat_interleave(x.crow_indices().diff())
        square = x.values().new_zeros(len(x)).scatter_add(0, row,
                                                          x.values()**2)
        value = x.values() * (math.sqrt(1 - CONSTANT) /
                              square.sqrt().clamp(min=1e-12))[row]
        x = torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), value,
                                    x.shape)
        back = x.to_sparse_csc()
        return x, torch.sparse_csr_tensor(
            back.ccol_indices(), back.row_indices(), back.values(),
            (x.size(1), x.size(0)))
