import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from tqdm import tqdm

from torch_geometric_dp._validate import check_epsilon, check_integer
from torch_geometric_dp.attacks.attack import (
    Attack,
    check_graph,
    check_model,
)
from torch_geometric_dp.attacks.report import (
    ScoredReport,
    metrics,
    scored_numbers,
)
from torch_geometric_dp.graph.pairs import (
    Pairs,
    check_edge_index,
    contains,
    from_pairs,
    num_pairs,
    pair_numbers,
    split_pairs,
)
from torch_geometric_dp.graph.propagation import mean_adjacency

_HOPS = 2  # Over the public graph, for who may not touch the target.


class LinkTeller(Attack):
    r"""Finds private edges by what a served GNN answers (Wu et al.,
    "LinkTeller: Recovering Private Edges from Graph Neural Networks via
    Influence Analysis", S&P 2022).

    The server holds the edges and a model; whoever asks sends the features
    :math:`X` of all nodes and gets the answers :math:`f(X)`. The attacker makes
    the features of one node :math:`u` a little larger, and looks whose answers
    change:

    .. math::
        I_{u \to v} = \frac{1}{\delta} {\left\| f(X + \delta \, \mathbf{e}_u
        \mathbf{e}_u^{\top} X)_v - f(X)_v \right\|}_2

    A GNN of :math:`L` layers carries a change over :math:`L` edges at the most,
    and further ones weaken it. So the score of a pair is its influence, the
    mean of both directions, :math:`(I_{u \to v} + I_{v \to u}) / 2`.

    Influence also grows with the features of who is changed, and fades where an
    answer is beyond doubt. Both are felt by a node itself as well, so with
    :obj:`relative`, a step beyond the paper, the score is

    .. math::
        \sqrt{\frac{I_{u \to v} \, I_{v \to u}}{I_{u \to u} \,
        I_{v \to v}}}

    which is one for each edge of a linear GCN layer, and stronger where
    probabilities are served.

    **What the attacker knows:** the features, the public edges and, for the
    precision, how many private edges there are. They probe a random sample of
    the nodes, one query for each of them, and suspect all pairs among them that
    have no public edge. A pair is an edge whatever its direction, and
    self-loops are none.

    **What the numbers mean.** *AUC* and *TPR at 1% FPR* compare pairs that have
    a private edge with pairs that have no edge; *precision at the true density*
    is the share of private edges among as many pairs with the highest scores as
    there are private edges. Friends are alike, and have friends in common, so
    an AUC of 0.5 is not what an attacker without a target has. The baseline is
    the similarity of two nodes (the mean of the cosines of their features, and
    of their features after one and two hops over the public edges): what is
    above it is leaked by the target.

    With :math:`\varepsilon`-private edges, a test of *one* pair finds its edge
    at most :math:`e^{\varepsilon}` times as often as it suspects one where
    there is none, all else being equal. Between different pairs all else is
    not equal, so numbers above 0.5 do not contradict an :math:`\varepsilon`;
    and an attack that fails does not prove one: it bounds from below what is
    leaked.

    .. note::
        A target that scales rows to a norm of its own does not see that one
        grew, nor does it see growth in a row of zeros. Answers that are rounded
        ask for a larger :obj:`delta`. Of an edge that is served in one
        direction alone, :obj:`relative` sees nothing.

    Args:
        num_nodes (int, optional): How many nodes to probe; all, if there are no
            more. It takes two queries more than that, and memory that grows
            with the square. (default: :obj:`500`)
        delta (float, optional): By how much features grow. In single
            precision, rounding is felt at :obj:`1e-4`. (default: :obj:`0.01`)
        private (str, optional): The name of a boolean edge field that selects
            the private edges. In a graph without that field, all edges are
            private. (default: :obj:`"edge_private"`)
        relative (bool, optional): If set to :obj:`True`, influence is compared
            with that of nodes on themselves. (default: :obj:`False`)
        seed (int, optional): Which nodes are probed. (default: :obj:`0`)
        progress (bool, optional): If set to :obj:`True`, shows a progress bar.
            (default: :obj:`False`)

    .. code-block:: python

        from torch_geometric.nn import GCN
        data = DigitsGraph()[0]
        model = GCN(64, 16, num_layers=2, out_channels=10).eval()

        attack = LinkTeller(num_nodes=50)
        raw = attack.run(lambda x: model(x, data.edge_index), data)
        released = EdgeRR(epsilon=1.0)(data)
        print(attack.run(lambda x: model(x, released.edge_index), data))
        raw['AUC'] > 0.95   # True

        pairs, truth = attack.candidates(data)
        best = pairs[:, raw.scores.argmax()]   # the pair it is surest of
    """
    _aside = ('progress', )

    def __init__(self, num_nodes: int = 500, delta: float = 0.01,
                 private: str = 'edge_private', relative: bool = False,
                 seed: int = 0, progress: bool = False) -> None:
        self.num_nodes = check_integer('num_nodes', num_nodes, 2)
        self.delta = check_epsilon(delta, 'delta')
        if not isinstance(private, str):
            raise TypeError(f"'private' must be the name of a boolean edge "
                            f"field, such as 'edge_private' "
                            f"(got '{type(private).__name__}')")
        self.private = private
        self.relative = bool(relative)
        self.seed = check_integer('seed', seed, 0)
        self.progress = bool(progress)
        metrics()  # Missed now, and not after an hour.

    def run(self, target: Callable[[Tensor], Tensor],
            data: Data) -> ScoredReport:
        """Probes the target, and compares what it gives away with the edges.

        Args:
            target (callable): A function from features :obj:`[num_nodes,
                num_features]` to answers :obj:`[num_nodes, num_outputs]`, such
                as :obj:`lambda x: model(x, released.edge_index)`.
            data (Data): The raw graph: :obj:`x`, :obj:`edge_index` and, where
                some edges are public, the field :obj:`private`.
        """
        check_model(target, 'target')
        nodes, chosen, truth = self._candidates(data)
        public = self._pairs(data)[1]
        scores = self._influences(target, data.x.detach(), nodes)[chosen]
        alike = similarities(data.x.detach(), public, nodes)[chosen]
        knew = ['the features of all nodes', f'that {truth.sum()} of '
                f'{len(truth)} pairs have a private edge']
        if len(public):
            knew.append('the public edges')
        return ScoredReport(repr(self), _numbers(truth, scores),
                            _numbers(truth, alike), tuple(knew), truth, scores,
                            alike)

    def candidates(self, data: Data) -> tuple[Tensor, NDArray[np.bool_]]:
        """The pairs of nodes that are suspected, in two rows, and which of them
        have a private edge; in the order of the scores of a report.
        """
        nodes, chosen, truth = self._candidates(data)
        return nodes[from_pairs(chosen)], truth

    def _candidates(self, data: Data) -> tuple[Tensor, Pairs,
                                               NDArray[np.bool_]]:
        # The nodes to probe, the numbers of the pairs of them that are not
        # public, and which have a private edge.
        private, public = self._pairs(data)
        order = np.random.RandomState(self.seed).permutation(len(data.x))
        nodes = torch.from_numpy(np.sort(order[:self.num_nodes]))
        numbers = np.arange(num_pairs(len(nodes)))
        pairs = pair_numbers(nodes[from_pairs(numbers)])
        chosen = ~contains(public, pairs)
        truth = contains(private, pairs[chosen])
        if not 0 < truth.sum() < len(truth):
            raise ValueError(
                f"'edge_index' must hold private edges between some of the "
                f"{len(nodes)} probed nodes, and not between all (got "
                f"{truth.sum()} among {len(truth)} pairs that are not public)")
        return nodes, numbers[chosen], truth

    def _pairs(self, data: Data) -> tuple[Pairs, Pairs]:
        # The private and the public ones.
        check_graph(data, 'data')
        for name in ('x', 'edge_index'):
            if data.get(name) is None:
                raise ValueError(f"'{name}' is missing (got the fields "
                                 f"{sorted(data.keys())})")
        x, edge_index, mask = data.x, data.edge_index, data.get(self.private)
        if (x.layout != torch.strided or x.dim() != 2
                or not x.is_floating_point()):
            raise ValueError(f"'x' must be dense floating-point numbers of "
                             f"shape [num_nodes, num_features] (got {x.layout} "
                             f"{x.dtype} of shape {list(x.shape)})")
        if not x.isfinite().all():
            row = int((~x.isfinite()).any(dim=1).int().argmax())
            raise ValueError(f"'x' must be finite (got {x[row].tolist()} in "
                             f"row {row})")
        check_edge_index(edge_index, len(x))
        return split_pairs(edge_index, mask, self.private)

    def _influences(self, target: Callable[[Tensor], Tensor], x: Tensor,
                    nodes: Tensor) -> NDArray[np.float64]:
        # Of all pairs of the nodes, by number.
        # Copies: a target may do with them what it likes.
        answers = _ask(target, x.clone(), nodes)
        if not torch.equal(answers, _ask(target, x.clone(), nodes)):
            warnings.warn("'target' answers one question in two ways: its "
                          "noise hides influences. If that is dropout, put the "
                          "model into eval mode", stacklevel=3)
        influence = np.zeros((len(nodes), len(nodes)))
        probes = tqdm(nodes, desc='probes', disable=not self.progress)
        for node, row in zip(probes, influence):
            probe = x.clone()
            probe[node] *= 1 + self.delta
            change = _ask(target, probe, nodes) - answers
            row[:] = change.norm(dim=1) / self.delta
        if not influence.any():  # Not even of nodes on themselves.
            warnings.warn(f"'target' answers the same whatever node grows by "
                          f"delta={self.delta}, so this attack tells nothing "
                          f"about it: it may scale rows to a norm of its own, "
                          f"round its answers, or have made them before",
                          stacklevel=3)
        u, v = from_pairs(np.arange(num_pairs(len(nodes)))).numpy()
        out: NDArray[np.float64] = (influence[u, v] + influence[v, u]) / 2
        if self.relative:
            own = influence[u, u] * influence[v, v]
            out = np.sqrt(np.divide(influence[u, v] * influence[v, u], own,
                                    out=np.zeros_like(own), where=own > 0))
        return out


