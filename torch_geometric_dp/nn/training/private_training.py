import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from torch_geometric_dp.accountant import PrivacyAccountant, Release
from torch_geometric_dp.graph.ego import EgoGraph, Subgraphs
from torch_geometric_dp.mechanisms import DPSGD
from torch_geometric_dp.nn.training.example_gradients import ExampleGradients
from torch_geometric_dp.noise import NoiseSource

# The steps that were taken of each plan, by the name of its release. Whatever
# copies there are of a training, in this process they share one count.
_TAKEN: dict[str, int] = {}
_LOCK = threading.Lock()


@dataclass(frozen=True)
class PrivateBatch:
    """The examples of one step. It is raw data: who is in it is a secret that
    the promise relies on.

    Args:
        step (int): The number of the step that it is for.
        nodes (Tensor): The training nodes that were drawn.
        subgraphs (Subgraphs): What they read.
    """
    step: int
    nodes: Tensor
    subgraphs: Subgraphs

    def __len__(self) -> int:
        return len(self.nodes)


class PrivateTraining:
    r"""A training under differential privacy, as
    :func:`~torch_geometric_dp.nn.make_private` returns it: batches to iterate
    over, a step to take with each of them, and a ledger.

    Iterating yields the batches of one epoch, and none once all steps that were
    paid for are taken. A batch holds each training node with the same
    probability, independently of all others. It is good for one step.

    **What is private** are the weights after each step, and what is computed
    from them. The batches, the gradients and the loss on training nodes are
    not: do not show them. Neither are predictions that read raw rows of
    neighbours: to predict for a node, the model reads others, whose rows are
    then in what is shown.

    **The ledger.** All steps are paid for before the first one. So
    :obj:`privacy` has one entry, the same from the first step to the last: an
    upper bound at every step. What the steps that were taken have cost is
    :obj:`epsilon_spent`. If the training ends early, :meth:`stop` makes that
    final: no step can follow, and :obj:`privacy` tells of the steps that were
    taken alone. (What was charged to the graph's budget stays charged.) The
    model has it, too, as :obj:`model.privacy`: a second training of the same
    weights adds to the first.

    .. code-block:: python

        model = torch.nn.Linear(4, 7)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        private = make_private(model, optimizer, data, epsilon=8.0, delta=1e-5,
                               epochs=2, sample_rate=0.25)
        for epoch in range(2):
            for batch in private:
                private.step(batch)
        private.privacy.epsilon('node')   # 8.0
    """
    def __init__(self, mechanism: DPSGD, gradients: ExampleGradients,
                 optimizer: torch.optim.Optimizer, graph: EgoGraph, x: Tensor,
                 y: Tensor, train: Tensor, num_examples: float,
                 ledger: PrivacyAccountant, release: Release,
                 source: NoiseSource) -> None:
        self.mechanism = mechanism
        self.model, self.optimizer = gradients.model, optimizer
        self._gradients, self._graph = gradients, graph
        self._x, self._y, self._train = x, y, train
        self._scale = 1 / (mechanism.sample_rate * num_examples)
        self._ledger, self._release = ledger, release
        self._source, self._process = source, os.getpid()
        self._stopped = False
        _TAKEN.setdefault(release.release_id, 0)
        self._tell()

    @property
    def steps(self) -> int:
        """How many steps were paid for."""
        return self.mechanism.steps

    @property
    def steps_taken(self) -> int:
        """How many steps were taken, by all copies of this training."""
        return _TAKEN[self._release.release_id]

    @property
    def noise_multiplier(self) -> float:
        """The noise of one step, in clipping norms."""
        return self.mechanism.noise_multiplier

    @property
    def epsilon_spent(self) -> float:
        """The privacy loss of the steps that were taken, at the delta that was
        asked for.
        """
        return self.mechanism.epsilon_after(self.steps_taken)

    @property
    def privacy(self) -> PrivacyAccountant:
        """The ledger: of all steps that were paid for, or, after :meth:`stop`,
        of those that were taken.
        """
        told = (('steps', self.steps_taken), )
        release = replace(self._release,
                          parameters=self._release.parameters + told)
        if self._stopped:
            # Another name: it is not what was charged, and does not stand in
            # for it where the two meet.
            release = replace(
                release, guarantee=self.mechanism.after(self.steps_taken),
                release_id=f'{release.release_id}-{self.steps_taken}')
        return PrivacyAccountant.merge([self._ledger,
                                        PrivacyAccountant((release, ))])

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return max(1, round(1 / self.mechanism.sample_rate))

    def __iter__(self) -> Iterator[PrivateBatch]:
        for _ in range(len(self)):
            if self._stopped or self.steps_taken >= self.steps:
                return
            yield self.batch()

    def batch(self) -> PrivateBatch:
        """The batch of the next step."""
        self._check()
        step = self.steps_taken
        drawn = torch.from_numpy(self.mechanism.draw(
            len(self._train), self._source, step)) & self._train
        nodes = drawn.nonzero().view(-1)
        return PrivateBatch(step, nodes, self._graph.subgraphs(nodes))

    def step(self, batch: PrivateBatch) -> None:
        """Sets the gradients of all parameters to the noisy mean of the clipped
        gradients of a batch, and takes a step of the optimizer.
        """
        with _LOCK:  # Of two threads with one batch, one is refused.
            self._check()
            if batch.step != self.steps_taken:
                raise ValueError(f"'batch' must be the one of step "
                                 f"{self.steps_taken}: each batch is good for "
                                 f"one step (got that of step {batch.step})")
            # Counted first: whatever goes wrong after that, no noise comes
            # twice.
            _TAKEN[self._release.release_id] += 1
        total = self._gradients.total(
            self.mechanism, batch.subgraphs, self._x,
            self._y[batch.nodes.to(self._y.device)])
        noisy = self.mechanism.release(total, self._source, batch.step)
        self.optimizer.zero_grad()
        for parameter, gradient in zip(self._gradients.parameters.values(),
                                       noisy):
            parameter.grad = (gradient * self._scale).to(parameter.dtype)
        self.optimizer.step()

    def fit(self) -> 'PrivateTraining':
        """Takes all steps that are left, in training mode, and leaves the model
        in evaluation mode.
        """
        self.model.train()
        while self.steps_taken < self.steps:
            self.step(self.batch())
        self.model.eval()
        return self

    def stop(self) -> 'PrivateTraining':
        """Ends the training: no step can follow."""
        self._stopped = True
        self._tell()
        return self

    def _tell(self) -> None:
        # The weights have a ledger, wherever they go from here.
        self.model.privacy = self.privacy  # type: ignore[assignment]

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("A training cannot be gone on with in a forked "
                               "process: two of them would draw the same "
                               "noise. See state_dict()")
        if self._stopped:
            raise RuntimeError("This training was stopped: what it tells of "
                               "its cost holds if no step follows")
        if self.steps_taken >= self.steps:
            raise RuntimeError(f"All {self.steps} steps that were paid for "
                               f"are taken: more of them are another training, "
                               f"which costs again, see make_private")

    # What is saved: the entry and the count, and no secret. #

    def state_dict(self) -> dict[str, Any]:
        """The ledger, and how many steps were taken; for
        :obj:`make_private(..., state=...)`. Save the model's and the
        optimizer's state beside it.
        """
        return {'ledger': PrivacyAccountant((self._release, )).to_json(),
                'steps': self.steps_taken, 'stopped': self._stopped}

    def __reduce__(self) -> NoReturn:
        raise TypeError("A training holds the secret of its noise, and raw "
                        "data: save its state_dict()")


def take(release: Release, steps: int) -> None:
    """Notes that so many steps of a plan were taken: the count never goes
    back.
    """
    with _LOCK:
        known = _TAKEN.get(release.release_id, 0)
        _TAKEN[release.release_id] = max(known, steps)
