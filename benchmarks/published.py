r"""What others have published, on one axis: the epsilon of each system in the
units of our ledger, with the arithmetic.

    python -m benchmarks.published

writes published.md into the folder --out. No number here was measured by us.
Accuracies are those of the authors, from where `source` says; where no source
at hand states one, there is none. Code was read to learn what is added, and
none of it was copied.

The units: one undirected edge that is there or not; the row of features, or the
label, of one node, replaced; one node, whose row and label are replaced, with
some or all of its edges.
"""
import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gap import multiplier
from torch_geometric_dp.accountant.gaussian import gaussian_loss
from torch_geometric_dp.hrg.likelihood import sensitivity

EDGE, FEW, NODE, ROW, LABEL, PERSON = (
    'edge', 'node with one of its edges', 'node with all edges', 'row',
    'label', 'row and label')
UNITS = (EDGE, FEW, NODE, ROW, LABEL, PERSON)


def gaussian_ratio(epsilon, delta, ratio):
    """The epsilon of Gaussian noise that was scaled for `epsilon`, if the
    sensitivity is `ratio` times what it was scaled to.
    """
    return gaussian_loss(multiplier(epsilon, delta) / ratio, delta)


def undirected(epsilon, delta):
    """One undirected edge, where each direction was counted for itself: two
    rows of a sum change by at most 1 each, so that the L2 sensitivity is the
    square root of 2, and not 1. The composition over hops is exact, so that it
    does not matter how many there were.
    """
    return gaussian_ratio(epsilon, delta, math.sqrt(2))


def both_ends(epsilon):
    """Randomized response, and Laplace noise on degrees, by both ends of an
    edge, independently: losses add up.
    """
    return 2 * epsilon


def chosen_columns(epsilon, chosen):
    """Generalised randomized response of some columns of a row, each with
    epsilon: two rows that differ everywhere.
    """
    return chosen * epsilon


def claimed_for_columns(epsilon, chosen, columns):
    """RGNN's Theorem 1, which holds for no whole row."""
    return math.log1p(chosen / columns * math.expm1(chosen * epsilon))


def dendrogram(epsilon, num_nodes):
    """An exponential mechanism that was given epsilon over the printed
    sensitivity of Lemma 4, in place of epsilon over twice the true one.
    """
    most = num_nodes**2 // 4
    printed = math.log(most) + math.log1p(1 / (most - 1))
    return 2 * epsilon * sensitivity(num_nodes) / printed


def without_norms(epsilon, delta, num_nodes, width=64, norm=1e-8):
    """DPDGC's embedding, as its code adds the noise: for rows of the norm
    `norm`, where they have the norm that they were initialised with. Uniform
    entries up to 1 / sqrt(num_nodes) make it sqrt(width / (3 num_nodes)).
    One undirected edge changes two rows; the whole of epsilon is granted to
    this part. The mean of the loss, 1 / (2 m^2), is below every epsilon of it.
    """
    true = math.sqrt(2 * width / (3 * num_nodes))
    m = multiplier(epsilon, delta) * norm / true
    return 1 / (2 * m * m)


@dataclass(frozen=True)
class Row:
    """A published number, and what its epsilon is in a unit of ours."""
    system: str
    graph: str
    number: str        # As published; '' if no source at hand states it.
    source: str
    stated: float
    delta: str
    claim: str         # Unit and relation, as stated.
    code: str          # What the code, or the equations, really add.
    unit: str          # Ours.
    epsilon: float     # In our unit; infinite if nothing is proven.
    sums: str          # The arithmetic.
    verified: str      # What was read: equations or code.


