"""What a step of DP-SGD costs over a plain step of the same model on the same
batch, in time and in memory.

    python -m benchmarks.dp_sgd_cost

Both run on the same examples: ego-subgraphs of two hops, or rows. The plain
step takes them as one graph, as a loader of PyG would. Beside it stands Opacus
on the network of rows, where it is installed. It writes dp_sgd_cost.md into the
folder --out.
"""
import argparse
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphSAGE

from benchmarks.machine import machine
from torch_geometric_dp.nn import make_private
from torch_geometric_dp.transforms import BoundDegree

NODES, COLUMNS, CLASSES, WIDTH, DEGREE = 20_000, 500, 7, 64, 5
BATCHES = (128, 512, 2048)
TURNS = 11
GOAL = 5.0
NOW = time.perf_counter


def graph():
    """Words that are rare, and a few edges at each node."""
    torch.manual_seed(0)
    edges = torch.randint(0, NODES, (2, 2 * NODES))
    data = Data(x=(torch.rand(NODES, COLUMNS) < 0.02).float(),
                y=torch.randint(0, CLASSES, (NODES, )),
                edge_index=torch.cat([edges, edges.flip(0)], dim=1),
                train_mask=torch.ones(NODES, dtype=torch.bool))
    return BoundDegree(DEGREE, seed=0)(data)


def rows():
    return torch.nn.Sequential(torch.nn.Linear(COLUMNS, WIDTH),
                               torch.nn.ReLU(),
                               torch.nn.Linear(WIDTH, CLASSES))


MODELS = {
    'GraphSAGE, 2 layers': (lambda: GraphSAGE(COLUMNS, WIDTH, 2, CLASSES), 2),
    'GCN, 2 layers': (lambda: GCN(COLUMNS, WIDTH, 2, CLASSES), 2),
    'MLP, 2 layers': (rows, 0),
}


def start(data, build, hops, batch):
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return make_private(
        model, optimizer, data, epsilon=8.0, delta=1e-5,
        epochs=-(-100 * batch // NODES), hops=hops,
        max_degree=DEGREE if hops else None, sample_rate=batch / NODES, seed=0)


def plain_step(private, data, batch):
    """The same examples as one graph, and no privacy."""
    nodes, first, edges, start = batch.subgraphs
    edge_index = edges + first[:-1].repeat_interleave(start.diff())
    private.optimizer.zero_grad()
    x = data.x[nodes]
    out = (private.model(x, edge_index) if private.mechanism.hops else
           private.model(x))
    F.cross_entropy(out[first[:-1]], data.y[batch.nodes]).backward()
    private.optimizer.step()


def peak(work):
    """The most bytes that are held at a time beyond what is held before, by
    torch, by numpy and by all others, each counted where it is allocated.
    """
    tracemalloc.start()
    with profile(activities=[ProfilerActivity.CPU],
                 profile_memory=True) as found:
        work()
    held, most = 0, 0
    for event in found.profiler.kineto_results.events():
        if event.name() == '[memory]':
            held += event.nbytes()
            most = max(most, held)
    _, other = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most + other


def seconds(works):
    """Medians of works that take turns, so that what else a machine does meets
    all of them.
    """
    out = [[] for _ in works]
    for turn in range(TURNS + 1):
        for times, work in zip(out, works):
            begin = NOW()
            work()
            if turn > 0:
                times.append(NOW() - begin)
    return [float(np.median(times)) for times in out]


def measure(data, build, hops, size):
    """Seconds of a plain step and of a private one, and bytes."""
    private = start(data, build, hops, size)
    private.step(private.batch())
    batches = []

    def ours():
        batches.append(private.batch())
        private.step(batches[-1])

    ours()
    plain, dp = seconds([lambda: plain_step(private, data, batches[-1]), ours])
    batch = private.batch()
    return {'plain': plain, 'dp': dp, 'nodes': len(batch.subgraphs.nodes),
            'bytes': peak(lambda: private.step(batch)),
            'plain bytes': peak(lambda: plain_step(private, data, batch))}


def opacus(data, size):
    """Seconds of a step of Opacus on rows, a batch of this size; None where it
    is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            from opacus import GradSampleModule
            from opacus.optimizers import DPOptimizer
    except ImportError:
        return None
    model = GradSampleModule(rows())
    optimizer = DPOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.01), noise_multiplier=1.0,
        max_grad_norm=1.0, expected_batch_size=size)
    plain = rows()
    other = torch.optim.Adam(plain.parameters(), lr=0.01)
    chosen = torch.randperm(NODES)[:size]

    def step(model, optimizer):
        optimizer.zero_grad()
        F.cross_entropy(model(data.x[chosen]), data.y[chosen]).backward()
        optimizer.step()

    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        without, dp = seconds([lambda: step(plain, other),
                               lambda: step(model, optimizer)])
    return {'plain': without, 'dp': dp}


def report(results):
    about = machine()
    lines = [
        '# The cost of a step of DP-SGD', '',
        'Written by `python -m benchmarks.dp_sgd_cost`. The same model and the '
        'same examples, in one thread: a plain step takes all subgraphs of a '
        'batch as one graph. Medians of '
        f'{TURNS} steps that take turns; milliseconds, and MB at the peak. '
        f'{COLUMNS} columns, {WIDTH} hidden, at most {DEGREE} edges at a node, '
        'subgraphs of two hops. The noise is discrete and from a '
        'cryptographic source, that of Opacus is in floats.', '',
        '| model | batch | nodes | plain | DP-SGD | times | MB | MB, plain |',
        '|---|---|---|---|---|---|---|---|']
    for name, sizes in results['models'].items():
        for size, r in sizes.items():
            lines.append(
                f"| {name} | {size} | {r['nodes']} | {1e3 * r['plain']:.1f} | "
                f"{1e3 * r['dp']:.1f} | {r['dp'] / r['plain']:.1f} | "
                f"{r['bytes'] / 1e6:.0f} | {r['plain bytes'] / 1e6:.0f} |")
    for size, r in results['opacus'].items():
        if r is not None:
            lines.append(
                f"| MLP, 2 layers, Opacus | {size} | {size} | "
                f"{1e3 * r['plain']:.1f} | {1e3 * r['dp']:.1f} | "
                f"{r['dp'] / r['plain']:.1f} | | |")
    if not any(results['opacus'].values()):
        lines += ['', 'Opacus is not installed.']
    worst = {name: max(r['dp'] / r['plain'] for r in sizes.values())
             for name, sizes in results['models'].items()}
    lines += ['', f'Goal: at most {GOAL:g} times. ' + '; '.join(
        f"{name}: {times:.1f}, {'met' if times <= GOAL else 'missed'}"
        for name, times in worst.items()) + '.', '',
        f"{about['processor']}, torch {about['torch']}."]
    return '\n'.join(lines) + '\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=Path, default=Path(
        __file__).parent / 'results')
    out = parser.parse_args().out
    torch.set_num_threads(1)
    data = graph()
    results = {'models': {name: {size: measure(data, build, hops, size)
                                 for size in BATCHES}
                          for name, (build, hops) in MODELS.items()},
               'opacus': {size: opacus(data, size) for size in BATCHES}}
    text = report(results)
    out.mkdir(parents=True, exist_ok=True)
    (out / 'dp_sgd_cost.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
