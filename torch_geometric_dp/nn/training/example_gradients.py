r"""The gradient of each example by itself, for any model.

In a chain of dense layers and functions of single numbers, no row has a part in
another one, and the gradient of an example of one row is a product for each
layer: one pass through all of them is enough (``method='factors'``).

Otherwise, examples are put into tensors of equal size, and
:obj:`torch.func.vmap` runs the model on all of them: what one example computes
cannot depend on another one, whatever the model does. Where a layer does not
run like that, which a trial on made-up examples shows, they are run one by one.

Layers that add self-loops look for those that are there, which :obj:`vmap` does
not allow. Examples have none. So such layers are told not to, and get the
self-loops with the edges.
"""
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parameter import UninitializedParameter
from torch_geometric.nn import MessagePassing, norm

from torch_geometric_dp.graph.ego import EgoGraph, Subgraphs
from torch_geometric_dp.mechanisms import DPSGD

#: From a model, rows and edges to rows of scores.
Call = Callable[[torch.nn.Module, Tensor, Tensor], Tensor]
#: From a row of scores and a label, with one entry each, to a number.
Loss = Callable[[Tensor, Tensor], Tensor]

_MIXING = (torch.nn.modules.batchnorm._NormBase, norm.BatchNorm,
           norm.HeteroBatchNorm, norm.InstanceNorm, norm.GraphNorm,
           norm.GraphSizeNorm, norm.PairNorm, norm.MeanSubtractionNorm,
           norm.DiffGroupNorm)
_SIMPLE = (torch.nn.ReLU, torch.nn.LeakyReLU, torch.nn.ELU, torch.nn.SELU,
           torch.nn.GELU, torch.nn.SiLU, torch.nn.Tanh, torch.nn.Sigmoid,
           torch.nn.Softplus, torch.nn.Dropout, torch.nn.Identity)
_CELLS = 2**24  # Gradients that are held at a time.
_MOST_TOGETHER = 128
_TRIAL = 4  # Made-up examples.


def check_layers(model: torch.nn.Module) -> None:
    """Refuses layers whose result for one node depends on all others, and
    those that remember what they have seen.
    """
    for name, module in model.named_modules():
        who = f"'{name}' ({type(module).__name__})"
        if isinstance(module, _MIXING) or (
                isinstance(module, norm.LayerNorm) and module.mode == 'graph'):
            raise ValueError(
                f"{who} mixes examples: what it does to one node depends on "
                f"others that are in no bounded subgraph with it, and it may "
                f"keep statistics of raw data. Use LayerNorm(mode='node'), or "
                f"none")
        if getattr(module, 'cached', False) is True:
            raise ValueError(f"{who} must have cached=False: it would keep "
                             f"the edges of one example for all others")
    for name, value in model.named_parameters():
        if isinstance(value, UninitializedParameter):
            raise ValueError(f"'{name}' must have a shape: give all layers "
                             f"the number of their channels (got -1)")
        if value.requires_grad and value.dtype not in (torch.float,
                                                       torch.double):
            raise ValueError(f"'{name}' must hold floats or doubles "
                             f"(got {value.dtype})")


def dense_layers(model: torch.nn.Module) -> list[torch.nn.Linear]:
    """The layers of a chain of dense ones and functions of single numbers, all
    of which are trained; none if a model is something else.

    .. code-block:: python

        dense_layers(torch.nn.Linear(3, 2))   # [Linear(...
    """
    leaves = [module for module in model.modules()
              if type(module) is not torch.nn.Sequential]
    layers = [module for module in leaves if type(module) is torch.nn.Linear]
    weights = [id(p) for layer in layers for p in layer.parameters()
               if p.requires_grad]
    all_of_them = [id(p) for layer in layers for p in layer.parameters()]
    chained = all(type(module) in (torch.nn.Linear, *_SIMPLE)
                  for module in leaves)
    # A module that comes twice is listed once; then a layer sees other rows.
    places = sum(type(part) is torch.nn.Linear for part in _chain(model))
    hooked = any(module._forward_hooks or module._forward_pre_hooks
                 for module in model.modules())
    alone = len(set(weights)) == len(all_of_them) and places == len(layers)
    return layers if chained and alone and not hooked else []


