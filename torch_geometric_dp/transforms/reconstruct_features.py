from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp.accountant import Release
from torch_geometric_dp.mechanisms import (
    GRRFS,
    frequency_estimate,
    simplex_projection,
)
from torch_geometric_dp.mechanisms.propagation import propagate
from torch_geometric_dp.transforms.reconstruction import Reconstruction

OUTPUTS = ('soft', 'hard', 'expectation')


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
                    release: Release) -> None:
        """Replaces the features of one node type."""
        x = store.x
        parameters: dict[str, Any] = dict(release.parameters)
        mechanism = GRRFS(release.guarantee.epsilon, parameters['num_sampled'],
                          parameters['domain_sizes'], x.size(1))
        mechanism.check(x)
        adjacency = adjacency.to(x.device)
        sizes = mechanism.domain_sizes
        out = []
        for i in range(x.size(1)):
            keep, other = map(float, mechanism.marginal(i))
            size = int(sizes[i])
            value = torch.arange(size, device=x.device)
            one_hot = (x[:, i, None] == value).float()
            estimate = frequency_estimate(
                propagate(adjacency, one_hot, self.hops), keep, other, 1.0)
            if self.output == 'soft':
                estimate = simplex_projection(estimate)
                out.append(estimate[:, 1:] if size == 2 else estimate)
            elif self.output == 'hard':
                out.append(estimate.argmax(1, keepdim=True).to(x.dtype))
            else:
                out.append((estimate * value).sum(1, keepdim=True))
        store.x = torch.cat(out, dim=1)

    def __repr__(self) -> str:
        return (f"{self.__class__.__name__}(hops={self.hops}, "
                f"output='{self.output}')")
