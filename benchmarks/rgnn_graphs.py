"""The six graphs of RGNN's Table 1, from the files in
`TORCH_GEOMETRIC_DP_DATA`: binary features, undirected edges, and a random split
into 50% for training, 25% for validation and 25% for testing. The labels of the
first two parts are released, and so are all features; the edges are public.
"""
import os
import shutil
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import CitationFull
from torch_geometric.utils import remove_self_loops, to_undirected

from benchmarks.graphs import planetoid
from torch_geometric_dp.transforms import GroupColumns

# How many columns the paper combines into one. The features of the last two
# are few and not sparse.
GROUPS = {'citeseer': 70, 'cora': 25, 'dblp': 50, 'facebook': 100,
          'german': 1, 'student': 1}


def folder():
    found = os.environ.get('TORCH_GEOMETRIC_DP_DATA')
    if found is None:
        raise SystemExit("Set 'TORCH_GEOMETRIC_DP_DATA' to the folder that "
                         "holds Planetoid/, CitationFull/ and plain/")
    return Path(found)


@lru_cache
def graph(name):
    """The whole graph, with the columns of its features combined."""
    if name in ('citeseer', 'cora'):
        data = planetoid({'citeseer': 'CiteSeer', 'cora': 'Cora'}[name])
    elif name == 'dblp':
        raw = next((folder() / 'CitationFull').rglob('raw'))
        cache = Path('.cache') / 'CitationFull'
        target = cache / raw.relative_to(folder() / 'CitationFull')
        if not target.exists():
            shutil.copytree(raw, target)
        data = CitationFull(str(cache), 'DBLP')[0]
    else:
        data = _plain(name)
    edge = to_undirected(remove_self_loops(data.edge_index)[0],
                         num_nodes=data.num_nodes)
    data = Data(x=(data.x > 0).float(), y=data.y, edge_index=edge)
    return GroupColumns(GROUPS[name])(data) if GROUPS[name] > 1 else data


def _plain(name):
    file = {'facebook': 'facebook_raw'}.get(name, name) + '.npz'
    content = np.load(folder() / 'plain' / file)
    if 'x' in content:
        x = torch.from_numpy(content['x'].astype(np.float32))
    else:
        x = torch.zeros(*map(int, content['x_shape']))
        rows = np.arange(len(x)).repeat(np.diff(content['x_indptr']))
        x[rows, content['x_indices'].astype(np.int64)] = 1
    edge = torch.from_numpy(content['edges'].astype(np.int64)).t()
    return Data(x=x, y=torch.from_numpy(content['target'].astype(np.int64)),
                edge_index=edge)


def split(data, seed):
    """A copy with masks; `released` selects the labels that are released."""
    data, n = data.clone(), data.num_nodes
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    parts = order.split([n // 2, n // 4, n - n // 2 - n // 4])
    for name, part in zip(('train_mask', 'val_mask', 'test_mask'), parts):
        data[name] = torch.zeros(n, dtype=torch.bool)
        data[name][part] = True
    data.released = ~data.test_mask
    return data