def _gap(system, graph, number, source, stated, delta, rule, where):
    new = undirected(stated, delta)
    m = multiplier(stated, delta)
    return Row(
        system, graph, number, source, stated, f'{delta:g}',
        'edge; added or removed, each direction for itself',
        'Gaussian noise on sums of rows of norm 1 over an adjacency with both '
        'directions; sensitivity 1', EDGE, new,
        f'noise {m:.3f}; an undirected edge has sensitivity sqrt 2, so the '
        f'multiplier is {m:.3f} / 1.414 = {m / math.sqrt(2):.3f}, and the '
        f'exact loss at a delta of {delta:g} is {new:.2f}. Delta is {rule}',
        where)


_DIGITS = ('10 to the minus number of digits of the number of edges, both '
           'directions, by the code; ')
_SEVEN = (_DIGITS + 'that there are seven is not verified, and makes little '
          'difference: 1e-8 to 1e-6 give 5.86 to 5.93')
_SIX = _DIGITS + 'six, as our copy of the graph has 341,646'
_GAP_CODE = ('code: sisaman/GAP, gap_edp.py (sensitivity=1), composed.py '
             '(exact Gaussian composition), facebook.py (both directions)')
_PROGAP_CODE = ('code: sisaman/ProGAP, methods/progap/edge.py '
                '(sensitivity=1); its data has both directions, as in GAP')
_GAP_TABLE = "the authors' table, README.md of sisaman/ProGAP"
_PROGAP_TABLE = ("the authors' notebook, results.ipynb of sisaman/ProGAP at "
                 "c0463ad; the printed table may differ")
_CUT = ('Gaussian noise of sqrt(D) times the multiplier on sums, after each '
        'node was left at most D random out-edges, and DP-SGD')
_CUT_SUMS = ('removing a node lets each of its neighbours keep another edge in '
             'its place: as many rows change as the node had neighbours, not '
             'D; no stability of the cut is proven, so no epsilon is')
_NIP_SUMS = ('the scales of Eq. 11 are functions of private degrees and ranks, '
             'so they tell of them by themselves; and the bound 2 D is that of '
             'a node added or removed: replaced, 4 D, which would double the '
             'epsilon if the scales were public')


