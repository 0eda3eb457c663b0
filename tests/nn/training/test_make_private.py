import contextlib
import copy
import pickle
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import GraphSAGE

from torch_geometric_dp import PrivacyAccountant, PrivacyBudget
from torch_geometric_dp.nn import PrivateTraining, make_private, model_ledger
from torch_geometric_dp.transforms import BoundDegree

pytest.importorskip('dp_accounting')
DEFAULTS = {'epsilon': 4.0, 'delta': 1e-5, 'epochs': 2, 'sample_rate': 0.25,
            'hops': 1, 'max_degree': 2, 'seed': 0}


def sage():
    torch.manual_seed(0)
    return GraphSAGE(3, 4, num_layers=1, out_channels=3)


def start(graph, model=None, **given):
    model = model or sage()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return make_private(model, optimizer, graph, **{**DEFAULTS, **given})


def test_one_call_trains_a_model(graph):
    private = start(graph)
    assert len(private) == 4 and private.steps == 8
    before = [p.clone() for p in private.model.parameters()]
    sizes = []
    for _ in range(3):  # Of which two are paid for.
        for batch in private:
            assert not (~graph.train_mask[batch.nodes]).any()
            sizes.append(len(batch))
            assert private.step(batch) is None
    assert private.steps_taken == 8 and len(sizes) == 8
    assert len(set(sizes)) > 1  # Batches have no fixed size.
    assert all((old != new).any() for old, new in zip(
        before, private.model.parameters()))
    assert private.privacy.epsilon('node') == 4.0
    assert private.privacy.delta('node') == 1e-5
    assert 3.9 < private.epsilon_spent <= 4.0
    assert 'DPSGD(epsilon=4.0' in str(private.privacy)
    assert 'no node has more than 2 edges' in str(private.privacy)
    with pytest.raises(RuntimeError, match='All 8 steps'):
        private.batch()


def test_gradient_is_a_plain_loop_over_examples(graph):
    # Without noise, and with gradients that are clipped, each by itself.
    private = start(graph, max_grad_norm=0.1, num_examples=8)
    unit = private.mechanism.max_grad_norm / private.mechanism.grid_steps
    private.mechanism.release = lambda total, source, step: [
        part * unit for part in total]
    model, clipped = copy.deepcopy(private.model), 0
    batch = next(batch for batch in private if len(batch) > 1)
    total = [torch.zeros_like(p) for p in model.parameters()]
    for v in batch.nodes.tolist():
        model.zero_grad()
        # The whole graph: what is in a subgraph is all that the layer reads.
        out = model(graph.x, graph.edge_index)[v:v + 1]
        F.cross_entropy(out, graph.y[v:v + 1]).backward()
        norm = torch.cat([p.grad.view(-1) for p in model.parameters()]).norm()
        clipped += float(norm) > 0.1
        for known, p in zip(total, model.parameters()):
            known += p.grad * min(1.0, 0.1 / float(norm))
    assert clipped > 0
    private.step(batch)
    for known, p in zip(total, private.model.parameters()):
        assert torch.allclose(p.grad, known / (0.25 * 8), atol=1e-5)


def test_ledger_is_right_at_every_step_and_after_an_early_stop(graph):
    private = start(graph)
    plan, spent = private.privacy, [private.epsilon_spent]
    for batch in private:
        private.step(batch)
        spent.append(private.epsilon_spent)
        assert private.privacy.epsilon('node') == 4.0  # What was paid.
    assert spent[0] == 0.0
    assert all(one < two for one, two in zip(spent, spent[1:]))
    # The same entry at any time, whatever the number of steps.
    both = PrivacyAccountant.merge([plan, private.privacy])
    assert both.epsilon('node') == 4.0
    ledger = private.stop().privacy
    assert ledger.epsilon('node') == spent[-1] < 3.5
    assert ledger.releases[0].parameter('steps') == 4
    assert ledger.epsilon('node', 1e-5, method='pld') <= spent[-1] * 1.01
    assert list(private) == []
    with pytest.raises(RuntimeError, match='was stopped'):
        private.step(batch)


def test_the_model_has_the_ledger_and_two_trainings_add_up(graph):
    model = sage()
    start(graph, model).stop()
    assert model.privacy.epsilon('node') == 0.0  # No step was taken.
    private = start(graph, model, seed=1)
    assert model_ledger(model, graph).epsilon('node') == 4.0
    assert model_ledger(model, graph).public('labels') == []
    start(graph, model, state=private.state_dict(), seed=1)
    assert model.privacy.epsilon('node') == 4.0
    start(graph, model, seed=2)
    assert model.privacy.epsilon('node') == 8.0


def test_each_batch_is_good_for_one_step(graph):
    private = start(graph)
    first = private.batch()
    assert torch.equal(first.nodes, private.batch().nodes)
    private.step(first)
    with pytest.raises(ValueError, match="'batch' must be the one of step 1"):
        private.step(first)


