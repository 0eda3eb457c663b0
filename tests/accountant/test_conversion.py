"""The table of conversions against a search over all small graphs.

A graph is a tuple of places and a set of edges. A place is empty, or holds a
node with a row and a label. What a promise says nothing about, the mechanism
does not read: so chains are looked for among what it does read, the rows, the
labels, the edges, or all of it.
"""
import functools
import itertools
import re

import numpy as np
import pytest

from torch_geometric_dp import PrivacyAccountant
from torch_geometric_dp.accountant import (
    Guarantee,
    Relation,
    Release,
    Unit,
    changes,
    conversion,
)

ROWS = (Unit.FEATURES, Relation.REPLACE)
LABELS = (Unit.LABELS, Relation.REPLACE)
EDGE, OTHER_EDGE = ((Unit.EDGES, relation) for relation in Relation)
NODE, OTHER_NODE = ((Unit.NODE, relation) for relation in Relation)
ALL = [ROWS, LABELS, EDGE, OTHER_EDGE, NODE, OTHER_NODE]


@functools.cache
def graphs(num_nodes, num_rows, num_labels, max_degree):
    """All graphs, with an empty place where a node is missing."""
    values = [None, *itertools.product(range(num_rows), range(num_labels))]
    out = []
    for places in itertools.product(values, repeat=num_nodes):
        here = [v for v in range(num_nodes) if places[v] is not None]
        pairs = list(itertools.combinations(here, 2))
        for chosen in itertools.product((False, True), repeat=len(pairs)):
            edges = frozenset(itertools.compress(pairs, chosen))
            if all(sum(v in edge for edge in edges) <= max_degree
                   for v in here):
                out.append((places, edges))
    return out


def differ(one, two, promise):
    """Whether two different graphs are neighbours: by the definition."""
    (unit, relation, *k), (places, edges), (others, other_edges) = (
        promise, one, two)
    moved = [v for v in range(len(places)) if places[v] != others[v]]
    gone, come = len(edges - other_edges), len(other_edges - edges)
    if unit == Unit.EDGES:  # One comes, or goes; or one of each, if exchanged.
        exchanged = relation == Relation.REPLACE and gone == come == 1
        return not moved and (gone + come == 1 or exchanged)
    if unit == Unit.NODE:  # All that differs is at one place.
        both = [places[v] is not None and others[v] is not None for v in moved]
        if len(moved) > 1 or (relation == Relation.ADD_REMOVE and
                              (not moved or both[0])):
            return False
        if k and gone + come > k[0]:
            return False
        return any(moved in ([], [v]) and all(
            v in edge for edge in edges ^ other_edges)
            for v in range(len(places)))
    if len(moved) != 1 or gone or come or None in (places[moved[0]],
                                                   others[moved[0]]):
        return False
    changed = [a != b for a, b in zip(places[moved[0]], others[moved[0]])]
    return changed == [unit == Unit.FEATURES, unit == Unit.LABELS]


def what_is_read(unit, graph):
    """What a mechanism for one unit reads of a graph."""
    places, edges = graph
    if unit == Unit.NODE:
        return graph
    if unit == Unit.EDGES:
        return edges
    part = 0 if unit == Unit.FEATURES else 1
    return tuple(place and place[part] for place in places)


def one_step(promise, one, two):
    """Whether a promise covers a step between two things that were read."""
    unit, relation, *_ = promise
    if unit == Unit.NODE:
        return differ(one, two, promise)
    if unit == Unit.EDGES:
        return differ(((), one), ((), two), promise)
    return sum(a != b for a, b in zip(one, two)) == 1


@functools.cache
def distances(promise, size):
    """The number of each thing that is read, and the lengths of the shortest
    chains between all of them.
    """
    read = {what: i for i, what in enumerate(dict.fromkeys(
        what_is_read(promise[0], graph) for graph in graphs(*size)))}
    step = np.zeros((len(read), len(read)), np.float32)
    for (one, i), (two, j) in itertools.combinations(read.items(), 2):
        step[i, j] = step[j, i] = one_step(promise, one, two)
    found = np.where(np.eye(len(read), dtype=bool), 0, -1)
    reached, length = np.eye(len(read), dtype=np.float32), 0
    while (found < 0).any():  # Breadth first, from everywhere at once.
        length += 1
        reached = np.minimum(reached @ step, 1)
        new = (reached > 0) & (found < 0)
        assert new.any()
        found[new] = length
    return read, found


@functools.cache
def neighbours(asked, size):
    return [pair for pair in itertools.combinations(graphs(*size), 2)
            if differ(*pair, asked)]


def longest(promise, asked, size):
    """The longest of the shortest chains that a change of one unit takes."""
    read, found = distances(promise, size)
    return max(found[read[what_is_read(promise[0], one)],
                     read[what_is_read(promise[0], two)]]
               for one, two in neighbours(asked, size))


