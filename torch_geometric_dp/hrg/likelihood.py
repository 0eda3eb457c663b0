r"""How well a dendrogram explains a graph, and how much one edge may change it.

An internal node :math:`r` of a dendrogram stands for the :math:`N_r = L_r R_r`
pairs of a leaf on its left and a leaf on its right; :math:`e_r` of them are
edges. With the best probability for each node, :math:`p_r = e_r / N_r`, the
log-likelihood of the graph is

.. math::
    \mathcal{L} = \sum_r g(e_r, N_r), \quad
    g(e, N) = e \log\frac{e}{N} + (N-e) \log\Bigl(1 - \frac{e}{N}\Bigr),

where :math:`0 \log 0 = 0`.

**Theorem.** Let :math:`M = \lfloor n^2/4 \rfloor`. One edge more or less
changes :math:`\mathcal{L}` by at most

.. math::
    \Delta = \log M + (M-1) \log\Bigl(1 + \frac{1}{M-1}\Bigr)

for any dendrogram over :math:`n` leaves, and no smaller number will do.

*Proof.* The pair belongs to one node :math:`r`, so one term changes. As a
function of :math:`e`, :math:`g` is convex and symmetric about :math:`N/2`, so
its steps are largest at the ends: :math:`|g(e+1, N) - g(e, N)| \leq |g(1, N)| =
N \log N - (N-1) \log (N-1)`, which grows with :math:`N`, for :math:`x \log x`
is convex. Leaves :math:`L_r + R_r \leq n` give :math:`N_r \leq M`, and putting
:math:`N = M` gives :math:`\Delta`. An empty graph and a root that halves the
leaves attain it. ∎

**Theorem.** A dendrogram drawn with probability proportional to
:math:`\exp(f(D) + w\,\mathcal{L}(D))`, where :math:`f` does not depend on the
private edges, :math:`\mathcal{L}` counts them, and :math:`w = \varepsilon / (2
\Delta)`, is :math:`\varepsilon`-private for one private edge more or less.

*Proof.* The edge changes the weight of each dendrogram by a factor between
:math:`e^{-w\Delta}` and :math:`e^{w\Delta}`, and so the sum of all weights. The
ratio of the two is off by at most :math:`e^{2w\Delta} = e^\varepsilon`. ∎

The factor 2 is needed: an edge that makes one dendrogram less likely makes
another one more likely, and the sum may move the other way.
"""
import math

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp._jit import jit
from torch_geometric_dp.hrg.edges import Ints, check_num_nodes


@jit
def node_log_likelihood(edges: float, pairs: int) -> float:
    """:math:`g(e, N)`, without the cancellation of three large terms."""
    if edges == 0 or edges == pairs:
        return 0.0
    p = edges / pairs
    return edges * math.log(p) + (pairs - edges) * math.log1p(-p)


@jit
def log_likelihood(edges: NDArray[np.float64], pairs: Ints) -> float:
    r""":math:`\mathcal{L}`, given all :math:`e_r` and all :math:`N_r`."""
    total = 0.0
    for r in range(edges.size):
        total += node_log_likelihood(edges[r], pairs[r])
    return total


def sensitivity(num_nodes: int) -> float:
    r"""The most by which one edge can change the log-likelihood of a dendrogram
    over :obj:`num_nodes` leaves. Zero for one or two leaves, where every graph
    has likelihood one.

    .. code-block:: python

        sensitivity(3)      # 1.386...
        sensitivity(2708)   # 15.42...
    """
    check_num_nodes(num_nodes)
    most = num_nodes**2 // 4
    if most < 2:
        return 0.0
    return math.log(most) + (most - 1) * math.log1p(1 / (most - 1))


def private_weight(epsilon: float, num_nodes: int) -> float:
    r"""The weight :math:`\varepsilon / (2 \Delta)` of the private edges'
    log-likelihood that makes a draw of a dendrogram
    :math:`\varepsilon`-private.

    .. code-block:: python

        private_weight(1.0, 2708)   # 0.0324...
    """
    if not 0 < epsilon < math.inf:
        raise ValueError(f"'epsilon' must be a positive, finite number "
                         f"(got {epsilon!r})")
    delta = sensitivity(num_nodes)
    # Over one or two leaves there is one dendrogram, whatever its weight.
    return epsilon / (2 * delta) if delta > 0 else 0.0
