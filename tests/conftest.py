import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings
from torch_geometric.data import Data

# Every statistical test in this suite raises a false alarm with at most this
# probability. All of them have fixed seeds, so that one which passes, passes.
FALSE_ALARM = 1e-6

# The same examples every time, and no limit on how long one may take: compilers
# are at work, and machines are noisy.
settings.register_profile('house', derandomize=True, deadline=None)
settings.load_profile('house')


@pytest.fixture(scope='session', autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder for what vaults leave behind on a machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('TORCH_GEOMETRIC_DP_STATE',
                     str(tmp_path_factory.mktemp('state')))
        patch.delenv('TORCH_GEOMETRIC_DP_SECRET', raising=False)
        yield


@pytest.fixture
def graph() -> Data:
    """Twelve nodes on a ring, with three classes."""
    node = torch.arange(12)
    edge = torch.stack([node, (node + 1) % 12])
    return Data(x=torch.linspace(0, 1, 36).view(12, 3), y=node % 3,
                edge_index=torch.cat([edge, edge.flip(0)], dim=1),
                train_mask=node < 8)


@pytest.fixture(scope='session')
def real_data() -> str:
    """The folder of real graphs, where it is at hand."""
    folder = os.environ.get('TORCH_GEOMETRIC_DP_DATA')
    if folder is None:
        pytest.skip("'TORCH_GEOMETRIC_DP_DATA' is not set")
    return folder
