"""Every goal that was set, and the stored number that answers it.

Speed and memory are rows of a suite; accuracies and audits are in the tables'
own files; a proof by brute force is a test. What a goal needs and does not find
is said in the table, and is an error of the command that makes it: a table with
holes looks better than it is.
"""
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.harness import Growth, Row

ROOT = Path(__file__).parents[1]


class MissingResult(LookupError):
    """A goal cannot be judged: what it needs is not stored."""


@dataclass(frozen=True)
class Stored:
    """All that was measured: suites, and the folder with the tables."""
    suites: dict
    folder: Path = ROOT / 'benchmarks' / 'results'

    def rows(self, suite, task, name='', against='', kind=object):
        """All rows whose task, name and peer have these words in them."""
        if suite not in self.suites:
            raise MissingResult(f"the suite '{suite}' is not stored: run "
                                f"python -m benchmarks {suite}")
        found = [row for row in self.suites[suite].rows
                 if re.search(task, row.task) and re.search(name, row.name)
                 and re.search(against, getattr(row, 'against', ''))
                 and isinstance(row, kind)]
        if not found:
            raise MissingResult(f"the suite '{suite}' has no row for "
                                f"'{task}', '{name}' and '{against}'")
        return found

    def table(self, name):
        path = self.folder / name
        if not path.exists():
            raise MissingResult(f"'{name}' is not stored in {self.folder}")
        return path.read_text()

    @cached_property
    def _json(self):
        return {}

    def cell(self, file, key):
        """What is stored of a cell, for each seed."""
        values = self._json.setdefault(file, json.loads(self.table(file)))
        if key not in values:
            raise MissingResult(f"'{file}' has no cell '{key}'")
        return values[key]

    def mean(self, file, key, column=None):
        """The mean of a cell over its seeds, in percent, or nothing where a
        cell was too large to run.
        """
        found = [value if column is None else value and value[column]
                 for value in self.cell(file, key)]
        return None if found[0] is None else 100 * float(np.mean(found))


@dataclass(frozen=True)
class Answer:
    found: str
    met: bool | None


@dataclass(frozen=True)
class Goal:
    """What was asked, of what, and how it is answered; and the reason in a few
    words, where it is known why it is missed.
    """
    part: str
    asked: str
    answer: Callable[[Stored], Answer]
    reason: str = 'no reason is known'


def measured(suite, task, name='', against='', kind=object):
    """All rows that fit have a goal, and meet it; the worst is shown."""
    def answer(stored):
        rows = [row for row in stored.rows(suite, task, name, against, kind)
                if row.met is not None]
        if not rows:
            raise MissingResult(f"the suite '{suite}' has no goal for "
                                f"'{task}', '{name}' and '{against}'")
        return Answer('; '.join(dict.fromkeys(map(shown, rows))),
                      all(row.met for row in rows))
    return answer


def shown(row):
    if isinstance(row, Row):
        return f'{row.ratio:.3g} [{row.low:.3g}, {row.high:.3g}]'
    if isinstance(row, Growth):
        return f'{row.value:.3f} [{row.low:.3f}, {row.high:.3f}]'
    return f'{row.value:,.5g} {row.unit}'.strip()


def growth(suite, task):
    """Exponents, with those of the limit behind ours."""
    def answer(stored):
        rows = stored.rows(suite, f'{task}.*time against', kind=Growth)
        if all(row.met is None for row in rows):
            raise MissingResult(f"the suite '{suite}' has no goal for the "
                                f"growth of '{task}'")
        return Answer('; '.join(
            shown(row) if row.met is not None else f'limit {row.value:.3f}'
            for row in rows), all(row.met is not False for row in rows))
    return answer


def flat(stored):
    """FeatureRR's ratio at each number of bins, all of them to the same draws
    of torch.rand.
    """
    ratios = [row.ratio for row in stored.rows(
        'features', r'^features, \d+ bins$', 'FeatureRR', 'torch.rand', Row)]
    return Answer(', '.join(f'{ratio:.2f}' for ratio in ratios),
                  max(ratios) <= 1.3 * min(ratios))


def peers(suite, task, *names):
    """The ratios to peers by name, which need only be there."""
    def answer(stored):
        found = [(name, stored.rows(suite, task, '', re.escape(name)))
                 for name in names]
        return Answer(', '.join(
            f'{name} ' + ' to '.join(dict.fromkeys(
                f'{edge([row.ratio for row in rows]):,.3g}'
                for edge in (min, max))) for name, rows in found), True)
    return answer


