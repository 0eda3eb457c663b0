import math
from dataclasses import replace
from typing import Optional

import torch
from torch import Tensor
from torch_geometric.typing import Adj
from torch_geometric.utils import spmm

from torch_geometric_dp.accountant import Guarantee, PrivacyBudget
from torch_geometric_dp.mechanisms import NeighbourSum, paper_weights
from torch_geometric_dp.mechanisms.sparse import to_csr
from torch_geometric_dp.nn.adjacency import distinct_edges
from torch_geometric_dp.nn.private_layer import PrivateLayer
from torch_geometric_dp.noise import NoiseSource

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

    The first forward pass on a graph releases its sums and is charged to
    :obj:`privacy` (and :obj:`budget`). The next one on the same input returns
    the same release, free of charge, until :meth:`renew` is called. What is
    computed from the output is free, too: train on it as long as you like. But
    keep raw edges and features out of all that follows.

    Args:
        epsilon (float): The privacy loss of one unit, over all hops.
        max_degree (int, optional): The largest number of edges that come into,
            and that go out of, a node; a public number. A graph that has more
            is refused: see
            :class:`~torch_geometric_dp.transforms.BoundDegree`. Needed for
            :obj:`unit="node"`. (default: :obj:`None`)
        unit (str, optional): What is protected: a :obj:`"node"`, with its row
            and edges, or an :obj:`"edge"`. (default: :obj:`"node"`)
        neighbours (str, optional): Whether a unit comes or goes
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
        budget (PrivacyBudget, optional): What releases are charged to.
            (default: :obj:`None`)
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
    def __init__(self, epsilon: float, max_degree: Optional[int] = None,
                 unit: str = 'node', neighbours: str = 'add-remove',
                 delta: Optional[float] = None, clip: float = 1.0,
                 hops: int = 1, calibration: str = 'proven',
                 trainable_input: bool = False,
                 budget: Optional[PrivacyBudget] = None,
                 seed: Optional[int] = None) -> None:
        super().__init__(budget, seed, aggr='sum')
        self.mechanism = NeighbourSum(epsilon, max_degree, unit, neighbours,
                                      delta, clip, hops)
        if calibration not in CALIBRATIONS:
            raise ValueError(f"'calibration' must be one of {CALIBRATIONS} "
                             f"(got {calibration!r})")
        if calibration == 'paper' and (unit, neighbours, delta, hops) != (
                'node', 'add-remove', None, 1):
            raise ValueError(
                "calibration='paper' is published for unit='node', "
                "neighbours='add-remove', hops=1 and Laplace noise (got "
                f"{unit!r}, {neighbours!r}, {hops} and delta={delta})")
        self.calibration = calibration
        self.trainable_input = bool(trainable_input)

    @property
    def guarantee(self) -> Guarantee:
        """What one forward pass promises."""
        promise = self.mechanism.guarantee
        if self.calibration == 'paper':
            promise = replace(promise, epsilon=math.inf,
                              claimed_epsilon=self.mechanism.epsilon)
        if self.trainable_input:
            promise = _assume(promise, "gradients that flow back through the "
                              "layer, which see raw edges, are not released")
        return promise

    def forward(self, x: Tensor, edge_index: Adj,
                weight: Optional[Tensor] = None) -> Tensor:
        """Releases the sums, or returns what was released before."""
        self._check(x, weight)
        edges = distinct_edges(edge_index, x.size(0))
        self._check_degrees(edges, x.size(0))
        guarantee, raw = self.guarantee, [x, edges]
        if weight is not None:
            raw.append(weight)
            guarantee = _assume(guarantee, "the weights of the nodes are "
                                "public, or were released before")
        return self.release_once(
            guarantee, raw, lambda source: self._draw(x, edges, weight, source),
            again=not x.requires_grad)

    def _draw(self, x: Tensor, edges: Tensor, weight: Optional[Tensor],
              source: NoiseSource) -> Tensor:
        scale = self._scale(x, edges, weight)
        adjacency = to_csr(edges, x.size(0), torch.ones(
            edges.size(1), dtype=torch.double, device=edges.device))
        h, out = x, []
        for hop in range(self.mechanism.hops):
            sums = self.propagate(adjacency, x=self.mechanism.to_steps(h))
            noisy = self.mechanism.release(sums, scale,
                                           source.derive('hop', hop))
            if h.requires_grad:  # Gradients pass rounding as if it were none.
                exact = self.propagate(adjacency, x=self._clip(h.double()))
                noisy = noisy + (exact - exact.detach())
            h = noisy.to(x.dtype)
            out.append(h)
        return out[0] if len(out) == 1 else torch.cat(out, dim=1)

    def _scale(self, x: Tensor, edges: Tensor,
               weight: Optional[Tensor]) -> Tensor:
        if weight is not None:
            weight = weight.detach().cpu()
        if self.calibration == 'proven':
            return self.mechanism.scale(x.size(1), weight)
        rank = torch.ones(x.size(0)) if weight is None else weight
        return self.mechanism.paper_scale(
            paper_weights(edges.cpu(), rank, self.mechanism.max_degree or 1))

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

    def _check(self, x: Tensor, weight: Optional[Tensor]) -> None:
        if not isinstance(x, Tensor) or x.dim() != 2 or (
                not x.is_floating_point()):
            kind = (f'{x.dtype} of shape {list(x.shape)}' if isinstance(
                x, Tensor) else type(x).__name__)
            raise ValueError(f"'x' must hold floating point numbers in shape "
                             f"[num_nodes, num_features] (got {kind})")
        # A sum is faster, and finite only if all of it is.
        if not x.sum().isfinite() and not x.isfinite().all():
            row = int((~x.isfinite()).any(dim=1).int().argmax())
            raise ValueError(f"'x' must be finite (got "
                             f"{float(x[row][~x[row].isfinite()][0])} in row "
                             f"{row})")
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
        cap = self.mechanism.max_degree
        if cap is None:
            return
        for name, ends in (('go out of', edges[0]), ('come into', edges[1])):
            degree = ends.bincount(minlength=num_nodes)
            if num_nodes > 0 and int(degree.max()) > cap:
                raise ValueError(
                    f"'max_degree' must be at least {int(degree.max())}: so "
                    f"many edges {name} node {int(degree.argmax())} (got "
                    f"{cap}). BoundDegree(max_degree={cap}) removes some")

    def __repr__(self) -> str:
        m = self.mechanism
        args = [f'epsilon={m.epsilon}']
        if m.max_degree is not None:
            args.append(f'max_degree={m.max_degree}')
        shown = (('unit', m.unit, 'node'),
                 ('neighbours', m.neighbours, 'add-remove'),
                 ('delta', m.delta, None), ('clip', m.clip, 1.0),
                 ('hops', m.hops, 1),
                 ('calibration', self.calibration, 'proven'),
                 ('trainable_input', self.trainable_input, False),
                 ('seed', self.seed, None))
        args += [f'{name}={value!r}' for name, value, default in shown
                 if value != default]
        return f"{self.__class__.__name__}({', '.join(args)})"


def _assume(guarantee: Guarantee, assumption: str) -> Guarantee:
    return replace(guarantee, assumptions=guarantee.assumptions +
                   (assumption, ))
