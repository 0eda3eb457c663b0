r"""Tight accounting of known noise, by the :obj:`dp-accounting` package
(``pip install torch_geometric_dp[accounting]``).

A pair :math:`(\varepsilon, \delta)` forgets what the noise looked like. Where a
release recorded it (:obj:`Guarantee.event`), Rényi differential privacy
(:obj:`"rdp"`) and privacy loss distributions (:obj:`"pld"`) give a smaller
total. Everything else enters as the worst mechanism with its pair.
"""
import functools
import math
from collections.abc import Sequence
from typing import Any

from torch_geometric_dp.accountant.entry import Release
from torch_geometric_dp.accountant.events import (
    GaussianNoise,
    SampledGaussianNoise,
)
from torch_geometric_dp.accountant.sampled import sampled_loss

_INTERVAL = 1e-4  # Of all distributions: those of others have it, too.


def tight_epsilon(releases: Sequence[tuple[Release, int]], delta: float,
                  method: str) -> float:
    """The epsilon at :obj:`delta` of releases, each with the number of its
    units that change at once.
    """
    if method not in ('rdp', 'pld'):
        raise ValueError(f"'method' must be 'kov', 'rdp' or 'pld' "
                         f"(got {method!r})")
    try:
        import dp_accounting  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"method='{method}' needs the package 'dp-accounting': pip install "
            f"'torch_geometric_dp[accounting]'") from error
    if len(releases) == 0:
        return 0.0
    return (_rdp if method == 'rdp' else _pld)(releases, delta)


def _rdp(releases: Sequence[tuple[Release, int]], delta: float) -> float:
    import dp_accounting as dp
    accountant = dp.rdp.RdpAccountant(
        neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    for release, size in releases:
        event = release.guarantee.event
        if event is None or isinstance(event, SampledGaussianNoise):
            epsilon, lost = release.guarantee.group(size)
            if lost > 0:
                raise ValueError(
                    f"method='rdp' cannot account for {release.call}: an "
                    f"(epsilon, delta) promise without a known bound on its "
                    f"Rényi divergence has none. Use method='pld' or 'kov'")
            # Randomised response on one bit dominates all pure mechanisms.
            accountant.compose(
                dp.RandomizedResponseDpEvent(2 / (1 + math.exp(epsilon)), 2))
        elif isinstance(event, GaussianNoise):  # `size` times the sensitivity.
            accountant.compose(dp.GaussianDpEvent(event.multiplier / size))
        else:
            accountant.compose(dp.LaplaceDpEvent(event.multiplier / size))
    return float(accountant.get_epsilon(delta))


def _pld(releases: Sequence[tuple[Release, int]], delta: float) -> float:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    def distribution(release: Release, size: int) -> Any:
        event = release.guarantee.event
        if isinstance(event, SampledGaussianNoise) and size == 1:
            return sampled_loss(event, _INTERVAL)
        if event is None or isinstance(event, SampledGaussianNoise):
            return pld.from_privacy_parameters(
                common.DifferentialPrivacyParameters(
                    *release.guarantee.group(size)))
        if isinstance(event, GaussianNoise):
            return pld.from_gaussian_mechanism(event.multiplier,
                                               sensitivity=size)
        return pld.from_laplace_mechanism(event.multiplier, sensitivity=size)

    total = functools.reduce(lambda one, two: one.compose(two),
                             [distribution(*release) for release in releases])
    return float(total.get_epsilon_for_delta(delta))
