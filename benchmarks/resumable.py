"""Tables that go on where they stopped: each cell has a result for each seed,
in a file that can be read at any time.
"""
import argparse
import json
from pathlib import Path

from tqdm import tqdm


def parser(description, graphs, epsilons, seeds=5):
    """What all of these tables are asked for."""
    out = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument('--graphs', nargs='*', default=list(graphs),
                     choices=graphs)
    out.add_argument('--epsilons', nargs='*', type=float,
                     default=list(epsilons), choices=epsilons)
    out.add_argument('--seeds', type=int, default=seeds)
    out.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    return out


def load(store):
    """What was run before."""
    store.parent.mkdir(parents=True, exist_ok=True)
    return json.loads(store.read_text()) if store.exists() else {}


def save(results, store):
    """All at once: a run that is stopped leaves a file that can be read."""
    part = store.with_suffix('.part')
    part.write_text(json.dumps(results, indent=1) + '\n')
    part.replace(store)


def fill(results, store, cells, key, result, seeds):
    """Runs what is missing of some cells. A cell whose result is nothing has
    nothing for other seeds, either.
    """
    for cell in tqdm(cells, desc='cells', mininterval=10):
        values = results.setdefault(key(*cell), [])
        for seed in range(len(values), seeds):
            if None in values:
                break
            values.append(result(*cell, seed))
            save(results, store)
