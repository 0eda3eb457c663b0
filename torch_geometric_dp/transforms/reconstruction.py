r"""What reconstructions share: they read the noise off the ledger, and average
it out over the public graph.

The released field and the graph are all that a reconstruction reads, so it is
post-processing, and free. The ledger's entry goes on as the new output, and
names who made it: the field no longer has the noise that the entry tells of,
so it is not reconstructed a second time; and what is released from it later
costs nothing.
"""
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch
from torch_geometric.data.storage import BaseStorage
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import to_edge_index

from torch_geometric_dp.accountant import PrivacyAccountant, Release
from torch_geometric_dp.mechanisms.checks import check_integer
from torch_geometric_dp.mechanisms.pairs import check_edge_index
from torch_geometric_dp.mechanisms.propagation import mean_adjacency
from torch_geometric_dp.transforms.private_transform import (
    PUBLIC,
    digest,
    each_graph,
    field_name,
    node_stores_with,
)


class Reconstruction(BaseTransform):
    r"""The base of all transforms that average the noise of a release out over
    the neighbourhoods of a public graph.

    Args:
        hops (int, optional): The number of hops :math:`K`; each of them is a
            mean over a node and its neighbours. (default: :obj:`16`)
    """
    #: The field that is reconstructed.
    field: str
    #: The transform that released it.
    releaser: str

    def __init__(self, hops: int = 16) -> None:
        self.hops = check_integer('hops', hops, 0)

    @abstractmethod
    def reconstruct(self, store: BaseStorage, adjacency: Tensor,
                    release: Release) -> None:
        """Replaces the field of one node type."""

    def forward(self, data: Any) -> Any:
        """Reconstructs a graph, or every graph of a batch."""
        if isinstance(data, Batch):
            return each_graph(self.forward, data)
        stores = node_stores_with(data, self.field)
        names = [field_name(store, self.field) for store in stores]
        releases = [self._release(data, name) for name in names]
        for store, release in zip(stores, releases):
            adjacency = _adjacency(data, store, len(store[self.field]))
            self.reconstruct(store, adjacency, release)
        output = digest(PUBLIC, [(name, (store[self.field], ))
                                 for name, store in zip(names, stores)])
        data.privacy = PrivacyAccountant.of(data)
        for release in dict.fromkeys(releases):
            data.privacy = data.privacy.rewrite(release, output, repr(self))
        return data

    def _release(self, data: Any, name: str) -> Release:
        # The entry of the ledger that tells of a field's noise.
        ledger = PrivacyAccountant.of(data).releases
        found = [r for r in ledger if name in r.fields
                 and r.mechanism.startswith(self.releaser)]
        if not found:
            seen = [r.mechanism for r in ledger if name in r.fields]
            raise ValueError(
                f"'privacy' must hold a release of '{name}' by "
                f"'{self.releaser}', which tells what noise is in it "
                f"(got {', '.join(seen) or 'none of it'})")
        if len({(r.mechanism, r.parameters) for r in found}) > 1:
            raise ValueError(
                f"'privacy' must hold one release of '{name}', as what is in "
                f"it is the noise of one "
                f"(got {', '.join(r.mechanism for r in found)})")
        processed = dict(found[0].parameters).get('processed')
        if processed is not None:
            raise ValueError(
                f"'{name}' must be as it was released: it no longer has the "
                f"noise of {found[0].mechanism} (got the output of "
                f"{processed})")
        return found[0]


def _adjacency(data: Any, store: BaseStorage, num_nodes: int) -> Tensor:
    # One hop between the nodes of one type.
    edges = []
    for edge_store in data.edge_stores:
        if edge_store._key is not None and (
                edge_store._key[0] != store._key
                or edge_store._key[-1] != store._key):
            continue
        if 'edge_index' in edge_store:
            edges.append(edge_store.edge_index)
        elif 'adj_t' in edge_store:  # Its rows are the targets.
            edges.append(to_edge_index(edge_store.adj_t)[0].flip(0))
    if not edges:
        raise ValueError(f"'edge_index' is missing: neighbours are what noise "
                         f"is averaged over (got the fields "
                         f"{sorted(data.keys())})")
    edges = [edge.as_tensor() if isinstance(edge, EdgeIndex) else edge
             for edge in edges]
    for edge in edges:
        check_edge_index(edge, num_nodes)
    return mean_adjacency(torch.cat(edges, dim=1), num_nodes)
