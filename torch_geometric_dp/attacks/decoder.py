r"""A decoder that is learned from examples: what is linear, what is not, and
what the examples themselves look like.

1. Each column by least squares from that column alone, in each of the inputs
   that have the same columns as the output: few numbers to learn, which undo
   the bias of a local mechanism. Then ridge regression on all inputs for what
   that leaves.
2. A network for what ridge regression leaves.
3. The posterior mean, as if what is looked for was one of the examples. With
   their outputs :math:`x_k` as a prior, and a linear model :math:`f` of the
   released row :math:`z` with Gaussian noise, learned the other way round, it
   is

   .. math::
       \sum_k w_k x_k, \quad w_k \propto \exp \left( - \sum_j \frac{(z_j -
       f_j(x_k))^2}{2 \sigma_j^2} \right).

   Noise that is independent in each column, as that of local mechanisms, is
   what this model says; correlations are taken from the examples.

Which inputs are used, how strong ridge regression is, how long the network
learns and how the first two are mixed with the third is decided on a part of
the examples; then all is learned again, from all of them.
"""
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

STRENGTHS = [10.0**power for power in range(-8, 5)]
MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)

_HIDDEN = 128
_PATIENCE, _EVERY, _STEPS = 5, 10, 400  # Of the network's training.
_EXAMPLES = 4096  # In the prior, at the most.
_CELLS = 2**22  # Distances go in blocks, so that memory stays bounded.

Blocks = Mapping[str, Tensor]  # Inputs by name, with one row for each node.
Evidence = tuple[float, float]

# How much each counts: what explains the release, and what is near. The two
# say the same in part, so their sum may say it too often.
EVIDENCE: tuple[Evidence, ...] = ((1.0, 1.0), (1.0, 0.5), (1.0, 0.25),
                                  (1.0, 0.1), (1.0, 0.0), (0.0, 1.0))


class Linear:
    """Least squares column by column, then ridge regression for all strengths
    at once. The first :obj:`copies` blocks of the inputs have the same columns
    as the output.
    """
    def __init__(self, z: Tensor, x: Tensor, copies: int) -> None:
        self._centre, self._middle = z.mean(dim=0), x.mean(dim=0)
        spread = z.std(dim=0, correction=0)
        # A column that does not vary tells nothing, and is left at zero.
        self._scale = torch.where(spread > 1e-9, spread, torch.inf)
        self._count, z, rest = len(x), self.inputs(z), x - self._middle
        same = z[:, :copies * x.size(1)].view(len(z), copies, x.size(1))
        gram = torch.einsum('nad,nbd->dab', same, same)
        gram += 1e-9 * self._count * torch.eye(copies)
        self._slopes = torch.linalg.solve(gram, torch.einsum(
            'nad,nd->da', same, rest)).t()
        rest = rest - self._by_column(z)
        left, self._values, self._right = torch.linalg.svd(
            z, full_matrices=False)
        self._products = left.t() @ rest

    def inputs(self, z: Tensor) -> Tensor:
        """All columns on one scale."""
        return (z - self._centre) / self._scale

    def _by_column(self, z: Tensor) -> Tensor:
        copies, d = self._slopes.shape
        same = z[:, :copies * d].view(len(z), copies, d)
        out: Tensor = (same * self._slopes).sum(dim=1)
        return out

    def __call__(self, z: Tensor, strength: float) -> Tensor:
        """The outputs, with ridge regression of this strength."""
        z, s = self.inputs(z), self._values
        shrunk = (s / (s * s + strength * self._count))[:, None]
        rest: Tensor = (z @ self._right.t()) @ (shrunk * self._products)
        return self._middle + self._by_column(z) + rest

    def best(self, z: Tensor, x: Tensor) -> tuple[float, float]:
        """The least error for other examples, and the strength that it is
        reached with.
        """
        return min((mean_square(self(z, s) - x), s) for s in STRENGTHS)


