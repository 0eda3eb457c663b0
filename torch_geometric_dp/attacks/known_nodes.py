"""What an attacker has who knows some of the nodes, and sees a release of all:
the known ones to learn from, and the neighbours of each.
"""
import warnings
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import (
    is_sparse,
    remove_self_loops,
    to_edge_index,
    to_torch_csr_tensor,
    to_undirected,
)

from torch_geometric_dp.attacks.attack import check_graph
from torch_geometric_dp.graph.pairs import check_edge_index

LEAST_KNOWN = 5  # A fifth of them is for validation.


def known_nodes(data: Data, name: str) -> Tensor:
    """The boolean mask of the nodes that the attacker knows; all others are
    attacked, so there must be some of both.
    """
    mask, n = data.get(name), data.num_nodes
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"'{name}' must be a boolean tensor in 'data': it "
                        f"tells which nodes the attacker knows (got {kind})")
    if mask.dim() != 1 or len(mask) != n:
        raise ValueError(f"'{name}' must have shape [{n}], one entry for each "
                         f"node of 'data' (got {list(mask.shape)})")
    if int(mask.sum()) < LEAST_KNOWN:
        raise ValueError(f"'{name}' must select at least {LEAST_KNOWN} nodes "
                         f"for the attacker to learn from "
                         f"(got {int(mask.sum())})")
    if bool(mask.all()):
        raise ValueError(f"'{name}' must leave nodes to attack "
                         f"(got all {n} of them)")
    return mask.cpu()


def rows(data: Any, name: str, field: str = 'x') -> Tensor:
    """A field of a graph as a finite matrix of doubles; a vector is one
    column.
    """
    check_graph(data, name)
    values = data.get(field)
    if not isinstance(values, Tensor) or is_sparse(values):
        kind = (values.layout if isinstance(values, Tensor) else
                type(values).__name__)
        raise TypeError(f"'{name}' must have a dense tensor '{field}' "
                        f"(got '{kind}')")
    if values.dim() not in (1, 2) or values.numel() == 0:
        raise ValueError(f"'{field}' of '{name}' must have shape [num_nodes] "
                         f"or [num_nodes, num_columns], and entries "
                         f"(got {list(values.shape)})")
    matrix = values.detach().cpu().double().view(len(values), -1)
    if not bool(matrix.isfinite().all()):
        row = int((~matrix.isfinite()).any(dim=1).int().argmax())
        raise ValueError(f"'{field}' of '{name}' must be finite "
                         f"(got {matrix[row].tolist()} in row {row})")
    return matrix


def same_nodes(target: Tensor, raw: Tensor, field: str = 'x') -> None:
    """Raises an error if a release has not one row for each of the raw ones."""
    if len(target) != len(raw):
        raise ValueError(f"'target' must have the nodes of 'data', {len(raw)} "
                         f"rows in '{field}' (got {len(target)})")


class Neighbourhood:
    """Who is next to whom: edges in both directions, each of them once, and
    no node next to itself, or it would learn what it is asked for.
    """
    def __init__(self, target: Data, num_nodes: int) -> None:
        n, edge = num_nodes, target.get('edge_index')
        if edge is None and 'adj_t' in target:
            edge = to_edge_index(target.adj_t)[0]
        if edge is None:
            edge = torch.empty(2, 0, dtype=torch.long)
        check_edge_index(edge, n)
        edge = to_undirected(remove_self_loops(edge.cpu())[0], num_nodes=n)
        with warnings.catch_warnings():  # That CSR tensors are new.
            warnings.simplefilter('ignore')
            self._adjacency = to_torch_csr_tensor(edge, size=(n, n)).double()

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the neighbours; for nodes without any, over all."""
        return self.known_mean(values, torch.ones(len(values)).bool())[0]

    def known_mean(self, values: Tensor,
                   known: Tensor) -> tuple[Tensor, Tensor]:
        """The mean over the neighbours that are known, and how many there are;
        for nodes without any, over all that are known.
        """
        weight = known.double()[:, None]
        count = self._adjacency @ weight
        total = self._adjacency @ (weight * values)
        mean = torch.where(count > 0, total / count.clamp(min=1),
                           values[known].mean(dim=0))
        return mean, count
