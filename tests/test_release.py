"""The attacker's test of permanence. Whatever is called, on whatever parts and
versions of a graph: what comes out is fresh noise for each charge, or the same
again, or nothing.

Where the domain is small, outcomes are counted against the exact law of
randomised response. All limits have a false alarm rate of a millionth at most.
"""
import copy
import itertools
import math
import warnings

import pytest
import torch
from scipy.stats import binom
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.transforms import BaseTransform

from tests.conftest import FALSE_ALARM
from torch_geometric_dp import (
    ContentChanged,
    Guarantee,
    PrivacyAccountant,
    PrivacyBudget,
    PrivacyBudgetExceeded,
)
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.release import digest, fingerprint, trials, verify
from torch_geometric_dp.transforms import FeatureRR, LabelRR

RUNS = 500


def binary(*labels, budget=None):
    data = Data(y=torch.tensor(labels), num_nodes=len(labels))
    if budget is not None:
        data.privacy_budget = budget
    return data


def identities(graphs, epsilon=math.inf):
    return PrivacyBudget.for_each(graphs, epsilon=epsilon)


def check_count(count, total, chance):
    """A count is what the binomial law allows, but for a false alarm."""
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], total, chance)
    assert low <= count <= high, (count, low, high)


# Many graphs of equal content #


def test_equal_contents_have_independent_noise():
    # Two nodes each, all of them equal. Pairs of releases agree as often as
    # independent answers do, be the contents equal or not.
    transform = LabelRR(1.0, num_classes=2)
    keep = math.e / (1 + math.e)
    for other in (0, 1):
        graphs = identities([binary(0, 0) if i % 2 else binary(0, other)
                             for i in range(RUNS)])
        out = torch.stack([transform(data).y for data in graphs])
        pairs = out.view(-1, 2, 2)  # Two neighbours in the list.
        same = (pairs[:, 0, 1] == pairs[:, 1, 1]).sum().item()
        agree = keep**2 + (1 - keep)**2
        check_count(same, len(pairs), agree if other == 0 else 1 - agree)
        check_count((out[:, 0] == 0).sum().item(), RUNS, keep)


def test_without_budgets_too():
    transform, keep = LabelRR(1.0, num_classes=2), math.e / (1 + math.e)
    with trials():
        out = [transform(binary(1)).y.item() for _ in range(RUNS)]
    check_count(sum(out), RUNS, keep)


@pytest.mark.parametrize('labels', list(itertools.product((0, 1), repeat=2)))
def test_all_outcomes_of_a_release_have_the_exact_chance(labels):
    transform, keep = LabelRR(1.0, num_classes=2), math.e / (1 + math.e)
    out = [tuple(transform(data).y.tolist())
           for data in identities([binary(*labels)] * RUNS)]
    for outcome in itertools.product((0, 1), repeat=2):
        wrong = sum(a != b for a, b in zip(labels, outcome))
        chance = keep**(2 - wrong) * (1 - keep)**wrong
        check_count(out.count(outcome), RUNS, chance)


def test_one_budget_is_not_for_many_graphs():
    budget = PrivacyBudget(epsilon=math.inf)
    transform = LabelRR(1.0, num_classes=2)
    transform(binary(0, 0, 1, budget=budget))
    for labels in itertools.product((0, 1), repeat=3):
        if labels == (0, 0, 1):
            continue
        with pytest.raises(ContentChanged, match='its own budget'):
            transform(binary(*labels, budget=budget))
    assert len(budget.spent.releases) == 1


# Subgraphs, and graphs that change #


def test_subgraphs_of_a_raw_graph_are_refused():
    data = binary(*[0, 1] * 5, *[1, 0] * 5, budget=PrivacyBudget(epsilon=9.0))
    transform = LabelRR(0.1, num_classes=2)
    # The first part is what the budget is bound to: no second one.
    transform(data.subgraph(torch.arange(10)))
    for part in (torch.arange(10, 20), torch.arange(9), torch.arange(11),
                 torch.arange(20), torch.tensor([1])):
        with pytest.raises(ContentChanged):
            transform(data.subgraph(part))
    assert data.privacy_budget.spent.epsilon('labels') == 0.1


