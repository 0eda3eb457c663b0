from dataclasses import replace
from typing import Any, Optional

from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import BaseStorage

from torch_geometric_dp import mechanisms
from torch_geometric_dp.accountant import Guarantee
from torch_geometric_dp.accountant.composition import exact_sum
from torch_geometric_dp.accountant.guarantee import Parameter
from torch_geometric_dp.mechanisms.checks import (
    check_epsilon,
    check_integer,
    check_integers,
)
from torch_geometric_dp.mechanisms.grrfs import Sizes
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.feature_transform import feature_stores
from torch_geometric_dp.transforms.private_transform import PrivateTransform


@functional_transform('dp_grrfs')
class GRRFS(PrivateTransform):
    r"""Releases categorical node features by generalised randomised response
    with feature sampling, the first part of `RGNN` (functional name:
    :obj:`dp_grrfs`).

    Of the :math:`d` columns of a node, :math:`m` are chosen at random and
    reported by randomised response with :math:`\varepsilon_x =
    \varepsilon/m`; all others are reported as a uniform value of their domain.
    A node's released row is :math:`\varepsilon`-locally private, and no less;
    the proof stands in :mod:`torch_geometric_dp.mechanisms.grrfs`. What it
    costs to change one column alone, which is less, stands in the ledger as
    :obj:`attribute_epsilon`.

    Columns hold integers from 0 on, in any type. Use :class:`Discretize` for
    continuous columns before, and :class:`ReconstructFeatures` after.

    Args:
        epsilon (float): The privacy loss of one node's whole row.
        num_sampled (int): The number of columns :math:`m` that are randomised.
        domain_sizes (int or sequence of ints): The number of values of all
            columns, or of each of them; public numbers.
        seed (int, optional): Makes the noise repeatable, and known to everybody
            who knows the seed. (default: :obj:`None`)

    .. code-block:: python

        data.x = (data.x > 0.5).float()
        private = GRRFS(epsilon=4.0, num_sampled=2, domain_sizes=2)(data)
        private.privacy.epsilon('features')   # 4.0
        private.privacy.releases[0].parameter('attribute_epsilon')   # 1.4...

        published = GRRFS.from_paper(epsilon_x=2.0, num_sampled=2,
                                     domain_sizes=2)(data)
        published.privacy.epsilon('features')           # 4.0
        published.privacy.claimed_epsilon('features')   # 3.3...
    """
    def __init__(self, epsilon: float, num_sampled: int, domain_sizes: Sizes,
                 seed: Optional[int] = None) -> None:
        super().__init__(seed)
        self.epsilon = check_epsilon(epsilon)
        self.num_sampled = check_integer('num_sampled', num_sampled, 1)
        #: The privacy loss of one chosen column.
        self.epsilon_x = self.epsilon / self.num_sampled
        #: One number, or a tuple with one for each column.
        self.domain_sizes = check_integers('domain_sizes', domain_sizes, 2)
        sizes = self.domain_sizes
        # Is all of it right? If the number of columns is known, against that.
        self.mechanism(self.num_sampled if isinstance(sizes, int) else
                       len(sizes))
        #: Whether Theorem 1's number is on record as a claim.
        self.calibration = 'proven'

    @classmethod
    def from_paper(cls, epsilon_x: float, num_sampled: int,
                   domain_sizes: Sizes, seed: Optional[int] = None) -> 'GRRFS':
        r"""The same, with the :math:`\varepsilon_x` of one chosen column, as it
        is published. The ledger holds Theorem 1's number as a claim, and
        :math:`m \varepsilon_x` as the truth.
        """
        m = check_integer('num_sampled', num_sampled, 1)
        epsilon = exact_sum([check_epsilon(epsilon_x, 'epsilon_x')] * m)
        out = cls(epsilon, m, domain_sizes, seed)
        out.epsilon_x, out.calibration = float(epsilon_x), 'paper'
        return out

    def mechanism(self, num_features: int) -> mechanisms.GRRFS:
        """The mechanism for rows with so many columns."""
        return mechanisms.GRRFS(self.epsilon, self.num_sampled,
                                self.domain_sizes, num_features)

    @property
    def guarantee(self) -> Guarantee:
        """One node's whole row, in the local model."""
        return Guarantee(self.epsilon, 'features',
                         "the features of one node are replaced")

    def promise(self, stores: list[tuple[BaseStorage, str]]) -> Guarantee:
        """The same, with Theorem 1's number if it is claimed."""
        if self.calibration == 'proven':
            return self.guarantee
        claim = max(self.mechanism(store[field].size(1)).claimed_epsilon
                    for store, field in stores)
        return replace(self.guarantee, claimed_epsilon=claim)

    def describe(self, stores: list[tuple[BaseStorage, str]],
                 ) -> tuple[tuple[str, Parameter], ...]:
        """What it takes to undo the bias, and the loss of one column."""
        sizes = self.domain_sizes
        if isinstance(sizes, tuple) and len(set(sizes)) == 1:
            sizes = sizes[0]
        loss = max(self.mechanism(store[field].size(1)).attribute_epsilon
                   for store, field in stores)
        return (('num_sampled', self.num_sampled),
                ('epsilon_x', self.epsilon_x),
                ('domain_sizes', sizes), ('attribute_epsilon', loss))

    def read(self, data: Any) -> list[tuple[BaseStorage, str]]:
        """The features of all node types that have some."""
        stores = feature_stores(data)
        for store in stores:
            self.mechanism(store.x.size(1)).check(store.x)
        return [(store, 'x') for store in stores]

    def write(self, store: BaseStorage, field: str,
              source: NoiseSource) -> None:
        """Draws the features of one node type."""
        x = store[field]
        store[field] = self.mechanism(x.size(1))(x, source)

    def __repr__(self) -> str:
        args = [f'num_sampled={self.num_sampled}',
                f'domain_sizes={self.domain_sizes}']
        if self.seed is not None:
            args.append(f'seed={self.seed}')
        name = self.__class__.__name__
        if self.calibration == 'paper':
            return (f"{name}.from_paper(epsilon_x={self.epsilon_x}, "
                    f"{', '.join(args)})")
        return f"{name}(epsilon={self.epsilon}, {', '.join(args)})"
