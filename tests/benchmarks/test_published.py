import itertools
import math

import pytest
import torch

from benchmarks import published
from torch_geometric_dp.accountant.gaussian import gaussian_delta


def test_an_undirected_edge_changes_two_rows_of_a_sum():
    # GAP and ProGAP, over all graphs with four nodes.
    rows = torch.nn.functional.normalize(torch.randn(
        4, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    pairs = list(itertools.combinations(range(4), 2))
    most = 0.0
    for there in itertools.product((0.0, 1.0), repeat=len(pairs)):
        adjacency = torch.zeros(4, 4)
        for (u, v), edge in zip(pairs, there):
            adjacency[u, v] = adjacency[v, u] = edge
        for u, v in pairs:
            other = adjacency.clone()
            other[u, v] = other[v, u] = 1 - other[u, v]
            most = max(most, float(((adjacency - other) @ rows).norm()))
    assert math.isclose(most, math.sqrt(2), rel_tol=1e-6)
    found = published.undirected(4.0, 1e-7)
    m = published.multiplier(4.0, 1e-7) / most
    assert math.isclose(gaussian_delta(found, m), 1e-7, rel_tol=1e-4)
    assert found > 4.0


def test_random_cut_moves_more_rows_than_the_cap():
    # GAP at the node level, D = 1: five neighbours of a node have one other
    # neighbour each, which hears of them more often once the node is gone.
    def hears(removed):
        kept = [i for i in range(2) if not (removed and i == 0)]
        return sum(i == 1 for i in kept) / len(kept)

    moved = sum(hears(True) != hears(False) for _ in range(5))
    assert moved == 5 > 1


def test_weights_that_were_normalised_in_a_copy():
    # What DPDGC's code does.
    layer = torch.nn.Linear(2708, 64)
    layer.state_dict()['weight'] = torch.zeros(64, 2708)
    norms = layer.weight.norm(dim=0)
    assert torch.allclose(norms.mean(), torch.tensor(
        math.sqrt(64 / 3 / 2708)), rtol=0.02)
    assert published.without_norms(16.0, 1e-4, 2708) > 1e10


def test_both_ends_report():
    # Blink: all outcomes of both entries, for an edge that is there or not.
    epsilon = 0.7
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))

    def chance(edge, out):
        return math.prod(keep if bit == edge else 1 - keep for bit in out)

    worst = max(abs(math.log(chance(1, out) / chance(0, out)))
                for out in itertools.product((0, 1), repeat=2))
    assert math.isclose(worst, published.both_ends(epsilon))


def _rows(columns):
    return list(itertools.product((0, 1), repeat=columns))


def _worst(law, columns):
    laws = [law(row) for row in _rows(columns)]
    return max(math.log(a[out] / b[out]) for a in laws for b in laws
               for out in a)


def test_chosen_columns_of_rgnn():
    columns, chosen, epsilon = 3, 2, 0.8
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))

    def law(row):
        out = dict.fromkeys(_rows(columns), 0.0)
        subsets = list(itertools.combinations(range(columns), chosen))
        for some, sent in itertools.product(subsets, out):
            out[sent] += math.prod(
                (keep if sent[i] == row[i] else 1 - keep) if i in some else 0.5
                for i in range(columns)) / len(subsets)
        return out

    # For rows that differ everywhere, which columns were chosen is no cover.
    assert math.isclose(_worst(law, columns),
                        published.chosen_columns(epsilon, chosen))
    assert published.claimed_for_columns(0.1, 10, 58) < 1.0


def test_multi_bit_of_lpgnn_is_epsilon_for_a_row():
    columns, chosen, epsilon = 3, 2, 1.3
    high = math.exp(epsilon / chosen)

    def law(row):
        subsets = list(itertools.combinations(range(columns), chosen))
        out = {}
        for some in subsets:
            for bits in itertools.product((-1, 1), repeat=chosen):
                sent = [0] * columns
                chance = 1 / len(subsets)
                for i, bit in zip(some, bits):
                    sent[i] = bit
                    up = (row[i] * (high - 1) + 1) / (high + 1)
                    chance *= up if bit == 1 else 1 - up
                out[tuple(sent)] = chance
        return out

    assert math.isclose(_worst(law, columns), epsilon)


@pytest.mark.parametrize('n', [6, 9])
def test_sensitivity_of_a_dendrogram(n):
    # The largest change of N chi(e / N), over all sizes and counts.
    def term(e, size):
        return sum(k * math.log(k / size) for k in (e, size - e) if k)

    most = max(abs(term(e, size) - term(e - 1, size))
               for size in range(1, n**2 // 4 + 1)
               for e in range(1, size + 1))
    printed = published._printed(n)
    assert most > printed
    assert math.isclose(published.dendrogram(0.5, n), most / printed)


def test_table():
    found = published.rows()
    text = published.markdown(found)
    for system in ('GAP', 'ProGAP', 'DPDGC', 'LPGNN', 'Blink', 'NIP-GNN',
                   'RGNN', 'HeteroRR'):
        assert any(row.system.startswith(system) for row in found)
    for row in found:
        assert row.epsilon >= row.stated
        assert row.source and row.sums and row.verified and row.code
        assert row.unit in published.UNITS
    assert text.count('**[') == len(found)
    assert 'left out' in text and 'none is proven' in text
    rgnn = [row for row in found if row.system == 'RGNN'
            and row.unit == published.PERSON]
    assert [row.epsilon for row in rgnn] == [13.0, 4.0, 10.5]