def test_subgraphs_of_a_release_are_free():
    data = binary(*[0, 1] * 10, budget=PrivacyBudget(epsilon=1.0))
    private = LabelRR(1.0, num_classes=2)(data)
    part = private.subgraph(torch.arange(3))
    assert torch.equal(part.y, private.y[:3])
    assert part.privacy == private.privacy


@pytest.mark.parametrize('place', [0, 19])
def test_an_evolving_graph_is_refused_or_pays(place):
    data = binary(*[0, 1] * 10, budget=PrivacyBudget(labels=2.0))
    transform = LabelRR(1.0, num_classes=2)
    monday = transform(data)
    tuesday = copy.copy(data)
    tuesday.y = data.y.clone()
    tuesday.y[place] = 1 - data.y[place]
    with pytest.raises(ContentChanged, match=r'renew\(\)'):
        transform(tuesday)
    again = transform.renew()(tuesday)
    ids = [out.privacy.releases[0].release_id for out in (monday, again)]
    assert ids[0] != ids[1]
    assert data.privacy_budget.remaining('labels') == 0.0
    both = PrivacyAccountant.merge([monday.privacy, again.privacy])
    assert both.epsilon('labels') == 2.0  # One graph: they add up.
    # A renewal is for one call; the older version is another content now.
    with pytest.raises(ContentChanged):
        transform(data)


def test_a_renewed_release_of_unchanged_content_has_new_noise():
    transform, keep = LabelRR(1.0, num_classes=2), math.e / (1 + math.e)
    data = binary(*[0] * RUNS, budget=PrivacyBudget(labels=2.0))
    one = transform(data).y
    two = transform.renew()(data).y
    check_count((one == two).sum().item(), RUNS, keep**2 + (1 - keep)**2)
    with pytest.raises(PrivacyBudgetExceeded):
        transform.renew()(data)


# Guesses against an identity that was released #


def test_guesses_are_refused_or_cost():
    # Whoever may call transforms under the budget, and guesses the content,
    # gets the release that exists, or nothing. Other arguments are charged.
    truth = (1, 0, 1)
    budget = PrivacyBudget(labels=1.0)
    private = LabelRR(0.5, num_classes=2)(binary(*truth, budget=budget))
    for guess in itertools.product((0, 1), repeat=3):
        try:
            out = LabelRR(0.5, num_classes=2)(binary(*guess, budget=budget))
        except ContentChanged:
            assert guess != truth
        else:
            assert guess == truth and torch.equal(out.y, private.y)
            assert out.privacy == private.privacy
    assert budget.remaining('labels') == 0.5
    LabelRR(0.4, num_classes=2)(binary(*truth, budget=budget))
    with pytest.raises(PrivacyBudgetExceeded):
        LabelRR(0.4, num_classes=2, mask='m')(Data(
            y=torch.tensor(truth), m=torch.ones(3, dtype=torch.bool),
            privacy_budget=budget))


def test_names_of_releases_tell_nothing():
    # They are random: other ones for equal content, arguments and seed.
    for seed in (None, 0):
        transform = LabelRR(1.0, num_classes=2, seed=seed)
        out = [transform(data).privacy.releases[0].release_id
               for data in identities([binary(0, 1)] * 20)]
        with trials():
            out += [transform(binary(0, 1)).privacy.releases[0].release_id
                    for _ in range(20)]
        assert len(set(out)) == 40 and all(len(name) == 32 for name in out)


def test_seeded_releases_of_other_arguments_add_up():
    with trials():
        ledgers = [LabelRR(epsilon, num_classes=2, seed=0)(
            binary(0, 1)).privacy for epsilon in (0.1, 8.0)]
    assert PrivacyAccountant.merge(ledgers).epsilon('labels') == 8.1
    assert PrivacyAccountant.merge(ledgers[::-1]).epsilon('labels') == 8.1


def test_a_seed_repeats_a_run():
    def run():
        transform = LabelRR(1.0, num_classes=2, seed=3)
        with trials():
            return [transform(binary(*[0] * 64)).y.tolist() for _ in range(3)]

    first = run()
    assert first == run()
    assert len({str(labels) for labels in first}) == 3  # Each call is another.