# Nodes, values of a row, values of a label, and the largest degree: together,
# they show the worst case of each entry. Edges that have nothing in common
# take four nodes; all of a node's edges exchanged for others, one more than
# twice the degree.
THREE, FOUR = (3, 2, 2, 2), (4, 1, 1, 3)
FIVE = (5, 1, 1, 2)


@pytest.mark.parametrize('promise', ALL, ids=' '.join)
@pytest.mark.parametrize('asked', ALL, ids=' '.join)
def test_each_entry_is_the_longest_of_the_shortest_chains(promise, asked):
    if promise[0] == Unit.EDGES and asked[0] == Unit.NODE:
        for size in ((3, 1, 1, 1), (4, 1, 1, 1), FIVE):
            assert changes(*promise, *asked, max_degree=size[-1]) == longest(
                promise, asked, size)
        return
    sizes = [THREE] if asked[0] in (Unit.FEATURES, Unit.LABELS) else [
        THREE, FOUR]
    assert changes(*promise, *asked) == max(longest(promise, asked, size)
                                            for size in sizes)


SOME = [(*OTHER_NODE, k) for k in (1, 2, 3)]  # With at most k edges.


def changes_of(promise, asked, max_degree=None):
    return changes(*promise[:2], *asked[:2], max_degree,
                   promise[2] if len(promise) == 3 else None,
                   asked[2] if len(asked) == 3 else None)


@pytest.mark.parametrize('promise, asked', [
    *itertools.product(ALL, SOME), *itertools.product(SOME, ALL),
    *itertools.product(SOME, SOME)])
def test_nodes_with_some_edges(promise, asked):
    if asked in (NODE, OTHER_NODE):
        for size in ((3, 1, 1, 1), (4, 1, 1, 1), FIVE):
            assert changes_of(promise, asked, size[-1]) == longest(
                promise, asked, size)
        return
    sizes = (THREE, FOUR) if asked[0] in (Unit.EDGES, Unit.NODE) else (THREE, )
    assert changes_of(promise, asked) == max(
        longest(promise, asked, size) for size in sizes)


@pytest.mark.parametrize('edges', [0, -1, 1.5, 'one', True, float('inf')])
def test_a_node_has_some_edges_or_all(edges):
    with pytest.raises(ValueError, match="'edges' must be a positive integer"):
        changes(*NODE, *NODE, edges=edges)
    with pytest.raises(ValueError, match="'edges' must be a positive integer"):
        Guarantee(1.0, *OTHER_NODE, edges=edges)
    with pytest.raises(ValueError, match="'edges' belongs to a node that is"):
        Guarantee(1.0, *NODE, edges=1)


def entry(promise, stability=1):
    return Release(promise, 'M', (), ('edge_index', ), 'id',
                   stability=stability)


def test_a_ledger_tells_nodes_with_some_edges_from_whole_ones():
    two = Guarantee(1.0, *OTHER_NODE, edges=2, model='joint')
    ledger = PrivacyAccountant((entry(two), ))
    assert ledger.epsilon('node', edges=2) == 1.0
    assert ledger.epsilon('node', edges=5) == 3.0
    assert ledger.epsilon('node', max_degree=10) == 5.0
    assert ledger.epsilon('edges') == ledger.epsilon('features') == 1.0
    assert 'node, 2 edge(s)' in str(ledger)
    assert 'for that node alone' in str(ledger)
    assert 'at most 2 of its edges, is replaced' in two.sentence
    assert PrivacyAccountant.from_json(ledger.to_json()) == ledger
    with pytest.raises(ValueError, match="'max_degree' must be"):
        ledger.epsilon('node')


def test_a_projection_before_a_promise_for_some_edges():
    # Three edges for each raw one, wherever they are, and the row.
    cut = entry(Guarantee(1.0, *OTHER_NODE, edges=5), stability=3)
    assert cut.units(*OTHER_NODE, edges=2) == 7
    assert cut.units(*EDGE) == 3
    whole = entry(Guarantee(1.0, *NODE), stability=3)
    assert whole.units(*OTHER_NODE, edges=2) == 14


def test_the_table_in_the_text_is_the_one_that_counts():
    rows = re.findall(r'^((?:features|labels|edges|node), .*?)  +(\d.*)$',
                      conversion.__doc__, re.MULTILINE)
    assert len(rows) == len(conversion._TABLE)
    for (name, entries), ((unit, relation), steps) in zip(
            rows, conversion._TABLE.items()):
        word = 'replaced' if relation == Relation.REPLACE else 'added/removed'
        assert name == f'{unit}, {word}'
        shown = entries.split()
        if unit == Unit.EDGES:  # '2D' is two for each edge.
            shown[4:] = [entry.removesuffix('D') or '1' for entry in shown[4:]]
        assert [int(entry) for entry in shown] == list(steps)


@pytest.mark.parametrize('degree', [None, 0, -1, 2.5, float('nan'), '3', True,
                                    float('inf')])
def test_edges_to_node_needs_a_public_cap(degree):
    for relation in Relation:
        with pytest.raises(ValueError, match="'max_degree' must be a positive"):
            changes(*EDGE, Unit.NODE, relation, degree)
