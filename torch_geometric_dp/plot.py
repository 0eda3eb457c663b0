"""Figures, for people who would rather look than read.

All functions draw on matplotlib axes, make new ones where none are given, and
return them. They need ``pip install 'torch_geometric_dp[plot]'``.
"""
import datetime
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torch_geometric_dp.accountant import Unit
from torch_geometric_dp.accountant.spending import Spending, spend
from torch_geometric_dp.mechanisms.column_mechanism import ColumnMechanism
from torch_geometric_dp.vault import PrivacyBudget

if TYPE_CHECKING:  # It would bring Captum along.
    from torch_geometric_dp.explain import HeteroScores


def axes(ax: Any | None = None) -> Any:
    """The axes that are given, or new ones.

    .. code-block:: python

        ax = axes()
        ax.figure.savefig('empty.png')
    """
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Figures need matplotlib: pip install "
                          "'torch_geometric_dp[plot]'") from error
    return plt.subplots()[1]


def scores(scores: 'HeteroScores', ax: Any | None = None) -> Any:
    r"""Each column's importance and sensitivity, with the share of epsilon that
    it gets as its colour (the paper's Figure 3).

    Args:
        scores (HeteroScores): The scores.
        ax (matplotlib axes, optional): Where to draw. (default: :obj:`None`)

    .. code-block:: python

        ax = scores(HeteroScores(torch.rand(64), torch.rand(64), public=True))
        ax.figure.savefig('scores.png')
    """
    ax = axes(ax)
    points = ax.scatter(scores.importance, scores.sensitivity,
                        c=scores.theta(), cmap='viridis', s=25)
    ax.figure.colorbar(points, ax=ax,
                       label=r'share $\theta$ of the budget')
    ax.set(xlabel=r'importance $\alpha$', ylabel=r'sensitivity $\beta$',
           title=rf'Unifying score, $\gamma = {scores.gamma:g}$')
    return ax


def expected_error(mechanisms: Mapping[str, Any], epsilons: Sequence[float],
                   values: Sequence[float],
                   draws: Mapping[str, Sequence[float]] | None = None,
                   ax: Any | None = None) -> Any:
    r"""The expected error against epsilon, from the exact formulas (the paper's
    Figure 10), with what was drawn as dots on top.

    Args:
        mechanisms (dict): A function from epsilon to a mechanism, for each
            name.
        epsilons (sequence of floats): Where to evaluate.
        values (sequence of floats): The error is the mean over these values.
        draws (dict, optional): For each name, the mean errors of real draws at
            :obj:`epsilons`. (default: :obj:`None`)
        ax (matplotlib axes, optional): Where to draw. (default: :obj:`None`)

    .. code-block:: python

        from torch_geometric_dp.mechanisms import Duchi, FeatureRR
        ax = expected_error({'Duchi': Duchi, 'FeatureRR': FeatureRR},
                            epsilons=[0.5, 1.0, 2.0], values=[-0.5, 0.0, 0.9])
        ax.figure.savefig('error.png')
    """
    ax = axes(ax)
    for i, (name, make) in enumerate(mechanisms.items()):
        errors = [mean_error(make(epsilon), values) for epsilon in epsilons]
        style = dict(color=f'C{i % 10}', ls='-' if i < 10 else '--')
        ax.plot(epsilons, errors, label=name, **style)
        if draws is not None:
            ax.plot(epsilons, draws[name], 'o', ms=4, color=style['color'])
    ax.set(xscale='log', yscale='log',
           ylabel='expected error, for values in [-1, 1]')
    _mark_epsilons(ax, epsilons)
    ax.legend(fontsize='small', ncols=2)
    return ax


def mean_error(mechanism: ColumnMechanism, values: Sequence[float]) -> float:
    """The exact expected error, as the mean over some values.

    .. code-block:: python

        from torch_geometric_dp.mechanisms import Duchi
        mean_error(Duchi(1.0), [0.0])   # 2.16...
    """
    errors = [mechanism.expected_error(value) for value in values]
    return float(np.mean(errors))


def intervals(curves: Mapping[str, Mapping[float, Sequence[float]]],
              levels: Mapping[str, float] | None = None,
              ax: Any | None = None) -> Any:
    r"""Means with 95% intervals against epsilon, one curve for each name.

    Args:
        curves (dict): For each name, and each epsilon, the results over seeds.
        levels (dict, optional): Results that cost no epsilon, as horizontal
            lines. (default: :obj:`None`)
        ax (matplotlib axes, optional): Where to draw. (default: :obj:`None`)

    .. code-block:: python

        ax = intervals({'ours': {1.0: [0.7, 0.8], 2.0: [0.8, 0.9]}},
                       levels={'majority class': 0.1})
        ax.figure.savefig('accuracy.png')
    """
    ax = axes(ax)
    for i, (name, points) in enumerate(curves.items()):
        epsilons = sorted(points)
        mean = [np.mean(points[e]) for e in epsilons]
        half = [interval(points[e]) for e in epsilons]
        ax.errorbar(epsilons, mean, half, label=name, capsize=2, marker='.',
                    color=f'C{i % 10}', ls='-' if i < 10 else '--')
    for i, (name, level) in enumerate((levels or {}).items()):
        ax.axhline(level, color='gray', ls=(0, (1 + 2 * i, 2)), lw=1,
                   label=name)
    ax.set(xscale='log', ylabel='accuracy')
    _mark_epsilons(ax, sorted({e for c in curves.values() for e in c}))
    ax.legend(fontsize='small', ncols=2)
    return ax