class Network:
    """A hidden layer for what ridge regression leaves."""
    def __init__(self, z: Tensor, rest: Tensor, seed: int) -> None:
        self._unit = float(rest.square().mean().sqrt().clamp(min=1e-12))
        self._z, self._rest = z.float(), (rest / self._unit).float()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            last = torch.nn.Linear(_HIDDEN, rest.size(1))
            torch.nn.init.zeros_(last.weight)  # Starts from ridge regression.
            torch.nn.init.zeros_(last.bias)
            self._net = torch.nn.Sequential(
                torch.nn.Linear(z.size(1), _HIDDEN), torch.nn.ReLU(), last)
        self._optimizer = torch.optim.Adam(self._net.parameters(), lr=3e-3)

    def train(self, steps: int) -> None:
        """Goes on learning, for as many steps."""
        for _ in range(steps):
            self._optimizer.zero_grad()
            loss = (self._net(self._z) - self._rest).square().mean()
            loss.backward()
            self._optimizer.step()

    @torch.no_grad()
    def __call__(self, z: Tensor) -> Tensor:
        """What is to be added."""
        out: Tensor = self._net(z.float()).double() * self._unit
        return out

    def best(self, z: Tensor, rest: Tensor) -> int:
        """Learns for as many steps as lead to the least error for other
        examples; zero if the network is of no use.
        """
        least, steps, done = mean_square(rest), 0, 0
        state = deepcopy(self._net.state_dict())
        while done < min(_STEPS, steps + _PATIENCE * _EVERY):
            self.train(_EVERY)
            done += _EVERY
            error = mean_square(self(z) - rest)
            if error < least:
                least, steps = error, done
                state = deepcopy(self._net.state_dict())
        self._net.load_state_dict(state)
        return steps


class Forward:
    """What the outputs look like as a released row, and so how well each of
    them explains one.
    """
    def __init__(self, z: Tensor, x: Tensor, strength: float) -> None:
        self._linear, self._strength = _reverse(z, x), strength
        noise = (z - self._linear(x, strength)).square().mean(dim=0).sqrt()
        # A column without noise would otherwise outweigh all the others.
        spread = z.std(dim=0, correction=0)
        self._noise = noise.maximum(1e-3 * spread).clamp(min=1e-9)

    def log_likelihood(self, z: Tensor, candidates: Tensor) -> Tensor:
        """A row for each released row, and a column for each candidate."""
        seen = self._linear(candidates, self._strength) / self._noise
        return -torch.cdist(z / self._noise, seen).square() / 2

    def posterior_mean(self, z: Tensor, examples: Tensor) -> Tensor:
        """The mean of the examples, each as likely as it explains a row."""
        examples = examples[:_EXAMPLES]
        return torch.cat([
            self.log_likelihood(block, examples).softmax(dim=1) @ examples
            for block in torch.split(z, _block_rows(examples))])


@dataclass
class Choice:
    """What was decided on a part of the examples."""
    inputs: tuple[str, ...] = ()
    strength: float = 1.0
    steps: int = 0
    forward_strength: float = 1.0
    mix: float = 0.0
    error: float = 1.0
    evidence: Evidence = (1.0, 0.0)