def in_tests(*names):
    """Tests, which hold in every run of them; `file::function`."""
    def answer(stored):
        for name in names:
            file, function = name.split('::')
            path = ROOT / 'tests' / file
            if not path.exists() or not re.search(
                    rf'^def {function}\(', path.read_text(), re.MULTILINE):
                raise MissingResult(f"there is no test '{name}'")
        return Answer('in the tests: ' + ', '.join(
            f'`{name}`' for name in names), True)
    return answer


def heterogeneous(stored):
    leads = {(graph, epsilon): stored.mean(
        'features.json', f'{graph}|FeatureRR, importance|{epsilon}') -
        stored.mean('features.json',
                    f'{graph}|FeatureRR, homogeneous|{epsilon}')
        for graph in ('digits', 'cora') for epsilon in (4, 16, 32, 64, 128)}
    return Answer('; '.join(
        f'{graph} ' + ', '.join(f'{lead:+.1f}' for (of, _), lead
                                in leads.items() if of == graph)
        for graph in ('digits', 'cora')), min(leads.values()) > 0)


GRAPHS, SHARES = ('digits', 'cora', 'pubmed'), (0.3, 0.6, 1.0)


def edge_accuracy(stored, graph, name, share, epsilon=1.0):
    if name == 'public edges only':
        epsilon = None
    if name == 'privHRG':
        share = None
    return stored.mean('edges.json', str((graph, name, share, epsilon)), 0)


def edge_rr(*rivals):
    """EdgeRR's lead over the best of others at epsilon = 1, over shares."""
    def answer(stored):
        text, worst = [], np.inf
        for graph in GRAPHS:
            leads = []
            for share in SHARES:
                best = max(value for rival in rivals if (
                    value := edge_accuracy(stored, graph, rival, share))
                    is not None)
                leads.append(edge_accuracy(stored, graph, 'EdgeRR', share) -
                             best)
            text.append(f'{graph} ' + ', '.join(f'{x:+.1f}' for x in leads))
            worst = min(worst, *leads)
        return Answer('; '.join(text), worst > 0)
    return answer


def which_to_use(stored):
    names = ('EdgeRR', 'EdgeRand', 'LapGraph', 'DegreePreservingRR', 'NAP')
    cells = [edge_accuracy(stored, graph, name, 0.6, epsilon)
             for graph in GRAPHS for name in names
             for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0)]
    large = sum(cell is None for cell in cells)
    return Answer(f'{len(cells)} cells, {large} of which have too many edges '
                  f'to train on', True)


def table_1(stored):
    found = re.search(r'is ahead in (\d+) of (\d+) cells',
                      stored.table('rgnn.md'))
    if found is None:
        raise MissingResult("'rgnn.md' does not say in how many cells")
    ahead, cells = map(int, found.groups())
    return Answer(f'{ahead} of {cells} cells', ahead == cells == 48)


def node_level(stored):
    goals = {'cora': 70, 'citeseer': 70, 'facebook': 75}
    found = {graph: stored.mean('nip.json', f'{graph}|ClassSumClassifier|4')
             for graph in goals}
    return Answer(', '.join(f'{graph} {value:.1f}%'
                            for graph, value in found.items()),
                  all(found[graph] >= goals[graph] for graph in goals))


def audit_rows(stored, title):
    """The cells of a table in the audit's report."""
    text = stored.table('audit.md')
    if title not in text:
        raise MissingResult(f"'audit.md' has no part '{title}'")
    part = text.split(title)[1].split('\n## ')[0]
    rows = [[cell.strip() for cell in line.strip('|').split('|')]
            for line in part.splitlines() if line.startswith('| ')]
    head, *rest = rows
    return [dict(zip(head, row)) | {'last': row[-1]} for row in rest]


def caught(stored):
    rows = audit_rows(stored, '## Promises that are broken')
    hits = [row for row in rows if row['last'] == 'caught']
    slowest = max(float(row['seconds']) for row in rows)
    return Answer(f'{len(hits)} of {len(rows)} caught, at most {slowest:.1f} '
                  f's each', len(hits) == len(rows) and slowest < 120)


def accused(stored):
    rows = audit_rows(stored, '## Promises that are kept')
    number = sum(int(row['accused']) for row in rows)
    runs = min(int(row['runs']) for row in rows)
    return Answer(f'{number} of {len(rows)} mechanisms in {runs} runs each',
                  number == 0 and runs >= 200)


