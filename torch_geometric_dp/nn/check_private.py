"""Finding out, by trial, whether a model reads more than what was released."""
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from torch_geometric_dp.accountant import PrivacyAccountant, Unit
from torch_geometric_dp.nn.private_layer import PrivateLayer
from torch_geometric_dp.release import field_name, verify

_EDGES = ('edge_index', 'adj_t')
Call = Callable[[torch.nn.Module, Any], Any]


def check_private(model: torch.nn.Module, data: Any,
                  call: Call | None = None) -> None:
    r"""Raises an error if a model reads raw edges behind the backs of its
    private layers, and names the modules that do.

    It holds what the private layers release fixed, gives the model other edges,
    and looks whether the output moves: a model whose output is a function of
    releases alone has the same one. If a private layer protects whole nodes,
    the same is done with other features. Nothing is released, and nothing is
    spent: what stands in for a release is made up. Edges and features that the
    graph's ledger covers may be read by everybody.

    Args:
        model (torch.nn.Module): The model, which stays as it is.
        data (Data or HeteroData): The graph that it runs on.
        call (callable, optional): How the model is called, given the model and
            the graph. By default, :obj:`model(data.x, data.edge_index)`.
            (default: :obj:`None`)

    .. code-block:: python

        from torch_geometric.nn import GCN
        model = GCN(4, 16, num_layers=2, out_channels=7)
        model.convs[0] = NAPConv(4, 16, epsilon=4.0, max_degree=50)
        try:
            check_private(model, data)
        except ValueError as error:
            print(error)   # 'convs.1' (GCNConv) reads raw edges ...
    """
    call = call or _plain_call
    layers = [m for m in model.modules() if isinstance(m, PrivateLayer)]
    known = verify(PrivacyAccountant.of(data), data)
    raw = [(i, key) for i, store in enumerate(data.stores) for key in store
           if known.get(field_name(store, key)) in ('raw', 'changed')]
    words = {'edges': [field for field in raw if field[1] in _EDGES]}
    if any(layer.guarantee.unit == Unit.NODE for layer in layers):
        words['features'] = [field for field in raw if field[1] == 'x']
    expected, _ = _run(model, data, call, [])
    for word, fields in words.items():
        for change in (_others, _fewer) if fields else ():
            other = copy.copy(data)
            for i, key in fields:
                other.stores[i][key] = change(other.stores[i][key], key)
            watched = [other.stores[i][key] for i, key in fields]
            try:
                out, readers = _run(model, other, call, watched)
            except (IndexError, RuntimeError, ValueError):
                if change is _others:
                    raise
                continue  # Something else has an entry for each of them.
            if not _same(expected, out):
                raise ValueError(_message(model, word, readers, layers))


def _plain_call(model: torch.nn.Module, data: Any) -> Any:
    return model(data.x, data.adj_t if data.get('edge_index') is None else
                 data.edge_index)


def _message(model: torch.nn.Module, word: str, readers: list[str],
             layers: list[PrivateLayer]) -> str:
    who = ', '.join(readers) or f'the model itself ({type(model).__name__})'
    text = (f"{who} reads raw {word}: with what the private layers release "
            f"held fixed, the output moves with the {word} of the graph. ")
    if not layers:
        text = f"{who} reads raw {word}, and there is no private layer. "
    what = ('released edges, or none' if word == 'edges' else
            'what was released')
    return text + (f"Nothing that the ledger says holds for this model. Give "
                   f"such modules {what}, or take them out")


def _run(model: torch.nn.Module, data: Any, call: Call,
         watched: list[Any]) -> tuple[list[Tensor], list[str]]:
    # The output of a copy of a model whose private layers release something
    # made up, and the innermost modules that were given what is watched.
    model = copy.deepcopy(model).eval()
    readers: dict[str, str] = {}
    for name, module in model.named_modules():
        for attribute in list(vars(module)):
            if attribute.startswith('_cached'):  # Edges of another run.
                setattr(module, attribute, None)
        if isinstance(module, PrivateLayer):
            module.forward = module.stand_in
        else:
            module.register_forward_pre_hook(_watch(name, watched, readers),
                                             with_kwargs=True)
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        out = list(_tensors(call(model, data)))
    private = [name for name, module in model.named_modules()
               if isinstance(module, PrivateLayer)]
    inner = [shown for name, shown in readers.items()
             if name and not any(other.startswith(f'{name}.')
                                 for other in (*readers, *private))]
    return out, inner


def _watch(name: str, watched: list[Any], readers: dict[str, str]) -> Any:
    def hook(module: Any, args: Any, kwargs: Any) -> None:
        given = [*args, *kwargs.values()]
        if any(value is other for value in given for other in watched):
            readers[name] = f"'{name}' ({type(module).__name__})"

    return hook


def _tensors(out: Any) -> Iterator[Tensor]:
    if isinstance(out, Tensor):
        yield out
    elif isinstance(out, dict):
        yield from _tensors(list(out.values()))
    elif isinstance(out, (list, tuple)):
        for part in out:
            yield from _tensors(part)


def _same(one: list[Tensor], two: list[Tensor]) -> bool:
    return len(one) == len(two) and all(
        a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(one, two))


# Other edges and features: of the same form, or fewer of them. #


def _others(value: Any, key: str) -> Any:
    generator = torch.Generator().manual_seed(0)
    if key == 'x':
        return torch.randn(value.shape, generator=generator).to(value)
    if key == 'edge_index':
        num_nodes = int(value.max()) + 1 if value.numel() else 0
        order = torch.randperm(num_nodes, generator=generator)
        return order.to(value.device)[value]
    if isinstance(value, SparseTensor):
        order = torch.randperm(value.size(0), generator=generator)
        return value[order][:, order] if value.size(0) == value.size(
            1) else value[order]
    assert is_torch_sparse_tensor(value)
    coo = value.to_sparse_coo().coalesce()
    order = torch.randperm(value.size(0), generator=generator).to(value.device)
    row, column = coo.indices()
    if value.size(0) == value.size(1):
        column = order[column]
    out = torch.sparse_coo_tensor(torch.stack([order[row], column]),
                                  coo.values(), value.shape).coalesce()
    return out.to_sparse(layout=value.layout)


def _fewer(value: Any, key: str) -> Any:
    if key == 'edge_index':
        return value[:, :value.size(1) // 2]
    return torch.zeros_like(value) if key == 'x' else value
