r"""Draws dendrograms by a Metropolis chain.

An internal node :math:`r = (a, b)` and its sibling :math:`s` can be arranged in
three ways: :math:`((a, b), s)`, :math:`((a, s), b)` and :math:`((b, s), a)`. A
step picks one of the internal nodes below the root, and one of the two other
arrangements, uniformly, and goes there with probability
:math:`\min(1, e^{T' - T})`, where

.. math:: T = w_{pub} \mathcal{L}_{pub} + w_{pri} \mathcal{L}_{pri}

is the target here and :math:`T'` the one there. In a large tree, steps pick
among the nodes of a window, as many steps as it has nodes (but four at least);
then the next window follows, and so on around the tree.

**Theorem.** The law of the dendrogram tends to the one with probabilities
proportional to :math:`e^T`.

*Proof.* Nodes are numbered, and keep their numbers in a move. A proposal at
node :math:`r` is undone by exactly one other, which is at :math:`r`, too, and
has the same probability. So :math:`e^T` is in detailed balance for each
:math:`r`, and is kept whatever the rule by which steps pick :math:`r`, as long
as it does not look at the tree. Proposals join any two dendrograms, and any two
numberings of one: in :math:`(((a, b), c), d)`, around a pentagon of five trees,
two nodes have changed their numbers. The three arrangements form a triangle,
where any number of steps but one can lead back. So a round through all windows,
with four or more steps in each, may make any one proposal and nothing else, or
nothing at all: no tree is out of reach, and there is no period. Every
dendrogram has as many numberings as any other. ∎

With :math:`w_{pri}` from :func:`private_weight` and any :math:`w_{pub}`, a draw
from this law is :math:`\varepsilon`-private. That the chain has come close to
it is an assumption; :math:`\hat{R}` can disprove it, but not prove it.

**Which draw.** If private edges have any weight, the draw is the first chain's.
To choose among chains by their likelihood would be another question to the
private edges, and so would be to stop where the first chain stands well: when
to stop is up to the other chains.

**Cost.** The new counts follow from the old ones and the number of edges
between :math:`b`, the smaller child, and :math:`s`: so it is enough to look at
the edges of the smallest of the three. What was counted is kept until a move
changes one of them, and where subtrees are large hardly any does. Leaves stand
in a row, where a subtree is an interval, and an edge ends in it or does not. An
accepted move takes the two smaller subtrees to new places in the row, and the
largest one only if it is no larger than both of them together, because the
larger child stands on the left. The two smaller ones are, up to a constant, no
larger than the smaller child of :math:`r` or of its parent. On its way to the
root, a leaf is in the smaller child at most :math:`\log_2 n` times. So with
:math:`m` edges, a step takes :math:`O((1 + m/n) \log n)` on average, in a tree
of any shape. Memory is what it would wait for in a large one; but nodes whose
numbers are near are near each other in the tree, at least at the start, and a
window with all around it stays close to the processor.

**In bits.** A step owns two words of the stream. One picks the proposal; words
that would favour one of them make the chain stay. The other one decides, with a
probability that is off by a factor of :math:`1 \pm 2^{-50} t` and by
:math:`2^{-64}` at the most, if :math:`t` is the largest term of the target.
"""
import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from torch_geometric_dp._jit import jit, multiply_high, prefetch
from torch_geometric_dp._typing import Path
from torch_geometric_dp.hrg.convergence import split_r_hat
from torch_geometric_dp.hrg.dendrogram import Dendrogram
from torch_geometric_dp.hrg.edges import Ints, check_edges, neighbours
from torch_geometric_dp.hrg.likelihood import node_log_likelihood
from torch_geometric_dp.noise import NoiseSource, Words, in_threads

Floats = NDArray[np.float64]
Weights = tuple[float, float]
Node = Any  # An integer of any width.

_RECORD_STEPS = 1024  # Steps from one record to the next, or n if n is more.
_ROUND_RECORDS = 64  # Records from one look at the convergence to the next.
_PATIENCE = 5  # Looks in a row that all must be good.
_WINDOW = 1024  # Nodes in a window, and steps until the next one.


