from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Batch, Data

from torch_geometric_dp._validate import check_choice, check_integer
from torch_geometric_dp.accountant import PrivacyAccountant
from torch_geometric_dp.graph.adjacency import edge_index_of
from torch_geometric_dp.graph.ego import EgoGraph
from torch_geometric_dp.mechanisms import DPSGD
from torch_geometric_dp.nn.training.example_gradients import (
    Call,
    ExampleGradients,
    Loss,
)
from torch_geometric_dp.nn.training.private_training import (
    PrivateTraining,
    take,
)
from torch_geometric_dp.release import (
    Content,
    Part,
    Releaser,
    Ticket,
    budget_of,
    refuse_n_id,
)

METHODS = ('auto', 'factors', 'vmap', 'loop')


def make_private(model: torch.nn.Module, optimizer: torch.optim.Optimizer,
                 data: Data, *, epsilon: float, delta: float, epochs: int,
                 hops: int = 0, max_degree: int | None = None,
                 sample_rate: float = 0.05, max_grad_norm: float = 1.0,
                 unit: str = 'node', relation: str = 'add-remove',
                 edges: int | None = None, loss: Loss = F.cross_entropy,
                 call: Call | None = None, mask: str = 'train_mask',
                 num_examples: int | None = None, method: str = 'auto',
                 state: Mapping[str, Any] | None = None,
                 seed: int | None = None) -> PrivateTraining:
    r"""Makes a training differentially private, for whole nodes (DP-SGD; Abadi
    et al., CCS 2016; for message passing, Daigavane et al., 2021).

    Each training node is an example: its label, and what the model reads to
    predict it, an ego-subgraph of :obj:`hops` hops. Each step draws a random
    batch, clips the gradient of each example, and adds discrete Gaussian noise
    to their sum, as much as all steps together need. How many examples one
    person is in, what follows from it, and the proof, stand in
    :mod:`torch_geometric_dp.mechanisms.dpsgd`. Needs the :obj:`accounting`
    extra.

    The whole training is charged to the graph's :obj:`privacy_budget`, if it
    has one, here, before the first step; each call is a training of its own.

    Noise grows with the number of examples that a node is in, :math:`1 + D +
    \dots + D^L`. So :obj:`hops=0`, a model of rows, is the setting to beat;
    :obj:`hops=1` with a small :obj:`max_degree` is the next one.

    Args:
        model (torch.nn.Module): Any model without layers that mix examples,
            such as :obj:`BatchNorm`, which are refused by name.
        optimizer (torch.optim.Optimizer): Of the model's parameters.
        data (Data): The graph, with :obj:`x`, :obj:`y` and a mask.
        epsilon (float): The privacy loss of one node, over all steps.
        delta (float): The probability with which the loss may be larger.
        epochs (int): How often each example is in a batch, on average.
        hops (int, optional): How many hops an example has: as many as there
            are layers of message passing. Layers that divide by degrees of
            both ends, such as :obj:`GCNConv`, read one hop more; without it,
            the nodes at the rim have no neighbours in training.
            (default: :obj:`0`)
        max_degree (int, optional): The largest number of edges at one node, in
            either direction, in any graph that is possible; a public number. A
            graph that has more is refused: see
            :class:`~torch_geometric_dp.transforms.BoundDegree`. Needed if
            there are hops. (default: :obj:`None`)
        sample_rate (float, optional): The probability of each example to be in
            a batch. (default: :obj:`0.05`)
        max_grad_norm (float, optional): The norm that gradients are clipped
            to. (default: :obj:`1.0`)
        unit (str, optional): What is protected: a :obj:`"node"`, with its row,
            its label and its edges. (default: :obj:`"node"`)
        relation (str, optional): Whether a node comes or goes
            (:obj:`"add-remove"`) or is exchanged for another
            (:obj:`"replace"`). (default: :obj:`"add-remove"`)
        edges (int, optional): With :obj:`relation="replace"`: at most so many
            of a node's edges change with it. By default, all of them.
            (default: :obj:`None`)
        loss (callable, optional): From the scores and the label of one example,
            with one row each, to what is minimised.
            (default: :obj:`torch.nn.functional.cross_entropy`)
        call (callable, optional): How the model is called, given the model,
            rows and edges; the first row of the result is the example's. By
            default, :obj:`model(x)` without hops, and
            :obj:`model(x, edge_index)` otherwise. (default: :obj:`None`)
        mask (str, optional): The boolean node field that selects training
            nodes. (default: :obj:`"train_mask"`)
        num_examples (int, optional): About how many training nodes there are, a
            public number that the sum of gradients is divided by. By default,
            the number of all nodes. (default: :obj:`None`)
        method (str, optional): How gradients of single examples are computed:
            as products, for a :obj:`torch.nn.Sequential` of dense layers
            (:obj:`"factors"`), all at once (:obj:`"vmap"`), one by one
            (:obj:`"loop"`), or the first of them that can be
            (:obj:`"auto"`). (default: :obj:`"auto"`)
        state (dict, optional): What :meth:`PrivateTraining.state_dict`
            returned: goes on with that training, which is paid for. All other
            arguments have to be the same. (default: :obj:`None`)
        seed (int, optional): Makes batches and noise repeatable, and known to
            everybody who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        from torch_geometric.nn import GraphSAGE
        model = GraphSAGE(4, 8, num_layers=1, out_channels=7)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        private = make_private(model, optimizer, data, epsilon=8.0, delta=1e-5,
                               epochs=1, hops=1, max_degree=3, sample_rate=0.25)
        for batch in private:
            private.step(batch)
        private.epsilon_spent <= 8.0   # True
    """
    check_choice('unit', str(unit), ('node', ))
    check_choice('method', method, METHODS)
    check_integer('epochs', epochs, 1)
    x, y, train = _fields(data, mask)
    known = {id(p) for p in model.parameters()}
    if any(id(p) not in known for group in optimizer.param_groups
           for p in group['params']):
        raise ValueError("'optimizer' must have the parameters of 'model' "
                         "(got others)")
    gradients = ExampleGradients(
        model, x.size(1), call or (_rows if hops == 0 else _rows_and_edges),
        loss, torch.zeros_like(y[0]), method, hops == 0 and call is None)
    mechanism = DPSGD(
        epsilon, delta, sample_rate, max(1, round(epochs / sample_rate)),
        sum(p.numel() for p in gradients.parameters.values()), hops,
        max_degree, relation, edges, max_grad_norm)
    graph = _graph(data, hops, max_degree)
    fields = ('x', 'y') if hops == 0 else ('x', 'edge_index', 'y')
    content: list[tuple[str, tuple[Tensor, ...]]] = [
        ('x', (x, )), ('y', (y, )), (mask, (train, ))]
    if hops > 0:
        content.append(('edge_index', (edge_index_of(data), )))
    ledger = PrivacyAccountant.of(data)
    part = Part(mechanism, DPSGD, mechanism.guarantee, fields,
                (('num_nodes', None), ),
                stability=max(map(ledger.stability, fields)))
    if state is None:
        ticket = _admit(data, part, content, seed)
    else:
        ticket = _again(data, part, content, seed, state)
    before = getattr(model, 'privacy', None)
    if isinstance(before, PrivacyAccountant):  # The weights are not new.
        ledger = PrivacyAccountant.merge([ledger, replace(
            before, releases=tuple(r for r in before.releases if r.release_id
                                   != ticket.releases[0].release_id))])
    return PrivateTraining(
        mechanism, gradients, optimizer, graph, x, y, train,
        float(num_examples or data.num_nodes), ledger, ticket.releases[0],
        ticket.source)


