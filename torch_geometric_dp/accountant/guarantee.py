import math
from dataclasses import dataclass
from typing import Optional, Union

KINDS = ('features', 'labels', 'edges', 'node')

#: What a mechanism's parameter may be, so that it can be frozen and stored.
Parameter = Union[None, bool, int, float, str, tuple['Parameter', ...]]


@dataclass(frozen=True)
class Guarantee:
    r"""What one release promises, and to whom. Plain frozen data.

    Args:
        epsilon (float): The proven privacy loss; infinity where nothing can be
            proven.
        protects (str): What is protected: :obj:`"features"` (one node's row),
            :obj:`"labels"` (one node's label), :obj:`"edges"` (one edge) or
            :obj:`"node"` (a node with its row, its label and its edges).
        neighbours (str): The pairs of inputs that cannot be told apart, in
            words.
        delta (float, optional): The probability with which the loss may be
            larger. (default: :obj:`0.0`)
        model (str, optional): :obj:`"local"` if every node randomises its own
            data, :obj:`"central"` if a trusted party does it for all.
            (default: :obj:`"local"`)
        assumptions (tuple of str, optional): What must hold for the promise to
            be true and was not checked. (default: :obj:`()`)
        claimed_epsilon (float, optional): What a publication claims for it,
            where that differs. (default: :obj:`None`)
        event (tuple, optional): The dominating noise, :obj:`("gaussian", m)`
            or :obj:`("laplace", m)` with :obj:`m` the noise's scale over the
            sensitivity: what tight accounting needs. (default: :obj:`None`)

    .. code-block:: python

        Guarantee(1.0, 'labels', "one node's label is replaced")
    """
    epsilon: float
    protects: str
    neighbours: str
    delta: float = 0.0
    model: str = 'local'
    assumptions: tuple[str, ...] = ()
    claimed_epsilon: Optional[float] = None
    event: Optional[tuple[str, float]] = None

    def __post_init__(self) -> None:
        # Whoever builds a guarantee from tensors or numpy scalars gets plain
        # numbers: they are hashed, compared, stored and loaded safely.
        object.__setattr__(self, 'epsilon', float(self.epsilon))
        object.__setattr__(self, 'delta', float(self.delta))
        object.__setattr__(self, 'assumptions', tuple(self.assumptions))
        if not self.epsilon >= 0:
            raise ValueError(f"'epsilon' must be zero or more "
                             f"(got {self.epsilon})")
        if not 0 <= self.delta < 1:
            raise ValueError(f"'delta' must lie in [0, 1) (got {self.delta})")
        if self.protects not in KINDS:
            raise ValueError(f"'protects' must be one of {KINDS} "
                             f"(got {self.protects!r})")
        if self.model not in ('local', 'central'):
            raise ValueError(f"'model' must be 'local' or 'central' "
                             f"(got {self.model!r})")
        if self.event is not None and (self.event[0]
                                       not in ('gaussian', 'laplace')):
            raise ValueError(f"'event' must be ('gaussian', m) or "
                             f"('laplace', m) (got {self.event!r})")

    def group(self, size: int) -> tuple[float, float]:
        r"""Epsilon and delta for :obj:`size` units that change at once:
        :math:`k \varepsilon` and :math:`\delta \sum_{i<k} e^{i \varepsilon}`,
        by the triangle inequality along the chain of single changes.
        """
        if size == 0:
            return 0.0, 0.0
        epsilon = size * self.epsilon
        if size == 1 or self.delta == 0:
            return epsilon, self.delta
        if epsilon > 700:  # The sum is beyond one, and beyond floats.
            return epsilon, 1.0
        growth = math.fsum(math.exp(i * self.epsilon) for i in range(size))
        return epsilon, min(1.0, self.delta * growth)


@dataclass(frozen=True)
class Release:
    r"""One entry of a ledger: a guarantee, and what it was given for.

    Args:
        guarantee (Guarantee): What was promised.
        mechanism (str): The transform or layer that drew the noise, as its
            :obj:`repr`.
        fields (tuple of str): The fields of the graph that were released.
        release_id (str): The name of this release. Two copies of one release
            have the same name, and cost once.
        graph (str, optional): The identity of the raw graph (see
            :class:`PrivacyBudget`), if it had one. (default: :obj:`None`)
        seed (int, optional): The seed that repeats (and undoes) the noise, if
            it was not secret. (default: :obj:`None`)
        parameters (tuple, optional): Pairs of a name and a value that later
            steps need to undo a known bias. (default: :obj:`()`)
        output (str, optional): A digest of what was released; knows it again
            when it comes back. (default: :obj:`""`)

    .. code-block:: python

        Release(Guarantee(1.0, 'labels', "one node's label is replaced"),
                mechanism='LabelRR(epsilon=1.0)', fields=('y', ),
                release_id='3f2a').units('labels')   # 1
    """
    guarantee: Guarantee
    mechanism: str
    fields: tuple[str, ...]
    release_id: str
    graph: Optional[str] = None
    seed: Optional[int] = None
    parameters: tuple[tuple[str, Parameter], ...] = ()
    output: str = ''

    def parameter(self, name: str) -> Parameter:
        """The value of one of :obj:`parameters`."""
        return dict(self.parameters)[name]

    def units(self, kind: str, max_degree: Optional[int] = None,
              neighbours: str = 'add-remove') -> int:
        """How many of the units that this release protects change when one
        unit of :obj:`kind` does: none, one, or a whole node's edges.
        """
        protects = self.guarantee.protects
        if kind == 'node' and protects == 'edges':
            return _edges_of_a_node(max_degree, neighbours)
        if (kind == protects == 'node' and neighbours == 'replace'
                and 'replaced' not in self.guarantee.neighbours):
            return 2  # One goes, and another comes.
        # A node's features, label and edges are part of the node.
        return int(kind == protects or 'node' in (kind, protects))


def _edges_of_a_node(max_degree: Optional[int], neighbours: str) -> int:
    if max_degree is None or max_degree != int(max_degree) or max_degree < 1:
        raise ValueError(
            f"'max_degree' must be a positive integer, the largest number of "
            f"edges that one node may have: edges were released, and what "
            f"that costs a whole node depends on it (got {max_degree!r})")
    if neighbours not in ('add-remove', 'replace'):
        raise ValueError(f"'neighbours' must be 'add-remove' or 'replace' "
                         f"(got {neighbours!r})")
    return int(max_degree) * (2 if neighbours == 'replace' else 1)