def test_a_pickled_transform_knows_no_noise(graph):
    # What undoes noise is in the vault alone: a copy on another graph with
    # the same content has other noise, as anybody's has.
    graph.y, graph.train_mask = torch.arange(64) % 3, None
    one, two = identities([graph, graph])
    transform = LabelRR(1.0, num_classes=3)
    private = transform(one)
    assert not torch.equal(private.y, copy.deepcopy(transform)(two).y)
    assert torch.equal(private.y, copy.deepcopy(transform)(one).y)
    assert set(vars(transform._releaser)) == {'seed', '_calls', '_renew'}


# Canonical content: values, not bytes #


@pytest.mark.parametrize('kind', [torch.int8, torch.int16, torch.int32,
                                  torch.int64, torch.uint8, torch.bool])
def test_integers_of_all_types_are_one_release(kind):
    data = binary(*[0, 1] * 20, budget=PrivacyBudget(labels=1.0))
    transform = LabelRR(1.0, num_classes=2)
    private = transform(data)
    same = copy.copy(data)
    same.y = data.y.to(kind)
    again = transform(same)
    assert torch.equal(again.y.long(), private.y)
    assert again.privacy == private.privacy
    assert len(data.privacy_budget.spent.releases) == 1


def test_zeros_and_wider_floats_are_one_release():
    x = torch.tensor([[0.0, 0.5], [1.0, 0.0], [0.25, 0.1]])
    data = Data(x=x, privacy_budget=PrivacyBudget(features=1.0))
    transform = FeatureRR(1.0, bounds=(0.0, 1.0))
    private = transform(data)
    negative = torch.where(x == 0, -0.0, x)
    assert torch.signbit(negative).any()
    for other in (negative, x.double(), x.t().contiguous().t(),
                  x.repeat(2, 1)[:3], x.clone().requires_grad_()):
        same = copy.copy(data)
        same.x = other
        again = transform(same)
        assert torch.equal(again.x.float(), private.x.float())
        assert again.privacy.releases[0].release_id == (
            private.privacy.releases[0].release_id)
    assert data.privacy_budget.remaining('features') == 0.0


def test_rounded_floats_are_other_content():
    # Else two samples for values that are nearly the same, or one noise.
    x = torch.tensor([[0.1, 0.5], [0.3, 0.7]])
    data = Data(x=x, privacy_budget=PrivacyBudget(features=9.0))
    transform = FeatureRR(1.0, bounds=(0.0, 1.0))
    transform(data)
    for other in (x.half(), x.bfloat16(), x.double() + 1e-12, x.view(4, 1)[:2]):
        changed = copy.copy(data)
        changed.x = other
        with pytest.raises(ContentChanged):
            transform(changed)
    assert data.privacy_budget.remaining('features') == 8.0
    # Where the type holds all values, it is the same.
    x = torch.tensor([[0.25, 0.5], [1.0, 0.75]])
    data = Data(x=x, privacy_budget=PrivacyBudget(features=1.0))
    private, half = transform(data), copy.copy(data)
    half.x = x.half()
    assert torch.equal(transform(half).x.float(), private.x.float())


def test_fingerprints_are_keyed_and_digests_are_not():
    content = [('y', (torch.tensor([1, 2, 3]), ))]
    one, two = NoiseSource(b'a' * 32), NoiseSource(b'b' * 32)
    assert fingerprint(one, content) == fingerprint(one, content)
    assert fingerprint(one, content) != fingerprint(two, content)
    # Neither names nor shapes nor the borders of tensors run together.
    x = torch.arange(6)
    forms = [[('y', (x, ))], [('z', (x, ))], [('y', (x.view(2, 3), ))],
             [('y', (x[:3], x[3:]))], [('y', (x[:2], x[2:]))], [('y', ())],
             [('y', (x[:3], )), ('y', (x[3:], ))], [('y', (x.double(), ))],
             [('y', (x[:0], ))], [('y', (x + 2**40, ))]]
    assert len({fingerprint(one, form) for form in forms}) == len(forms)
    assert len(digest(x)) == 64
    assert digest(x) == digest(x.int()) != digest(x.view(2, 3))
    assert digest(x, x) != digest(torch.cat([x, x]))


