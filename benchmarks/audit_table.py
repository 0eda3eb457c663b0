"""What audits find: promises that are broken, and promises that are kept.

    python -m benchmarks.audit_table --runs 200

It goes on where it stopped, and writes audit.json and audit.md into the folder
--out. Every broken promise is audited once, at the size that its test has, and
every promise that is kept as often as --runs says, with new noise every time.
"""
import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from tests.audit.test_audit import BROKEN, HONEST, LEAKS
from torch_geometric_dp.audit import audit, verify_exactly
from torch_geometric_dp.transforms.edge_transform import EdgeTransform

CONFIDENCE = 0.99
ALL_BROKEN = {**BROKEN, **{name: (target, 4000)
                           for name, target in LEAKS.items()}}
# Times as many trials, where it takes them to see anything at all.
MORE = {'Gaussian': 25, 'NAP, Gaussian': 25, 'EdgeRR': 5}


def measure(name, trials, seed):
    target, _ = {**ALL_BROKEN, **HONEST}[name]
    start = time.perf_counter()
    report = audit(target, trials=trials, confidence=CONFIDENCE, seed=seed)
    return {'claimed': report.claimed, 'proven': report.proven,
            'bound': report.lower_bound, 'sure': report.sure_bound,
            'accused': report.accused, 'view': report.view, 'trials': trials,
            'seconds': time.perf_counter() - start}


def broken_table(results):
    lines = ['| | claimed | lower bound at 99% | beyond doubt | told by '
             '| trials | seconds | |', '|---' * 8 + '|']
    for name in ALL_BROKEN:
        row = results[f'broken|{name}']
        verdict = 'caught' if row['accused'] else 'MISSED'
        lines.append(f"| {name} | {row['claimed']:.3g} | {row['bound']:.3g} "
                     f"| {row['sure']:.3g} | {row['view']} | {row['trials']} "
                     f"| {row['seconds']:.1f} | {verdict} |")
    return '\n'.join(lines) + '\n'


def exact(target):
    try:
        return f'{verify_exactly(target).exact:.6g}'
    except TypeError:
        return 'not listed'


def honest_table(results, runs):
    lines = ['| | claimed | exact | median bound at 99% | above the claim at '
             '99% | accused | runs | trials |', '|---' * 8 + '|']
    for name, (target, _) in HONEST.items():
        rows = results[f'honest|{name}'][:runs]
        above = sum(row['bound'] > row['claimed'] for row in rows)
        accused = sum(row['accused'] for row in rows)
        bound = np.median([row['bound'] for row in rows])
        lines.append(f"| {name} | {rows[0]['claimed']:.3g} | {exact(target)} "
                     f"| {bound:.3g} | {above} | {accused} | {len(rows)} "
                     f"| {rows[0]['trials']} |")
    return '\n'.join(lines) + '\n'


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--runs', type=int, default=200)
    parser.add_argument('--trials', type=int, default=4000,
                        help='of most audits of promises that are kept; half '
                        'of it for edges, which take longer')
    parser.add_argument('--workers', type=int, default=2,
                        help='audits at the same time')
    parser.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    store = args.out / 'audit.json'
    results = json.loads(store.read_text()) if store.exists() else {}
    with ProcessPoolExecutor(args.workers, initializer=torch.set_num_threads,
                             initargs=(1, )) as pool:
        new = [name for name in ALL_BROKEN if f'broken|{name}' not in results]
        rows = pool.map(measure, new, [ALL_BROKEN[name][1] for name in new],
                        repeat(0))
        for name, row in zip(tqdm(new, desc='broken'), rows):
            results[f'broken|{name}'] = row
        for name, (target, _) in tqdm(HONEST.items(), desc='kept'):
            rows = results.setdefault(f'honest|{name}', [])
            trials = args.trials * MORE.get(name, 1)
            if isinstance(target, EdgeTransform):
                trials //= 2
            rows += pool.map(measure, repeat(name), repeat(trials),
                             range(len(rows), args.runs))
            store.write_text(json.dumps(results, indent=1))
    text = (f'# Audits\n\nMade by `python -m benchmarks.audit_table --runs '
            f'{args.runs} --trials {args.trials}`.\n\n'
            f'## Promises that are broken\n\n{broken_table(results)}\n'
            f'## Promises that are kept\n\n'
            f'{args.runs} audits of each, with new noise every time. A bound '
            f'with a confidence of 99% may be above the claim in one audit of '
            f'a hundred, where a promise is used up to the last bit; an '
            f'accusation asks for a bound that is wrong in one of a million.\n'
            f'\n{honest_table(results, args.runs)}')
    (args.out / 'audit.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
