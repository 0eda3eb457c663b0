r"""What reconstructions share: they read the noise off the ledger, and average
it out over the public graph.

The released field and the graph are all that a reconstruction reads, so it is
post-processing, and free, if the graph is public. The ledger's entry goes on as
the new output, and names who made it: the field no longer has the noise that
the entry tells of, so it is not reconstructed a second time; and what is
released from it later costs nothing. Edges that are not a release themselves
stand in it as taken for public: the new output tells of them.
"""
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.data.storage import BaseStorage
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import to_edge_index

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._validate import check_integer
from torch_geometric_dp.accountant import PrivacyAccountant, Release, Unit
from torch_geometric_dp.graph.adjacency import edge_index_of
from torch_geometric_dp.graph.pairs import check_edge_index
from torch_geometric_dp.graph.propagation import mean_adjacency
from torch_geometric_dp.pyg import remember
from torch_geometric_dp.release import (
    budget_of,
    check_released,
    digest,
    field_name,
    written,
)
from torch_geometric_dp.transforms.private_transform import (
    each_graph,
    node_stores_with,
)


class Reconstruction(Captured, BaseTransform):
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
                    release: Release) -> list[str]:
        """Replaces the field of one node type; returns the keys of all that
        was written.
        """

    def forward(self, data: Any) -> Any:
        """Reconstructs a graph, or every graph of a batch."""
        if isinstance(data, Batch):
            return each_graph(self.forward, data)
        stores = node_stores_with(data, self.field)
        ledger = PrivacyAccountant.of(data)
        releases = [self._release(ledger, store) for store in stores]
        outputs: dict[Release, dict[str, Tensor]] = {r: {} for r in releases}
        known = {output for r in ledger.releases for output in r.outputs}
        raw: dict[str, Unit] = {}
        budget = budget_of(data)
        for store, release in zip(stores, releases):
            edges = _edges(data, store)
            raw.update({f"'{name}', read by {type(self).__name__}": Unit.EDGES
                        for name, edge_index in edges.items()
                        if (name, digest(edge_index)) not in known})
            if raw and budget is not None:
                budget.take_as_public(Unit.EDGES, type(self).__name__)
            num_nodes = len(store[self.field])
            for edge_index in edges.values():
                check_edge_index(edge_index, num_nodes)
            adjacency = mean_adjacency(torch.cat([*edges.values()], dim=1),
                                       num_nodes)
            for key in self.reconstruct(store, adjacency, release):
                outputs[release][field_name(store, key)] = store[key]
                remember(store[key], released=True)
        for release, new in outputs.items():
            after, = written([release], new)
            ledger = ledger.rewrite(release, after.outputs, repr(self),
                                    tuple(raw.items()))
        data.privacy = ledger
        return data

    def _release(self, ledger: PrivacyAccountant,
                 store: BaseStorage) -> Release:
        # The entry of the ledger that tells of a field's noise, and is about
        # what the field holds.
        name = field_name(store, self.field)
        release = ledger.find(name, self.releaser)
        check_released(release, name, store[self.field])
        return release


def _edges(data: Any, store: BaseStorage) -> dict[str, Tensor]:
    # The edges between the nodes of one type, by the names of their fields.
    edges = {}
    for edge_store in data.edge_stores:
        if edge_store._key is not None and (
                edge_store._key[0] != store._key
                or edge_store._key[-1] != store._key):
            continue
        if 'edge_index' in edge_store:
            name = field_name(edge_store, 'edge_index')
            edges[name] = edge_index_of(edge_store)
        elif 'adj_t' in edge_store:  # Its rows are the targets.
            name = field_name(edge_store, 'adj_t')
            edges[name] = to_edge_index(edge_store.adj_t)[0].flip(0)
    if not edges:
        raise ValueError(f"'edge_index' is missing: neighbours are what noise "
                         f"is averaged over (got the fields "
                         f"{sorted(data.keys())})")
    return edges