def _chain(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    if isinstance(model, torch.nn.Sequential):
        for part in model:
            yield from _chain(part)
    else:
        yield model


class ExampleGradients:
    """Gradients of single examples, a few of them at a time.

    Args:
        model (torch.nn.Module): The model, whose trainable parameters they are
            for.
        columns (int): The number of columns of a row.
        call (callable): From the model, rows and edges to scores.
        loss (callable): From the scores and the label of one example, each
            with one row, to what is minimised.
        label (Tensor): A label like others: of their shape and type.
        method (str): :obj:`"factors"`, :obj:`"vmap"`, :obj:`"loop"`, or
            :obj:`"auto"`, the first of them that can be.
        rows (bool, optional): Whether examples are single rows, of which the
            model is a function. (default: :obj:`False`)
    """
    def __init__(self, model: torch.nn.Module, columns: int, call: Call,
                 loss: Loss, label: Tensor, method: str = 'auto',
                 rows: bool = False) -> None:
        check_layers(model)
        self.model, self.call, self.loss = model, call, loss
        self.parameters = {name: value
                           for name, value in model.named_parameters()
                           if value.requires_grad}
        if not self.parameters:
            raise ValueError("'model' must have parameters that require a "
                             "gradient (got none)")
        size = sum(value.numel() for value in self.parameters.values())
        self.together = max(1, min(_MOST_TOGETHER, _CELLS // size))
        self._whole = _Example(model, call, loss)
        self._layers = dense_layers(model) if rows else []
        if method == 'factors' and not self._layers:
            raise ValueError("method='factors' needs a chain of dense layers, "
                             "as a torch.nn.Sequential, and hops=0")
        if method == 'auto' and self._layers:
            method = 'factors'
        self.method = self._try(columns, label, method)

    def total(self, mechanism: DPSGD, subgraphs: Subgraphs, x: Tensor,
              y: Tensor) -> list[Tensor]:
        """The sum of the clipped gradients of some examples, in steps: a tensor
        for each parameter.
        """
        parameters = list(self.parameters.values())
        total = [torch.zeros_like(p, dtype=torch.double) for p in parameters]
        if self.method == 'factors' and len(y) > 0:
            sums = mechanism.factored_sum(self._factors(x[
                subgraphs.nodes.to(x.device)], y))
            place = {id(p): i for i, p in enumerate(parameters)}
            for layer, found in zip(self._layers, sums):
                if layer.bias is not None:
                    total[place[id(layer.bias)]] = found[:, -1]
                total[place[id(layer.weight)]] = found[
                    :, :layer.in_features]
            return total
        for part in self(subgraphs, x, y):
            for known, new in zip(total, mechanism.clipped_sum(part)):
                known += new
        return total

    def _factors(self, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        # The inputs of all dense layers, and the gradients of their outputs.
        seen: list[tuple[Tensor, Tensor]] = []

        def look(layer: Any, args: Any, out: Tensor) -> None:
            row, = args
            if layer.bias is not None:
                row = torch.cat([row, row.new_ones(len(row), 1)], dim=1)
            seen.append((row, out))

        hooks = [layer.register_forward_hook(look) for layer in self._layers]
        try:
            with torch.enable_grad():
                out = self.model(x)
                if self.loss is F.cross_entropy:
                    loss = F.cross_entropy(out, y, reduction='sum')
                else:  # Each row by itself, whatever it does.
                    loss = torch.func.vmap(
                        lambda out, y: self.loss(out[None], y[None]).sum(),
                        randomness='different')(out, y).sum()
                errors = torch.autograd.grad(loss, [o for _, o in seen])
        finally:
            for hook in hooks:
                hook.remove()
        return [(a, b) for (a, _), b in zip(seen, errors)]

    def __call__(self, subgraphs: Subgraphs, x: Tensor,
                 y: Tensor) -> Iterator[list[Tensor]]:
        """For some examples at a time, a tensor for each parameter, with one
        gradient for each example.
        """
        size = subgraphs.first_node.diff()
        if len(size) == 0:
            return
        # Examples of about the same size are together: the order of a sum of
        # integers does not matter.
        for part in torch.split(size.argsort(), self.together):
            yield self._gradients(subgraphs, x, y, part, self.method)

    def _gradients(self, subgraphs: Subgraphs, x: Tensor, y: Tensor,
                   part: Tensor, method: str) -> list[Tensor]:
        detached = {f'model.{name}': value.detach()
                    for name, value in self.parameters.items()}
        fixed = {f'model.{name}': value.detach() for name, value in (
            *self.model.named_buffers(), *self.model.named_parameters())
            if f'model.{name}' not in detached}

        def one(values: dict[str, Tensor], rows: Tensor, edges: Tensor,
                label: Tensor) -> Tensor:
            out: Tensor = torch.func.functional_call(
                self._whole, {**fixed, **values}, (rows, edges, label))
            return out

        if method == 'loop':
            alone = [torch.func.grad(one)(
                detached, *_example(subgraphs, x, int(i)), y[i])
                for i in part]
            return [torch.stack([g[name] for g in alone]) for name in detached]
        with _loops_given(self.model):
            found = torch.func.vmap(
                torch.func.grad(one), in_dims=(None, 0, 0, 0),
                randomness='different')(
                    detached, *_padded(subgraphs, x, part), y[part])
        return list(found.values())

    def _try(self, columns: int, label: Tensor, method: str) -> str:
        # On made-up examples, of which two have no edges.
        generator = torch.Generator().manual_seed(0)
        first = next(iter(self.parameters.values()))
        x = torch.rand(3 * _TRIAL, columns, generator=generator).to(first)
        ring = torch.arange(2 * _TRIAL)
        edges = torch.stack([ring, (ring + 1) % len(ring)])
        subgraphs = EgoGraph(torch.cat([edges, edges.flip(0)], dim=1), len(x),
                             hops=1).subgraphs(3 * torch.arange(_TRIAL))
        y = label.expand(_TRIAL, *label.shape)
        part, mode = torch.arange(_TRIAL), self.model.training
        before = [value.clone() for value in self.model.buffers()]
        try:
            with torch.random.fork_rng(devices=()):
                self.model.train()
                self._gradients(subgraphs, x, y, part, 'loop')
                self.model.eval()
                right = self._gradients(subgraphs, x, y, part, 'loop')
                self._check_buffers(before)
                if method == 'factors':
                    self._check_factors(x[:_TRIAL], y)
                elif method != 'loop':
                    method = self._try_vmap(subgraphs, x, y, part, right,
                                            method)
        finally:
            self.model.train(mode)
            with torch.no_grad():
                for value, old in zip(self.model.buffers(), before):
                    value.copy_(old)
        return method

    def _check_buffers(self, before: list[Tensor]) -> None:
        for (name, value), old in zip(self.model.named_buffers(), before):
            if not torch.equal(value, old):
                raise ValueError(f"'{name}' changes as the model runs: it "
                                 f"would remember raw data without any noise")

    def _check_factors(self, x: Tensor, y: Tensor) -> None:
        # A chain is what it seems to be, unless somebody has changed a class.
        with torch.enable_grad():
            losses = [self.loss(self.model(x[i:i + 1]), y[i:i + 1]).sum()
                      for i in range(len(x))]
            right = torch.autograd.grad(
                torch.stack(losses).sum(),
                [layer.weight for layer in self._layers])
        for weight, (a, b) in zip(right, self._factors(x, y)):
            if not torch.allclose((b.T @ a)[:, :weight.size(1)], weight,
                                  rtol=1e-3, atol=1e-5):
                raise ValueError("'method' must be 'vmap' or 'loop': this "
                                 "model is no chain of dense layers")

    def _try_vmap(self, subgraphs: Subgraphs, x: Tensor, y: Tensor,
                  part: Tensor, right: list[Tensor], method: str) -> str:
        try:
            found = self._gradients(subgraphs, x, y, part, 'vmap')
            self.model.train()
            self._gradients(subgraphs, x, y, part, 'vmap')
        except (IndexError, NotImplementedError, RuntimeError, TypeError,
                ValueError):
            if method == 'vmap':
                raise
            return 'loop'
        for one, two in zip(found, right):
            if not torch.allclose(one, two, rtol=1e-3, atol=1e-5):
                if method == 'vmap':
                    raise ValueError(
                        "'method' must be 'loop': this model computes "
                        "something else if examples are put together")
                return 'loop'
        return 'vmap'


class _Example(torch.nn.Module):
    # The loss of one example, so that a model's parameters can be swapped
    # however it is called.
    def __init__(self, model: torch.nn.Module, call: Call,
                 loss: Loss) -> None:
        super().__init__()
        self.model, self._call, self._loss = model, call, loss

    def forward(self, rows: Tensor, edges: Tensor, label: Tensor) -> Tensor:
        out = self._call(self.model, rows, edges)
        return self._loss(out[:1], label.unsqueeze(0)).sum()


def _example(subgraphs: Subgraphs, x: Tensor, i: int) -> tuple[Tensor, Tensor]:
    nodes, first, edges, start = subgraphs
    return (x[nodes[first[i]:first[i + 1]].to(x.device)],
            edges[:, start[i]:start[i + 1]].to(x.device))


def _padded(subgraphs: Subgraphs, x: Tensor,
            part: Tensor) -> tuple[Tensor, Tensor]:
    # Where there are edges, one row more, of zeros: edges that make up for
    # missing ones lead from it to itself.
    nodes, first, edges, start = subgraphs
    counts, links = first.diff()[part], start.diff()[part]
    most, width = int(counts.max()), int(links.max())
    rows = most + (width > 0)
    row = _ramps(first[part], counts)
    x_out = x.new_zeros(len(part) * rows, x.size(1))
    x_out[_ramps(torch.arange(len(part)) * rows, counts).to(x.device)] = x[
        nodes[row].to(x.device)]
    out = edges.new_full((2, len(part) * width), most)
    out[:, _ramps(torch.arange(len(part)) * width, links)] = edges[
        :, _ramps(start[part], links)]
    return (x_out.view(len(part), rows, -1),
            out.view(2, len(part), width).transpose(0, 1).to(x.device))


def _ramps(starts: Tensor, lengths: Tensor) -> Tensor:
    # Each start, and the numbers that follow it.
    before = lengths.cumsum(0) - lengths
    return torch.arange(int(lengths.sum())) + (starts - before
                                               ).repeat_interleave(lengths)


@contextmanager
def _loops_given(model: torch.nn.Module) -> Iterator[None]:
    layers = [m for m in model.modules() if isinstance(m, MessagePassing)
              and getattr(m, 'add_self_loops', False) is True
              and getattr(m, 'normalize', True) is True
              and not getattr(m, 'improved', False)]
    hooks = []
    try:
        for layer in layers:
            layer.add_self_loops = False
            hooks.append(layer.register_forward_pre_hook(_give_loops,
                                                         with_kwargs=True))
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer in layers:
            layer.add_self_loops = True


def _give_loops(layer: Any, args: Any, kwargs: Any) -> Any:
    given = inspect.signature(layer.forward).bind(*args, **kwargs)
    given.apply_defaults()
    x, edge_index = given.arguments['x'], given.arguments['edge_index']
    loop = torch.arange(x.size(0), device=x.device)
    edge_index = torch.cat([edge_index, torch.stack([loop, loop])], dim=1)
    given.arguments['edge_index'] = edge_index
    if given.arguments.get('edge_weight', 0) is None:
        # Ones, for each example its own.
        given.arguments['edge_weight'] = (edge_index[0] >= 0).to(x.dtype)
    return given.args, given.kwargs