def rows():
    """All rows, in the order of systems."""
    out = [
        _gap('GAP', 'Facebook (UIllinois20)', '76.3', _GAP_TABLE, 4.0, 1e-7,
             _SEVEN, _GAP_CODE),
        Row('GAP', 'Facebook (UIllinois20)', '63.2', _GAP_TABLE, 8.0,
            'by the number of training nodes',
            'node; added or removed, degree cut to D', _CUT, NODE, math.inf,
            _CUT_SUMS, 'code: sisaman/GAP, gap_ndp.py, bound_degree.py. That '
            'the published bound does not hold is also said in '
            'arXiv:2311.06888, which was not read'),
        _gap('ProGAP', 'Facebook (UIllinois20)', '82.5', _PROGAP_TABLE, 4.0,
             1e-7, _SEVEN, _PROGAP_CODE),
        _gap('ProGAP', 'Facebook pages', '84.2', _PROGAP_TABLE, 4.0, 1e-6,
             _SIX, _PROGAP_CODE),
        Row('ProGAP', 'Facebook (UIllinois20)', '68.4', _PROGAP_TABLE, 8.0,
            'as GAP', 'node; added or removed, degree cut to D', _CUT, NODE,
            math.inf, _CUT_SUMS, 'code: sisaman/ProGAP, '
            'methods/progap/node.py; the cut is that of GAP'),
    ]
    n = 2708
    found = without_norms(16.0, 1e-4, n)
    out += [
        Row('DPDGC', 'Cora', '', 'its own numbers are in a figure of its '
            'repository, which cannot be read as text', 16.0, '1e-4',
            'node replaced, with k = 1 of its edges',
            'noise of 1e-8 sqrt(k) times the multiplier on A W, for rows of W '
            'of norm 1e-8. But the code normalises a copy: it assigns to '
            'state_dict()["weight"], which leaves the weight as it is', FEW,
            found,
            f'W starts with entries uniform up to 1 / sqrt(n): for n = {n:,} '
            f'and 64 columns, rows of norm {math.sqrt(64 / 3 / n):.3f}, not '
            f'1e-8, and nothing brings them there; one undirected edge changes '
            f'two rows; '
            f'with all of epsilon granted to this part, more than 1 / (2 m^2) '
            f'= {found:.1g}: no protection. (Besides, W is trained with noise '
            f'for 2 sqrt(k + 1), where k + 1 gradients change, by 2 each, and '
            f'may point the same way: 2 (k + 1). `benchmarks/dpdgc.py` has '
            f'noise that holds)', 'code: '
            'thupchnsky/dp-gnn, dpdgc_kndp.py, em.py, '
            'train_scripts/real/DPDGC-kneighbor.sh (--norm-scale 1e-8); read, '
            'not run'),
        Row('DPDGC', 'Cora', '40.71', 'Table 1 of NIP-GNN, run by its authors',
            4.0, 'not stated', 'node',
            'as above, if they ran the public code (not verified)', NODE,
            math.inf, 'as above', 'not verified'),
        Row('LPGNN', 'Cora', '68.5', 'Table 1 of RGNN, run by its authors, '
            'at epsilon_x = 0.1', 0.1, '0',
            'row of a node, local', 'm columns are sent as one bit each with '
            'epsilon / m, the others not at all. Bounds are the lowest and '
            'the highest entry of the private features', ROW, 0.1,
            'm (epsilon / m) = epsilon for a whole row, whatever m is, if the '
            'bounds are public. (If RGNN\'s authors gave 0.1 to each of m '
            'columns, it is m times as much: not verified)',
            "code: MultiBit of LPGNN as published copies of it have it, and "
            "transforms.py of sisaman/LPGNN (min and max); proof: "
            "torch_geometric_dp/mechanisms/multi_bit.py"),
    ]
    for stated, number in ((4.0, '79.0'), (6.0, '86.4'), (8.0, '86.5')):
        new = both_ends(stated)
        out.append(Row(
            'Blink (hybrid, GCN)', 'Cora', number,
            "the authors' results.json, zhxchd/Blink_GNN (without edges: "
            "71.0)", stated, '0', 'one entry of an adjacency list, local',
            'each end flips its own entry with epsilon_a, and adds Laplace '
            'noise of 1 / epsilon_d to its own degree', EDGE, new,
            f'both ends report an undirected edge: 2 epsilon_a + 2 epsilon_d '
            f'= 2 x {stated:g} = {new:g}', 'code: zhxchd/Blink_GNN, '
            'src/blink/client.py (all n x n entries are flipped '
            'independently)'))
    for stated, number in ((4.0, '53.21'), (12.0, '83.5')):
        out.append(Row(
            'NIP-GNN', 'Cora', number, f"its Table {1 if stated == 4 else 3}",
            stated, '0', 'node; added or removed',
            'Laplace noise of 2 D over epsilon_A times a weight of its own for '
            'each node', NODE, math.inf, _NIP_SUMS,
            'equations: Eq. 9 to 11, Lemma 1, Theorem 3; no public code '
            'found'))
    for ex, ey, number in ((1.0, 3.0, '77.8'), (0.1, 3.0, '77.0'),
                           (1.0, 0.5, '41.9')):
        chosen, columns = 10, 58
        x = chosen_columns(ex, chosen)
        claim = claimed_for_columns(ex, chosen, columns)
        out.append(Row(
            'RGNN', 'Cora', number, 'its Table 1', claim + ey, '0',
            f'row and label, local; epsilon_x = {ex:g} for each of '
            f'{chosen} chosen columns of {columns}, epsilon_y = {ey:g}',
            'the chosen columns by randomized response, the others uniform. '
            'The domain size of column i is read off row i of the private '
            'features', PERSON, x + ey,
            f'{chosen} x {ex:g} + {ey:g} = {x + ey:g}, for two rows that '
            f'differ everywhere. Claimed for the row: ln(1 + {chosen}/'
            f'{columns} (e^{x:g} - 1)) = {claim:.2f}', 'equations: Theorem 1; '
            'code: karuna-bhaila/RGNN, perturb.py'))
    out += [
        Row('RGNN', 'Cora', '77.8', 'its Table 1', 3.0, '0', 'label, local',
            'randomized response over all classes', LABEL, 3.0,
            'exact', 'equations, and code: perturb.py'),
        Row('HeteroRR (FeatureRR)', 'FLICKR-MIR', '', 'figures only', 1.0, '0',
            'row, local', 'truncated two-sided geometric noise on bins, '
            'epsilon split by public scores', ROW, 1.0, 'the shares add up '
            'to epsilon_f: exact, if the scores come from public data',
            'equations: Alg. 1; checked exactly in our tests; no public code '
            'found'),
    ]
    edges = dendrogram(0.5, 1000) + 0.5
    out.append(Row(
        'HeteroRR (EdgeRR)', 'FLICKR-MIR', 'LinkTeller 0.52 to 0.54 (ROC-AUC)',
        'its text; accuracies are in figures', 1.0, '0',
        'one private edge', 'an alternating chain with the printed '
        'sensitivity, then Laplace noise of 1 / epsilon_2 on counts', EDGE,
        math.inf, f'the alternating chain has no known stationary law. If it '
        f'were one exponential mechanism, epsilon_1 = epsilon_2 = 0.5 on 1,000 '
        f'nodes would be 2 x 0.5 x {sensitivity(1000):.2f} / '
        f'{_printed(1000):.2f} + 0.5 = {edges:.2f}',
        'equations: Eq. 14 and 15, Alg. 2 and 3; no public code found'))
    return out


