"""Releases canaries, again and again, in as many processes as asked for."""
import copy
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import UninitializedParameter
from torch_geometric.data import Data
from tqdm import tqdm

from torch_geometric_dp._typing import Array
from torch_geometric_dp.audit.canaries import Canary
from torch_geometric_dp.audit.distinguisher import Coins
from torch_geometric_dp.release import Releaser, trials
from torch_geometric_dp.vault import PrivacyBudget

_TOGETHER = 32  # Graphs with one canary each that a process does at a time.

Job = tuple[Any, Canary, Coins, int]
Map = Callable[[Callable[[Job], Array], Iterable[Job]], Iterable[Array]]


def release(target: Any, graph: Data) -> Any:
    """Releases a graph with fresh noise: it has no identity, and a layer that
    remembers its last release is told to forget it.
    """
    for part in parts(target):
        renew: Any = getattr(part, 'renew', None)
        if renew is not None:
            renew()
    with trials():
        if not isinstance(target, torch.nn.Module):
            return target(graph)
        with torch.no_grad():
            return target(graph.x, graph.edge_index)


def run_trials(target: Any, canary: Canary, trials: int,
               entropy: np.random.SeedSequence, apply: Map = map,
               progress: bool = False) -> tuple[Array, Coins]:
    """What was released for each canary, and what its coin showed. Coins and
    noise that has a seed depend on :obj:`entropy`, and not on the number of
    processes.
    """
    size = max(canary.copies, _TOGETHER)
    seeds = entropy.spawn(-(-trials // size) + 1)
    coins = np.random.default_rng(seeds[-1]).random(trials) < 0.5
    jobs: list[Job] = [
        (target, canary, coins[i * size:(i + 1) * size],
         int(seed.generate_state(1, np.uint64)[0]))
        for i, seed in enumerate(seeds[:-1])
    ]
    bar = tqdm(apply(_run, jobs), total=len(jobs), desc=canary.sides[0],
               disable=not progress)
    return np.concatenate(list(bar)), coins


def first_release(target: Any, canary: Canary) -> tuple[Any, Any]:
    """A transform or a layer for trials, and what it releases. A layer that
    learns its shape from the first input has done so: the next ones have the
    same weights. All others have seen nothing that they could remember.
    """
    seen = for_trial(target, 0)
    with _seeded(0):
        released = release(seen, canary.graph(np.ones(1, np.bool_)))
    learns = any(isinstance(part, UninitializedParameter)
                 for part in parts(target))
    return seen if learns else for_trial(target, 0), released


@contextmanager
def processes(workers: int) -> Iterator[Map]:
    """A :func:`map` over so many processes, which start once."""
    if workers == 1:
        yield map
        return
    # One thread each: a fork has no part in a pool of threads.
    with ProcessPoolExecutor(workers, initializer=torch.set_num_threads,
                             initargs=(1, )) as pool:
        yield pool.map


def _run(job: Job) -> Array:
    target, canary, coins, seed = job
    out = []
    with _seeded(seed):
        for start in range(0, len(coins), canary.copies):
            part = coins[start:start + canary.copies]
            # A copy each: whatever it remembers of a release, it forgets.
            fresh = for_trial(target, seed + start)
            released = release(fresh, canary.graph(part))
            out.append(canary.outcomes(released, len(part)))
    return np.concatenate(out)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    # The generators that everybody shares: a forked process has the state of
    # the others, and the caller's is left alone.
    states = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            yield
    finally:
        np.random.set_state(states[0])
        random.setstate(states[1])


def for_trial(target: Any, seed: int) -> Any:
    """A copy of a transform or a layer that charges nothing to its budget, and
    whose noise, where it has a seed or a generator of its own, depends on
    :obj:`seed`, too: otherwise, it would be the same in every copy.
    """
    target = copy.deepcopy(target)
    for i, part in enumerate(parts(target)):
        new = int(np.random.SeedSequence([seed, i]).generate_state(1)[0])
        if isinstance(part, torch.Generator):
            part.manual_seed(new)
        elif isinstance(part, np.random.Generator):
            bits: Any = part.bit_generator
            bits.state = type(bits)(new).state
        elif isinstance(part, (np.random.RandomState, random.Random)):
            part.seed(new)
        elif isinstance(part, Releaser) and part.seed is not None:
            part.seed = new
        for name, held in list(getattr(part, '__dict__', {}).items()):
            if isinstance(held, PrivacyBudget):
                setattr(part, name, None)
    return target


def parts(target: Any) -> list[Any]:
    """The target, and all that it holds, and that these hold in turn."""
    seen, todo = {id(target)}, [target]
    for part in todo:
        held: Iterable[Any] = ()
        if isinstance(part, dict):
            held = part.values()
        elif isinstance(part, (list, tuple, set)):
            held = part
        elif not isinstance(part, torch.Tensor):
            held = getattr(part, '__dict__', {}).values()
        for new in held:
            # Classes and modules are nobody's own.
            if id(new) not in seen and not isinstance(new, (type, ModuleType)):
                seen.add(id(new))
                todo.append(new)
    return todo