def test_the_public_digest_is_sha_256():
    # And not a hash with a known key, for which anybody finds collisions.
    import hashlib
    x = torch.tensor([1, 2, 300])
    leaf = hashlib.sha256(x.short().numpy().tobytes()).digest()
    told = hashlib.sha256(b'torch.int16(3,)\n' + leaf)
    assert digest(x) == told.hexdigest()
    # Of every 2**20 numbers, whatever the blocks that they are read in.
    y = torch.arange(3 * 2**20 + 5) % 100
    leaves = [hashlib.sha256(y[i:i + 2**20].char().numpy().tobytes()).digest()
              for i in range(0, len(y), 2**20)]
    told = hashlib.sha256(b'torch.int8(3145733,)\n' + b''.join(leaves))
    assert digest(y) == told.hexdigest()


# Where a budget would be overlooked #


class Graphs(InMemoryDataset):
    def __init__(self, graphs):
        super().__init__()
        self.data, self.slices = self.collate(graphs)


def test_a_budget_on_a_batch_is_refused():
    batch = Batch.from_data_list([binary(0, 1), binary(1, 1)])
    batch.privacy_budget = PrivacyBudget(labels=1.0)
    with pytest.raises(ValueError, match="'privacy_budget' of .* would be "
                                         "overlooked.*PrivacyBudget.for_each"):
        LabelRR(0.5, num_classes=2)(batch)
    assert batch.privacy_budget.remaining('labels') == 1.0


def test_a_budget_on_a_hetero_batch_is_refused():
    data = HeteroData({'a': {'y': torch.tensor([0, 1])}})
    batch = Batch.from_data_list([data, data])
    batch.privacy_budget = PrivacyBudget(labels=1.0)
    with pytest.raises(ValueError, match="'privacy_budget' of"):
        LabelRR(0.5, num_classes=2)(batch)


@pytest.mark.filterwarnings('ignore:It is not recommended')
def test_a_budget_on_collated_graphs_is_refused():
    dataset = Graphs([binary(0, 1), binary(1, 1)])
    dataset._data.privacy_budget = PrivacyBudget(labels=1.0)
    with pytest.raises(ValueError, match="'privacy_budget' of several graphs"):
        dataset[0]
    with pytest.raises(ValueError, match="'privacy_budget' of several graphs"):
        LabelRR(0.5, num_classes=2)(dataset[0])
    # A dataset of one graph is that graph.
    dataset = Graphs([binary(0, 1)])
    dataset._data.privacy_budget = PrivacyBudget(labels=1.0)
    LabelRR(0.6, num_classes=2)(dataset[0])
    assert dataset._data.privacy_budget.remaining('labels') == 0.4


def test_a_budget_on_a_node_store_is_refused():
    data = HeteroData({'a': {'y': torch.tensor([0, 1])}})
    data['a'].privacy_budget = PrivacyBudget(labels=1.0)
    with pytest.raises(ValueError, match="belongs to the whole graph.*'a'"):
        LabelRR(0.5, num_classes=2)(data)


@pytest.mark.parametrize('budget', [1.0, 'mine', {'labels': 1.0}, [1.0]])
def test_something_else_in_the_place_of_a_budget_is_refused(budget):
    data = binary(0, 1)
    data.privacy_budget = budget
    with pytest.raises(TypeError, match="must be a 'PrivacyBudget'"):
        LabelRR(0.5, num_classes=2)(data)


def test_an_identity_for_each_graph():
    dataset = identities(Graphs([binary(0, 1), binary(1, 1), binary(0, 1)]),
                         1.0)
    transform = LabelRR(1.0, num_classes=2)
    private = Batch.from_data_list([transform(data) for data in dataset])
    # Batched before, or batched after: the same releases.
    same = transform(Batch.from_data_list(dataset))
    assert torch.equal(same.y, private.y)
    assert list(same.privacy) == list(private.privacy)
    assert private.privacy.epsilon('labels') == 1.0
    assert 'different identities hold different people' in str(private.privacy)
    assert all(data.privacy_budget.remaining('labels') == 0.0
               for data in dataset)