def test_of_two_threads_with_one_batch_one_is_refused(graph, monkeypatch):
    # Both would draw the same noise, for gradients at different weights. Who
    # reads how many steps were taken waits for the other one to do so.
    training = start(graph)
    batch, meet = training.batch(), threading.Barrier(2)
    plain, refused = PrivateTraining.steps_taken.fget, []

    def taken(self):
        out = plain(self)
        with contextlib.suppress(threading.BrokenBarrierError):
            meet.wait(0.2)
        return out

    def step():
        try:
            training.step(batch)
        except ValueError as error:
            refused.append(str(error))

    monkeypatch.setattr(PrivateTraining, 'steps_taken', property(taken))
    threads = [threading.Thread(target=step) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert training.steps_taken == 1 and len(refused) == 1
    assert 'good for one step' in refused[0]


def test_resume(graph):
    private = start(graph, seed=None)
    for batch in private:
        private.step(batch)
    state = pickle.loads(pickle.dumps(private.state_dict()))
    again = start(graph, private.model, state=state, seed=None)
    assert again.steps_taken == 4
    assert again.privacy.releases[0].release_id == (
        private.privacy.releases[0].release_id)
    # Noise and batches are others; the count is one for both.
    assert again._source.digest('') != private._source.digest('')
    again.step(again.batch())
    assert private.steps_taken == again.steps_taken == 5
    # An old state does not bring back steps.
    assert start(graph, private.model, state=state).steps_taken == 5
    again.fit()
    with pytest.raises(RuntimeError, match='All 8 steps'):
        private.batch()
    with pytest.raises(ValueError, match="'state' must be of the same"):
        start(graph, state=state, epsilon=5.0)
    with pytest.raises(ValueError, match='was stopped'):
        start(graph, state=private.stop().state_dict())
    with pytest.raises(TypeError, match='holds the secret'):
        pickle.dumps(private)


def test_training_is_charged_to_the_budget_first(graph):
    budget = PrivacyBudget(node=9.0, delta=1e-3, max_degree=2)
    graph.privacy_budget = budget
    private = start(graph, seed=None)
    assert private.steps_taken == 0
    assert 0 < budget.remaining('node') <= 5.01
    state = private.state_dict()
    resumed = start(graph, state=state, seed=None)
    assert resumed.privacy.releases[0].graph == budget.identity
    left = budget.remaining('node')
    second = start(graph, seed=None)  # Another training, and another noise.
    assert budget.remaining('node') < left
    assert second.privacy.releases[0].release_id != (
        private.privacy.releases[0].release_id)
    with pytest.raises(Exception, match='node'):
        start(graph, seed=None, epsilon=8.0)
    other = copy.copy(graph)
    other.privacy_budget = PrivacyBudget(node=9.0, delta=1e-3, max_degree=2)
    with pytest.raises(ValueError, match="'state' must be of the same"):
        start(other, state=state)


def test_rows_alone_need_no_edges(graph):
    graph.edge_index = None
    private = start(graph, torch.nn.Linear(3, 3), hops=0, max_degree=None)
    private.fit()
    assert private.privacy.epsilon('node') == 4.0
    assert private.privacy.epsilon('edges') == 0.0
    assert not private.model.training


def test_cap_on_degrees(graph):
    hub = torch.stack([torch.zeros(11).long(), torch.arange(1, 12)])
    graph.edge_index = torch.cat([hub, hub.flip(0)], dim=1)
    with pytest.raises(ValueError, match=r"more edges than 2. BoundDegree\(2"):
        start(graph)
    private = start(BoundDegree(2, seed=0)(graph))
    assert 'compared after their degrees were cut' in str(private.privacy)


def test_few_edges_of_a_node_cost_less_than_all(graph):
    all_of_them = start(graph, relation='replace')
    few = start(graph, relation='replace', edges=1)
    assert few.noise_multiplier < all_of_them.noise_multiplier
    assert few.privacy.releases[0].guarantee.edges == 1


def test_what_cannot_be_trained_is_refused(graph, monkeypatch):
    with pytest.raises(ValueError, match='mixes examples'):
        start(graph, GraphSAGE(3, 4, 2, 3, norm='batch_norm'))
    with pytest.raises(ValueError, match="'max_degree' must be given"):
        start(graph, max_degree=None)
    with pytest.raises(ValueError, match="'unit' must be one of"):
        start(graph, unit='edge')
    with pytest.raises(ValueError, match="'optimizer' must have"):
        make_private(sage(), torch.optim.SGD(sage().parameters()), graph,
                     **DEFAULTS)
    for wrong in (HeteroData(), Batch.from_data_list([graph])):
        with pytest.raises(TypeError, match="'data' must be 'Data'"):
            start(wrong)
    for name, value in (('x', None), ('y', None), ('train_mask', graph.y),
                        ('edge_weight', torch.ones(24))):
        broken = copy.copy(graph)
        broken[name] = value
        with pytest.raises(ValueError, match=f"'{name}'"):
            start(broken)
    monkeypatch.setitem(sys.modules, 'dp_accounting.pld', None)
    with pytest.raises(ImportError, match=r'torch_geometric_dp\[accounting\]'):
        start(graph, epsilon=3.99)


def test_empty_batches_and_graphs_without_edges():
    data = Data(x=torch.rand(4, 3), y=torch.zeros(4).long(),
                edge_index=torch.empty(2, 0).long(),
                train_mask=torch.zeros(4).bool())
    private = start(data)
    before = [p.clone() for p in private.model.parameters()]
    private.fit()  # Noise alone.
    assert all((old != new).any() for old, new in zip(
        before, private.model.parameters()))
