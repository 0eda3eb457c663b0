r"""What was spent, as running sums: all that the next charge has to know.

Pairs of epsilon and delta are kept as a :class:`Tally`. Gaussian noise composes
without loss: releases with multipliers :math:`\sigma_i` are together one with
:math:`1/\sigma^2 = \sum_i 1/\sigma_i^2`, so one more sum is enough for them.
What has both gets the better of two bounds: all as pairs, or the Gaussian
releases at a part of delta, and the others at the rest.
"""
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch_geometric_dp.accountant.composition import Tally
from torch_geometric_dp.accountant.entry import Release
from torch_geometric_dp.accountant.events import GaussianNoise
from torch_geometric_dp.accountant.gaussian import gaussian_loss
from torch_geometric_dp.accountant.unit import Relation, Unit

_CASES = 2**12  # As much work as a charge may be.
_SHARES = (0.1, 0.5, 0.9)  # Of delta, for what is Gaussian.


@dataclass(frozen=True)
class Spending:
    """What was spent of one unit.

    Args:
        pairs (Tally, optional): Everything, as pairs of epsilon and delta.
            (default: :obj:`Tally()`)
        others (Tally, optional): All but what is Gaussian.
            (default: :obj:`Tally()`)
        gaussian (float, optional): The sum of the squares of sensitivity over
            scale, of what is. (default: :obj:`0.0`)
        public (tuple of str, optional): Who has taken the unit as public.
            (default: :obj:`()`)

    .. code-block:: python

        entry = LabelRR(epsilon=1.0, num_classes=7)(data).privacy.releases[0]
        Spending().add(entry, Unit.LABELS).epsilon(delta=0.0)   # 1.0
    """
    pairs: Tally = field(default_factory=Tally)
    others: Tally = field(default_factory=Tally)
    gaussian: float = 0.0
    public: tuple[str, ...] = ()

    def add(self, release: Release, unit: Unit,
            max_degree: int | None = None,
            edges: int | None = None) -> 'Spending':
        """What is spent after one more release."""
        out = self
        if release.takes_as_public(unit):
            out = replace(out, public=tuple(dict.fromkeys(
                (*self.public, release.mechanism))))
        size = release.units(unit, Relation.ADD_REMOVE, max_degree, edges)
        if size == 0:
            return out
        cost, event = release.guarantee.group(size), release.guarantee.event
        out = replace(out, pairs=self.pairs.add(*cost))
        if isinstance(event, GaussianNoise):
            return replace(out, gaussian=self.gaussian
                           + (size / event.multiplier)**2)
        return replace(out, others=self.others.add(*cost))

    def epsilon(self, delta: float) -> float:
        """The privacy loss at :obj:`delta`."""
        if self.public:
            return math.inf
        best = self.pairs.epsilon(delta, _CASES)
        if self.gaussian > 0 and delta > 0:
            multiplier = 1 / math.sqrt(self.gaussian)
            alone = self.others == Tally()
            for share in (1.0, ) if alone else _SHARES:
                rest = 0.0 if alone else self.others.epsilon(
                    (1 - share) * delta, _CASES)
                if best > rest:
                    best = min(best, rest + gaussian_loss(multiplier,
                                                          share * delta))
        return best


def spend(before: Mapping[Unit, Spending], releases: Iterable[Release],
          max_degree: int | None = None,
          edges: int | None = None) -> dict[Unit, Spending]:
    """What is spent of each unit after more releases.

    .. code-block:: python

        entry = LabelRR(epsilon=1.0, num_classes=7)(data).privacy.releases[0]
        after = spend({Unit.LABELS: Spending()}, [entry])
        after[Unit.LABELS].epsilon(delta=0.0)   # 1.0
    """
    after = dict(before)
    for release in releases:
        for unit, spent in after.items():
            after[unit] = spent.add(release, unit, max_degree, edges)
    return after


def spending_to_plain(spent: Mapping[Unit, Spending]) -> dict[str, Any]:
    """As lists, dictionaries, strings and numbers.

    .. code-block:: python

        plain = spending_to_plain({Unit.LABELS: Spending()})
        spending_from_plain(plain)[Unit.LABELS] == Spending()   # True
    """
    return {str(unit): {'pairs': vars(part.pairs), 'others': vars(part.others),
                        'gaussian': part.gaussian, 'public': part.public}
            for unit, part in spent.items()}


def spending_from_plain(plain: Mapping[str, Any]) -> dict[Unit, Spending]:
    """The other way.

    .. code-block:: python

        spending_from_plain({})   # {}
    """
    def tally(part: Mapping[str, Any]) -> Tally:
        counts = part['counts']
        return Tally(**{**part, 'counts': None if counts is None else tuple(
            (epsilon, count) for epsilon, count in counts)})

    return {Unit(name): Spending(tally(part['pairs']), tally(part['others']),
                                 part['gaussian'], tuple(part['public']))
            for name, part in plain.items()}
