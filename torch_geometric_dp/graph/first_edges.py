"""The first edges at each node, in an order of all edges: kernels of
:class:`~torch_geometric_dp.transforms.BoundDegree`.
"""
import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp._jit import jit
from torch_geometric_dp._sort import sort
from torch_geometric_dp.graph.pairs import MOST_NODES
from torch_geometric_dp.noise import Words

Keys = NDArray[np.int64]

_SIGN = np.uint64(2**63)


@jit
def fill_keys(u: Keys, v: Keys, offset: int) -> Keys:
    """The larger and the smaller end of each edge, in one number."""
    out = np.empty_like(u)
    for i in range(u.size):
        a, b = u[i], v[i] + offset
        out[i] = max(a, b) * MOST_NODES + min(a, b)
    return out


def order_of(words: Words) -> Keys:
    """The order of the words, and where they are equal of their places. Most
    bits of a word and its place make one integer, which is sorted a lot faster.
    """
    bits = len(words).bit_length()
    joint = words >> np.uint64(bits) << np.uint64(bits)
    joint |= np.arange(len(words), dtype=np.uint64)
    joint ^= _SIGN  # In the order of integers with a sign, and back.
    sort(joint.view(np.int64))
    joint ^= _SIGN
    _put_right(joint, np.uint64(bits), words)
    joint &= np.uint64(2**bits - 1)
    return joint.view(np.int64)


@jit
def _put_right(joint: Words, bits: np.uint64, words: Words) -> None:
    # Where words differ in their last bits only.
    place = (np.uint64(1) << bits) - np.uint64(1)
    for i in range(1, joint.size):
        while i > 0 and joint[i - 1] >> bits == joint[i] >> bits and (
                words[joint[i - 1] & place] > words[joint[i] & place]):
            joint[i - 1], joint[i] = joint[i], joint[i - 1]
            i -= 1


@jit
def find_last(edges: Keys, words: Words, order: Keys, cap: int, degree: Keys,
               last: Words) -> None:
    """The word, and the key, of the last edge at each node that is among the
    first ones in the given order. A self-loop stands at its node once.
    """
    for i in order:
        high, low = edges[i] // MOST_NODES, edges[i] % MOST_NODES
        for node in (high, low):
            if degree[node] == cap - 1:
                last[node, 0], last[node, 1] = words[i], np.uint64(edges[i])
        degree[high] += 1
        degree[low] += low != high


@jit
def compare(edges: Keys, words: Words, last: Words,
             keep: NDArray[np.bool_]) -> None:
    """Whether an edge comes no later than the last one at both of its ends."""
    for i in range(edges.size):
        high, low = edges[i] // MOST_NODES, edges[i] % MOST_NODES
        stays = True
        for node in (high, low):
            stays &= words[i] < last[node, 0] or (
                words[i] == last[node, 0]
                and np.uint64(edges[i]) <= last[node, 1])
        keep[i] = stays