def exact(stored):
    rows = [row for row in audit_rows(stored, '## Promises that are kept')
            if row['exact'] != 'not listed']
    shares = [float(row['exact']) / float(row['claimed']) for row in rows]
    used = sum(share > 1 - 1e-5 for share in shares)
    return Answer(f'{len(rows)} mechanisms, {used} of which use it up, and the '
                  f'rest {min(shares):.3f} of it at the least',
                  max(shares) <= 1)


def link_teller(stored, graph, served, share, epsilon=None):
    """The AUC, on pairs of which the private ones are to be found."""
    return stored.mean(f'links_{graph}.json', str((served, share, epsilon)),
                       'AUC') / 100


def links_found(stored):
    found = {graph: link_teller(stored, graph, 'all edges', 1.0)
             for graph in ('cora', 'digits')}
    return Answer(', '.join(f'{graph} {auc:.3f}'
                            for graph, auc in found.items()),
                  min(found.values()) >= 0.9)


def links_hidden(stored):
    """What EdgeRR leaves, for all epsilons; without public edges, the paper's
    0.54 at the most.
    """
    text, worst = [], 0.0
    for graph in ('cora', 'digits'):
        for share in (1.0, 0.3):
            found = [link_teller(stored, graph, 'EdgeRR', share, epsilon)
                     for epsilon in (0.1, 0.25, 0.5, 1.0)]
            words = f'{graph}, {share:.0%} private: {min(found):.3f} to ' \
                    f'{max(found):.3f}'
            if share == 1.0:
                worst = max(worst, *found)
            else:
                seen = link_teller(stored, graph, 'public edges only', share)
                words += f' (who saw no private edge: {seen:.3f})'
            text.append(words)
    return Answer('; '.join(text), worst <= 0.54)


def members_found(stored):
    def found(method):
        return [stored.mean('members.json', f'{graph}|{method}',
                            'one|balanced accuracy')
                for graph in ('cora', 'citeseer')]

    names = ('MLP, overfitted', 'NIP-GNN', 'DP-MLP', 'GAP-style',
             'ClassSumClassifier')
    return Answer('; '.join(
        name + ' ' + ', '.join(f'{value:.1f}%' for value in found(name))
        for name in names), min(found(names[0])) >= 80)


def pictures(stored):
    """Mean squared errors; only that they are there."""
    found = []
    for epsilon in ('1', '8', '64', 'inf'):
        cell = stored.cell('pictures.json', f'{epsilon}|released rows|0.5')
        found.append(np.mean([one['numbers']['mean squared error']
                              for one in cell]))
    return Answer(', '.join(f'{error:.4f}' for error in found), True)


def diagnostic(stored):
    """Chains that start far apart, and random starts with public edges, where
    the log-likelihood still rises.
    """
    rows = stored.rows('hrg', 'two METIS, two random|public edges, random',
                       'split R-hat')
    seen = sum(row.unit == '(warned)' for row in rows)
    return Answer(f'R-hat {min(row.value for row in rows):.2g} to '
                  f'{max(row.value for row in rows):.0f}, warned in {seen} of '
                  f'{len(rows)}', seen == len(rows))


def at_scale(stored):
    rows = stored.rows('edges', '1,000,000 nodes and 10,000,000 edges',
                       'memory')
    return Answer(', '.join(f"{row.task.split(',')[0]} {row.value:.2g}"
                            for row in rows), True)


