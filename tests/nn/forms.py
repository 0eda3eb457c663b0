"""The forms in which a layer may get its edges."""
import pytest
import torch
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor


def sparse_tensor(edge_index, n):
    torch_sparse = pytest.importorskip('torch_sparse')
    return torch_sparse.SparseTensor(row=edge_index[1], col=edge_index[0],
                                     sparse_sizes=(n, n))


FORMS = pytest.mark.parametrize('form', [
    pytest.param(lambda e, n: to_torch_csc_tensor(e, size=(n, n)).t(),
                 id='csr'),
    pytest.param(lambda e, n: to_torch_coo_tensor(e, size=(n, n)).t(),
                 id='coo', marks=pytest.mark.filterwarnings(
                     'ignore:Converting sparse tensor')),
    pytest.param(sparse_tensor, id='SparseTensor', marks=pytest.mark.sparse),
])


def ring(n):
    node = torch.arange(n)
    edge = torch.stack([node, (node + 1) % n])
    return torch.cat([edge, edge.flip(0)], dim=1)
