"""Edges as a sparse matrix, whose rows are the targets: each of them once."""
import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_dp._jit import jit
from torch_geometric_dp._sort import distinct


def by_target(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Source and target of every edge, in the order of the targets, without
    repetitions.
    """
    source, target = edge_index.cpu().numpy().astype(np.int64, copy=False)
    keys = distinct(target * num_nodes + source)
    edges = np.empty((2, len(keys)), np.int64)
    _unpack(keys, num_nodes, edges)
    return torch.from_numpy(edges).to(edge_index.device)


@jit
def _unpack(keys: NDArray[np.int64], num_nodes: int,
            edges: NDArray[np.int64]) -> None:
    # Keys increase, so that nothing has to be divided.
    target, start = 0, 0
    for i in range(keys.size):
        while keys[i] >= start + num_nodes:
            target, start = target + 1, start + num_nodes
        edges[0, i], edges[1, i] = keys[i] - start, target


def to_csr(edges: Tensor, num_nodes: int, values: Tensor) -> Tensor:
    """The transposed sparse matrix of what :func:`by_target` returned."""
    source, target = edges
    first = source.new_zeros(num_nodes + 1)
    first[1:] = target.bincount(minlength=num_nodes).cumsum(0)
    with warnings.catch_warnings():  # That such tensors are in beta state.
        warnings.simplefilter('ignore')
        return torch.sparse_csr_tensor(first, source, values,
                                       (num_nodes, num_nodes),
                                       check_invariants=False)
