from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.attacks.attack import Attack
from torch_geometric_dp.attacks.decoder import (
    Blocks,
    Decoder,
    mean_square,
    select,
)
from torch_geometric_dp.attacks.known_nodes import (
    Neighbourhood,
    known_nodes,
    rows,
    same_nodes,
)
from torch_geometric_dp.attacks.report import AttackReport
from torch_geometric_dp.plot import axes

SHOWN = 10  # Pictures in a row.


class FeatureReconstruction(Attack):
    r"""Reconstructs the raw features of nodes from a release of them.

    The attacker knows the raw rows of some nodes, learns a decoder from their
    released rows, and applies it to those of all others. The decoder is the
    best, for a fifth of the known nodes, of lines, ridge regression, a network
    and the posterior mean over the known rows (see
    :mod:`torch_geometric_dp.attacks.decoder`). The numbers are

    * the mean squared error over all cells;
    * the share of the variance that is explained: one less the mean squared
      error over the variance around the columns' true means;
    * the correlation with the truth, over all cells, each less the mean of its
      column for the known nodes;
    * the share that is identified: how often, out of the raw rows of all nodes
      that are attacked, the attacker picks the right one. Equal rows share one
      point.

    The baseline is an attacker without the released features. They return
    the mean of the known rows; if the edges are public, they decode the mean of
    the raw rows of a node's known neighbours.

    Args:
        known (str, optional): The name of a boolean node field of the raw
            graph: the nodes whose raw rows the attacker knows.
            (default: :obj:`"train_mask"`)
        neighbours (bool, optional): If set to :obj:`True`, the edges of the
            released graph are public, and the attacker uses the rows of a
            node's neighbours, where that helps: the released ones, and the raw
            ones of those they know. (default: :obj:`True`)
        picture (tuple of ints, optional): The height and the width of the
            picture that a row is. (default: :obj:`None`)
        seed (int, optional): Which known nodes are for validation, and the
            start of the network. (default: :obj:`0`)

    .. code-block:: python

        attack = FeatureReconstruction(known='train_mask')
        report = attack.run(FeatureRR(8.0, bounds=(0.0, 1.0))(data), data)
        print(report)
        report['mean squared error'], report.baseline['mean squared error']
        ax = report.plot()
    """
    def __init__(self, known: str = 'train_mask', neighbours: bool = True,
                 picture: tuple[int, int] | None = None,
                 seed: int = 0) -> None:
        if picture is not None and (not isinstance(picture, Sequence)
                                    or len(picture) != 2):
            raise ValueError(f"'picture' must be a height and a width "
                             f"(got {picture!r})")
        self.known = known
        self.neighbours = bool(neighbours)
        self.picture = None if picture is None else (
            check_integer('picture[0]', picture[0], 1),
            check_integer('picture[1]', picture[1], 1))
        self.seed = check_integer('seed', seed, 0)

    def run(self, target: Data, data: Data) -> 'ReconstructionReport':
        """Reconstructs the rows of all nodes that the attacker does not know.

        Args:
            target (Data): The released graph: the same nodes, in the same
                order, with any number of columns.
            data (Data): The raw graph.
        """
        raw, released = rows(data, 'data'), rows(target, 'target')
        same_nodes(released, raw)
        if self.picture is not None and raw.size(1) != np.prod(self.picture):
            raise ValueError(f"'picture' must have as many pixels as 'x' has "
                             f"columns, which are {raw.size(1)} "
                             f"(got {self.picture})")
        known = known_nodes(data, self.known)
        knew = [f"the raw features of {int(known.sum())} of "
                f"{len(known)} nodes"]
        blocks = {'released': released}
        options: list[tuple[str, ...]] = [('released', )]
        if self.neighbours:
            knew.append('the edges of the target')
            near = Neighbourhood(target, len(raw))
            public = dict(zip(('known', 'count'),
                              near.known_mean(raw, known)))
            blocks |= {**public, 'mean': near.mean(released)}
            options += [('released', 'known', 'mean', 'count'), (*public, )]
            guess, baseline = self._decode(public, [(*public, )], raw, known)
        else:
            guess = raw[known].mean(dim=0).expand(int((~known).sum()), -1)
            baseline = _numbers(guess, raw, known, 1 / len(guess))
        found, numbers = self._decode(blocks, options, raw, known)
        return ReconstructionReport(repr(self), numbers, baseline, tuple(knew),
                                    raw[~known], released[~known], found,
                                    guess, self.picture)

    def _decode(self, blocks: Blocks, options: list[tuple[str, ...]],
                raw: Tensor, known: Tensor) -> tuple[Tensor, dict[str, float]]:
        # What comes out for the nodes that are not known, and how good it is.
        count = int(known.sum())
        order = torch.randperm(
            count, generator=torch.Generator().manual_seed(self.seed))
        fit = torch.ones(count, dtype=torch.bool)
        fit[order[:count // 5]] = False
        decoder = Decoder(select(blocks, known), raw[known], options, fit,
                          self.seed)
        blocks = select(blocks, ~known)
        found = decoder(blocks)
        candidates, truth, twins = torch.unique(
            raw[~known], dim=0, return_inverse=True, return_counts=True)
        right = decoder.identify(blocks, candidates) == truth
        share = float((right / twins[truth]).mean())
        return found, _numbers(found, raw, known, share)


def _numbers(found: Tensor, raw: Tensor, known: Tensor,
             identified: float) -> dict[str, float]:
    truth, centre = raw[~known], raw[known].mean(dim=0)
    error = mean_square(found - truth)
    variance = mean_square(truth - truth.mean(dim=0))
    a, b = found - centre, truth - centre
    norm = float(a.norm() * b.norm())
    return {'mean squared error': error,
            'variance explained': 1 - error / variance if variance else np.nan,
            'correlation': float((a * b).sum()) / norm if norm else 0.0,
            'identified': identified}


@dataclass(frozen=True)
class ReconstructionReport(AttackReport):
    r"""What a reconstruction of features has found.

    Args:
        attack (str): What attacked.
        numbers (dict): How well it went.
        baseline (dict): The same without the target.
        knew (tuple of str): What the attacker knew.
        raw (Tensor): The raw rows of the nodes that were attacked.
        released (Tensor): Their released rows.
        reconstructed (Tensor): What the attacker made of them.
        guessed (Tensor): The same without the target.
        picture (tuple of ints, optional): The height and the width of the
            picture that a row is. (default: :obj:`None`)

    .. code-block:: python

        attack = FeatureReconstruction(neighbours=False, picture=(2, 2))
        report = attack.run(data, data)
        report.reconstructed.shape   # torch.Size([10, 4])
        ax = report.plot()
    """
    raw: Tensor = field(repr=False, compare=False)
    released: Tensor = field(repr=False, compare=False)
    reconstructed: Tensor = field(repr=False, compare=False)
    guessed: Tensor = field(repr=False, compare=False)
    picture: tuple[int, int] | None = None

    def plot(self, ax: Any | None = None) -> Any:
        """The first pictures, raw, released, reconstructed and guessed; if rows
        are no pictures, what was reconstructed against what is true.
        """
        if self.picture is not None:
            shown = {'raw': self.raw, 'released': self.released,
                     'reconstructed': self.reconstructed,
                     'without the target': self.guessed}
            ax = pictures({name: values[:SHOWN] for name, values in
                           shown.items() if values.shape == self.raw.shape},
                          self.picture, ax)
            ax.set_title(self.attack.split('(')[0])
            return ax
        ax = axes(ax)
        step = -(-self.raw.numel() // 5000)  # More dots hide each other.
        truth = self.raw.flatten()[::step]
        for values, color, name in (
                (self.guessed, 'lightgray', 'without the target'),
                (self.reconstructed, 'C0', 'reconstructed')):
            ax.scatter(truth, values.flatten()[::step], s=4, color=color,
                       label=name)
        ax.axline((float(truth[0]), float(truth[0])), slope=1, color='gray',
                  ls=':', lw=1)
        ax.set(xlabel='raw', ylabel='reconstructed',
               title=self.attack.split('(')[0])
        ax.legend(fontsize='small')
        return ax


def pictures(shown: Mapping[str, Tensor], shape: tuple[int, int],
             ax: Any | None = None) -> Any:
    """Rows of pictures, one for each name, on one scale of grey: from the
    lowest to the highest value of the first row.
    """
    ax = axes(ax)
    height, width = shape
    first = next(iter(shown.values()))
    low, high = float(first.min()), float(first.max())
    page = np.full((len(shown) * (height + 1) - 1,
                    len(first) * (width + 1) - 1), np.nan)
    for i, values in enumerate(shown.values()):
        for j, row in enumerate(values):
            top, left = i * (height + 1), j * (width + 1)
            page[top:top + height, left:left + width] = row.view(shape).numpy()
    ax.imshow(page, cmap='gray_r', vmin=low, vmax=high)
    ax.set_xticks([])
    ax.set_yticks(np.arange(len(shown)) * (height + 1) + (height - 1) / 2,
                  list(shown))
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    return ax
