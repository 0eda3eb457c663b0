import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp._typing import Ints
from torch_geometric_dp._validate import check_choice, check_integer
from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.graph.pairs import (
    Pairs,
    check_edge_index,
    contains,
    from_pairs,
    num_pairs,
    pair_numbers,
    to_pairs,
)
from torch_geometric_dp.hrg import (
    BlockCounts,
    Blocks,
    Chains,
    Dendrogram,
    metis_dendrogram,
    private_weight,
    random_dendrogram,
)
from torch_geometric_dp.mechanisms import EdgeRand
from torch_geometric_dp.mechanisms.mechanism import WorstCase
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.edge_transform import (
    MAX_EDGES,
    EdgeTransform,
)

DENDROGRAMS = ('public', 'joint', 'paper')
_LARGEST_MERGED = 8
_CHAINS = 4  # For the diagnostic; the first of them is the draw.
# Any function of the public edges may be the prior: a weight of two fits them
# closer than their likelihood alone.
_PUBLIC_WEIGHT = 2.0


@functional_transform('dp_edge_rr')
class EdgeRR(EdgeTransform):
    r"""Releases private edges on a hierarchical random graph, the second half
    of `HeteroRR` (functional name: :obj:`dp_edge_rr`).

    A dendrogram cuts all pairs of nodes into blocks. The private edges in each
    block are counted, with discrete Laplace noise, and as many pairs of the
    block are drawn at random. Public edges stay as they are. The proofs stand
    in :mod:`torch_geometric_dp.hrg.release` and
    :mod:`torch_geometric_dp.hrg.likelihood`.

    Edges from blocks that are large and thin, or whose count may well be noise,
    join nobody who knows each other. They are left out by default, which costs
    nothing; see :obj:`min_probability` and :obj:`min_signal`.

    **Single pairs.** The more a count can be trusted, the finer the blocks may
    be. Noise makes an edge of an empty pair with probability :math:`q = 1 / (1
    + e^{\varepsilon})`. Once that is at most :obj:`min_probability` (by default
    from an epsilon of 2.95 on), a pair of a block that is worth releasing is
    rather an edge than noise if it looks like one. Then each pair is a block of
    its own, and the dendrogram only tells where in the graph these edges are
    noise, and left out; in a graph that is dense enough, nowhere, and this is
    :class:`EdgeRand`. What decides is public: epsilon, the number of nodes and
    the arguments.

    Args:
        epsilon (float): The privacy loss of one private edge.
        private (str, optional): The name of a boolean edge field that selects
            the private edges. In a graph without that field, all edges are
            private. (default: :obj:`"edge_private"`)
        dendrogram (str, optional): Where the dendrogram comes from.
            :obj:`"public"`: it is fitted to the public edges, which costs
            nothing. :obj:`"joint"`: it is drawn by the exponential mechanism
            with public edges as a prior, at the cost of a share of
            :obj:`epsilon`; true once the Markov chain has converged, which the
            ledger lists as an assumption. Without public edges, this is
            `privHRG`. :obj:`"paper"`: by alternating steps, as published, for
            which no promise is known: the ledger says so.
            (default: :obj:`"public"`)
        guide (str, optional): The name of a field with further public edges, of
            shape :obj:`[2, num_edges]`, that help to shape the dendrogram but
            are not released: neighbours by released or public features, say.
            (default: :obj:`None`)
        steps (int, optional): The number of steps of each Markov chain, for
            each node. By default 100, but none for a public dendrogram, which
            starts from METIS: more steps fit the public edges closer than the
            private ones follow. (default: :obj:`None`)
        share (float, optional): The share of :obj:`epsilon` that a dendrogram
            drawn from private edges costs. (default: :obj:`0.5`)
        largest_merged (int, optional): A subtree with at most so many nodes is
            one block. By default 8, or single pairs are blocks: if :math:`q` is
            at most :obj:`min_probability`, and noise alone does not make more
            than :obj:`max_edges`. (default: :obj:`None`)
        min_probability (float, optional): Blocks in which less than this share
            of the pairs would be edges are left out. Of single pairs, those
            less likely than this to be edges, or than one half.
            (default: :obj:`0.05`)
        min_signal (float, optional): Blocks with a count of less than this many
            times the scale of the noise are left out. For single pairs, that
            is their number in a part of the dendrogram beyond what noise makes
            there, by standard deviations. (default: :obj:`3.0`)
        edge_weight (bool, optional): If set to :obj:`True`, released edges have
            their probability to be edges as :obj:`edge_weight`, and public ones
            have one. (default: :obj:`False`)
        max_edges (int, optional): A release that is expected to have more
            columns of :obj:`edge_index` is refused, before it costs anything.
            (default: :obj:`10000000`)
        drop (sequence of str, optional): Further fields of edges, which are
            removed. (default: :obj:`()`)
        keep (sequence of str, optional): Public fields that stay, although
            their name says that they hold edges. (default: :obj:`()`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data = DigitsGraph()[0]
        private = EdgeRR(epsilon=1.0)(data)
        private.privacy.epsilon('edges')   # 1.0
    """
    def __init__(self, epsilon: float, private: str = 'edge_private',
                 dendrogram: str = 'public', guide: str | None = None,
                 steps: int | None = None, share: float = 0.5,
                 largest_merged: int | None = None,
                 min_probability: float = 0.05, min_signal: float = 3.0,
                 edge_weight: bool = False, max_edges: int = MAX_EDGES,
                 drop: Sequence[str] = (), keep: Sequence[str] = (),
                 seed: int | None = None) -> None:
        super().__init__(epsilon, private, max_edges, drop, keep, seed)
        if not 0 < share < 1:
            raise ValueError(f"'share' must lie between 0 and 1 (got {share})")
        if not 0 <= min_probability <= 1:
            raise ValueError(f"'min_probability' must lie in [0, 1] "
                             f"(got {min_probability})")
        if not 0 <= min_signal < math.inf:
            raise ValueError(f"'min_signal' must be zero or more, and finite "
                             f"(got {min_signal})")
        self.dendrogram = check_choice('dendrogram', dendrogram, DENDROGRAMS)
        self.guide = guide
        self.steps = None if steps is None else check_integer('steps', steps, 0)
        self.share = float(share)
        self.largest_merged = (
            None if largest_merged is None else
            check_integer('largest_merged', largest_merged, 1))
        self.min_probability = float(min_probability)
        self.min_signal = float(min_signal)
        self.edge_weight = bool(edge_weight)
        BlockCounts(self._split()[1])  # Refuses an epsilon that is too small.

    @property
    def mechanism(self) -> BlockCounts:
        """The mechanism of the counts."""
        return BlockCounts(self._split()[1])

    def worst_case(self) -> WorstCase:
        """That of the counts, if they are all that is released."""
        if self.dendrogram != 'public':
            raise TypeError(f"'EdgeRR' with dendrogram={self.dendrogram!r} "
                            f"cannot be verified exactly: its dendrograms are "
                            f"too many to list; audit() tries it instead")
        return self.mechanism.worst_case()

    @property
    def guarantee(self) -> Guarantee:
        """One private edge, in the central model."""
        promise = super().guarantee
        if self.dendrogram == 'joint':
            promise = replace(promise, assumptions=promise.assumptions + (
                "the Markov chain over dendrograms has converged", ))
        if self.dendrogram == 'paper':  # No stationary law is known.
            promise = replace(promise, epsilon=math.inf,
                              claimed_epsilon=self.epsilon)
        return promise

    def expected_edges(self, num_nodes: int, num_edges: int) -> float:
        """An upper bound on the expected number of pairs that :meth:`draw`
        returns: all private edges, and what noise adds to blocks with some and
        to blocks without, of which there are fewer than nodes, unless they are
        single pairs.
        """
        if self._by_pairs(num_nodes):
            return self._of_pairs.expected_edges(num_nodes, num_edges)
        a = math.exp(-self._split()[1])
        least = max(1, math.ceil(self.min_signal / self._split()[1]))
        noise = a**least * (least + a / (1 - a)) / (1 + a)
        return (num_edges * (1 + a / (1 - a * a)) +
                max(0, num_nodes - 1) * noise)

    def draw(self, store: BaseStorage, private: Pairs, public: Pairs,
             num_nodes: int,
             source: NoiseSource) -> tuple[Pairs, Tensor | None]:
        """Draws the pairs to release, and their weights if asked for."""
        if num_nodes < 2:  # No pairs.
            return private, torch.ones(0) if self.edge_weight else None
        secret = from_pairs(private).numpy()
        tree = self._tree(secret, self._shape(store, public), num_nodes,
                          source.derive('dendrogram'))
        blocks = Blocks(tree, self.largest_merged or _LARGEST_MERGED)
        if self._by_pairs(num_nodes):
            return self._draw_pairs(blocks, private, public, num_nodes,
                                    source.derive('counts'))
        noisy = self.mechanism
        counts = noisy(blocks, secret, source.derive('counts'))
        p = np.clip(counts / blocks.pairs, 0.0, 1.0)
        p[(p < self.min_probability) |
          (counts < self.min_signal / noisy.epsilon)] = 0
        pairs, block = blocks.draw(p, source.derive('pairs'))
        weights = torch.from_numpy(p[block]).float()
        return (pair_numbers(torch.from_numpy(pairs)),
                weights if self.edge_weight else None)

    @property
    def _of_pairs(self) -> EdgeRand:
        # Which counts are positive, if each pair is a block.
        return EdgeRand(self.mechanism.worst_case().epsilon)

    def _by_pairs(self, num_nodes: int) -> bool:
        # Public numbers only.
        if self.largest_merged is not None:
            return False
        noisy = self._of_pairs
        return (noisy.flip <= self.min_probability and
                2 * noisy.expected_edges(num_nodes, 0) <= self.max_edges)

    def _draw_pairs(self, blocks: Blocks, private: Pairs, public: Pairs,
                    num_nodes: int,
                    source: NoiseSource) -> tuple[Pairs, Tensor | None]:
        noisy = self._of_pairs
        found, q = noisy.release(private, num_pairs(num_nodes),
                                 source), noisy.flip
        # Free from here on. A pair with a public edge cannot have a private
        # one, and says nothing about the others.
        found = found[~contains(public, found)]
        pairs = blocks.pairs - blocks.counts(from_pairs(public).numpy())
        block = blocks.find(from_pairs(found).numpy())
        counts = np.bincount(block, minlength=len(pairs))
        beyond = counts - q * pairs
        p = np.clip((1 - q) / (1 - 2 * q) * beyond / np.maximum(counts, 1),
                    0.0, 1.0)
        keep = ((p >= max(0.5, self.min_probability)) &
                (beyond >= self.min_signal * np.sqrt(q * (1 - q) * pairs)))
        kept = keep[block]
        weights = torch.from_numpy(p[block[kept]]).float()
        return found[kept], weights if self.edge_weight else None

    @property
    def public_fields(self) -> tuple[str, ...]:
        """The guide, and what may stay."""
        return self.keep if self.guide is None else (self.guide, *self.keep)

    def guides(self, store: BaseStorage) -> tuple[Tensor, ...]:
        """The guide."""
        return () if self.guide is None else (store[self.guide], )

    def _split(self) -> tuple[float, float]:
        # Epsilon for the dendrogram, and for the counts.
        if self.dendrogram == 'public':
            return 0.0, self.epsilon
        first = self.epsilon * self.share
        return first, self.epsilon - first

    def _shape(self, store: BaseStorage, public: Pairs) -> Ints:
        # The public pairs that shape the dendrogram.
        edges = from_pairs(public)
        if self.guide is not None:
            edges = from_pairs(to_pairs(torch.cat(
                [edges, store[self.guide].cpu()], dim=1)))
        ends: Ints = edges.numpy()
        return ends

    def _tree(self, private: Ints, edges: Ints, num_nodes: int,
              source: NoiseSource) -> Dendrogram:
        if self.dendrogram == 'public':
            starts = [metis_dendrogram(edges, num_nodes)]
            chains = Chains(starts, (_PUBLIC_WEIGHT, 0.0), source, edges)
            chains.run((self.steps or 0) * num_nodes, tolerance=None)
            return chains.dendrogram
        weight = private_weight(self._split()[0], num_nodes)
        weights = [(_PUBLIC_WEIGHT, weight)]
        if self.dendrogram == 'paper':  # In turns, and without the factor 2.
            weights = [(1.0, 0.0), (0.0, 2.0 * weight)]
        # Starts that are alike would agree before they have converged.
        starts = [metis_dendrogram(edges, num_nodes, seed)
                  for seed in range(_CHAINS - 1)]
        starts.append(random_dendrogram(num_nodes, source.derive('start')))
        chains = Chains(starts, weights, source, edges, private)
        chains.run((100 if self.steps is None else self.steps) * num_nodes)
        return chains.dendrogram

    def _check(self, store: BaseStorage) -> None:
        super()._check(store)
        if self.guide is None:
            return
        if self.guide not in store:
            raise ValueError(f"'{self.guide}' is missing: it holds the edges "
                             f"that shape the dendrogram (got the fields "
                             f"{sorted(map(str, store.keys()))})")
        check_edge_index(store[self.guide], self.num_nodes(store), self.guide)