def _ask(target: Callable[[Tensor], Tensor], x: Tensor,
         nodes: Tensor) -> Tensor:
    num_nodes = len(x)
    with torch.no_grad():
        answers: Any = target(x)
    if (not isinstance(answers, Tensor) or answers.dim() != 2
            or len(answers) != num_nodes):
        got = (list(answers.shape) if isinstance(answers, Tensor) else
               f"'{type(answers).__name__}'")
        raise ValueError(f"'target' must answer with a tensor of shape "
                         f"[{num_nodes}, num_outputs], one row for each node "
                         f"(got {got})")
    rows = answers[nodes.to(answers.device)].cpu().double()
    if not rows.isfinite().all():
        raise ValueError("'target' must answer with finite numbers (got "
                         "infinite ones, or NaN)")
    return rows


def similarities(x: Tensor, public: Pairs,
                 nodes: Tensor) -> NDArray[np.float64]:
    """The similarities of all pairs of some nodes, by number, from features and
    public pairs alone.
    """
    rows = x.cpu().float()
    rows = rows - rows.mean(dim=0)  # What all have in common tells nothing.
    edges = from_pairs(public)
    adjacency = mean_adjacency(torch.cat([edges, edges.flip(0)], dim=1),
                               len(x))
    alike = torch.zeros(len(nodes), len(nodes))
    for hop in range(_HOPS + 1):
        if hop > 0:
            rows = adjacency @ rows
        z = F.normalize(rows[nodes], dim=1)
        alike += z @ z.t() / (_HOPS + 1)
    u, v = from_pairs(np.arange(num_pairs(len(nodes))))
    out: NDArray[np.float64] = alike[u, v].double().numpy()
    return out


def _numbers(truth: NDArray[np.bool_],
             scores: NDArray[np.float64]) -> dict[str, float]:
    # Of pairs with one score at the border, as large a part as there is room.
    count = int(truth.sum())
    least = np.partition(scores, -count)[-count]
    above, tied = scores > least, scores == least
    room = (count - above.sum()) / tied.sum()
    found = truth[above].sum() + room * truth[tied].sum()
    return {**scored_numbers(truth, scores),
            'precision at the true density': float(found / count)}
