from torch_geometric_dp.accountant import Guarantee


def promise(unit, relation=None, **kwargs):
    """What is promised to one unit, for tests that need no more."""
    rows = unit in ('features', 'labels')
    return Guarantee(1.0, unit, relation or ('replace' if rows else
                                             'add-remove'), **kwargs)
