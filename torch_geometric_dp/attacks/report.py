from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_dp.plot import axes


@dataclass(frozen=True)
class AttackReport:
    r"""What an attack has found.

    Args:
        attack (str): What attacked.
        numbers (dict): How well it went.
        baseline (dict): The same numbers for an attacker who knows as much,
            but may not touch the target, or no more of it than is public
            anyway: what is above that is leaked.
        knew (tuple of str): What the attacker knew.

    .. code-block:: python

        report = AttackReport('Guess', numbers={'accuracy': 0.8},
                              baseline={'accuracy': 0.5},
                              knew=('the features of all nodes', ))
        print(report)
        report['accuracy']   # 0.8
        ax = report.plot()
    """
    attack: str
    numbers: Mapping[str, float]
    baseline: Mapping[str, float]
    knew: tuple[str, ...]

    def __getitem__(self, name: str) -> float:
        return self.numbers[name]

    def plot(self, ax: Any | None = None) -> Any:
        """The numbers as bars, each beside its baseline."""
        ax = axes(ax)
        place = np.arange(len(self.numbers))
        ax.barh(place - 0.2, list(self.numbers.values()), 0.4,
                label='with the target')
        ax.barh(place + 0.2, [self.baseline.get(name, np.nan)
                              for name in self.numbers], 0.4, color='lightgray',
                label='without it')
        ax.set_yticks(place, list(self.numbers))
        ax.invert_yaxis()
        ax.set(title=self.attack.split('(')[0])
        ax.legend(fontsize='small')
        return ax

    def __str__(self) -> str:
        width = max(map(len, self.numbers))
        lines = [self.attack]
        for name, value in self.numbers.items():
            line = f'  {name:{width}}  {value:.4g}'
            if name in self.baseline:
                line += f' (without the target: {self.baseline[name]:.4g})'
            lines.append(line)
        lines.append('  the attacker knew: ' + '; '.join(self.knew))
        return '\n'.join(lines)


@dataclass(frozen=True)
class ScoredReport(AttackReport):
    r"""What an attack has found that scores each suspicion, such as "these two
    are linked": the larger, the surer.

    Args:
        attack (str): What attacked.
        numbers (dict): How well it went.
        baseline (dict): The same without the target.
        knew (tuple of str): What the attacker knew.
        truth (array of bools): Which suspicions are true.
        scores (array of floats): How sure the attacker was of each.
        guessed (array of floats): The same without the target; with a row for
            each time, if it was tried several times.

    .. code-block:: python

        import numpy as np
        report = ScoredReport('Guess', {'AUC': 1.0}, {'AUC': 0.5}, ('all', ),
                              truth=np.array([True, False]),
                              scores=np.array([0.9, 0.2]),
                              guessed=np.array([0.5, 0.5]))
        ax = report.plot()
    """
    truth: NDArray[np.bool_] = field(repr=False, compare=False)
    scores: NDArray[np.float64] = field(repr=False, compare=False)
    guessed: NDArray[np.float64] = field(repr=False, compare=False)

    def plot(self, ax: Any | None = None) -> Any:
        """How many of the true suspicions are found, against how many of the
        false ones are raised, with the target and without it; few false ones
        is what matters.
        """
        ax = axes(ax)
        false, true, _ = metrics().roc_curve(self.truth, self.scores)
        line = np.geomspace(1e-3, 1, 200)
        curves = [metrics().roc_curve(self.truth, guess)[:2]
                  for guess in np.atleast_2d(self.guessed)]
        # Ties are straight on plain axes, and so not on these: more points.
        at = np.searchsorted(false, line, side='right')
        ax.plot(np.insert(false, at, line),
                np.insert(true, at, np.interp(line, false, true)),
                label='with the target')
        ax.plot(line, np.mean([np.interp(line, *curve) for curve in curves],
                              axis=0),
                color='gray', ls='--', label='without it')
        ax.plot(line, line, color='gray', ls=':', lw=1, label='guessing')
        ax.set(xscale='log', yscale='log', xlim=(1e-3, 1), ylim=(1e-3, 1.3),
               xlabel='false positive rate', ylabel='true positive rate',
               title=self.attack.split('(')[0])
        ax.legend(fontsize='small', loc='lower right')
        return ax


def scored_numbers(truth: NDArray[np.bool_],
                   scores: NDArray[np.float64]) -> dict[str, float]:
    """The area under the curve, where ties count one half, and what is found
    at 1% false positives: of suspicions that are tied there, a part is raised
    by lot, as large as there is room for.
    """
    false, true, _ = metrics().roc_curve(truth, scores)
    return {'AUC': float(metrics().roc_auc_score(truth, scores)),
            'TPR at 1% FPR': float(np.interp(0.01, false, true))}


def metrics() -> Any:
    """The metrics of scikit-learn."""
    try:
        import sklearn.metrics
    except ImportError as error:
        raise ImportError("Attacks need scikit-learn: pip install "
                          "'torch_geometric_dp[attacks]'") from error
    return sklearn.metrics
