r"""Rows about a public centre, on a grid, without a dense matrix.

A row of words has few entries, and a row less its mean has many. So the
integers of a centred row are kept as :math:`a_v - t_v u`: a sparse row
:math:`a_v`, one integer :math:`t_v` for each row, and one row :math:`u` for
all of them, which is public.

**Lemma.** The Euclidean norm of each centred row is at most :math:`n`, the
number of steps, exactly. *Proof.* :math:`\|a_v - t_v u\|^2 = \|a_v\|^2 - 2 t_v
\langle a_v, u \rangle + t_v^2 \|u\|^2` is a sum of integers, which is computed
in integers of 64 bits. A row that is too long, by rounding, is made shorter
once, and is left out if it is still too long. ∎

The sum of :math:`(a_v - t_v u) r_v^{\top}` over all nodes is that of
:math:`a_v r_v^{\top}` less :math:`u (\sum_v t_v r_v)^{\top}`. With rows of
:math:`2^{20}` and votes of :math:`2^{10}` steps both are exact for up to
:math:`2^{22}` nodes.
"""
import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

_FACTOR = 2**8  # The grid of t, where a row is as long as the centre.
_LONGEST = 8.0  # What is nearer to the centre than an eighth of it is shorter.


class CentredRows(NamedTuple):
    """Integers, in doubles but for the norms: the sparse rows as the CSR
    matrix of their columns, :obj:`factor` and :obj:`centre`.
    """
    columns: Tensor
    factor: Tensor
    centre: Tensor

    def sums(self, votes: Tensor) -> Tensor:
        """The sum of row times vote over all nodes, in integers."""
        moved = (self.factor @ votes).long()
        return (self.columns @ votes).long() - torch.outer(
            self.centre.long(), moved)

    def to_dense(self) -> Tensor:
        """All integers, for small data."""
        return self.columns.to_dense().t() - torch.outer(self.factor,
                                                         self.centre)


def centred(x: Tensor, scale: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    r"""The rows :math:`(s \circ x_v - u) / \|s \circ x_v - u\|` as a sparse CSR
    matrix and one factor for each row: the centre times it is to be taken off.

    .. code-block:: python

        x = torch.eye(3).to_sparse_csr()
        rows, factor = centred(x, torch.ones(3), torch.zeros(3))
    """
    first, column = x.crow_indices(), x.col_indices()
    value = x.values() * scale[column]
    row = _row_of(x)
    zero = value.new_zeros(x.size(0))
    square = zero.scatter_add(0, row, value * (value - 2 * centre[column]))
    square = square + centre @ centre
    length = square.clamp(min=0.0).sqrt()
    near = length.new_tensor(float(centre.norm()) / _LONGEST)
    factor = 1 / torch.maximum(length, near).clamp(min=1e-30)
    factor[length == 0] = 0.0
    return csr(first, column, value * factor[row], tuple(x.shape)), factor


def to_grid(x: Tensor, scale: Tensor, centre: Tensor,
            steps: int) -> CentredRows:
    """The same in integers, each row with a norm of at most :obj:`steps`."""
    rows, factor = centred(x, scale, centre)
    length = float(centre.norm())
    u = (centre / max(length, 1e-30) * (steps // _FACTOR)).round()
    row, column = _row_of(rows), rows.col_indices()
    shorter = torch.ones_like(factor)
    for _ in range(2):
        a = (rows.values() * shorter[row] * steps).trunc()
        t = (factor * shorter * length * _FACTOR).trunc()
        square = _squares(a.long(), t.long(), u.long(), row, column)
        shorter = torch.where(square > steps**2, shorter * steps / (
            square.double().sqrt() + math.sqrt(len(u)) + _FACTOR), shorter)
    kept = (square <= steps**2).double()
    with warnings.catch_warnings():  # That such tensors are in beta state.
        warnings.simplefilter('ignore')
        out = csr(rows.crow_indices(), column, a * kept[row],
                  tuple(rows.shape)).to_sparse_csc()
    # Read the other way round, columns are rows.
    return CentredRows(csr(out.ccol_indices(), out.row_indices(), out.values(),
                           (x.size(1), x.size(0))), t * kept, u)


def csr(first: Tensor, column: Tensor, value: Tensor,
        shape: tuple[int, ...]) -> Tensor:
    """A sparse CSR matrix, without the warning that there are such."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return torch.sparse_csr_tensor(first, column, value, shape,
                                       check_invariants=False)


def _row_of(x: Tensor) -> Tensor:
    return torch.arange(x.size(0)).repeat_interleave(x.crow_indices().diff())


def _squares(a: Tensor, t: Tensor, u: Tensor, row: Tensor,
             column: Tensor) -> Tensor:
    zero = torch.zeros_like(t)
    own = zero.scatter_add(0, row, a * a)
    mixed = zero.scatter_add(0, row, a * u[column])
    return own - 2 * t * mixed + t * t * (u @ u)