def spending(budget: PrivacyBudget, ax: Any | None = None) -> Any:
    r"""What was spent of a budget up to now, for each unit that has a cap, and
    the caps as dashed lines.

    Args:
        budget (PrivacyBudget): The budget.
        ax (matplotlib axes, optional): Where to draw. (default: :obj:`None`)

    .. code-block:: python

        data.privacy_budget = PrivacyBudget(epsilon=8.0)
        LabelRR(epsilon=1.0, num_classes=7)(data)
        ax = spending(data.privacy_budget)
        ax.figure.savefig('spending.png')
    """
    ax = axes(ax)
    from matplotlib import dates, lines
    times, spent, caps = _over_time(budget)
    for i, unit in enumerate(spent):
        # What lies on top of each other can be told apart: the first lines are
        # wider, and the dashes of caps take turns.
        ax.step(times, spent[unit], where='post', color=f'C{i}',
                lw=1.5 + len(spent) - 1 - i, label=unit)
        ax.step(times, caps[unit], where='post', color=f'C{i}', lw=1.2,
                ls=(5 * i, (5, 5 * max(len(spent) - 1, 1))))
    ax.xaxis_date(datetime.UTC)
    # Which is not typed.
    formatter: Any = getattr(dates, 'ConciseDateFormatter')  # noqa: B009
    ax.xaxis.set_major_formatter(formatter(ax.xaxis.get_major_locator(),
                                           datetime.UTC))
    ax.set(xlabel='time (UTC)', ylabel=r'spent $\varepsilon$')
    # Names may hold dollars, which are no formulas.
    ax.set_title('Spending' if budget.name is None else
                 f"Spending of '{budget.name}'", parse_math=False)
    handles, _ = ax.get_legend_handles_labels()
    handles.append(lines.Line2D([], [], color='gray', lw=1.2, ls='--',
                                label='cap'))
    ax.legend(handles=handles, fontsize='small', ncols=2)
    return ax


_POINTS = 1000  # More could not be told apart.


def _over_time(budget: PrivacyBudget) -> tuple[
        list[datetime.datetime], dict[str, list[float]],
        dict[str, list[float]]]:
    # Infinity, which has no place on an axis, is left out.
    history = budget.history()
    delta, max_degree = budget.delta, budget.max_degree
    step = math.ceil(len(history) / _POINTS)
    sums = {Unit(unit): Spending() for unit in budget.caps}
    cap: Mapping[str, float] = {}
    times = []
    spent: dict[str, list[float]] = {str(unit): [] for unit in sums}
    caps: dict[str, list[float]] = {str(unit): [] for unit in sums}
    for i, line in enumerate(history):
        cap = cap if line.caps is None else line.caps
        if line.release is not None:
            sums = spend(sums, [line.release], max_degree)
        if i % step == 0 or line.caps is not None or i == len(history) - 1:
            times.append(datetime.datetime.fromisoformat(line.at))
            for unit, part in sums.items():
                for values, value in ((spent, part.epsilon(delta)),
                                      (caps, cap[unit])):
                    values[unit].append(value if math.isfinite(value)
                                        else math.nan)
    # Up to now; clocks of several machines may differ.
    times.append(max(times[-1], datetime.datetime.now(datetime.UTC)))
    for curve in (*spent.values(), *caps.values()):
        curve.append(curve[-1])
    return times, spent, caps


def _mark_epsilons(ax: Any, epsilons: Sequence[float]) -> None:
    ax.set_xlabel(r'$\varepsilon$')
    ax.set_xticks(epsilons, [f'{epsilon:g}' for epsilon in epsilons])
    ax.minorticks_off()


def interval(results: Sequence[float]) -> float:
    """Half the width of the 95% interval of a mean over seeds, by Student's t.

    .. code-block:: python

        interval([0.7, 0.8, 0.9])   # 0.24...
    """
    try:
        from scipy import stats
    except ImportError as error:
        raise ImportError("Intervals need scipy: pip install "
                          "'torch_geometric_dp[plot]'") from error
    n = len(results)
    if n < 2:
        return float('nan')
    return float(stats.t.ppf(0.975, n - 1) * np.std(results, ddof=1) /
                 np.sqrt(n))