def _rows(model: torch.nn.Module, x: Tensor, edge_index: Tensor) -> Tensor:
    out: Tensor = model(x)
    return out


def _rows_and_edges(model: torch.nn.Module, x: Tensor,
                    edge_index: Tensor) -> Tensor:
    out: Tensor = model(x, edge_index)
    return out


def _fields(data: Any, mask: str) -> tuple[Tensor, Tensor, Tensor]:
    if isinstance(data, Batch) or not isinstance(data, Data):
        raise TypeError(f"'data' must be 'Data', one graph with nodes of one "
                        f"type (got '{type(data).__name__}')")
    refuse_n_id(data, 'make_private')
    x, y, train = data.get('x'), data.get('y'), data.get(mask)
    rows = data.num_nodes
    if not isinstance(x, Tensor) or x.layout != torch.strided or (
            x.dim() != 2 or not x.is_floating_point()):
        raise ValueError(f"'x' must hold floating point numbers in shape "
                         f"[num_nodes, num_features] (got "
                         f"{x.shape if isinstance(x, Tensor) else x})")
    for name, value in (('y', y), (mask, train)):
        if not isinstance(value, Tensor) or value.dim() < 1 or (
                value.size(0) != rows):
            got = value.shape if isinstance(value, Tensor) else value
            raise ValueError(f"'{name}' must be a tensor with {rows} rows "
                             f"(got {got})")
    assert isinstance(y, Tensor) and isinstance(train, Tensor)
    if train.dtype != torch.bool or train.dim() != 1:
        raise ValueError(f"'{mask}' must be a boolean tensor of shape "
                         f"[{rows}] (got {train.dtype})")
    return x, y, train.cpu()


def _graph(data: Data, hops: int, max_degree: int | None) -> EgoGraph:
    if hops == 0:
        return EgoGraph(torch.empty(2, 0, dtype=torch.long),
                        data.num_nodes or 0, 0)
    for weight in ('edge_weight', 'edge_attr'):
        if data.get(weight) is not None:
            raise ValueError(f"'{weight}' must not be there: examples have "
                             f"edges alone. Remove it, as in "
                             f"data.{weight} = None")
    graph = EgoGraph(edge_index_of(data), data.num_nodes or 0, hops)
    if graph.degree > (max_degree or 0):
        raise ValueError(f"'max_degree' must be larger: some nodes have more "
                         f"edges than {max_degree}. BoundDegree({max_degree}) "
                         f"removes some")
    return graph


def _admit(data: Data, part: Part, content: Content,
           seed: int | None) -> Ticket:
    releaser = Releaser(seed)
    releaser.renew()  # What a training sees depends on all its steps.
    return releaser.admit([part], content, budget_of(data))


def _again(data: Data, part: Part, content: Content, seed: int | None,
           state: Mapping[str, Any]) -> Ticket:
    # Nothing is charged, and the noise is new: the secret of the old one is in
    # no file.
    release, = PrivacyAccountant.from_json(state['ledger']).releases
    budget = budget_of(data)
    graph = None if budget is None else budget.identity
    asked = (part.guarantee, graph, part.stability, part.who.arguments())
    if asked != (*release.cost, release.arguments):
        raise ValueError(f"'state' must be of the same training: it is of "
                         f"{release.call} (got {part.who!r})")
    if state['stopped']:
        raise ValueError("'state' must be of a training that goes on: this "
                         "one was stopped, and its ledger says so")
    if budget is not None and all(r.release_id != release.release_id
                                  for r in budget.spent.releases):
        raise ValueError("'state' must be of a training that the graph's "
                         "'privacy_budget' has paid for (got another)")
    take(release, check_integer('steps', state['steps'], 0))
    ticket = Releaser(seed).bind(f'{release.release_id} {state["steps"]}', (),
                                 content, None)
    return replace(ticket, releases=(release, ))
