import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torch_geometric_dp._typing import Array
from torch_geometric_dp.accountant import Guarantee


class PrivacyViolation(AssertionError):
    r"""A release tells more than was promised.

    .. code-block:: python

        transform = LabelRR(epsilon=3.0, num_classes=2)
        try:
            audit(transform, guarantee=LabelRR(1.0, 2).guarantee).check()
        except PrivacyViolation as error:
            print(error)
    """


@dataclass(frozen=True)
class AuditReport:
    r"""What an audit has found.

    Two questions, two levels. :obj:`lower_bound` is true with the probability
    :obj:`confidence`, for each audit: where a promise is kept to the last bit,
    one audit in a hundred has a bound of 99% that is above it, by chance. So
    that nobody is accused by chance, :obj:`accused` asks for a bound above the
    claim that is wrong once in a million audits.

    Args:
        target (str): What was audited.
        guarantee (Guarantee): What it promises.
        lower_bound (float): What epsilon is at the least.
        sure_bound (float): The same, with a risk of one in a million.
        confidence (float): The probability with which :obj:`lower_bound` is
            true.
        trials (int): How many trials the bound is from.
        right (int): How many guesses were right.
        guesses (int): How many guesses there were.
        sides (tuple of str): The two inputs that were told apart.
        view (str): What they were told apart by.
        scores (tuple, optional): The scores of the trials with one input, and
            of those with the other. (default: :obj:`None`)

    .. code-block:: python

        report = audit(LabelRR(epsilon=1.0, num_classes=3), trials=2000)
        print(report)
        report.check()   # raises an error if the promise is broken
        ax = report.plot()
    """
    target: str
    guarantee: Guarantee
    lower_bound: float
    sure_bound: float
    confidence: float
    trials: int
    right: int
    guesses: int
    sides: tuple[str, str]
    view: str
    scores: tuple[Array, Array] | None = field(default=None, repr=False,
                                                  compare=False)

    @property
    def claimed(self) -> float:
        """What is claimed: the published epsilon, where there is another."""
        published = self.guarantee.claimed_epsilon
        return self.guarantee.epsilon if published is None else published

    @property
    def proven(self) -> float:
        """What is proven; infinity if nothing is."""
        return self.guarantee.epsilon

    @property
    def accused(self) -> bool:
        """Whether the claim is false, beyond any doubt."""
        return self.sure_bound > self.claimed

    @property
    def verdict(self) -> str:
        """What to think of the claim, in words."""
        if self.accused:
            return 'BROKEN: epsilon is larger than claimed'
        if self.lower_bound > self.claimed:
            return ('SUSPICIOUS: the bound is above the claim, which happens '
                    'to honest claims, too; try more trials')
        return 'no violation found'

    def check(self) -> 'AuditReport':
        """Raises :class:`PrivacyViolation` if the claim is false; returns the
        report otherwise.
        """
        if self.accused:
            raise PrivacyViolation(str(self))
        return self

    def plot(self, ax: Any | None = None) -> Any:
        """How the scores of the two inputs are spread, and the epsilons."""
        from torch_geometric_dp.plot import axes
        ax = axes(ax)
        # Bars of both sides are as wide: their heights compare.
        edges = np.histogram_bin_edges(np.concatenate(self.scores or [[]]), 60)
        for scores, side in zip(self.scores or (), self.sides):
            ax.hist(scores, bins=edges, alpha=0.6, label=side)
        for value, name in ((self.claimed, 'claimed'), (self.proven, 'proven'),
                            (self.lower_bound, 'lower bound')):
            text = 'nothing' if math.isinf(value) else f'{value:.3g}'
            ax.plot([], [], ' ', label=f'{name}: {text}')
        ax.set(yscale='log', xlabel=f'score, from {self.view}',
               ylabel='trials', title=self.verdict.split(':')[0])
        ax.legend(fontsize='small')
        return ax

    def __str__(self) -> str:
        g = self.guarantee
        delta = f', delta {g.delta:g}' if g.delta else ''
        proven = 'nothing' if math.isinf(g.epsilon) else f'{g.epsilon:.4g}'
        return '\n'.join([
            f'Audit of {self.target}, {g.unit}{delta}',
            f'  claimed      {self.claimed:.4g}',
            f'  proven       {proven}',
            f'  lower bound  {self.lower_bound:.4g} at '
            f'{100 * self.confidence:g}% confidence '
            f'({self.sure_bound:.4g} beyond doubt)',
            f'  {self.right} of {self.guesses} guesses were right in '
            f'{self.trials} trials, by {self.view}: {self.sides[0]}, or '
            f'{self.sides[1]}',
            f'  {self.verdict}',
        ])

