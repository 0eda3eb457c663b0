r"""What a promise for one unit and relation is worth for another.

**Theorem.** Let two graphs be joined by a chain of :math:`k` steps, each of
them between neighbours of a promise :math:`(\varepsilon, \delta)`. Then the
promise holds for the two with :math:`k \varepsilon` and :math:`\delta
\sum_{i<k} e^{i \varepsilon}` (see :meth:`Guarantee.group`). So one number is
enough for each pair of promise and question: the longest of the shortest
chains. With :math:`D` a public cap on the degrees of all graphs:

=====================  ====  =====  =====  =======  ======  ====
promise / asked        rows  label  edge   edge     node    node
                                    +/-    replaced +/-     replaced
=====================  ====  =====  =====  =======  ======  ====
features, replaced     1     0      0      0        1       1
labels, replaced       0     1      0      0        1       1
edges, added/removed   0     0      1      2        D       2D
edges, replaced        0     0      1      1        D       D
node, added/removed    2     2      2      4        1       2
node, replaced         1     1      1      2        1       1
=====================  ====  =====  =====  =======  ======  ====

A node that is replaced *with at most k edges* gets any other row and label, and
at most :math:`k` pairs of it and others gain or lose an edge. A promise for it
takes :math:`1, 1, 1, 2, \lceil D / k \rceil, \lceil 2 D / k \rceil` steps
for what is asked above, and :math:`\lceil k' / k \rceil` for a node with at
most :math:`k'` edges; for which the promises above take :math:`1, 1, k', k', 2,
1`.

*Proof.* Rows and labels do not share anything, nor do edges and they; a node
that comes or goes leaves an empty place, whose row and label are values like
others. An edge that is exchanged goes, and another comes. A node with at most
:math:`D` edges that goes takes them along, one after the other; one that is
exchanged loses at most :math:`D` and gains at most :math:`D`, and where one
step exchanges an edge, or has an empty place on one side, the larger of both
numbers is enough. Whoever has a promise for whole nodes that come and go
changes a row, a label or an edge by taking the node away and putting it back,
changed: two steps. An edge that moves elsewhere takes two nodes, one at each of
its places: four steps, or two where nodes are exchanged in one. With at most
:math:`k` edges a step, edges that go are taken away first, :math:`k` at a time,
and those that come are put there after that; the row and the label change with
any of these steps. No shorter chains exist, which the tests find by search,
over all small graphs. ∎

**Directions and repetitions.** An edge is a pair of nodes: both directions, and
all repetitions, are one unit, and come and go together. Where both ends report
an edge on their own, each report is a release, and the ledger adds them up.

**Projections.** If a function of the raw graph, such as
:class:`~torch_geometric_dp.transforms.BoundDegree`, changes at most :math:`s`
units when one raw unit changes (its *stability*), what follows loses
:math:`s` times as much: :math:`s` more steps in the chain for each. The ledger
has it as a number. A node with at most :math:`k` edges is :math:`k` of them,
one by one, and one step more for its row and label.
"""
from torch_geometric_dp.accountant.text import whole
from torch_geometric_dp.accountant.unit import Relation, Unit

# Steps for: a row, a label, an edge that comes or goes, one that is replaced; a
# node that comes or goes, one that is replaced. The last two for each edge, if
# the promise is for edges.
_TABLE: dict[tuple[Unit, Relation], tuple[int, ...]] = {
    (Unit.FEATURES, Relation.REPLACE): (1, 0, 0, 0, 1, 1),
    (Unit.LABELS, Relation.REPLACE): (0, 1, 0, 0, 1, 1),
    (Unit.EDGES, Relation.ADD_REMOVE): (0, 0, 1, 2, 1, 2),
    (Unit.EDGES, Relation.REPLACE): (0, 0, 1, 1, 1, 1),
    (Unit.NODE, Relation.ADD_REMOVE): (2, 2, 2, 4, 1, 2),
    (Unit.NODE, Relation.REPLACE): (1, 1, 1, 2, 1, 1),
}
_COLUMNS = {(Unit.EDGES, Relation.ADD_REMOVE): 2,
            (Unit.EDGES, Relation.REPLACE): 3,
            (Unit.NODE, Relation.ADD_REMOVE): 4,
            (Unit.NODE, Relation.REPLACE): 5}


def node_edges(value: object) -> int:
    """The number of edges that change with a node; checked.

    .. code-block:: python

        node_edges(3)   # 3
    """
    edges = whole(value)
    if edges is None or edges < 1:
        raise ValueError(f"'edges' must be a positive integer, the number of "
                         f"edges that change with one node (got {value!r:.80})")
    return edges


def changes(promised: Unit, by: Relation, asked: Unit, how: Relation,
            max_degree: int | None = None, of: int | None = None,
            edges: int | None = None) -> int:
    """How many units of a promise change when one unit that is asked for does.
    Whole nodes change with at most :obj:`of` edges in what is promised, and
    with at most :obj:`edges` in what is asked; with all of them, if that is
    :obj:`None`.

    .. code-block:: python

        changes(Unit.EDGES, Relation.ADD_REMOVE, Unit.NODE,
                Relation.ADD_REMOVE, max_degree=50)   # 50
    """
    column = {Unit.FEATURES: 0, Unit.LABELS: 1}.get(asked)
    steps = _TABLE[promised, by][_COLUMNS[asked, how] if column is None else
                                 column]
    if asked == Unit.NODE and edges is not None:
        edges = node_edges(edges)
        if promised == Unit.EDGES:
            return edges
        if promised == Unit.NODE:
            return -(-edges // of) if of else _TABLE[promised, by][0]
        return 1
    if asked == Unit.NODE and (promised == Unit.EDGES or of is not None):
        degree = whole(max_degree)
        if degree is None or degree < 1:
            raise ValueError(
                f"'max_degree' must be a positive integer, the largest number "
                f"of edges that one node may have: edges were released, and "
                f"what that costs a whole node depends on it "
                f"(got {max_degree!r})")
        if of is not None:
            return -(-degree * (1 if how == Relation.ADD_REMOVE else 2) // of)
        return steps * degree
    return steps