def test_raw_batches_of_loaders_are_refused():
    data = binary(0, 1, 1, budget=PrivacyBudget(labels=1.0))
    data.n_id = torch.tensor([4, 2, 7])
    with pytest.raises(ValueError, match="'n_id'.*release the whole graph"):
        LabelRR(0.5, num_classes=2)(data)
    assert data.privacy_budget.remaining('labels') == 1.0


# Without a budget #


def test_the_second_release_of_the_same_content_warns():
    y = torch.randint(2, (50, ), generator=torch.Generator().manual_seed(1))
    transform = LabelRR(1.0, num_classes=2)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        transform(Data(y=y))
        transform(Data(y=1 - y))  # Something else.
    for again in (transform, LabelRR(0.3, num_classes=2)):
        for same in (y, y.int()):
            with pytest.warns(UserWarning, match='without a budget: noise '
                                                 'that is drawn again can be'):
                again(Data(y=same))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        with trials():
            transform(Data(y=y))
        data = Data(y=y, privacy_budget=PrivacyBudget(labels=1.0))
        for _ in range(3):
            transform(data)


# What is told of the fields #


def test_verify(graph):
    private = LabelRR(1.0, num_classes=3)(graph)
    assert private.privacy.verify(private, public=['train_mask']) == dict(
        x='raw', edge_index='raw', y='covered', train_mask='public')
    private.y = private.y.clone()
    assert verify(private.privacy, private)['y'] == 'covered'
    private.y[0] = (private.y[0] + 1) % 3
    assert verify(private.privacy, private)['y'] == 'changed'
    # Raw labels under that ledger are not taken for the release.
    private.y = graph.y
    for epsilon in (1.0, 2.0):
        with pytest.raises(ValueError, match="'y' must be as it was released"):
            LabelRR(epsilon, num_classes=3)(private)


def test_a_graph_with_a_ledger_is_printed_in_a_line(graph):
    private = LabelRR(1.0, num_classes=3)(FeatureRR(8.0, (0.0, 1.0))(graph))
    assert repr(private).count('\n') <= len(private.keys()) + 2
    assert len(repr(private)) < 400
    assert 'labels: epsilon = 1' in repr(private)
    batch = Batch.from_data_list([private, private])
    assert 'privacy=[2 ledgers]' in repr(batch) and len(repr(batch)) < 400
    assert batch.privacy.epsilon('labels') == 1.0
    assert len(batch.privacy) == 2 and batch.privacy[1] == private.privacy


# Composites, by the auditor #


class Twice(BaseTransform):
    """A graph that is released, and released anew, and paid for twice."""
    def forward(self, data):
        data.privacy_budget = PrivacyBudget(labels=2.0)
        transform = LabelRR(1.0, num_classes=2)
        one = transform(copy.copy(data))
        two = transform.renew()(copy.copy(data))
        one.y = torch.stack([one.y, two.y], dim=1)
        one.privacy = PrivacyAccountant.merge([one.privacy, two.privacy])
        del one.privacy_budget
        return one


class Twins(BaseTransform):
    """A graph, and one of known content beside it: are they the same?"""
    def forward(self, data):
        known = Data(y=torch.zeros_like(data.y))
        one, two = PrivacyBudget.for_each([data, known], labels=1.0)
        transform = LabelRR(1.0, num_classes=2)
        one, two = transform(one), transform(two)
        one.y = torch.stack([one.y, two.y], dim=1)
        del one.privacy_budget
        return one


@pytest.mark.parametrize('composite, epsilon', [(Twice(), 2.0),
                                                (Twins(), 1.0)])
def test_the_auditor_finds_no_more_than_is_stated(composite, epsilon):
    from torch_geometric_dp.audit import audit
    report = audit(composite, binary(0, 0, 1, 0), binary(1, 0, 1, 0),
                   trials=2000, seed=0, guarantee=Guarantee(
                       epsilon, 'labels', 'replace'))
    report.check()
    assert 0.5 * epsilon < report.lower_bound <= epsilon
