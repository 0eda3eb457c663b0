"""Four attacks on a graph, as it is and as it was released, on one page.

    python examples/attack_and_defend.py     # half a minute

Handwritten digits are joined to similar ones (DigitsGraph). Whoever sees the
graph as it is, or asks a model that was trained on it, finds out which digits
are joined, which ones the model was trained on, how they look, and what one
pixel shows. Then pixels, edges and labels are released, and the same attackers
try again. The page that comes out is a single file: what they found, in numbers
and figures, next to the ledger.
"""
import argparse
import base64
import io
import time
from html import escape
from pathlib import Path

import matplotlib
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN, GraphSAGE
from torch_geometric.transforms import Compose
from tqdm import tqdm

from torch_geometric_dp.attacks import (
    AttributeInference,
    FeatureReconstruction,
    LinkTeller,
    MembershipInference,
)
from torch_geometric_dp.datasets import DigitsGraph
from torch_geometric_dp.transforms import EdgeRR, FeatureRR, LabelRR

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402

SIDES = 'as it is', 'as released'
PIXEL = 36  # In the middle, where an eight has ink and a zero has none.
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; margin: 2rem auto;
       max-width: 64rem; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; }
th, td { border-bottom: 1px solid #ddd; padding: 0.3rem 1.2rem 0.3rem 0;
         text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td:first-child { white-space: nowrap; } .attack th { padding-top: 1.2rem; }
.pair { display: flex; gap: 1rem; flex-wrap: wrap; }
figure { flex: 1 1 26rem; margin: 0; } img { width: 100%; }
figcaption, .knew { color: #555; font-size: 0.9rem; }
.wide { overflow-x: auto; }
"""
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Attack and defend</title>
<meta name="viewport" content="width=device-width"><style>{style}</style></head>
<body><h1>Attack and defend</h1><p>{intro}</p>
<h2>What was released, and what it cost</h2><p>Epsilon is what is proven:
whatever an attacker knows already, what they see moves their odds between any
two pictures of a digit, any two labels of it, or an edge and none, by a factor
of exp(epsilon) at the most. The smaller, the more private.</p>
<div class="wide">{ledger}</div>
<h2>What was found</h2><p>"Without the target" is what attackers find who know
as much, but may ask no model, and see no pixels but those that they knew
before: what is better than that was leaked. Similar digits are joined. So
whoever knows all pixels guesses most edges, and whoever knows all edges guesses
many pixels.
Members and others are 100 each: chance alone moves their numbers by 0.07 or so,
and 1% of false positives is one of them.</p>
<div class="wide">{table}</div>
<p class="knew"><b>AUC</b>: how often something true is suspected more than
something false; 0.5 is guessing. <b>TPR at 1% FPR</b>: the share of what is
true that is found, if one in a hundred of what is false is suspected.
<b>Precision at the true density</b>: the share of edges among as many
suspicions as there are edges. <b>Balanced accuracy</b>: the mean over the
answers yes and no; 0.5 is guessing. <b>Variance explained</b>: 0 is the mean
picture, 1 is every pixel. <b>Identified</b>: how often the right digit is
picked out of all that were attacked.</p>{sections}
<p class="knew">An attack shows what one attacker finds, and no more: that they
find nothing proves nothing. What is proven stands in the ledger.</p>
</body></html>
"""
ABOUT = {
    'Who is linked to whom?':
    'A model is served: whoever asks sends pixels and gets answers. The '
    'attacker makes one digit a little darker, and looks whose answers change.',
    'Who was in the training set?':
    'The attacker trains models like the target on digits of their own, and '
    'learns how answers about digits that a model has seen differ from others.',
    'How does a digit look?':
    'The attacker knows a fifth of the digits, and learns from them to undo '
    'the release. Without the target, they have the edges alone.',
    'Is there ink in the middle?':
    'The attacker knows one pixel of a fifth of the digits, and learns to tell '
    'from all that was released whether it is darker than one half.',
}


def draw_masks(data):
    """A fifth of the digits is known to whoever attacks features. A model is
    trained on 100, and whoever asks who that was has 200 others.
    """
    lot = torch.randperm(data.num_nodes,
                         generator=torch.Generator().manual_seed(0))
    data.known_mask = lot < data.num_nodes // 5
    data.train_mask = lot < 100
    data.shadow_mask = (lot >= 200) & (lot < 400)
    data.judged_mask = lot < 400
    del data.edge_private  # Without it, all edges are private.
    return data


def fit(model, data, epochs=150):
    """Trains a model until it knows the training nodes by heart. What comes out
    goes from a graph to logits.
    """
    mean, std = data.x.mean(dim=0), data.x.std(dim=0).clamp(min=1e-6)

    def answer(graph):
        return model((graph.x - mean) / std, graph.edge_index)

    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        optimizer.zero_grad()
        out = answer(data)[data.train_mask]
        F.cross_entropy(out, data.y[data.train_mask]).backward()
        optimizer.step()
    return torch.no_grad()(answer)


def gcn(data):
    torch.manual_seed(0)
    return fit(GCN(data.num_features, 64, num_layers=2, out_channels=10), data)


def sage(data):
    torch.manual_seed(0)
    return fit(GraphSAGE(data.num_features, 256, num_layers=2,
                         out_channels=10), data)


def attacks(release):
    """For each attack: its title, the attack on either side, how to make its
    target from the graph of that side, and which nodes it is about.
    """
    def serve(graph):
        model = gcn(graph)
        return lambda x: model(with_features(graph, x))

    def train_on_members(graph):
        return sage(graph.subgraph(graph.train_mask))

    def itself(graph):
        return graph

    def train_on_release(graph):
        return sage(release(graph))

    links = LinkTeller()
    members = [MembershipInference(fit, num_shadows=8)
               for fit in (sage, train_on_release)]
    pictures = FeatureReconstruction('known_mask', picture=(8, 8))
    pixel = AttributeInference(column=PIXEL, above=0.5, known='known_mask')
    return {
        'Who is linked to whom?': ([links] * 2, serve, None),
        'Who was in the training set?': (members, train_on_members,
                                         'judged_mask'),
        'How does a digit look?': ([pictures] * 2, itself, None),
        'Is there ink in the middle?': ([pixel] * 2, itself, None),
    }


def with_features(graph, x):
    graph = graph.clone()
    graph.x = x
    return graph


def run(data, released, release):
    """The reports of all attacks, on the raw and on the released graph."""
    reports = {}
    for title, (both, make, mask) in tqdm(attacks(release).items(),
                                          desc='attack'):
        truth = data if mask is None else data.subgraph(data[mask])
        reports[title] = [attack.run(make(graph), truth)
                          for attack, graph in zip(both, (data, released))]
    return reports


def picture(report):
    """The figure of a report, as a part of the page."""
    ax, file = report.plot(), io.BytesIO()
    ax.figure.savefig(file, dpi=110, bbox_inches='tight')
    plt.close(ax.figure)
    code = base64.b64encode(file.getvalue()).decode()
    return (f'<img alt="{escape(str(report))}" '
            f'src="data:image/png;base64,{code}">')


def row(cells):
    return '<tr>' + ''.join(
        f'<td class="n">{cell:z.3f}</td>' if isinstance(cell, float) else
        f'<td>{escape(cell)}</td>' for cell in cells) + '</tr>'


def table(reports):
    head = ''.join(f'<th class="n">the graph {side}</th>'
                   f'<th class="n">without the target</th>' for side in SIDES)
    rows = [f'<tr><th></th>{head}</tr>']
    for title, both in reports.items():
        rows.append(f'<tr class="attack"><th colspan="5">{escape(title)}</th>'
                    f'</tr>')
        for name in both[0].numbers:
            cells = [name]
            for report in both:
                cells += [report[name], report.baseline[name]]
            rows.append(row(cells))
    return f'<table>{"".join(rows)}</table>'


def section(title, reports):
    figures = ''.join(
        f'<figure><figcaption>The graph {side}</figcaption>{picture(report)}'
        f'</figure>' for side, report in zip(SIDES, reports))
    attack = ', then '.join(dict.fromkeys(each.attack for each in reports))
    knew = '; '.join(reports[0].knew)
    return (f'<h2>{escape(title)}</h2><p>{ABOUT[title]}</p>'
            f'<p class="knew">{escape(attack)}. The attacker knew: '
            f'{escape(knew)}.</p>'
            f'<div class="pair">{figures}</div>')


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--features', type=float, default=8.0,
                        help='epsilon of the pixels of one digit')
    parser.add_argument('--edges', type=float, default=1.0,
                        help='epsilon of one edge')
    parser.add_argument('--labels', type=float, default=2.0,
                        help='epsilon of one label')
    parser.add_argument('--page', type=Path,
                        default=Path('attack_and_defend.html'))
    args = parser.parse_args(arguments)
    start = time.perf_counter()

    data = draw_masks(DigitsGraph()[0])
    release = Compose([
        FeatureRR(args.features, bounds=(0.0, 1.0), decode='unbiased'),
        EdgeRR(args.edges),
        LabelRR(args.labels, num_classes=10),
    ])
    released = release(data)
    reports = run(data, released, release)
    for title, both in reports.items():
        for side, report in zip(SIDES, both):
            print(f'\n{title} The graph {side}:\n{report}')
    print(f'\n{released.privacy}')

    args.page.write_text(PAGE.format(
        style=STYLE, ledger=released.privacy._repr_html_(),
        table=table(reports),
        sections=''.join(section(*item) for item in reports.items()),
        intro=f'{data.num_nodes} handwritten digits, joined to similar ones by '
        f'{data.num_edges // 2} edges. Four attackers try the graph as it is, '
        f'and as it was released.'))
    print(f'\nPage saved as {args.page} ({time.perf_counter() - start:.0f} s '
          f'in all)')


if __name__ == '__main__':
    main()
