import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import Adj
from torch_geometric.utils import spmm

from torch_geometric_dp._validate import check_choice
from torch_geometric_dp.accountant import Guarantee, Unit
from torch_geometric_dp.graph.adjacency import distinct_edges
from torch_geometric_dp.graph.sparse import to_csr
from torch_geometric_dp.mechanisms import NeighbourSum, paper_weights
from torch_geometric_dp.mechanisms.mechanism import Canary, WorstCase
from torch_geometric_dp.nn.private_layer import PrivateLayer, Public
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.pyg import origin
from torch_geometric_dp.vault import PrivacyBudget

CALIBRATIONS = ('proven', 'paper')


class NAP(PrivateLayer):
    r"""The private sum over neighbours of `NIP-GNN` (Node-influence-grained
    Adaptive Perturbation), with noise that its promise needs.

    .. math::
        \mathbf{h}_u = \sum_{v \to u} \textrm{clip}(\mathbf{x}_v) +
        \textrm{noise}, \quad
        \textrm{scale} = \frac{2 D c}{\varepsilon}
        \; \textrm{(one hop, Laplace, a node comes or goes)}

    Rows are clipped to a norm of :math:`c` before they are summed, repeated
    edges count once, and the noise is discrete, on a grid. With
    :obj:`hops` above one, sums are clipped and summed again, and the budget
    covers all of them. The proofs stand in
    :mod:`torch_geometric_dp.mechanisms.neighbour_sum`.

    The first forward pass releases the sums: it is entered in :obj:`privacy`,
    and charged to the budget of the graph, if it has one. The next one on the
    same input returns the same release, free of charge. Another input is
    refused, unless :meth:`renew` is called before, which makes the next pass a
    new release that costs again. What is computed from the output is free:
    train on it as long as you like. But keep raw edges and features out of all
    that follows; :func:`~torch_geometric_dp.nn.check_private` finds out.

    With :obj:`unit="edge"`, raw rows are read, and nothing is promised to them:
    the ledger says that they are taken as public, unless they were released.

    Args:
        epsilon (float): The privacy loss of one unit, over all hops.
        max_degree (int, optional): The largest number of edges that come into,
            and that go out of, a node; a public number. A graph that has more
            is refused: see
            :class:`~torch_geometric_dp.transforms.BoundDegree`. Needed for
            :obj:`unit="node"`. (default: :obj:`None`)
        unit (str, optional): What is protected: a :obj:`"node"`, with its row
            and edges, or an :obj:`"edge"`. (default: :obj:`"node"`)
        relation (str, optional): Whether a unit comes or goes
            (:obj:`"add-remove"`) or is exchanged for another
            (:obj:`"replace"`). (default: :obj:`"add-remove"`)
        delta (float, optional): The probability with which the loss may be
            larger. If given, the noise is Gaussian, and rows are clipped to an
            L2 norm; otherwise it is Laplace noise, and an L1 norm.
            (default: :obj:`None`)
        clip (float, optional): The largest norm :math:`c` of a row; a public
            number. (default: :obj:`1.0`)
        hops (int, optional): How often the sums are summed again.
            (default: :obj:`1`)
        calibration (str, optional): :obj:`"paper"` scales the noise by Eq. 11,
            which reads private degrees: the ledger has infinity for it, beside
            what was claimed. (default: :obj:`"proven"`)
        trainable_input (bool, optional): If set to :obj:`True`, features that
            require a gradient are let in. Each forward pass is then a release
            of its own, and charged. (default: :obj:`False`)
        budget (PrivacyBudget, optional): What releases are charged to. By
            default, the budget of the graph that the input belongs to, if it
            has one. (default: :obj:`None`)
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(|\mathcal{V}|, F)`, edge indices
          :math:`(2, |\mathcal{E}|)` or the transposed sparse matrix, weights
          :math:`(|\mathcal{V}|)` *(optional)*: the larger a node's weight, the
          less noise it gets. They must be public, or released before.
        - **output:** :math:`(|\mathcal{V}|, \textrm{hops} \cdot F)`, hop by
          hop.

    .. code-block:: python

        layer = NAP(epsilon=4.0, max_degree=50)
        h = layer(data.x, data.edge_index)
        layer.privacy.epsilon('node')   # 4.0
    """
    def __init__(self, epsilon: float, max_degree: int | None = None,
                 unit: str = 'node', relation: str = 'add-remove',
                 delta: float | None = None, clip: float = 1.0,
                 hops: int = 1, calibration: str = 'proven',
                 trainable_input: bool = False,
                 budget: PrivacyBudget | None = None,
                 seed: int | None = None) -> None:
        super().__init__(budget, seed, aggr='sum')
        mechanism = NeighbourSum(epsilon, max_degree, unit, relation, delta,
                                 clip, hops)
        self.mechanism = mechanism
        self.epsilon, self.max_degree = mechanism.epsilon, mechanism.max_degree
        self.unit, self.relation = mechanism.unit, mechanism.relation
        self.delta, self.clip = mechanism.delta, mechanism.clip
        self.hops = mechanism.hops
        self.calibration = check_choice('calibration', calibration,
                                        CALIBRATIONS)
        if calibration == 'paper' and (
                self.unit, self.relation, self.delta, self.hops) != (
                    'node', 'add-remove', None, 1):
            raise ValueError(
                "calibration='paper' is published for unit='node', "
                "relation='add-remove', hops=1 and Laplace noise (got "
                f"{unit!r}, {relation!r}, {hops} and delta={delta})")
        self.trainable_input = bool(trainable_input)

    @property
    def guarantee(self) -> Guarantee:
        """What one forward pass promises."""
        promise = self.mechanism.guarantee
        if self.calibration == 'paper':
            promise = replace(promise, epsilon=math.inf,
                              claimed_epsilon=self.epsilon)
        if self.trainable_input:
            promise = replace(promise, assumptions=promise.assumptions + (
                "gradients that flow back through the layer, which see raw "
                "edges, are not released", ))
        return promise

    def worst_case(self) -> WorstCase:
        """The exact epsilon of one hop, of all that the layer does before it
        draws.
        """
        return self.mechanism.worst_case(self._exact)

    def canaries(self, data: Any | None = None) -> Sequence[Canary]:
        """The stars that are told apart best, with as many columns."""
        return self.mechanism.canaries(2 if data is None or data.x is None else
                                       data.x.size(1))

    def _exact(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        edges = distinct_edges(edge_index, x.size(0))
        adjacency = to_csr(edges, x.size(0), torch.ones(
            edges.size(1), dtype=torch.double))
        return (self.message_and_aggregate(adjacency,
                                           self.mechanism.to_steps(x)),
                self._scale(x, edges, None))

    @torch.compiler.disable
    def forward(self, x: Tensor, edge_index: Adj,
                weight: Tensor | None = None) -> Tensor:
        """Releases the sums, or returns what was released before."""
        self._check(x, weight)
        edges = distinct_edges(edge_index, x.size(0))
        self._check_degrees(edges, x.size(0))
        content: list[tuple[str, tuple[Tensor, ...]]] = [
            ('x', (x, )), ('edge_index', (edges, ))]
        public: Public = ()
        if self.unit == Unit.EDGES and not origin(x).released:
            public += (('x', Unit.FEATURES), )
        if weight is not None:
            content.append(('weight', (weight, )))
            public += (('weight', None), )
        out: Tensor = self.release_once(
            self.guarantee, {'x': x, 'edge_index': edge_index}, content,
            lambda source: self.draw(x, edges, weight, source), public,
            again=not x.requires_grad)
        return out

    def stand_in(self, x: Tensor, *args: object) -> Tensor:
        """Something of the form of the output that depends on nothing private.
        """
        generator = torch.Generator().manual_seed(0)
        shape = x.size(0), self.hops * x.size(1)
        return torch.randn(shape, generator=generator).to(x)

    def draw(self, x: Tensor, edges: Tensor, weight: Tensor | None,
             source: NoiseSource) -> Tensor:
        """The noisy sums of all hops, with the noise of a source, for whoever
        has paid for them. Edges are distinct, and in the order of the targets.
        """
        scale = self._scale(x, edges, weight)
        adjacency = to_csr(edges, x.size(0), torch.ones(
            edges.size(1), dtype=torch.double, device=edges.device))
        h, out = x, []
        for hop in range(self.hops):
            sums = self.propagate(adjacency, x=self.mechanism.to_steps(h))
            noisy = self.mechanism.release(sums, scale,
                                           source.derive('hop', hop))
            if h.requires_grad:  # Gradients pass rounding as if it were none.
                exact = self.propagate(adjacency, x=self._clip(h.double()))
                noisy = noisy + (exact - exact.detach())
            # The next hop sums doubles, whatever the type of the input: two
            # sums with the same noise would tell what they differ in.
            h = noisy
            out.append(h.to(x.dtype))
        return out[0] if len(out) == 1 else torch.cat(out, dim=1)

    def _scale(self, x: Tensor, edges: Tensor,
               weight: Tensor | None) -> Tensor:
        if weight is not None:
            weight = weight.detach().cpu()
        if self.calibration == 'proven':
            return self.mechanism.scale(x.size(1), weight)
        rank = torch.ones(x.size(0)) if weight is None else weight
        return self.mechanism.paper_scale(
            paper_weights(edges.cpu(), rank, self.max_degree or 1))

    def _clip(self, x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x, self.mechanism.order, dim=1,
                                        keepdim=True)
        factor = (self.mechanism.clip / norm.clamp(min=1e-30)).clamp(max=1.0)
        clipped: Tensor = x * factor
        return clipped

    def message_and_aggregate(self, edge_index: Adj, x: Tensor) -> Tensor:
        """The sum over neighbours, exact for integers."""
        out: Tensor = spmm(edge_index, x, 'sum')
        return out

    def _check(self, x: Tensor, weight: Tensor | None) -> None:
        if not isinstance(x, Tensor) or x.dim() != 2 or (
                not x.is_floating_point()):
            kind = (f'{x.dtype} of shape {list(x.shape)}' if isinstance(
                x, Tensor) else type(x).__name__)
            raise ValueError(f"'x' must hold floating point numbers in shape "
                             f"[num_nodes, num_features] (got {kind})")
        # A sum is faster, and finite only if all of it is.
        if not x.sum().isfinite() and not x.isfinite().all():
            raise ValueError("'x' must be finite (got NaN or infinity)")
        if x.requires_grad and not self.trainable_input:
            raise ValueError(
                "'x' must not require a gradient: what is trained changes at "
                "every step, and each step would be a release of its own. "
                "Detach it, or pay every time with trainable_input=True")
        if weight is None:
            return
        if weight.shape != (x.size(0), ):
            raise ValueError(f"'weight' must have shape [{x.size(0)}], one "
                             f"number for each node "
                             f"(got {list(weight.shape)})")
        wrong = ~(weight.isfinite() & (weight > 0))
        if wrong.any():
            node = int(wrong.int().argmax())
            raise ValueError(f"'weight' must be positive and finite: a node "
                             f"without noise, or with nothing else, has none "
                             f"(got {float(weight[node])} for node {node})")

    def _check_degrees(self, edges: Tensor, num_nodes: int) -> None:
        if self.max_degree is None or num_nodes == 0:
            return
        for name, ends in (('go out of', edges[0]), ('come into', edges[1])):
            # By how much, and where, is private.
            if (ends.bincount() > self.max_degree).any():
                raise ValueError(
                    f"'max_degree' is too small for this graph: more edges "
                    f"{name} some node (got {self.max_degree}). "
                    f"BoundDegree(max_degree={self.max_degree}) removes some")
