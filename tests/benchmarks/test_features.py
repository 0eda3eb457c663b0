"""What the suite yields; how fast it was is nothing to a test."""
import torch

from benchmarks import features, goals
from benchmarks.limits import DRAWS, draws
from benchmarks.store import Suite
from torch_geometric_dp.noise import NoiseSource

SOURCE = NoiseSource.from_seed(0)


def test_bins_are_compared_with_the_same_draws():
    x = torch.rand(4, features.COLUMNS)
    rows = list(features.bins(x, SOURCE, repeats=2))
    for k in features.BINS:
        assert [(row.against, row.goal, row.limit) for row in rows
                if row.task == f'features, {k} bins'] == [
            ('torch.rand', 0.25, False), (DRAWS, None, True),
            ('torch.multinomial', None, False)]
    # The goals find them.
    stored = goals.Stored({'features': Suite(tuple(rows), {}, '', 0.0, False)})
    assert goals.flat(stored).found.count(',') == len(features.BINS) - 1


def test_the_limit_has_as_many_bytes_as_the_result():
    for like in (torch.zeros(7, 3), torch.zeros(9, dtype=torch.long)):
        assert 0 <= draws(SOURCE, like)().nbytes - like.nbytes < 8
