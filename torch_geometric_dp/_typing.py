"""Types that several rooms share."""
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Path = str | os.PathLike[str]
#: A bound of all columns, or of each of them.
Bound = float | Sequence[float] | Tensor
Bounds = tuple[Bound, Bound]
#: One number for all columns, or one for each.
Sizes = int | Sequence[int]
