import math

import numpy as np
import pytest

from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.audit import AuditReport, PrivacyViolation


def report(lower=0.9, sure=0.8, epsilon=1.0, claimed=None, delta=0.0):
    promise = Guarantee(epsilon, 'features', 'replace',
                        delta=delta, claimed_epsilon=claimed)
    scores = np.arange(50.0), np.arange(30.0)
    return AuditReport('Target()', promise, lower, sure, 0.99, 100, 60, 80,
                       ('x = 0', 'x = 1'), 'values', scores)


def test_nothing_found():
    honest = report()
    assert honest.check() is honest
    assert not honest.accused
    assert str(honest) == '\n'.join([
        'Audit of Target(), features',
        '  claimed      1',
        '  proven       1',
        '  lower bound  0.9 at 99% confidence (0.8 beyond doubt)',
        '  60 of 80 guesses were right in 100 trials, by values: x = 0, or '
        'x = 1',
        '  no violation found',
    ])


def test_suspicious():
    # Above the claim by what may be chance: said, but no accusation.
    odd = report(lower=1.1, sure=0.9)
    assert odd.check() is odd
    assert odd.verdict.startswith('SUSPICIOUS')


def test_broken():
    with pytest.raises(PrivacyViolation, match='BROKEN: epsilon is larger'):
        report(lower=1.3, sure=1.1).check()


def test_published_claims():
    # Accused is what is claimed, not what is proven.
    published = report(lower=1.8, sure=1.6, epsilon=2.0, claimed=1.4)
    assert published.claimed == 1.4 and published.proven == 2.0
    with pytest.raises(PrivacyViolation, match=r'claimed      1.4\n'
                       r'  proven       2\n'):
        published.check()
    nothing = report(epsilon=math.inf, claimed=1.0, delta=1e-5)
    assert 'proven       nothing' in str(nothing)
    assert 'features, delta 1e-05' in str(nothing)
    assert report(lower=1.3, sure=1.1, epsilon=math.inf, claimed=1.0).accused


def test_plot():
    matplotlib = pytest.importorskip('matplotlib')
    matplotlib.use('Agg')
    ax = report().plot()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ['x = 0', 'x = 1', 'claimed: 1', 'proven: 1',
                      'lower bound: 0.9']
    assert sum(patch.get_height() for patch in ax.patches) == 80
    assert len({round(patch.get_width(), 9) for patch in ax.patches}) == 1
    assert ax.get_title() == 'no violation found'
    unproven = report(epsilon=math.inf, claimed=1.0).plot()
    assert 'proven: nothing' in [text.get_text() for text in
                                 unproven.get_legend().get_texts()]
    assert report().plot(ax) is ax
