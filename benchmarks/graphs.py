"""The graphs of the accuracy tables, each with a share of public rows.

A fifth of the nodes, drawn with the seed, is public: bounds, embeddings and
scores come from their rows and labels alone. They are then taken out of the
graph, so that whatever is trained and tested is trained and tested on private
nodes: 10% for training, 10% for validation and 80% for testing.
"""
import os
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid

from torch_geometric_dp.datasets import DigitsGraph

EMBEDDING = 32  # Columns that are left of Cora's 1,433 words.


@dataclass(frozen=True)
class Task:
    """Private nodes, public rows, and what is known of the columns."""
    private: Data
    public: Data
    bounds: tuple
    encoder: torch.nn.Module
    sensitive: list
    raw: torch.Tensor  # Public rows before the encoder.


@lru_cache
def planetoid(name):
    """A citation graph from `TORCH_GEOMETRIC_DP_DATA`; PyG writes what it
    makes of the files beside them, so they are copied first.
    """
    folder = os.environ.get('TORCH_GEOMETRIC_DP_DATA')
    if folder is None:
        raise SystemExit("Set 'TORCH_GEOMETRIC_DP_DATA' to the folder that "
                         "holds Planetoid/ for this table")
    cache = Path('.cache') / 'Planetoid'
    if not (cache / name / 'raw').exists():
        shutil.copytree(Path(folder) / 'Planetoid' / name / 'raw',
                        cache / name / 'raw')
    return Planetoid(str(cache), name)[0]


def planetoid_at_hand(name):
    """The same, or nothing (which is said) where there is no such folder."""
    if 'TORCH_GEOMETRIC_DP_DATA' in os.environ:
        return planetoid(name)
    print(f"'TORCH_GEOMETRIC_DP_DATA' is not set, and {name} left out")
    return None


@lru_cache
def _digits():
    return DigitsGraph()[0]


def digits(seed):
    """Pixels, as they are; the upper half of the image plays the part of the
    sensitive input.
    """
    return _task(_digits(), seed, lambda rows: torch.nn.Identity(), (0.0, 1.0),
                 list(range(32)))


def cora(seed):
    """Words, embedded by a truncated SVD of the public rows; 100 random words
    play the part of the sensitive input.
    """
    data = planetoid('Cora')
    words = torch.randperm(data.num_features,
                           generator=torch.Generator().manual_seed(seed))

    def encoder(rows):
        projection = torch.linalg.svd(rows, full_matrices=False)[2]
        layer = torch.nn.Linear(rows.size(1), EMBEDDING, bias=False)
        layer.weight.data = projection[:EMBEDDING].clone()
        return layer.requires_grad_(False)

    return _task(data, seed, encoder, None, words[:100].tolist())


def split_by_tenths(data, generator):
    """Masks: a tenth of the nodes for training, a tenth for validation, and all
    others for testing.
    """
    order = torch.randperm(data.num_nodes, generator=generator)
    tenth = data.num_nodes // 10
    parts = order[:tenth], order[tenth:2 * tenth], order[2 * tenth:]
    for name, part in zip(('train_mask', 'val_mask', 'test_mask'), parts):
        data[name] = torch.zeros(data.num_nodes, dtype=torch.bool)
        data[name][part] = True


def _task(data, seed, make_encoder, bounds, sensitive):
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(data.num_nodes, generator=generator)
    fifth = data.num_nodes // 5
    public, private = (data.subgraph(part.sort().values)
                       for part in (order[:fifth], order[fifth:]))
    encoder, raw = make_encoder(public.x), public.x
    public.x, private.x = encoder(public.x), encoder(private.x)
    if bounds is None:  # What holds 98% of the public values in each column.
        low, high = (public.x.quantile(q, dim=0) for q in (0.01, 0.99))
        bounds = low, torch.maximum(high, low + 1e-3)
    split_by_tenths(private, generator)
    public.train_mask = torch.ones(public.num_nodes, dtype=torch.bool)
    return Task(private, public, bounds, encoder, sensitive, raw)


GRAPHS = {'digits': digits, 'cora': cora}
