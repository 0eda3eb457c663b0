from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp.accountant import Release
from torch_geometric_dp.graph.propagation import propagate
from torch_geometric_dp.mechanisms import (
    GRRFS,
    frequency_estimate,
    simplex_projection,
)
from torch_geometric_dp.storage import empty
from torch_geometric_dp.transforms.reconstruction import Reconstruction

OUTPUTS = ('soft', 'hard', 'expectation')

# Columns go in blocks, so that memory stays bounded.
_CELLS = 2**22
_LEAST_COLUMNS = 64


@functional_transform('dp_reconstruct_features')
class ReconstructFeatures(Reconstruction):
    r"""Estimates the features in the neighbourhood of each node from those
    that :class:`GRRFS` released, as in `RGNN` (functional name:
    :obj:`dp_reconstruct_features`).

    How often each value was reported in a neighbourhood,
    :math:`\lambda_v`, is what :math:`K` hops of the mean over a node and its
    neighbours make of one-hot columns. The estimate of how often it occurs is

    .. math::
        \tilde{\pi}_{vj} = \frac{d \lambda_{vj}}{m(p-q)} +
        \frac{m-d-m\gamma_i q}{m\gamma_i(p-q)},

    with all parameters from the ledger, :obj:`data.privacy`. It is
    post-processing, and costs nothing: the graph is public.

    Args:
        hops (int, optional): The number of hops :math:`K`.
            (default: :obj:`16`)
        output (str, optional): What to return: the distribution next to the
            estimate (:obj:`"soft"`), its most frequent value
            (:obj:`"hard"`), or the mean value by the estimate
            (:obj:`"expectation"`), which is unbiased, and may leave the range.
            For :obj:`"soft"`, a column with two values stays one column, the
            share of value 1, and a column with :math:`\gamma > 2` values
            becomes :math:`\gamma` columns. (default: :obj:`"soft"`)

    .. code-block:: python

        data.x = (data.x > 0.5).float()
        private = GRRFS(epsilon=4.0, num_sampled=2, domain_sizes=2)(data)
        estimate = ReconstructFeatures(hops=2)(private)
        estimate.privacy.epsilon('features')   # 4.0
    """
    field = 'x'
    releaser = 'GRRFS'

    def __init__(self, hops: int = 16, output: str = 'soft') -> None:
        super().__init__(hops)
        if output not in OUTPUTS:
            raise ValueError(f"'output' must be one of {OUTPUTS} "
                             f"(got {output!r})")
        self.output = output

    def reconstruct(self, store: BaseStorage, adjacency: Tensor,
                    release: Release) -> list[str]:
        """Replaces the features of one node type."""
        x = store.x
        parameters: dict[str, Any] = dict(release.parameters)
        mechanism = GRRFS(release.guarantee.epsilon, parameters['num_sampled'],
                          parameters['domain_sizes'], x.size(1))
        mechanism.check(x)
        kind = torch.double if x.dtype == torch.double else torch.float
        adjacency = adjacency.to(x.device, kind)
        sizes = torch.from_numpy(mechanism.domain_sizes)
        widths = torch.ones_like(sizes)
        if self.output == 'soft':
            widths = torch.where(sizes > 2, sizes, 1)
        first = widths.cumsum(0) - widths
        out = empty((len(x), int(widths.sum())),
                    x.dtype if self.output == 'hard' else kind, x.device)
        for size in sorted(set(sizes.tolist())):
            columns = (sizes == size).nonzero().view(-1)
            keep, other = map(float, mechanism.marginal(int(columns[0])))
            for block in columns.split(self._block(len(x), size)):
                shares = propagate(adjacency, self._one_hot(
                    x[:, _places(block)].to(kind), size), self.hops)
                places = first[block, None] + torch.arange(
                    int(widths[block[0]]))
                out[:, _places(places.view(-1))] = self._estimate(
                    shares, size, keep, other).to(out.dtype)
        store.x = out
        return ['x']

    def _one_hot(self, x: Tensor, size: int) -> Tensor:
        # Where a value is 1, or what its mean is, takes no more than itself.
        if size == 2 or self.output == 'expectation':
            return x
        values = torch.arange(size, device=x.device)
        return (x[..., None] == values).to(x.dtype).flatten(1)

    def _estimate(self, shares: Tensor, size: int, keep: float,
                  other: float) -> Tensor:
        if self.output == 'expectation':
            noise = other * size * (size - 1) / 2
            return (shares - noise) / (keep - other)
        if size > 2:
            shares = shares.view(len(shares), shares.size(1) // size, size)
        if self.output == 'hard':
            return shares.argmax(-1) if size > 2 else shares > 0.5
        estimate = frequency_estimate(shares, keep, other, 1.0)
        if size == 2:
            return estimate.clamp_(0, 1)
        return simplex_projection(estimate).flatten(1)

    def _block(self, num_nodes: int, size: int) -> int:
        columns = max(_LEAST_COLUMNS, _CELLS // max(num_nodes, 1))
        if size > 2 and self.output != 'expectation':
            columns //= size
        return max(1, columns)


def _places(index: Tensor) -> slice | Tensor:
    # Columns side by side are a slice, which is faster.
    start, stop = int(index[0]), int(index[-1]) + 1
    return slice(start, stop) if stop - start == len(index) else index