class Decoder:
    """Learns to decode from examples.

    Args:
        blocks (dict): The inputs of all examples, by name.
        x (Tensor): The outputs.
        options (list): Names of inputs that may be used together; the first of
            those that are used is what the outputs are to explain.
        fit (Tensor): A boolean mask of the examples to learn from; the others
            decide.
        seed (int): The start of the network.
    """
    def __init__(self, blocks: Blocks, x: Tensor,
                 options: Sequence[tuple[str, ...]], fit: Tensor,
                 seed: int) -> None:
        self._options, self._seed, self.choice = options, seed, Choice()
        self._learn(select(blocks, fit), x[fit], select(blocks, ~fit), x[~fit])
        self._learn(blocks, x)

    def _learn(self, blocks: Blocks, x: Tensor, others: Blocks | None = None,
               truth: Tensor | None = None) -> None:
        # Other examples, where there are some, decide about each stage.
        choice = self.choice
        if others is not None and truth is not None:
            errors = {names: _linear(blocks, names, x).best(
                _join(others, names), truth) for names in self._options}
            choice.inputs = min(errors, key=lambda names: errors[names])
            choice.strength = errors[choice.inputs][1]
            choice.forward_strength = _reverse(
                self._explained(blocks), x).best(
                    truth, self._explained(others))[1]
        self._examples, z = x, _join(blocks, choice.inputs)
        self._linear = _linear(blocks, choice.inputs, x)
        self._network = Network(self._linear.inputs(z), x - self._linear(
            z, choice.strength), self._seed)
        self._forward = Forward(self._explained(blocks), x,
                                choice.forward_strength)
        if others is None or truth is None:
            self._network.train(choice.steps)
            return
        choice.steps = self._network.best(
            self._linear.inputs(_join(others, choice.inputs)),
            truth - self._direct(others))
        direct, posterior = self._direct(others), self._posterior(others)
        choice.error, choice.mix = min((mean_square(
            direct + mix * (posterior - direct) - truth), mix)
            for mix in MIXES)
        # Among all examples: out of a few, anything finds the right one.
        candidates, right = torch.cat([truth, x]), torch.arange(len(truth))
        found = {}
        for choice.evidence in EVIDENCE:
            guess = self.identify(others, candidates)
            found[choice.evidence] = int((guess == right).sum())
        choice.evidence = max(EVIDENCE, key=lambda weights: found[weights])

    def _explained(self, blocks: Blocks) -> Tensor:
        return blocks[self.choice.inputs[0]]

    def _direct(self, blocks: Blocks) -> Tensor:
        z = _join(blocks, self.choice.inputs)
        out = self._linear(z, self.choice.strength)
        return out + self._network(self._linear.inputs(z))

    def _posterior(self, blocks: Blocks) -> Tensor:
        return self._forward.posterior_mean(self._explained(blocks),
                                            self._examples)

    def __call__(self, blocks: Blocks) -> Tensor:
        """The outputs, as far as they can be told."""
        out = self._direct(blocks)
        if self.choice.mix > 0:
            out = out + self.choice.mix * (self._posterior(blocks) - out)
        return out

    def identify(self, blocks: Blocks, candidates: Tensor) -> Tensor:
        """For each row, the number of the candidate that it is most likely of:
        by how well it explains the released row, how near it is to the decoded
        one, or both.
        """
        explains, near = self.choice.evidence
        found, size = [], _block_rows(candidates)
        for z, decoded in zip(torch.split(self._explained(blocks), size),
                              torch.split(self(blocks), size)):
            score = z.new_zeros(len(z), len(candidates))
            if explains > 0:
                score += explains * self._forward.log_likelihood(z, candidates)
            if near > 0:
                score -= near * torch.cdist(decoded, candidates).square() / (
                    2 * max(self.choice.error, 1e-18))
            found.append(score.argmax(dim=1))
        return torch.cat(found)


def mean_square(error: Tensor) -> float:
    """The mean of the squares."""
    return float(error.square().mean())


def select(blocks: Blocks, mask: Tensor) -> Blocks:
    """Some rows of all inputs."""
    return {name: block[mask] for name, block in blocks.items()}


def _join(blocks: Blocks, names: Sequence[str]) -> Tensor:
    return torch.cat([blocks[name] for name in names], dim=1)


def _linear(blocks: Blocks, names: Sequence[str], x: Tensor) -> Linear:
    copies = 0
    while (copies < len(names)
           and blocks[names[copies]].size(1) == x.size(1)):
        copies += 1
    return Linear(_join(blocks, names), x, copies)


def _reverse(z: Tensor, x: Tensor) -> Linear:
    return Linear(x, z, copies=int(z.shape == x.shape))


def _block_rows(candidates: Tensor) -> int:
    # How many rows go into a block of distances to all candidates.
    return max(1, _CELLS // len(candidates))
