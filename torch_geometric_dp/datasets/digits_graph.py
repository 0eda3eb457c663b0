from typing import Callable

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from torch_geometric_dp._validate import check_integer


class DigitsGraph(InMemoryDataset):
    r"""A graph of 1,797 handwritten digits: real images, and no download.

    The nodes are the images of 8 x 8 pixels that come with scikit-learn (the
    test set of the UCI collection *Optical Recognition of Handwritten
    Digits*), with the 64 pixels, scaled to :math:`[0, 1]`, as features and the
    digit as label. Each image is joined to the :obj:`k` images that it is most
    similar to, in both directions. The graph is the same on every machine.

    * :obj:`train_mask`, :obj:`val_mask`, :obj:`test_mask`: a fixed random
      split into 50%, 25% and 25% of the nodes.
    * :obj:`edge_private`: a fixed random share of the undirected edges, 30% by
      default, which play the part of the private ones; the others are public.

    .. warning::
        The edges were computed from the features. That is fine for a
        demonstration, but a release of the features alone does not protect
        them here: the public edges tell which images are alike.

    Args:
        k (int, optional): The number of neighbours that each node chooses.
            (default: :obj:`8`)
        private_share (float, optional): The share of private edges.
            (default: :obj:`0.3`)
        transform (callable, optional): A transform that is applied at every
            access. (default: :obj:`None`)

    .. code-block:: python

        data = DigitsGraph()[0]
        data.num_nodes, data.num_features, int(data.y.max())   # 1797, 64, 9
    """
    def __init__(self, k: int = 8, private_share: float = 0.3,
                 transform: Callable[[Data], Data] | None = None) -> None:
        super().__init__(None, transform)
        self.k = check_integer('k', k, 1)
        if not 0 <= private_share <= 1:
            raise ValueError(f"'private_share' must lie in [0, 1] "
                             f"(got {private_share})")
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise ImportError(
                "'DigitsGraph' needs scikit-learn, which holds the images: "
                "pip install 'torch_geometric_dp[attacks]'") from error

        pixels, y = load_digits(return_X_y=True)
        # A split that is the same for every version of torch.
        rng = np.random.RandomState(0)
        order = torch.from_numpy(rng.permutation(len(y)))
        edge = _nearest_neighbours(torch.from_numpy(pixels).long(), self.k)
        private = torch.zeros(edge.size(1), dtype=torch.bool)
        chosen = rng.permutation(edge.size(1))
        private[chosen[:round(private_share * edge.size(1))]] = True

        data = Data(
            x=torch.from_numpy(pixels / 16.0).float(),
            y=torch.from_numpy(y).long(),
            edge_index=torch.cat([edge, edge.flip(0)], dim=1),
            edge_private=torch.cat([private, private]),
        )
        half, quarter = len(y) // 2, len(y) // 4
        for name, part in (('train_mask', order[:half]),
                           ('val_mask', order[half:half + quarter]),
                           ('test_mask', order[half + quarter:])):
            data[name] = torch.zeros(len(y), dtype=torch.bool)
            data[name][part] = True
        self.data, self.slices = self.collate([data])


def _nearest_neighbours(pixels: Tensor, k: int) -> Tensor:
    # Each undirected edge once. Integers: no rounding decides between ties.
    squares = pixels.pow(2).sum(dim=1)
    distance = squares[:, None] + squares[None, :] - 2 * pixels @ pixels.t()
    distance.fill_diagonal_(int(distance.max()) + 1)
    nearest = distance.argsort(dim=1, stable=True)[:, :k]
    source = torch.arange(len(pixels))[:, None].expand_as(nearest)
    pairs = torch.stack([torch.minimum(source, nearest).flatten(),
                         torch.maximum(source, nearest).flatten()])
    unique: Tensor = torch.unique(pairs, dim=1)
    return unique
