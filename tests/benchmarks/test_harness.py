"""How numbers are made; no clock is read here but one that the tests set."""
import pytest

from benchmarks import harness
from benchmarks.harness import (
    Fact,
    Row,
    against,
    compare,
    exponent,
    growth,
    in_turn,
    memory,
    peak_memory,
    spread,
)


class Clock:
    """Goes on only when somebody works."""
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def work(self, *seconds):
        """A function that takes that long, and from the second call on, the
        second of them, and so on.
        """
        times = list(seconds)

        def run():
            self.now += times.pop(0) if len(times) > 1 else times[0]
        return run


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(harness.time, 'process_time', clock)
    return clock


@pytest.mark.parametrize('power', [0.0, 0.5, 1.0, 1.05, 2.0])
def test_exponent(power):
    sizes = [10, 100, 3000, 10**6]
    seconds = [7e-6 * size**power for size in sizes]
    assert exponent(sizes, seconds) == pytest.approx(power)
    # One point that is off pulls the line, but does not turn it.
    seconds[1] *= 1.5
    assert exponent(sizes, seconds) == pytest.approx(power, abs=0.1)


def test_growth(clock):
    # The first call is for compilers; one of three repeats is disturbed.
    ours = {10**k: clock.work(50.0, 2.0 * 100**k, 9.0 * 1000**k, 2.0 * 100**k)
            for k in (1, 2, 3)}
    limit = {10**k: clock.work(1.0 * 10**k) for k in (1, 2, 3)}
    *rows, one, two = growth('task', {'ours': ours, 'limit': limit}, 3)
    assert one.value == pytest.approx(2.0) and not one.met
    assert one.low == pytest.approx(2.0) and one.high == pytest.approx(2.0)
    assert one.seconds == pytest.approx((200.0, 20000.0, 2e6))
    assert one.sizes == (10, 100, 1000) and one.most == 1.05
    assert two.value == pytest.approx(1.0) and two.met is None
    assert [row.task for row in rows] == [
        'task, 10 items', 'task, 100 items', 'task, 1,000 items']
    assert [row.ratio for row in rows] == pytest.approx([0.05, 0.005, 0.0005])
    assert all(row.limit and row.against == 'limit' for row in rows)
    assert rows[0].rate == pytest.approx(10 / 200)


def test_the_spread_is_around_the_exponent():
    sizes = [10, 100, 1000]
    # One repeat was slow with small sizes, and one with large ones.
    times = [[1.0, 10.0, 100.0], [2.0, 11.0, 101.0], [1.1, 12.0, 400.0],
             [2.0, 13.0, 500.0]]
    low, high = spread(sizes, times)
    assert low == pytest.approx(exponent(sizes, [2.0, 11.0, 101.0]))
    assert high == pytest.approx(exponent(sizes, [1.1, 12.0, 400.0]))
    assert low < exponent(sizes, times[0]) < high
    assert spread(sizes, times[:1]) == (pytest.approx(1.0), ) * 2


def test_all_in_one_run_take_turns(clock):
    seen = []

    def work(name, seconds):
        step = clock.work(seconds)
        return lambda: (seen.append(name), step())

    times = in_turn({'a': (work('a', 1.0), 10), 'b': (work('b', 3.0), 2)}, 2,
                    clock)
    assert seen == ['a', 'b'] * 3  # The first time is not measured.
    assert times == {'a': [0.1, 0.1], 'b': [1.5, 1.5]}
    [row] = against('task', 'a', times['a'], {'b': times['b']}, {'b': 15.0})
    assert row.ratio == pytest.approx(15.0) and row.goal == 15.0


def test_compare(clock):
    rows = list(compare(
        'task', 10, ('ours', clock.work(9.0, 1.0)),
        {'slow': clock.work(4.0), 'half': (clock.work(4.0), 5)},
        goals={'slow': 4.5}, repeats=3, clock=clock, limit='half'))
    assert [row.ratio for row in rows] == [4.0, 8.0]
    assert [row.met for row in rows] == [False, None]
    assert [row.limit for row in rows] == [False, True]
    assert rows[0].rate == 10
    assert str(rows[0]) == ('task: ours 10/s, 4 [4, 4] times slow   '
                            'goal 4.5: MISSED')
    assert str(rows[1]).endswith('times half (limit)')


def test_facts():
    assert Fact('t', 'n', 3.0, 's').met is None
    assert Fact('t', 'n', 3.0, 's', least=3.0, most=3.0).met
    assert Fact('t', 'n', -3.0, 's', most=0.0).met
    assert not Fact('t', 'n', 1.0, 's', most=0.0).met
    assert not Fact('t', 'n', -1.0, 's', least=0.0).met
    assert str(Fact('t', 'n', 3000.0, 'MiB', most=2048)) == (
        't: n 3,000 MiB   goal: at most 2,048, MISSED')
    assert Row('t', 'n', 1.0, 0.5, 0.4, 0.6, 'p', 0.5).met


def test_memory():
    size = 2**27

    def work():
        held = bytearray(size)
        held[::4096] = b'1' * (size // 4096)

    used = memory('task', work, 0)
    assert 0.9 * size < used.value * 2**20 < 1.5 * size
    assert memory('task', work, size).value * 2**20 < size / 2
    assert peak_memory(work) > size


def test_memory_that_was_free_before_counts():
    def work():
        return [bytearray(b'1') * 10**5 for _ in range(1000)]

    held = work()[::50]  # Between these, it is free, and nobody's.
    assert memory('task', work, 0).value * 2**20 > 0.9 * 10**8
    assert len(held) == 20


def test_a_process_that_ends_early():
    with pytest.raises(RuntimeError, match='ended early'):
        peak_memory(lambda: exit(1))