class Chains:
    r"""Metropolis chains over the dendrograms of a graph.

    Args:
        starts (list of Dendrogram): Where the chains start, one each. They may
            depend on public edges only.
        weights (tuple or list of tuples): The weights of the public and of the
            private edges in the target. :obj:`(w, 0.0)` costs no privacy, and
            fits the public edges the closer the larger :obj:`w` is;
            :obj:`(w, private_weight(epsilon, n))` costs :obj:`epsilon`. Several
            pairs take turns, step by step; no privacy is known for that.
        source (NoiseSource): The random bits. With a weight on private edges,
            they must be kept as secret as these.
        public (array): Public edges, of shape :obj:`[2, num_edges]`.
        private (array, optional): Private edges. (default: none)

    Attributes:
        dendrograms (list of Dendrogram): Where the chains stand.
        steps (int): The number of steps that each chain has taken.
        trace (numpy.ndarray): The log-likelihood of public and of private edges
            on the way, of shape :obj:`[num_records, num_chains, 2]`.

    .. code-block:: python

        path = [[0, 1, 2, 3], [1, 2, 3, 4]]
        starts = [metis_dendrogram(path, 5, seed) for seed in range(4)]
        chains = Chains(starts, (2.0, 0.0), NoiseSource.from_os(), path)
        chains.run(10**6)
        chains.r_hat < 1.05   # True, or the run would have warned
        chains.dendrogram.counts(path)   # under the best of the four
    """
    def __init__(self, starts: Sequence[Dendrogram],
                 weights: Weights | Sequence[Weights],
                 source: NoiseSource, public: Any, private: Any = ()) -> None:
        sizes = sorted({start.num_leaves for start in starts})
        if len(sizes) != 1:
            raise ValueError(f"'starts' must be dendrograms over the same "
                             f"leaves (got {sizes} leaves)")
        self.weights = np.atleast_2d(np.array(weights, np.float64))
        if self.weights.shape[1:] != (2, ) or not (
                np.isfinite(self.weights) & (self.weights >= 0)).all():
            raise ValueError(f"'weights' must be one or more pairs of finite "
                             f"numbers of at least 0 (got {weights})")
        self.public = check_edges('public', public, sizes[0])
        self.private = check_edges('private', private, sizes[0])
        self.dendrograms = list(starts)
        self.steps = 0
        self.trace: Floats = np.empty((0, len(starts), 2))
        self._source = source
        self._record_steps = max(_RECORD_STEPS, sizes[0])

    @property
    def dendrogram(self) -> Dendrogram:
        """The draw: that of the first chain; if private edges have no weight,
        the one with the highest likelihood of the public edges.
        """
        if self.weights[:, 1].any():
            return self.dendrograms[0]
        return max(self.dendrograms,
                   key=lambda d: d.log_likelihood(d.counts(self.public)))

    @property
    def r_hat(self) -> float:
        r"""Split :math:`\hat{R}` of the target, in the second half of the
        trace. It tells something of the private edges if they have a weight.
        """
        return self._r_hat(len(self.trace), 0)

    def run(self, steps: int, tolerance: float | None = 1.05,
            progress: bool = False) -> None:
        r"""Takes :obj:`steps` more steps with each chain.

        Args:
            steps (int): The number of steps.
            tolerance (float, optional): The run ends early once all chains but
                the first have had an :math:`\hat{R}` below this number for a
                while, and warns if all of them have a larger one at the end.
                With :obj:`None`, it does neither. (default: :obj:`1.05`)
            progress (bool, optional): Whether to show a progress bar.
                (default: :obj:`False`)
        """
        end = self.steps + steps
        round_steps = _ROUND_RECORDS * self._record_steps
        with tqdm(total=steps, disable=not progress, unit='step',
                  unit_scale=True) as bar:
            while self.steps < end:
                stop = min(end, self.steps - self.steps % round_steps
                           + round_steps)
                taken = stop - self.steps
                self._walk_to(stop)
                bar.update(taken)
                if (tolerance is not None and stop % round_steps == 0
                        and self._others_agree(tolerance)):
                    break
        if tolerance is not None and not self.r_hat < tolerance:
            warnings.warn(
                f"the chains have not converged: split R-hat is "
                f"{self.r_hat:.3f} after {self.steps} steps, and should be "
                f"below {tolerance}. Take more steps, or a better start",
                stacklevel=2)

    def save(self, path: Path) -> None:
        """Saves the run, but neither the edges nor the random bits. The file
        tells as much of the private edges as all chains do: keep it secret.
        """
        with open(path, 'wb') as file:
            np.savez(file, weights=self.weights, steps=self.steps,
                     children=np.stack([d.children for d in self.dendrograms]),
                     trace=self.trace, fingerprint=self._fingerprint())

    @classmethod
    def resume(cls, path: Path, source: NoiseSource, public: Any,
               private: Any = ()) -> 'Chains':
        """Goes on with a run where :meth:`save` left it: what follows is what
        would have followed there.
        """
        with np.load(path) as file:
            chains = cls([Dendrogram(rows) for rows in file['children']],
                         file['weights'], source, public, private)
            chains.steps, chains.trace = int(file['steps']), file['trace']
            if not np.array_equal(file['fingerprint'], chains._fingerprint()):
                raise ValueError(f"'source', 'public' and 'private' must be "
                                 f"those of the saved run (got others than "
                                 f"those of {str(path)!r})")
        return chains

    def __repr__(self) -> str:
        return (f'{self.__class__.__name__}({len(self.dendrograms)} x '
                f'{self.dendrograms[0]}, steps={self.steps})')

    def _fingerprint(self) -> NDArray[np.uint8]:
        content = np.concatenate([[self.public.size], self.public.reshape(-1),
                                  self.private.reshape(-1)])
        mark = self._source.fingerprint([content.view(np.uint8)])
        return np.frombuffer(mark, np.uint8)

    def _r_hat(self, records: int, first_chain: int) -> float:
        second_half = self.trace[records // 2:records, first_chain:]
        return split_r_hat(second_half @ self.weights.sum(axis=0))

    def _others_agree(self, tolerance: float) -> bool:
        ends = range(len(self.trace), 0, -_ROUND_RECORDS)[:_PATIENCE]
        return len(ends) == _PATIENCE and len(self.dendrograms) > 1 and all(
            self._r_hat(end, 1) < tolerance for end in ends)

    def _walk_to(self, stop: int) -> None:
        def walk(first: int, last: int) -> list[tuple[Dendrogram, Floats]]:
            return [self._walk_one(i, stop) for i in range(first, last)]

        parts = in_threads(walk, len(self.dendrograms))
        dendrograms, records = zip(*(pair for part in parts for pair in part))
        self.dendrograms, self.steps = list(dendrograms), stop
        self.trace = np.concatenate([self.trace, np.stack(records, axis=1)])

    def _walk_one(self, chain: int, stop: int) -> tuple[Dendrogram, Floats]:
        source, every = self._source.derive('chain', chain), self._record_steps
        records = np.empty((stop // every - self.steps // every, 2))
        state, labels = _unpack(self.dendrograms[chain], self.public,
                                self.private)
        filled = 0
        for start, _, words in source.blocks(stop, 2, self.steps):
            filled += _walk(state, self.weights, words, start, every,
                            records[filled:], _WINDOW)
        return _pack(state, labels), records


# Columns of a tree, whose rows are nodes.
_PARENT, _LEFT, _RIGHT, _START, _SIZE, _PUBLIC, _PRIVATE = range(7)


class _State(NamedTuple):
    # A dendrogram that can be changed, and the graph. All that belongs to a
    # node is side by side, in 32 bytes: memory is what a step waits for.
    tree: NDArray[np.int32]
    terms: Floats  # The log-likelihood of each node: public, private.
    # Edges between the right child and the sibling of each node: public,
    # private; -1 where they have not been counted.
    across: NDArray[np.int32]
    order: NDArray[np.int32]  # The leaves in a row,
    place: NDArray[np.int32]  # and where each of them stands.
    first: Ints  # Where the links of each leaf start.
    links: NDArray[np.int32]  # Twice the neighbour; plus 1 for a private edge.
    stack: NDArray[np.int32]


def _unpack(dendrogram: Dendrogram, public: Ints,
            private: Ints) -> tuple[_State, Ints]:
    # Leaves are numbered by their places, so that those of a subtree are near
    # each other in memory. Which leaf is which has no influence on a chain.
    # Also returns the node of the dendrogram for each node here.
    n = dendrogram.num_leaves
    inner = np.arange(n, 2 * n - 1)
    labels = np.concatenate([dendrogram.order, inner])
    numbers = np.concatenate([dendrogram.start[:n], inner])
    tree = np.zeros((2 * n - 1, 8), np.int32)
    tree[:, _PARENT] = dendrogram.parent[labels]
    tree[n:, [_LEFT, _RIGHT]] = numbers[dendrogram.children]
    tree[:, _START] = dendrogram.start[labels]
    tree[:, _SIZE] = dendrogram.size[labels]
    tree[n:, _PUBLIC] = dendrogram.counts(public)
    tree[n:, _PRIVATE] = dendrogram.counts(private)
    row = np.arange(n, dtype=np.int32)
    edges = np.concatenate([public, private], axis=1)
    first, ends, column = neighbours(dendrogram.start[edges], n)
    links = 2 * ends + (column >= public.shape[1])
    state = _State(tree, np.zeros((2 * n - 1, 2)),
                   np.full((2 * n - 1, 2), -1, np.int32), row, row.copy(),
                   first, links.astype(np.int32), np.empty(64, np.int32))
    _fill_terms(state, dendrogram.pairs)
    return state, labels


def _pack(state: _State, labels: Ints) -> Dendrogram:
    return Dendrogram(labels[state.tree[len(state.order):, [_LEFT, _RIGHT]]])


@jit
def _fill_terms(state: _State, pairs: Ints) -> None:
    for i in range(pairs.size):
        r = i + pairs.size + 1
        for side in range(2):
            state.terms[r, side] = node_log_likelihood(
                state.tree[r, _PUBLIC + side], pairs[i])


@jit
def _walk(state: _State, weights: Floats, words: Words, step: int, every: int,
          records: Floats, window: int) -> int:
    # Two words a step. Returns how many records were written.
    tree, terms, across = state.tree, state.terms, state.across
    n = state.order.size
    window = max(min(window, n - 2), 1)
    stay = max(window, 4)
    # The last window may overlap the one before it.
    windows = max(n - 3, 0) // window + 1
    proposals = np.uint64(2 * window)
    unfair = (np.uint64(0) - proposals) % proposals
    # Remainders of `step`, without a division in each step.
    turn, since_record = step % weights.shape[0], step % every
    current, since_window = step // stay % windows, step % stay
    low = n + min(current * window, n - 2 - window)
    recorded = 0
    for i in range(0, words.size, 2):
        # A uniform integer below `proposals` (Lemire, 2019).
        if n > 2 and words[i] * proposals >= unfair:
            pick = np.int64(multiply_high(words[i], proposals))
            r = low + (pick >> 1)
            p = tree[r, _PARENT]
            a, b = tree[r, _LEFT], tree[r, _RIGHT]
            s = tree[p, _LEFT]
            if s == r:
                s = tree[p, _RIGHT]
            if across[r, 0] < 0:
                across[r, 0] = across[r, 1] = 0
                if tree[p, _PUBLIC] + tree[p, _PRIVATE] > 0:
                    across[r, 0], across[r, 1] = _between(state, b, s)
            # Edges of p that are not between b and s are between a and s.
            public, private = int(across[r, 0]), int(across[r, 1])
            if pick & 1:
                a, b = b, a
            else:
                public = tree[p, _PUBLIC] - public
                private = tree[p, _PRIVATE] - private
            # From ((a, b), s) to ((a, s), b).
            public_p = tree[r, _PUBLIC] + tree[p, _PUBLIC] - public
            private_p = tree[r, _PRIVATE] + tree[p, _PRIVATE] - private
            pairs = tree[a, _SIZE] * tree[s, _SIZE]
            pairs_p = (tree[a, _SIZE] + tree[s, _SIZE]) * tree[b, _SIZE]
            x = node_log_likelihood(public, pairs)
            x_p = node_log_likelihood(public_p, pairs_p)
            y = node_log_likelihood(private, pairs)
            y_p = node_log_likelihood(private_p, pairs_p)
            gain = (
                weights[turn, 0] * (x + x_p - terms[r, 0] - terms[p, 0])
                + weights[turn, 1] * (y + y_p - terms[r, 1] - terms[p, 1]))
            if _accept(gain, words[i + 1]):
                terms[r, 0], terms[p, 0] = x, x_p
                terms[r, 1], terms[p, 1] = y, y_p
                tree[r, _PUBLIC], tree[p, _PUBLIC] = public, public_p
                tree[r, _PRIVATE], tree[p, _PRIVATE] = private, private_p
                _regroup(state, r, p, a, b, s)
        turn = turn + 1 if turn + 1 < weights.shape[0] else 0
        since_window += 1
        if since_window == stay:
            current = current + 1 if current + 1 < windows else 0
            since_window = 0
            low = n + min(current * window, n - 2 - window)
            for node in range(low, low + window):  # Side by side in memory.
                prefetch(tree, node)
                prefetch(terms, node)
        since_record += 1
        if since_record == every:
            # Summed afresh, so that no error ever piles up.
            records[recorded] = terms[:, 0].sum(), terms[:, 1].sum()
            recorded, since_record = recorded + 1, 0
    return recorded


@jit
def _accept(gain: float, word: np.uint64) -> bool:
    if gain >= 0.0:
        return True
    probability = math.exp(gain)
    # One is right to within 2**-53, and its threshold is no word.
    return probability >= 1.0 or bool(
        word < np.uint64(probability * 18446744073709551616.0))


@jit
def _between(state: _State, small: Node, large: Node) -> tuple[int, int]:
    # The number of public and of private edges between two subtrees.
    tree = state.tree
    if tree[large, _SIZE] < tree[small, _SIZE]:
        small, large = large, small
    low, size = tree[large, _START], np.uint64(tree[large, _SIZE])
    begin = tree[small, _START]
    count, private = 0, 0
    for i in range(begin, begin + tree[small, _SIZE]):
        leaf = state.order[i]
        for j in range(state.first[leaf], state.first[leaf + 1]):
            link = state.links[j]
            # A place below the interval wraps around to a huge number.
            if np.uint64(state.place[link >> 1] - low) < size:
                count += 1
                private += int(link & 1)
    return count - private, private


@jit
def _regroup(state: _State, r: Node, p: Node, a: Node, b: Node,
             s: Node) -> None:
    # ((a, b), s) becomes ((a, s), b), up to the sides of children.
    tree, across = state.tree, state.across
    # These alone have other children or another sibling than before.
    across[r, 0] = across[p, 0] = -1
    across[a, 0] = across[b, 0] = across[s, 0] = -1
    tree[b, _PARENT], tree[s, _PARENT] = p, r
    tree[r, _SIZE] = tree[a, _SIZE] + tree[s, _SIZE]
    if tree[a, _SIZE] < tree[s, _SIZE]:
        a, s = s, a
    left, right = (r, b) if tree[r, _SIZE] >= tree[b, _SIZE] else (b, r)
    tree[r, _LEFT], tree[r, _RIGHT] = a, s
    tree[p, _LEFT], tree[p, _RIGHT] = left, right
    start = tree[p, _START]
    middle = start + tree[left, _SIZE]
    tree[r, _START] = start if left == r else middle
    _move(state, b, middle if left == r else start)
    _move(state, a, tree[r, _START])
    _move(state, s, tree[r, _START] + tree[a, _SIZE])


@jit
def _move(state: _State, node: Node, start: int) -> None:
    # Takes the leaves below a node to their new places.
    tree = state.tree
    shift = start - tree[node, _START]
    if shift == 0:
        return
    # Descending into smaller children first, at most log2(n) nodes wait.
    waiting = 0
    while True:
        tree[node, _START] += shift
        if node >= state.order.size:
            state.stack[waiting] = tree[node, _LEFT]
            waiting += 1
            node = tree[node, _RIGHT]
        else:
            place = tree[node, _START]
            state.order[place], state.place[node] = node, place
            if waiting == 0:
                return
            waiting -= 1
            node = state.stack[waiting]
