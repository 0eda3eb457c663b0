from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import is_sparse

from torch_geometric_dp._arguments import Captured
from torch_geometric_dp._validate import check_names
from torch_geometric_dp.accountant import PrivacyAccountant
from torch_geometric_dp.release import added_to, field_name, verify
from torch_geometric_dp.transforms.private_transform import each_graph


@functional_transform('dp_publish')
class Publish(Captured, BaseTransform):
    r"""The way out: the last transform before a graph leaves its owner
    (functional name: :obj:`dp_publish`).

    Every field must be a release, whose digest stands in the ledger, or be
    named public. Anything else is refused by name, or removed if asked for. The
    budget is taken off; the ledger stays. What is made of a published graph
    later is post-processing: transforms that change a released field, such as
    :class:`~torch_geometric.transforms.NormalizeFeatures`, come after this one.

    Why every field has to be named: nothing tells from a tensor what it was
    computed from. Degrees in :obj:`x`, positional encodings, two-hop edges and
    copies of raw rows look like any other field.

    Args:
        public (sequence of str, optional): The names of fields that are
            public. (default: :obj:`()`)
        drop (bool, optional): If set to :obj:`True`, fields that are neither
            released nor public are removed. (default: :obj:`False`)

    .. code-block:: python

        release = LabelRR(epsilon=1.0, num_classes=7, mask='train_mask')
        private = Publish(public=['train_mask'], drop=True)(release(data))
        sorted(private.keys())   # ['privacy', 'train_mask', 'y']
    """
    def __init__(self, public: Sequence[str] = (), drop: bool = False) -> None:
        self.public = check_names('public', public)
        self.drop = bool(drop)

    def forward(self, data: Any) -> Any:
        """Checks all fields, and takes the budget off."""
        if not isinstance(data, (Data, HeteroData)):
            raise TypeError(f"Expected 'Data' or 'HeteroData' "
                            f"(got '{type(data).__name__}')")
        ledger = PrivacyAccountant.of(data)
        known = verify(ledger, data, self.public)
        left = {name: state for name, state in known.items()
                if state not in ('covered', 'public')}
        if left and not self.drop:
            names = ', '.join(f"'{name}' ({state})"
                              for name, state in left.items())
            raise ValueError(
                f"All fields must be released, or be named public; these are "
                f"neither: {names}. Release them, name those that are public "
                f"in Publish(public=[...]), or remove the others with "
                f"drop=True")
        if isinstance(data, Batch):
            for store in data.stores:
                for key in added_to(data, store):
                    if field_name(store, key) in left:
                        del store[key]
            return each_graph(self.forward, data)
        for store in data.stores:
            for key, value in list(store.items()):
                if key == 'privacy_budget' or field_name(store, key) in left:
                    del store[key]
                elif isinstance(value, Tensor):
                    store[key] = _alone(value)
        data.privacy = ledger
        return data


def _alone(value: Tensor) -> Tensor:
    # A file that holds a view holds all of what it is a view of.
    if is_sparse(value) or value.untyped_storage().nbytes() <= (
            value.numel() * value.element_size()):
        return value
    return value.clone()
