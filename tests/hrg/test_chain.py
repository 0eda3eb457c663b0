import warnings

import numpy as np
import pytest
import torch
from scipy.special import softmax

from tests.hrg.dendrograms import SmallGraphs
from torch_geometric_dp import noise
from torch_geometric_dp.hrg import (
    Chains,
    Dendrogram,
    metis_dendrogram,
    private_weight,
    random_dendrogram,
)
from torch_geometric_dp.hrg import chain as module
from torch_geometric_dp.noise import NoiseSource

NONE = np.empty((2, 0), np.int64)
SEED = NoiseSource.from_seed(0)


def words_of(count):
    return np.concatenate([words.copy() for _, _, words in
                           SEED.blocks(count, 1)])


def random_graph(n, degree, seed):
    rng = np.random.RandomState(seed)
    edges = np.sort(rng.randint(0, n, (2, n * degree // 2)), axis=0)
    return np.unique(edges[:, edges[0] < edges[1]], axis=1)


@pytest.mark.parametrize('weights, window', [
    ((2.0, 0.0), 512),
    ((1.0, private_weight(6.0, 5)), 512),
    ((1.0, private_weight(6.0, 5)), 2),
    ((0.0, 0.7), 1),
])
def test_the_law_of_the_chain(weights, window):
    # Against the exact law over all 105 dendrograms; with three nodes below the
    # root, there are one, two or three windows.
    five = SmallGraphs(5)
    public = five.graph([(0, 1), (1, 2), (2, 3)])
    private = five.graph([(0, 1), (0, 2), (1, 2), (3, 4)])
    exact = softmax(weights[0] * five.log_likelihoods[:, public]
                    + weights[1] * five.log_likelihoods[:, private])
    state, labels = module._unpack(five.trees[0], five.edges(public).copy(),
                                   five.edges(private).copy())
    # Not as many steps as lead from a window to itself.
    samples, thin, record = 100_000, 13, np.empty((1, 2))
    words = words_of(2 * thin * samples).reshape(samples, -1)
    children = np.empty((samples, 4, 2), np.int64)
    for i in range(samples):
        module._walk(state, np.array([weights]), words[i], thin * i, 10**9,
                     record, window)
        children[i] = state.tree[5:, [module._LEFT, module._RIGHT]]
    kinds, counts = np.unique(labels[children], axis=0, return_counts=True)
    drawn = dict.fromkeys(five.trees, 0)
    for kind, count in zip(kinds, counts):
        drawn[Dendrogram(kind)] += count
    share = np.array(list(drawn.values())) / samples
    assert len(share) == 105
    assert np.abs(share - exact).sum() / 2 < 0.02


@pytest.mark.parametrize('n', [3, 4, 5])
def test_moves_reach_all_trees_with_all_numberings(n):
    start = random_dendrogram(n, SEED)
    found, waiting = {numbered(start)}, [start]
    while waiting:
        tree = waiting.pop()
        for r in range(n, 2 * n - 2):
            for turned in (False, True):
                state, labels = module._unpack(tree, NONE, NONE)
                p, a, b = state.tree[r, :3]
                s = state.tree[p, 1:3].sum() - r
                if turned:
                    a, b = b, a
                module._regroup(state, r, p, a, b, s)
                other = module._pack(state, labels)
                if numbered(other) not in found:
                    found.add(numbered(other))
                    waiting.append(other)
    assert len(found) == {3: 3, 4: 15 * 2, 5: 105 * 6}[n]


def numbered(tree):
    return tuple(tuple(sorted(tree.order[first:first + size]))
                 for first, size in zip(tree.start[tree.num_leaves:],
                                        tree.size[tree.num_leaves:]))


@pytest.mark.parametrize('weights', [(0.0, 0.0), (0.5, 0.2), (3.0, 1.0)])
def test_what_is_kept_is_what_is_counted(weights):
    # With weights of zero, each of a million moves is accepted.
    n, edges = 300, random_graph(300, 6, 0)
    public, private = edges[:, ::2].copy(), edges[:, 1::2].copy()
    start = metis_dendrogram(public, n)
    state, labels = module._unpack(start, public, private)
    records = np.empty((1, 2))
    module._walk(state, np.array([weights]), words_of(2 * 10**6), 0, 10**6,
                 records, 64)
    tree = module._pack(state, labels)
    assert tree != start
    inner = state.tree[n:]
    assert np.array_equal(inner[:, module._PUBLIC], tree.counts(public))
    assert np.array_equal(inner[:, module._PRIVATE], tree.counts(private))
    for column, edges in enumerate((public, private)):
        expected = tree.log_likelihood(tree.counts(edges))
        assert records[0, column] == pytest.approx(expected, abs=1e-9)
    # Edges between the smaller child and the sibling, where they are known.
    known = np.flatnonzero(state.across[n:-1, 0] >= 0)
    assert (known.size > 0) == any(weights)  # Else all moves are accepted.
    for i in known:
        sibling = tree.children[tree.parent[n + i] - n]
        right, sibling = (
            np.isin(np.arange(n), tree.order[tree.start[v]:][:tree.size[v]])
            for v in (tree.children[i, 1], sibling[sibling != n + i].item()))
        for column, edges in enumerate((public, private)):
            between = right[edges] & sibling[edges[::-1]]
            assert state.across[n + i, column] == between.sum()
    # The row of leaves, too: the larger child on the left, as at the start.
    assert np.array_equal(labels[state.order], tree.order)
    assert np.array_equal(state.order[state.place], np.arange(n))
    assert np.array_equal(inner[:, module._START], tree.start[n:])
    assert np.array_equal(inner[:, module._SIZE], tree.size[n:])
    assert np.array_equal(inner[:, module._PARENT], tree.parent[n:])


def chains(count=3, weights=(1.0, 0.1), source=SEED, n=60):
    edges = random_graph(n, 6, 1)
    public, private = edges[:, ::2], edges[:, 1::2]
    starts = [metis_dendrogram(public, n, seed) for seed in range(count)]
    return Chains(starts, weights, source, public, private)


def same(one, other):
    # Bit by bit: the same numbers of nodes, not just equal dendrograms.
    assert one.steps == other.steps
    assert np.array_equal(one.trace, other.trace)
    for a, b in zip(one.dendrograms, other.dendrograms):
        assert np.array_equal(a.children, b.children)


def test_save_and_resume(tmp_path):
    whole, part = chains(), chains()
    whole.run(200_000, None)
    part.run(77_777, None)
    part.save(tmp_path / 'run')
    again = Chains.resume(tmp_path / 'run', SEED, part.public, part.private)
    same(again, part)
    again.run(200_000 - 77_777, None)
    same(again, whole)
    assert again.r_hat == whole.r_hat
    assert again.dendrogram == whole.dendrogram


def test_resume_refuses_another_run(tmp_path):
    run = chains()
    run.save(tmp_path / 'run')
    for source, public in ((NoiseSource.from_seed(1), run.public),
                           (SEED, run.public[:, 1:])):
        with pytest.raises(ValueError, match="'source', 'public' and 'private'"
                                             " must be those of the saved run"):
            Chains.resume(tmp_path / 'run', source, public, run.private)


@pytest.mark.parametrize('block', [2, 66, 2**15])
def test_blocks_and_threads_make_no_difference(block, monkeypatch):
    whole = chains()
    whole.run(20_000, None)
    threads = 1 if block == 66 else 2
    monkeypatch.setattr(torch, 'get_num_threads', lambda: threads)
    monkeypatch.setattr(noise.source, 'BLOCK_WORDS', block)
    other = chains()
    other.run(1, None)
    other.run(19_999, None)
    same(whole, other)


def test_the_source_decides():
    one, other = chains(), chains(source=NoiseSource.from_seed(1))
    one.run(1000, None)
    other.run(1000, None)
    assert one.dendrogram != other.dendrogram
    # And each chain has bits of its own.
    run = Chains([one.dendrogram] * 2, (1.0, 0.0), SEED, one.public)
    run.run(1000, None)
    assert run.dendrograms[0] != run.dendrograms[1]


def test_names_of_leaves_make_no_difference():
    run, n = chains(1), 60
    new = np.random.RandomState(0).permutation(n)
    names = np.concatenate([new, np.arange(n, 2 * n - 1)])
    other = Chains([Dendrogram(names[run.dendrograms[0].children])], (1.0, 0.1),
                   SEED, new[run.public], new[run.private])
    run.run(10_000, None)
    other.run(10_000, None)
    assert np.array_equal(other.trace, run.trace)
    assert other.dendrogram == Dendrogram(names[run.dendrogram.children])


def test_weights_and_windows_take_turns():
    run, turns = chains(1), np.array([(2.0, 0.0), (0.0, 3.0), (0.5, 0.5)])
    words, record = words_of(2 * 5000), np.empty((1, 2))
    one, other = (module._unpack(run.dendrogram, run.public, run.private)[0]
                  for _ in range(2))
    # In two parts, the second of which does not start with the first weights.
    module._walk(one, turns, words[:2002], 0, 10**9, record, 16)
    module._walk(one, turns, words[2002:], 1001, 10**9, record, 16)
    for i in range(5000):
        module._walk(other, turns[[i % 3]], words[2 * i:2 * i + 2], i, 10**9,
                     record, 16)
    assert np.array_equal(one.tree, other.tree)


def test_a_fit_is_better_than_its_start():
    run = chains(weights=(2.0, 0.0))
    before = [d.log_likelihood(d.counts(run.public)) for d in run.dendrograms]
    run.run(50_000, None)
    after = [d.log_likelihood(d.counts(run.public)) for d in run.dendrograms]
    assert min(after) > max(before)
    # Public edges alone may choose the best chain; private ones may not.
    assert run.dendrogram is run.dendrograms[int(np.argmax(after))]
    run = chains(weights=(2.0, 1e-9))
    assert run.dendrogram is run.dendrograms[0]


def test_a_run_that_has_not_converged_warns():
    run = chains()
    with pytest.warns(UserWarning, match=r'not converged: split R-hat is inf '
                                         r'after 100 steps, and should be '
                                         r'below 1\.05'):
        run.run(100)
    # A long way to go from a random start.
    n = 2000
    edges = random_graph(n, 10, 0)
    starts = [random_dendrogram(n, SEED.derive(i)) for i in range(2)]
    run = Chains(starts, (1.0, 0.0), SEED, edges)
    with pytest.warns(UserWarning, match='R-hat is [1-9]'):
        run.run(100_000)
    assert run.r_hat > 1.05 and run.steps == 100_000


def five_nodes(count):
    return Chains(SmallGraphs(5).trees[:count], (1.0, 0.5), SEED,
                  [[0, 1, 2], [1, 2, 3]], [[0], [4]])


def test_a_run_that_has_converged_ends_early():
    run = five_nodes(4)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        run.run(10**8)
    looks = module._ROUND_RECORDS * module._RECORD_STEPS
    assert run.steps == module._PATIENCE * looks
    assert run.r_hat < 1.05
    # It goes on when asked to.
    run.run(looks)
    assert run.steps == (module._PATIENCE + 1) * looks


def test_the_first_chain_has_no_say_in_when_to_end(monkeypatch):
    # It is the private draw; to stop where it stands well would be a choice.
    seen = []
    plain = module.split_r_hat
    monkeypatch.setattr(module, 'split_r_hat',
                        lambda draws: seen.append(draws.shape[1])
                        or plain(draws))
    five_nodes(4).run(10**8)
    assert seen[:-1] and set(seen[:-1]) == {3} and seen[-1] == 4
    # Alone, it takes all steps.
    run = five_nodes(1)
    run.run(10**6)
    assert run.steps == 10**6


@pytest.mark.parametrize('n', [1, 2, 3])
def test_few_leaves(n):
    starts = [random_dendrogram(n, SEED)] * 2
    edges = [[0], [n - 1]] if n > 1 else NONE
    run = Chains(starts, (1.0, private_weight(1.0, n)), SEED, NONE, edges)
    run.run(10**6)
    assert run.dendrogram.num_leaves == n and run.r_hat < 1.05


def test_progress(capsys):
    run = chains()
    run.run(1000, None)
    assert capsys.readouterr().err == ''
    run.run(1000, None, progress=True)
    assert '1.00k/1.00k' in capsys.readouterr().err
    assert repr(run) == 'Chains(3 x Dendrogram(num_leaves=60), steps=2000)'


@pytest.mark.parametrize('change, message', [
    ({'starts': []}, "'starts' must be dendrograms over the same leaves"),
    ({'starts': [Dendrogram([]), Dendrogram([[0, 1]])]},
     r"'starts' must be .* same leaves \(got \[1, 2\] leaves\)"),
    ({'weights': (1.0, -1.0)}, "'weights' must be .* at least 0"),
    ({'weights': (1.0, float('nan'))}, "'weights' must be .* finite"),
    ({'weights': (1.0, )}, "'weights' must be one or more pairs"),
    ({'public': [[0], [5]]}, "'public' must join nodes from 0 to 1"),
    ({'private': [[0, 1], [1, 0]]}, "'private' must hold every edge once"),
])
def test_wrong_arguments_are_refused(change, message):
    arguments = {'starts': [Dendrogram([[0, 1]])], 'weights': (1.0, 0.0),
                 'source': SEED, 'public': NONE, **change}
    with pytest.raises(ValueError, match=message):
        Chains(**arguments)
