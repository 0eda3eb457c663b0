"""Chains over dendrograms against `fit_hrg` of igraph, against one random word
a step, which is the limit, and against themselves.

`fit_hrg` runs in R (Debian: r-cran-igraph), which reports the processor time it
took; ours is processor time as well, before and after it. One function measures
all log-likelihoods.
"""
import math
import statistics
import subprocess
import tempfile
import time
import warnings
from operator import truediv
from pathlib import Path

import numpy as np
import torch

from benchmarks.graphs import planetoid_at_hand
from benchmarks.harness import Fact, Growth, Row, exponent, memory, took
from benchmarks.limits import words
from benchmarks.machine import igraph_version
from torch_geometric_dp.graph.pairs import from_pairs, to_pairs
from torch_geometric_dp.hrg import (
    Blocks,
    Chains,
    Dendrogram,
    metis_dendrogram,
    private_weight,
    random_dendrogram,
)
from torch_geometric_dp.noise import NoiseSource

SEED = NoiseSource.from_seed(0)
STEPS, WORDS = 10**6, 'one secure word a step'
# Weights and steps. A weight of one is that of `fit_hrg`; with a weight of two,
# a chain samples from a sharper law.
FAST, LONG = (1.0, 10**5), (1.0, 5 * 10**6)
FITS = (FAST, LONG, (2.0, STEPS))
SIZES = (500, 10_000, 100_000)
FIT_HRG = """
suppressMessages(library(igraph))
files <- commandArgs(TRUE)
size <- scan(files[1], n = 2, quiet = TRUE)
ends <- scan(files[1], skip = 1, quiet = TRUE)
graph <- make_graph(ends + 1, n = size[1], directed = FALSE)
set.seed(0)
took <- system.time(hrg <- fit_hrg(graph, steps = size[2]))
writeLines(as.character(took[1] + took[2]), files[2])
write(rbind(hrg$left, hrg$right), files[2], ncolumns = 2, append = TRUE)
"""


