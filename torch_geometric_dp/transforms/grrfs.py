from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch_geometric.data.datapipes import functional_transform

from torch_geometric_dp import mechanisms
from torch_geometric_dp._typing import Sizes
from torch_geometric_dp._validate import (
    check_choice,
    check_epsilon,
    check_integer,
    check_integers,
)
from torch_geometric_dp.accountant import Guarantee, Relation, Unit
from torch_geometric_dp.accountant.composition import exact_sum
from torch_geometric_dp.accountant.entry import Pairs
from torch_geometric_dp.mechanisms.mechanism import Canary
from torch_geometric_dp.noise import NoiseSource
from torch_geometric_dp.transforms.feature_transform import feature_stores
from torch_geometric_dp.transforms.private_transform import (
    Field,
    PrivateTransform,
)


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
        calibration (str, optional): :obj:`"paper"` holds Theorem 1's number on
            record as a claim, beside the true one.
            (default: :obj:`"proven"`)
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
                 calibration: str = 'proven',
                 seed: int | None = None) -> None:
        super().__init__(seed)
        self.epsilon = check_epsilon(epsilon)
        self.num_sampled = check_integer('num_sampled', num_sampled, 1)
        #: The privacy loss of one chosen column.
        self.epsilon_x = self.epsilon / self.num_sampled
        #: One number, or a tuple with one for each column.
        self.domain_sizes = check_integers('domain_sizes', domain_sizes, 2)
        sizes = self.domain_sizes
        if not isinstance(sizes, int) and len(sizes) < self.num_sampled:
            raise ValueError(f"'num_sampled' must be at most the number of "
                             f"columns, which is {len(sizes)} "
                             f"(got {num_sampled})")
        self.calibration = check_choice('calibration', calibration,
                                        ('proven', 'paper'))

    @classmethod
    def from_paper(cls, epsilon_x: float, num_sampled: int,
                   domain_sizes: Sizes, seed: int | None = None) -> 'GRRFS':
        r"""The same, with the :math:`\varepsilon_x` of one chosen column, as it
        is published. The ledger holds Theorem 1's number as a claim, and
        :math:`m \varepsilon_x` as the truth.
        """
        m = check_integer('num_sampled', num_sampled, 1)
        epsilon = exact_sum([check_epsilon(epsilon_x, 'epsilon_x')] * m)
        return cls(epsilon, m, domain_sizes, 'paper', seed)

    def mechanism(self, num_features: int) -> mechanisms.GRRFS:
        """The mechanism for rows with so many columns."""
        return mechanisms.GRRFS(self.epsilon, self.num_sampled,
                                self.domain_sizes, num_features)

    @property
    def num_features(self) -> int:
        """The number of columns that the arguments ask for, or as many that
        are sampled as not.
        """
        sizes = self.domain_sizes
        return 2 * self.num_sampled if isinstance(sizes, int) else len(sizes)

    def canaries(self, data: Any | None = None) -> Sequence[Canary]:
        """Those of the mechanism, for as many columns."""
        columns = (self.num_features if data is None or data.x is None else
                   data.x.size(1))
        return self.mechanism(columns).canaries()

    @property
    def guarantee(self) -> Guarantee:
        """One node's whole row, in the local model."""
        return Guarantee(self.epsilon, Unit.FEATURES, Relation.REPLACE)

    def promise(self, fields: list[Field]) -> Guarantee:
        """The same, with Theorem 1's number if it is claimed."""
        if self.calibration == 'proven':
            return self.guarantee
        claim = max(field.ready.claimed_epsilon for field in fields)
        return replace(self.guarantee, claimed_epsilon=claim)

    def describe(self, fields: list[Field]) -> Pairs:
        """What it takes to undo the bias, and the loss of one column."""
        sizes = self.domain_sizes
        if isinstance(sizes, tuple) and len(set(sizes)) == 1:
            sizes = sizes[0]
        loss = max(field.ready.attribute_epsilon for field in fields)
        return (('num_sampled', self.num_sampled),
                ('epsilon_x', self.epsilon_x),
                ('domain_sizes', sizes), ('attribute_epsilon', loss))

    def read(self, data: Any) -> list[Field]:
        """The features of all node types that have some."""
        fields = []
        for store in feature_stores(data):
            mechanism = self.mechanism(store.x.size(1))
            mechanism.check(store.x)
            fields.append(Field(store, 'x', (store.x, ), mechanism))
        return fields

    def write(self, field: Field, source: NoiseSource) -> list[str]:
        """Draws the features of one node type."""
        field.store.x = field.ready(field.store.x, source)
        return ['x']