def _printed(num_nodes):
    most = num_nodes**2 // 4
    return math.log(most) + math.log1p(1 / (most - 1))


def words(epsilon):
    """An epsilon for a cell."""
    if math.isinf(epsilon):
        return 'none is proven'
    return (f'more than {epsilon:.0e}' if epsilon > 1e4 else
            f'{epsilon:.4g}')


def table(head, lines):
    text = ['| ' + ' | '.join(head) + ' |', '|---' * len(head) + '|']
    text += ['| ' + ' | '.join(line) + ' |' for line in lines]
    return '\n'.join(text) + '\n\n'


def markdown(found):
    """A table for each unit, by epsilon, and the arithmetic below."""
    text = ('# Published results, one axis\n\nWhat others have published, with '
            'their epsilon in the units of our ledger. None of it was measured '
            'here. Made by `python -m benchmarks.published`, whose functions '
            'do the arithmetic; numbers in brackets lead to it. Accuracies in '
            'percent, as in the source; a number that no source at hand states '
            'is left out. Where the units are not the same, epsilons do not '
            'compare: an edge is not a person.\n\n')
    numbers = {id(row): i for i, row in enumerate(found, 1)}
    for unit in UNITS:
        part = sorted((row for row in found if row.unit == unit),
                      key=lambda row: row.epsilon)
        if not part:
            continue
        text += f'## One {unit}\n\n' + table(
            ['', 'graph', 'published', 'stated epsilon', 'delta',
             'epsilon in our unit'],
            [[f'{row.system} [{numbers[id(row)]}]', row.graph,
              row.number or 'left out', f'{row.stated:.4g}', row.delta,
              f'**{words(row.epsilon)}**'] for row in part])
    text += '## The arithmetic\n\n'
    for i, row in enumerate(found, 1):
        text += (f'**[{i}] {row.system}, {row.graph}.** Claim: {row.claim}. '
                 f'Added: {row.code}. In our unit (one {row.unit}): '
                 f'{row.sums}. Read: {row.verified}. Number: '
                 f'{row.source}.\n\n')
    return text


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=Path, default=Path('benchmarks/results'))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    text = markdown(rows())
    (args.out / 'published.md').write_text(text)
    print(text)


if __name__ == '__main__':
    main()