def run(quick=False):
    torch.set_num_threads(1)
    metis_dendrogram(*planted(64)[:2])  # Compiles; the chain follows.
    fit(random_dendrogram(5000, SEED), np.array([[0], [1]]), 1.0, 100)
    cora = None if quick else planetoid_at_hand('Cora')
    if cora is not None:
        cora = from_pairs(to_pairs(cora.edge_index)).numpy()
        yield from against_igraph('Cora', cora, 2708, rate=150, level=-15_600)
    edges, n, truth = planted(1024)
    yield Fact('planted hierarchy', 'log-likelihood of the truth',
               likelihood(truth, edges), '')
    yield from against_igraph('planted hierarchy', edges, n,
                              STEPS // 10 if quick else STEPS)
    yield from step_costs(SIZES[:2] if quick else SIZES)
    if cora is not None:
        yield from starts(cora, 2708)


def planted(n, seed=0):
    """A graph drawn from a balanced dendrogram, and the dendrogram."""
    rng = np.random.RandomState(seed)
    nodes, children = rng.permutation(n), []
    while len(nodes) > 1:
        children.append(nodes.reshape(-1, 2))
        nodes = n + sum(map(len, children)) - len(children[-1]) + np.arange(
            len(nodes) // 2)
    truth = Dendrogram(np.concatenate(children))
    blocks = Blocks(truth)
    height = np.log2(truth.size[n:])
    edges, _ = blocks.draw(0.8 * 2.2**(1 - height), SEED)
    return edges, n, truth


def likelihood(tree, edges):
    return tree.log_likelihood(tree.counts(edges))


def fit(start, edges, weight, steps):
    """Seconds of the processor for one chain, and where it ends."""
    begin = time.process_time()
    chains = Chains([start], (weight, 0.0), SEED, edges)
    chains.run(steps, tolerance=None)
    return time.process_time() - begin, chains.dendrogram


def fit_igraph(edges, n, steps):
    """The same for `fit_hrg`, or nothing where there is none."""
    if igraph_version() is None:
        print('R with igraph (r-cran-igraph) is not installed, and left out')
        return None
    with tempfile.TemporaryDirectory() as folder:
        graph, result, script = (Path(folder) / name
                                 for name in ('graph', 'result', 'fit.R'))
        graph.write_text(f'{n} {steps}\n'
                         + ' '.join(map(str, edges.T.reshape(-1))))
        script.write_text(FIT_HRG)
        subprocess.run(['Rscript', script, graph, result], check=True,
                       capture_output=True)
        seconds, *rows = result.read_text().split('\n')
        # Leaves are 0, 1, ...; internal nodes -1 (the root), -2, ...; ours are
        # numbered the other way, so that the root comes last.
        nodes = np.array([row.split() for row in rows if row], np.int64)
        children = np.where(nodes < 0, 2 * n - 1 + nodes, nodes)[::-1]
        return float(seconds), Dendrogram(children)


def against_igraph(name, edges, n, steps=STEPS, rate=None, level=None):
    """Steps a second from a random start, and fits from METIS; with the goals
    for the ratio of the former, and for the log-likelihood of a long fit. With
    fewer steps, there are no long fits, and no goals for the time.
    """
    fits = FITS if steps == STEPS else (FAST, )
    walks, limits, times, levels = [], [], {key: [] for key in fits}, {}

    def ours():
        walks.append(fit(random_dendrogram(n, SEED), edges, 1.0, steps)[0])
        limits.append(statistics.median(  # A few ms each.
            took(lambda: words(SEED, steps), time.process_time)
            for _ in range(15)))
        for weight, count in fits:
            begin = time.process_time()
            start = metis_dendrogram(edges, n)
            metis = time.process_time() - begin
            seconds, tree = fit(start, edges, weight, count)
            times[weight, count].append(metis + seconds)
            levels[weight, count] = likelihood(tree, edges)

    ours()
    peer = fit_igraph(edges, n, steps)
    ours()
    least = {LONG: level}
    walk = f'{name}, {steps:,} steps from a random start', 'a step of ours'
    yield ratio(*walk, walks, steps, limits, None, WORDS)
    if peer is not None:
        seconds, tree = peer
        least[FAST] = likelihood(tree, edges)
        yield Fact(f'{name}, fit_hrg', f'{steps:,} steps', seconds, 's')
        yield Fact(f'{name}, fit_hrg', 'log-likelihood', least[FAST], '')
        yield ratio(*walk, walks, steps, [seconds] * 2, rate)
        yield ratio(f'{name}, a fit', f'METIS and {FAST[1]:,} steps',
                    times[FAST], 1, [seconds] * 2,
                    50 if steps == STEPS else None)
    for weight, count in fits:
        task = f'{name}, METIS and {count:,} steps with weight {weight:g}'
        yield Fact(task, 'takes', statistics.median(times[weight, count]), 's',
                   most=2.0)
        yield Fact(task, 'log-likelihood', levels[weight, count], '',
                   least.get((weight, count)))


def ratio(task, name, times, items, theirs, goal, peer='fit_hrg'):
    ratios = list(map(truediv, theirs, times))
    return Row(task, name, items / statistics.median(times),
               statistics.median(ratios), min(ratios), max(ratios), peer, goal,
               peer == WORDS)


def step_costs(sizes=SIZES):
    """Nanoseconds a step, in graphs with ten neighbours for each node."""
    chains = {}
    for n in sizes:
        edges = np.sort(np.random.RandomState(0).randint(0, n, (2, 5 * n)),
                        axis=0)
        edges = np.unique(edges[:, edges[0] < edges[1]], axis=1)
        chains[n] = Chains([metis_dendrogram(edges, n)], (1.0, 0.0), SEED,
                           edges)
        chains[n].run(10 * n, tolerance=None)
    times = {n: [] for n in sizes}
    for _ in range(5):
        for n in sizes:
            steps = max(STEPS, 64 * n)  # As many as go in one piece.
            begin = time.process_time()
            chains[n].run(steps, tolerance=None)
            times[n].append((time.process_time() - begin) / steps * 1e9)
    middle = {n: statistics.median(times[n]) for n in sizes}
    for n in sizes:
        allowed = middle[sizes[0]] * math.log(n) / math.log(sizes[0])
        yield Fact('a step', f'{n:,} nodes', middle[n], 'ns',
                   most=None if n == sizes[0] else allowed)
    low, _, high = statistics.quantiles(
        [exponent(sizes, each) for each in zip(*times.values())], n=4)
    # The goal is a time that grows as log n does.
    yield Growth('a step, time against nodes', 'the chain',
                 exponent(sizes, middle.values()), 'as exponent',
                 most=exponent(sizes, np.log(sizes)), sizes=sizes,
                 seconds=tuple(value / 1e9 for value in middle.values()),
                 low=low, high=high)
    n = sizes[-1]
    yield memory(f'a chain, {n:,} nodes and {5 * n:,} edges',
                 lambda: chains[n].run(STEPS, tolerance=None))


def starts(edges, n):
    """What four chains say after how many steps, by where they start."""
    torch.set_num_threads(2)
    private = np.random.RandomState(0).rand(edges.shape[1]) < 0.3
    none = np.empty((2, 0), np.int64)
    weight = private_weight(0.5, n)  # Half of an epsilon of one.
    for case, weights, public, rest in (
        ('public edges', (1.0, 0.0), edges, none),
        ('joint, 30% private', (2.0, weight), edges[:, ~private],
         edges[:, private]),
        ('joint, all private', (2.0, weight), none, edges),
    ):
        metis = [metis_dendrogram(public, n, seed) for seed in range(4)]
        random = [random_dendrogram(n, SEED.derive(i)) for i in range(4)]
        for name, trees in (('METIS', metis), ('random', random),
                            ('two METIS, two random', metis[:2] + random[:2])):
            chains = Chains(trees, weights, SEED, public, rest)
            # For long only where the question is whether it ever arrives.
            long = case == 'public edges' and name == 'random'
            for steps in (10**6, 10**7, *([5 * 10**7] if long else [])):
                yield from diagnose(f'Cora, {case}, {name} starts', chains,
                                    steps)


def diagnose(task, chains, steps):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        chains.run(steps - chains.steps)
    after = f'after {chains.steps:,} steps'
    levels = (chains.trace[-64:] @ chains.weights[0]).mean(axis=0)
    yield Fact(task, f'target {after}', levels.mean(), f'(from '
               f'{levels.min():,.0f} to {levels.max():,.0f})')
    yield Fact(task, f'split R-hat {after}', chains.r_hat,
               '(warned)' if caught else '(did not warn)')