NOISE, FEATURES, EDGES = 'Secure noise, labels', 'FeatureRR', 'EdgeRR'
RGNN, NIP, AUDIT, SCALE = 'GRRFS, RGNN', 'NAP, nodes', 'Audit', 'Scale'
BAD_INPUT = 'bad input: refused by name, and nothing is released'
MEMORY = 'memory; the limit says how much of it'
GOALS = (
    Goal(NOISE, '64-bit words: at least 1.5 times the speed of numpy and of '
         'torch.rand, in blocks and as one array', measured(
             'noise', '64-bit words'),
         'the first touch of new memory costs all of them the same, and '
         'is up to a third of our time'),
    Goal(NOISE, 'a label: at least 0.5 times the speed of one of numpy\'s '
         'integers (2, 7, 40 classes; LabelRR on a graph)', measured(
             'labels', 'classes', against='one integer')),
    Goal(NOISE, '10^8 labels with at most 1,024 MiB beyond input and output',
         measured('labels', '^100,000,000 labels', 'memory')),
    Goal(NOISE, 'LabelRR: the stated epsilon to 1e-12, from the integers; 10^6 '
         'draws by a chi-square test', in_tests(
             'mechanisms/test_randomized_response.py::test_exact_epsilon',
             'mechanisms/test_randomized_response.py::test_draws')),
    Goal(NOISE, 'one release over epochs and workers; an overdraft is refused '
         'before noise is drawn', in_tests(
             'transforms/test_private_transform.py::'
             'test_one_release_over_epochs_and_workers',
             'transforms/test_private_transform.py::'
             'test_a_second_release_is_refused_before_it_draws')),
    Goal(NOISE, BAD_INPUT, in_tests(
        'transforms/test_label_rr.py::test_bad_input_is_refused_by_name',
        'transforms/test_label_rr.py::test_bad_epsilon')),
    Goal(FEATURES, 'no mechanism that can be listed has more than the stated '
         'epsilon', exact),
    Goal(FEATURES, '... and FeatureRR and its family have it to 1e-9 '
         '(DuchiMulti with an even number of columns to 1e-6)', in_tests(
             *(f'mechanisms/test_{name}.py::test_exact_epsilon' for name in (
                 'feature_rr', 'duchi', 'duchi_multi', 'three_outputs',
                 'hybrid', 'multi_bit')))),
    Goal(FEATURES, 'continuous ones: the ratio stays under e^epsilon on the '
         'grid, and reaches it', in_tests(
             'mechanisms/test_piecewise.py::test_exact_epsilon',
             'mechanisms/test_laplace.py::test_exact_epsilon')),
    Goal(FEATURES, 'importances beat an equal split at epsilon 4, 16, 32, 64, '
         '128 (points of accuracy)', heterogeneous,
         'at 4, features are hardly more than noise'),
    Goal(FEATURES, '100,000 x 512 cells: at least 0.25 times the speed of '
         'torch.rand for 4, 16, 256, 4,096 bins, in one thread',
         measured('features', r'^features, \d+ bins$', against='torch.rand')),
    Goal(FEATURES, 'flat in the number of bins (within 30%)', flat,
         'the tables of 4,096 bins leave the fastest cache'),
    Goal(FEATURES, 'at most one block beyond input and output (32 MiB with all '
         'around it)', measured('features', 'features$', 'memory')),
    Goal(FEATURES, 'beside a direct multinomial, and all packages that have '
         'the like', peers('features', '', 'torch.multinomial', 'diffprivlib',
                           'multi-freq-ldpy', 'pure-ldp', 'opendp')),
    Goal(FEATURES, BAD_INPUT, in_tests(
        'transforms/test_feature_rr.py::test_bad_input_leaves_the_ledger_alone',
        'transforms/test_feature_rr.py::test_bad_arguments',
        'explain/test_hetero_scores.py::test_bad_scores')),
    Goal(EDGES, 'brute force over all graphs with 5 nodes; the chain within '
         '0.02 of the exact law', in_tests(
             'hrg/test_likelihood.py::test_a_draw_is_private',
             'hrg/test_release.py::test_exact_epsilon_of_the_counts',
             'hrg/test_chain.py::test_the_law_of_the_chain')),
    Goal(EDGES, 'counts and log-likelihood equal a recount after 10^6 accepted '
         'moves', in_tests(
             'hrg/test_chain.py::test_what_is_kept_is_what_is_counted')),
    Goal(EDGES, 'above public edges only at epsilon 1, private share 0.3, 0.6, '
         '1 (points of accuracy)', edge_rr('public edges only'),
         'what an edge tells at epsilon 1, the public ones tell, too'),
    Goal(EDGES, 'above EdgeRand, LapGraph and privHRG there, where they can be '
         'trained on', edge_rr('EdgeRand', 'LapGraph', 'privHRG')),
    Goal(EDGES, 'a fit at least as good as igraph\'s `fit_hrg` (Cora and a '
         'planted hierarchy)', measured(
             'hrg', r'METIS and 100,000 steps', 'log-likelihood')),
    Goal(EDGES, '... in a fiftieth of its time', measured(
        'hrg', ', a fit', against='fit_hrg')),
    Goal(EDGES, 'Cora: above -15,600 ...', measured(
        'hrg', r'^Cora, METIS and 5,000,000 steps', 'log-likelihood')),
    Goal(EDGES, '... in 2 s', measured(
        'hrg', r'^Cora, METIS and 5,000,000 steps', 'takes')),
    Goal(EDGES, 'steps: at least 150 times as many as `fit_hrg` on Cora',
         measured('hrg', '^Cora, 1,000,000 steps', against='fit_hrg')),
    Goal(EDGES, 'chains that have not converged are seen to', diagnostic),
    Goal(EDGES, 'EdgeRR on 100,000 nodes and 10^6 edges in 2,048 MiB',
         measured('edges', '^EdgeRR, 100,000 nodes', 'memory')),
    Goal(EDGES, 'EdgeRand faster than an N x N matrix on Cora, epsilon 1 and 6',
         measured('edges', '^EdgeRand, Cora', against='N x N')),
    Goal(EDGES, '... and so LapGraph',
         measured('edges', '^LapGraph, Cora', against='N x N')),
    Goal(EDGES, BAD_INPUT, in_tests(
        'transforms/test_edge_transform.py::test_bad_input_is_refused_by_name',
        'transforms/test_edge_rr.py::test_bad_input_costs_nothing')),
    Goal(RGNN, 'brute force: epsilon of a row and of an attribute', in_tests(
        'mechanisms/test_grrfs.py::test_exact_epsilon_of_a_row',
        'mechanisms/test_grrfs.py::test_exact_epsilon_of_an_attribute')),
    Goal(RGNN, 'estimates without bias, with the variance of Eq. 3', in_tests(
        'mechanisms/test_frequency.py::'
        'test_unbiased_with_the_variance_of_equation_3',
        'mechanisms/test_frequency.py::test_more_columns_than_users')),
    Goal(RGNN, 'all 48 cells of Table 1 above published RGNN, published LPGNN '
         'and feature-free', table_1,
         'within the intervals of Cora at 0.5 and Student at 1'),
    Goal(RGNN, 'GRRFS at least 15 times as fast as a loop over the columns',
         measured('reconstruction', '^GRRFS, . values', against='loop')),
    Goal(RGNN, 'reconstruction at least 50 times, with two threads for both',
         measured('reconstruction', '^reconstruction, ', against='loop'),
         'it is about as fast as the sparse products, which are the limit'),
    Goal(RGNN, 'reconstruction at least 0.5 times the speed of one sparse '
         'product a hop', measured('reconstruction', '^reconstruction, ',
                                   against='product')),
    Goal(RGNN, '10^6 nodes x 128 features with 10^7 edges in 8,192 MiB',
         measured('reconstruction', '^reconstruction, 1,000,000 nodes',
                  'memory')),
    Goal(RGNN, BAD_INPUT, in_tests(
        'transforms/test_grrfs.py::'
        'test_bad_input_is_refused_before_it_costs_anything',
        'transforms/test_grrfs.py::test_bad_arguments',
        'transforms/test_reconstruct_features.py::test_missing_ledger',
        'transforms/test_reconstruct_labels.py::test_bad_input')),
    Goal(NIP, 'a table that says which edge release to use, at epsilon 0.5 to '
         '8 on three graphs', which_to_use),
    Goal(NIP, 'brute force over all graphs with up to 4 nodes; a graph that '
         'breaks Eq. 11', in_tests(
             'mechanisms/test_neighbour_sum.py::'
             'test_exact_loss_of_all_small_graphs',
             'mechanisms/test_neighbour_sum.py::'
             'test_a_graph_that_breaks_the_published_claim')),
    Goal(NIP, 'NAP without bias, with the stated variance, for all forms of '
         'edges', in_tests(
             'nn/test_nap.py::test_unbiased_with_the_stated_variance',
             'nn/test_nap.py::test_forms_of_edges',
             'nn/test_nap.py::test_repeated_edges_count_once')),
    Goal(NIP, 'NAP at least 1/1.2 times the speed of SimpleConv and the noise',
         measured('layers', '^private sums', 'NAP', 'and the noise')),
    Goal(NIP, 'DegreePreservingRR: exact ratio of a pair; symmetric', in_tests(
        'mechanisms/test_degree_preserving_rr.py::'
        'test_exact_ratio_of_a_pair',
        'transforms/test_degree_preserving_rr.py::test_release')),
    Goal(NIP, 'DegreePreservingRR: expected degrees within 2% of the target in '
         'each decile, on random graphs with true degrees', in_tests(
             'mechanisms/test_degree_preserving_rr.py::'
             'test_expected_degrees')),
    Goal(NIP, '... on Cora, with noisy degrees, epsilon 0.5, 2, 4, 8',
         measured('edges', '^DegreePreservingRR, Cora', 'decile'),
         'targets are estimates, and degrees of neighbours are correlated'),
    Goal(NIP, 'ACA equals a loop over nodes; zero distance is finite; tau '
         'learns', in_tests('nn/test_aca.py::test_a_loop_over_nodes',
                          'nn/test_aca.py::test_distance_zero',
                          'nn/test_aca.py::test_tau_learns')),
    Goal(NIP, 'Gaussian composition over hops to 1e-3', in_tests(
        'mechanisms/test_neighbour_sum.py::test_composition_over_hops')),
    Goal(NIP, 'node-level accuracy at epsilon 4: 70% on Cora, 70% on CiteSeer, '
         '75% on Facebook', node_level),
    Goal(NIP, BAD_INPUT, in_tests(
        'nn/test_nap.py::test_bad_input',
        'nn/test_nap.py::test_degrees_above_the_cap',
        'nn/test_nap.py::test_weights',
        'nn/models/test_nip_gnn.py::test_wrong_arguments')),
    Goal(AUDIT, 'every broken promise is caught with 99% confidence in less '
         'than two minutes', caught),
    Goal(AUDIT, 'no correct mechanism is accused in 200 runs', accused),
    Goal(AUDIT, 'LinkTeller on a GCN without privacy: an AUC of at least 0.9 '
         'on Cora and on the digits', links_found),
    Goal(AUDIT, '... with EdgeRR at epsilon 0.1 to 1, private edges only '
         '(published: 0.52 to 0.54)', links_hidden),
    Goal(AUDIT, 'membership at epsilon 4 (published: about 50%), beside a '
         'model that is really vulnerable (80% at least); Cora, Citeseer',
         members_found),
    Goal(AUDIT, 'digits reconstructed from FeatureRR at epsilon 1, 8, 64 and '
         'infinity: pictures and mean squared error', pictures),
    Goal(SCALE, 'exponent of labels at most 1.05',
         growth('labels', ''), MEMORY),
    Goal(SCALE, 'exponent of features at most 1.05',
         growth('features', ''), MEMORY),
    Goal(SCALE, 'exponent of GRRFS at most 1.05',
         growth('reconstruction', '^GRRFS'), MEMORY),
    Goal(SCALE, 'exponent of reconstruction at most 1.05',
         growth('reconstruction', '^reconstruction'), MEMORY),
    Goal(SCALE, 'exponent of NAP at most 1.05', growth('layers', ''), MEMORY),
    Goal(SCALE, 'exponent of EdgeRand at most 1.05 (10^5 and 10^6 nodes)',
         growth('edges', '^EdgeRand'), MEMORY),
    Goal(SCALE, 'exponent of LapGraph at most 1.05 (10^5 and 10^6 nodes)',
         growth('edges', '^LapGraph'), MEMORY),
    Goal(SCALE, 'exponent of DegreePreservingRR at most 1.05',
         growth('edges', '^DegreePreservingRR'), MEMORY),
    Goal(SCALE, 'a step of the chain grows as log n at most (500 to 100,000 '
         'nodes)', growth('hrg', '^a step'),
         'more links to follow, and each waits for memory'),
    Goal(SCALE, '10^7 x 64 features from a memory map with less than 1,024 MiB '
         'beyond it', measured('scale', 'from file to file', 'resident')),
    Goal(SCALE, 'its exponent at most 1.05', growth('scale', ''), MEMORY),
    Goal(SCALE, '10^6 nodes and 10^7 edges through every edge transform but '
         'the chain (times input plus output in memory)', at_scale),
)


def judged(stored):
    """Each goal with its answer, and what was missing for it."""
    rows = []
    for goal in GOALS:
        try:
            rows.append((goal, goal.answer(stored), None))
        except MissingResult as error:
            rows.append((goal, Answer('', None), str(error)))
    return rows


def missing(stored):
    """What is not stored, though a goal needs it."""
    return [error for _, _, error in judged(stored) if error is not None]


def markdown(stored):
    """The table of goals, and how many are met."""
    rows = judged(stored)
    words = {True: 'met', False: '**missed**', None: 'not measured'}
    counts = {word: sum(answer.met is met for _, answer, _ in rows)
              for met, word in words.items()}
    lines = ['| | asked | found | |', '|---|---|---|---|']
    for goal, answer, error in rows:
        verdict = words[answer.met]
        if answer.met is not True:
            verdict += f': {error or goal.reason}'
        lines.append(f'| {goal.part} | {goal.asked} | {answer.found} '
                     f'| {verdict} |')
    total = ', '.join(f'{count} {word.strip("*")}'
                      for word, count in counts.items())
    return f'{len(rows)} goals: {total}.\n\n' + '\n'.join(lines) + '\n'
