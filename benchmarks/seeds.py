"""Results over seeds, as a cell of a table."""
import numpy as np

from torch_geometric_dp.plot import interval


def mean(values, digits=1, factor=100):
    """The mean in percent with its 95% interval; one seed has none."""
    text = f'{factor * np.mean(values):.{digits}f}'
    if len(values) > 1:
        text += f' ± {factor * interval(values):.{digits}f}'
    return text
