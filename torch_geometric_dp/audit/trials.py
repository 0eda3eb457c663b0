"""Releases canaries, again and again, in as many processes as asked for."""
import copy
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import Compose
from tqdm import tqdm

from torch_geometric_dp.audit.canaries import Canary
from torch_geometric_dp.audit.distinguisher import Coins
from torch_geometric_dp.mechanisms.column_mechanism import Array

_TOGETHER = 256  # Graphs with one canary each that a process does at a time.

Job = tuple[Any, Canary, Coins, int]
Map = Callable[[Callable[[Job], Array], Iterable[Job]], Iterable[Array]]


def release(target: Any, graph: Data) -> Any:
    """Releases a graph with fresh noise: it has no identity, and a layer that
    remembers its last release is told to forget it.
    """
    if not isinstance(target, torch.nn.Module):
        return target(graph)
    for part in target.modules():
        renew: Any = getattr(part, 'renew', None)
        if renew is not None:
            renew()
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
    target = for_trial(target, seed)
    out = []
    with torch.random.fork_rng(devices=[]):  # The caller's is left alone.
        torch.manual_seed(seed % 2**63)
        for start in range(0, len(coins), canary.copies):
            part = coins[start:start + canary.copies]
            released = release(target, canary.graph(part))
            out.append(canary.outcomes(released, len(part)))
    return np.concatenate(out)


def for_trial(target: Any, seed: int) -> Any:
    """A copy of a transform or a layer that charges nothing to its budget, and
    whose noise, if it has a seed, depends on :obj:`seed`, too: otherwise, it
    would be the same in every process.
    """
    target = copy.deepcopy(target)
    parts = [target]
    if isinstance(target, torch.nn.Module):
        parts = list(target.modules())
    elif isinstance(target, Compose):
        parts = target.transforms
    for part in parts:
        if getattr(part, 'budget', None) is not None:
            part.budget = None
        if getattr(part, 'seed', None) is not None and hasattr(part, '_source'):
            part._source = part._source.derive('audit', seed)
    return target
