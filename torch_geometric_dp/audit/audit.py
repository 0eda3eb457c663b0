r"""Tries to prove a promise false.

**Theorem.** :attr:`AuditReport.lower_bound` is larger than the true epsilon
with a probability of at most :math:`1 - \textrm{confidence}`: for
:math:`\delta = 0` whatever the mechanism does with what it is given, and for
:math:`\delta > 0` if rows of the local model, and nodes of our layers, have
noise of their own, as they say.

*Proof.* The trials come in two parts, with coins and noise of their own. The
first part says which canary, which way to look at a release and which
thresholds to take. Given all of that, the second part is new, and the bound is
computed on it alone: for :math:`\delta = 0` from guesses, which asks for
nothing but independent coins (:mod:`torch_geometric_dp.audit.one_run`), and for
:math:`\delta > 0` from independent trials
(:mod:`torch_geometric_dp.audit.clopper_pearson`): those have a release each,
but for the rows and nodes above. Releases are independent, since each is from a
copy of the target that has not seen any other. ∎

A bound is a bound: an audit that finds nothing has proven nothing. What is
proven stands beside each mechanism, and
:func:`~torch_geometric_dp.audit.verify_exactly` computes it.
"""
import inspect
from typing import Any

import numpy as np
from torch_geometric.data import Data

from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.accountant import (
    Guarantee,
    PrivacyAccountant,
    Trust,
)
from torch_geometric_dp.audit.canaries import (
    Canary,
    canaries,
    check_graph,
)
from torch_geometric_dp.audit.clopper_pearson import lower_limit
from torch_geometric_dp.audit.distinguisher import Distinguisher
from torch_geometric_dp.audit.report import AuditReport
from torch_geometric_dp.audit.trials import (
    first_release,
    parts,
    processes,
    run_trials,
)
from torch_geometric_dp.audit.two_graphs import TwoGraphs
from torch_geometric_dp.nn.private_layer import PrivateLayer

#: An accusation is wrong with this probability at the most.
FALSE_ALARM = 1e-6
_LONE = 256, 1024  # Trials of a unit alone, at the least and at the most.


def audit(target: Any, data: Data | None = None,
          neighbour: Data | None = None, trials: int = 20_000,
          confidence: float = 0.99, guarantee: Guarantee | None = None,
          workers: int = 1, progress: bool = False,
          seed: int | None = None) -> AuditReport:
    r"""An empirical lower bound on the epsilon of a transform or a layer, from
    trying to tell neighbouring inputs apart by what is released.

    Without a :obj:`neighbour`, the worst neighbours that are known are built
    (see :mod:`torch_geometric_dp.audit.canaries`), thousands of them in one
    graph, and some alone, so that an audit takes a few seconds. Each release is
    by a copy of the target with fresh noise, and nothing is charged to any
    budget.

    Args:
        target (callable): A transform, which is given a graph, or a layer,
            which is given :obj:`x` and :obj:`edge_index`.
        data (Data, optional): A graph; if there is no :obj:`neighbour`, nothing
            is used of it but the number of its columns.
            (default: :obj:`None`)
        neighbour (Data, optional): A graph that differs from :obj:`data` in one
            unit. Each release of one of the two is a trial.
            (default: :obj:`None`)
        trials (int, optional): How many trials there are, one half of which
            goes into learning how to tell inputs apart.
            (default: :obj:`20000`)
        confidence (float, optional): The probability with which the bound is
            true. (default: :obj:`0.99`)
        guarantee (Guarantee, optional): The promise to try; by default, that
            of the target. (default: :obj:`None`)
        workers (int, optional): The number of processes. More than one pays
            where a release takes long, and needs a target that can be pickled.
            (default: :obj:`1`)
        progress (bool, optional): If set to :obj:`True`, shows a progress bar.
            (default: :obj:`False`)
        seed (int, optional): Makes the coins repeatable, and with them the
            audit of a target that has a seed itself. (default: :obj:`None`)

    .. code-block:: python

        report = audit(FeatureRR(epsilon=1.0, bounds=(0.0, 1.0)), trials=4000)
        print(report)
        report.check()   # raises an error if epsilon is larger than claimed
    """
    if inspect.isroutine(target):
        raise TypeError(f"'target' must be a transform or a layer, of which "
                        f"copies can be made that draw new noise and charge "
                        f"nothing (got the function {target.__name__!r})")
    check_integer('trials', trials, 8)
    check_integer('workers', workers, 1)
    if not 0 < confidence < 1:
        raise ValueError(f"'confidence' must lie between 0 and 1 "
                         f"(got {confidence})")
    if data is not None:
        check_graph('data', data)
    lower_limit(1, 1, 0.5)  # Missed now, and not after an hour.
    promise = _promise(target, guarantee)
    if neighbour is None:
        candidates = canaries(target, promise, data)
    elif data is None:
        raise ValueError("'data' must be given with 'neighbour': two graphs "
                         "are told apart (got one)")
    else:
        candidates = [TwoGraphs(data, neighbour, promise, target)]
    if not _own_noise(target, promise):
        for candidate in candidates:
            candidate.copies = 1
    trial, released = first_release(target, candidates[0])
    if guarantee is None:
        promise = _on_record(released, promise)
    entropy = np.random.SeedSequence(seed)
    half = trials // 2
    told, canary = None, candidates[0]
    with processes(workers) as apply:
        for candidate in candidates:
            outcomes, coins = run_trials(
                trial, candidate, _enough(candidate, trials - half),
                entropy.spawn(1)[0], apply, progress)
            new = Distinguisher(outcomes, coins, 1 - FALSE_ALARM,
                                promise.delta)
            if told is None or new.promise > told.promise:
                told, canary = new, candidate
        assert told is not None
        outcomes, coins = run_trials(trial, canary, _enough(canary, half),
                                     entropy.spawn(1)[0], apply, progress)
    guesses, scores = told.guess(outcomes), told.scores(outcomes)
    return AuditReport(
        target=repr(target), guarantee=promise,
        lower_bound=told.bound(outcomes, coins, confidence),
        sure_bound=told.bound(outcomes, coins,
                              max(confidence, 1 - FALSE_ALARM)),
        confidence=confidence, trials=len(coins),
        right=int(((guesses != 0) & ((guesses > 0) == coins)).sum()),
        guesses=int((guesses != 0).sum()), sides=canary.sides, view=told.view,
        scores=(scores[coins], scores[~coins]))


def _promise(target: Any, guarantee: Guarantee | None) -> Guarantee:
    promise = guarantee or getattr(target, 'guarantee', None)
    if not isinstance(promise, Guarantee):
        raise ValueError(f"'guarantee' must be given: "
                         f"{type(target).__name__} has none of its own")
    return promise


def _own_noise(target: Any, promise: Guarantee) -> bool:
    # Whether many canaries in one release are as good as one in each of many.
    return promise.delta == 0 or promise.model == Trust.LOCAL or any(
        isinstance(part, PrivateLayer) for part in parts(target))


def _enough(canary: Canary, trials: int) -> int:
    # What a unit shows alone is no matter of nuances.
    least, most = _LONE
    enough = min(max(trials // 20, least), most) if canary.alone else trials
    return min(enough, trials)


def _on_record(released: Any, promise: Guarantee) -> Guarantee:
    # What the ledger says of a release, which may depend on its shape.
    ledger = getattr(released, 'privacy', None)
    if isinstance(ledger, PrivacyAccountant) and len(ledger.releases) == 1:
        return ledger.releases[0].guarantee
    return promise
