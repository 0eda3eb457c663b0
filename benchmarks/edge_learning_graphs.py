"""The graphs of the table of learning from private edges: four schools of
Facebook100, where people have many friends, and five graphs with few edges at a
node. Features and labels are public, edges are private, all of them or a share.

Node numbers are shuffled first: in several files they follow the classes, and
blocks and ties would see that.
"""
from functools import lru_cache

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops, to_undirected

from benchmarks import rgnn_graphs
from benchmarks.graphs import planetoid, split_by_tenths
from benchmarks.nip_table import split as split_three_quarters

YEAR, FEATURES = 5, 5  # The column of the class year, and those before it.
# The fewest people of a class year, as usual: 1,000 in large schools.
LEAST = {'Caltech36': 100, 'Amherst41': 100, 'Rice31': 100, 'Cornell5': 1000}
DENSE = tuple(LEAST)
SPARSE = ('Cora', 'CiteSeer', 'PubMed', 'Facebook', 'DBLP')
GRAPHS = DENSE + SPARSE


def school(name):
    """People of one school: what they tell of themselves, one-hot, and the
    year of their class, which is to be found. People whose year is unknown, or
    rare, are left out.
    """
    content = np.load(rgnn_graphs.folder() / 'facebook100' / f'{name}.npz')
    edges, rows = content['edges'].astype(np.int64), content['attributes']
    edges = torch.from_numpy(edges if len(edges) == 2 else edges.T)
    years, counts = np.unique(rows[:, YEAR], return_counts=True)
    years = years[(years != 0) & (counts >= LEAST.get(name, 1))]
    keep = np.isin(rows[:, YEAR], years)
    columns = [rows[:, i:i + 1] == np.unique(rows[keep, i])
               for i in range(FEATURES)]
    data = Data(x=torch.from_numpy(np.hstack(columns)).float(),
                y=torch.from_numpy(np.searchsorted(years, rows[:, YEAR])),
                edge_index=edges)
    return data.subgraph(torch.from_numpy(keep))


@lru_cache(maxsize=2)
def raw(name):
    """A graph with edges in both directions, each once, and no self-loops."""
    if name in DENSE:
        data = school(name)
    elif name in ('Facebook', 'DBLP'):
        data = rgnn_graphs.graph(name.lower())
    else:
        data = planetoid(name)
    edge_index = to_undirected(remove_self_loops(data.edge_index)[0],
                               num_nodes=data.num_nodes)
    return Data(x=data.x, y=data.y, edge_index=edge_index)


def shuffled(data, generator):
    """The same graph, with other node numbers."""
    order = torch.randperm(data.num_nodes, generator=generator)
    number = torch.empty_like(order)
    number[order] = torch.arange(data.num_nodes)
    return Data(x=data.x[order], y=data.y[order],
                edge_index=number[data.edge_index])


def load(name, share, seed):
    """A shuffled graph with a split: 75/10/15% of the nodes for training,
    validation and testing in schools, and 10/10/80% elsewhere. Below one,
    `share` is that of the private edges, which `edge_private` selects.
    """
    generator = torch.Generator().manual_seed(seed)
    data = shuffled(raw(name), generator)
    if share < 1:
        u, v = data.edge_index
        edge = data.edge_index[:, u < v]
        private = torch.rand(edge.size(1), generator=generator) < share
        data.edge_index = torch.cat([edge, edge.flip(0)], dim=1)
        data.edge_private = torch.cat([private, private])
    if name in DENSE:
        return split_three_quarters(data, seed)
    split_by_tenths(data, generator)
    return data
