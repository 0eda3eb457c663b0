"""Training with early stopping, and what was not trained."""
import copy
from collections.abc import Callable

import torch
from torch import Tensor


def fit_early(model: torch.nn.Module, inputs: tuple[Tensor, ...],
              loss: Callable[[Tensor], Tensor],
              held_out: Callable[[Tensor], Tensor], epochs: int = 100,
              lr: float = 0.01, weight_decay: float = 5e-4,
              patience: int = 30) -> float:
    """Trains a model from new weights with Adam, and leaves it as it was in
    the epoch with the least held-out loss, which is returned.

    Args:
        model (torch.nn.Module): Has :obj:`reset_parameters`.
        inputs (tuple of tensors): What the model is called with.
        loss (callable): From the model's output to what is minimised.
        held_out (callable): From the model's output to what decides when to
            stop.
        epochs (int, optional): The largest number of epochs.
            (default: :obj:`100`)
        lr (float, optional): The learning rate. (default: :obj:`0.01`)
        weight_decay (float, optional): The weight decay.
            (default: :obj:`5e-4`)
        patience (int, optional): For how many epochs to go on without
            progress. (default: :obj:`30`)

    .. code-block:: python

        model = torch.nn.Linear(4, 2)
        fit_early(model, (data.x, ), loss=lambda out: out.square().mean(),
                  held_out=lambda out: out.square().mean(), epochs=3)
    """
    model.reset_parameters()  # type: ignore[operator]
    optimizer = torch.optim.Adam(model.parameters(), lr=lr,
                                 weight_decay=weight_decay)
    best, waited = float('inf'), 0
    state = copy.deepcopy(model.state_dict())
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        loss(model(*inputs)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        model.eval()
        with torch.no_grad():
            value = float(held_out(model(*inputs)))
        waited += 1
        if value < best:
            best, waited = value, 0
            state = copy.deepcopy(model.state_dict())
        if waited > patience:
            break
    model.load_state_dict(state)
    model.eval()
    return best


def check_fitted(model: torch.nn.Module) -> None:
    """Refuses to predict with a model that was not fitted, as its buffer
    :obj:`fitted` tells.
    """
    if not model.fitted:
        raise RuntimeError(f"Call fit(data) first: this "
                           f"'{type(model).__name__}' has not learnt anything")
