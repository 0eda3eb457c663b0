"""For the terminal: ``python -m torch_geometric_dp budget STORE``."""
import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

from torch_geometric_dp.vault import (
    PostgresStore,
    PrivacyBudget,
    SQLiteStore,
    Store,
    VaultError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and returns its exit code."""
    parser = argparse.ArgumentParser(prog='python -m torch_geometric_dp')
    commands = parser.add_subparsers(required=True, metavar='COMMAND')
    budget = commands.add_parser(
        'budget', help='what is left, and who released what when',
        description='Shows what is left of the budgets of a vault, and who '
        'released what when. It changes nothing.')
    budget.add_argument('store', metavar='STORE',
                        help='a file, or postgresql://user@host/database')
    budget.add_argument('--name', help='one budget (default: all of them)')
    budget.add_argument('--secret', metavar='FILE', help='the key file, if it '
                        'does not lie beside the vault')
    budget.add_argument('--json', action='store_true', help='for programs')
    budget.add_argument('--figure', metavar='FILE',
                        help='also draws spending over time')
    given = parser.parse_args(arguments)
    try:
        _show(given)
    except BrokenPipeError:  # `... | head` has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ImportError, LookupError, OSError, ValueError,
            VaultError) as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    return 0


def _show(given: Any) -> None:
    store = _open(given.store)
    budgets = _budgets(store, given.name, given.secret)
    if given.figure is not None:
        _draw(budgets, given.figure)
    if given.json:
        print(json.dumps({'store': store.address,
                          'budgets': [_plain(budget) for budget in budgets]},
                         indent=2, allow_nan=False))
    else:
        print('\n\n'.join(map(str, budgets)))
    sys.stdout.flush()


def _open(where: str) -> Store:
    if where.startswith(('postgresql:', 'postgres:')):
        return PostgresStore(where, create=False)
    if not os.path.isfile(where):
        raise VaultError(f"There is no vault '{where}'")
    return SQLiteStore(where)


def _budgets(store: Store, name: str | None,
             secret: str | None) -> list[PrivacyBudget]:
    # Without keys, they would be made.
    known, names = store.run('', lambda transaction, again: (
        transaction.load(), transaction.names()))
    if 'id' not in known or not names:
        raise VaultError(f"The vault {store.address} has no budgets")
    return [PrivacyBudget.open(store, each, secret=secret)
            for each in (names if name is None else [name])]


def _plain(budget: PrivacyBudget) -> dict[str, Any]:
    # Infinity, which JSON does not have, is null: no cap.
    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    history = []
    for line in budget.history():
        entry: dict[str, Any] = {'number': line.number, 'at': line.at,
                                 'who': line.who, 'what': line.what}
        if line.release is not None:
            promise = line.release.guarantee
            entry |= {'protects': str(promise.unit),
                      'epsilon': number(promise.epsilon),
                      'delta': promise.delta,
                      'fields': list(line.release.fields)}
        if line.caps is not None:
            entry['caps'] = {unit: number(c) for unit, c in line.caps.items()}
        history.append(entry)
    return {'name': budget.name,
            'caps': {unit: number(cap) for unit, cap in budget.caps.items()},
            'left': {unit: number(budget.remaining(unit))
                     for unit in budget.caps},
            'delta': budget.delta, 'max_degree': budget.max_degree,
            'history': history}


def _draw(budgets: Sequence[PrivacyBudget], path: str) -> None:
    from torch_geometric_dp import plot
    first = plot.axes()
    figure = first.figure
    figure.set_size_inches(6.4, 3.6 * len(budgets))
    first.remove()
    for axes, budget in zip(figure.subplots(len(budgets), squeeze=False)[:, 0],
                            budgets):
        plot.spending(budget, axes)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


if __name__ == '__main__':
    sys.exit(main())
