
import torch
from torch import Tensor


@torch.no_grad()
def feature_sensitivity(encoder: torch.nn.Module, x: Tensor,
                        sensitive: Tensor | list[int],
                        fill: float = 0.0) -> Tensor:
    r"""How much each embedding feature changes when the sensitive inputs are
    masked out (HeteroRR, Eq. 5):

    .. math::
        \beta_i = \frac{|z_i - \hat{z}_i|}{\| z - \hat{z} \|_1}, \quad
        z = g(x), \quad \hat{z} = g(\hat{x}),

    as the mean over the rows of :obj:`x`, normalised to sum to one. Compute it
    on public rows: on private ones, it tells about them.

    Args:
        encoder (torch.nn.Module): :math:`g`, which maps rows to embeddings;
            :class:`torch.nn.Identity` if the features are used as they are.
        x (Tensor): Public rows, of shape :obj:`[num_rows, num_inputs]`.
        sensitive (Tensor or list of int): Which inputs are sensitive, as a
            boolean mask or as indices.
        fill (float, optional): What stands in the place of a masked input.
            (default: :obj:`0.0`)

    .. code-block:: python

        encoder = torch.nn.Linear(4, 8)
        beta = feature_sensitivity(encoder, torch.rand(100, 4), sensitive=[3])
        beta.shape   # torch.Size([8])
    """
    index = torch.as_tensor(sensitive)
    if index.dtype == torch.bool:
        index = index.nonzero().view(-1)
    if index.numel() == 0 or index.min() < 0 or index.max() >= x.size(1):
        raise ValueError(f"'sensitive' must name some of the {x.size(1)} "
                         f"columns of 'x' (got {index.tolist()})")
    training = encoder.training
    encoder.eval()
    masked = x.clone()
    masked[:, index] = fill
    change = (encoder(x) - encoder(masked)).abs()
    encoder.train(training)
    total = change.sum(dim=1, keepdim=True)
    changed = total.view(-1) > 0  # A row that does not change tells nothing.
    if not changed.any():
        raise ValueError("'encoder' does not change at all when the sensitive "
                         "inputs are masked: no feature is sensitive")
    beta: Tensor = (change[changed] / total[changed]).mean(dim=0)
    return beta / beta.sum()
