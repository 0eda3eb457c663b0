"""Other packages that randomise values, one call a value; what is not installed
is left out, and said.
"""
import importlib
from functools import lru_cache

import numpy as np


def categories(k, epsilon=1.0, n=500):
    """Those that have something for one value in k, each with the number of
    values that one call of it does.
    """
    values = np.random.RandomState(0).randint(0, k, n).tolist()

    def diffprivlib():
        from diffprivlib.mechanisms import GeometricTruncated
        return GeometricTruncated(epsilon=epsilon, sensitivity=k - 1, lower=0,
                                  upper=k - 1).randomise

    def multi_freq_ldpy():
        from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
        return lambda value: GRR_Client(value, k, epsilon)

    def pure_ldp():
        from pure_ldp.frequency_oracles.direct_encoding import DEClient
        return DEClient(epsilon=epsilon, d=k).privatise

    def opendp():
        import opendp.prelude as dp
        dp.enable_features('contrib')
        keep = np.exp(epsilon) / (np.exp(epsilon) + k - 1)
        return dp.m.make_randomized_response(list(range(k)), prob=keep)

    return {name: (each_of(call, values), n) for name, call in installed({
        'diffprivlib (truncated geometric)': ('diffprivlib', diffprivlib),
        'multi-freq-ldpy (randomised response)': ('multi_freq_ldpy',
                                                  multi_freq_ldpy),
        'pure-ldp (randomised response)':
        ('pure_ldp.frequency_oracles.direct_encoding', pure_ldp),
        'opendp (randomised response)': ('opendp', opendp),
    }).items()}


def laplace(scale, n=500):
    """Those with integer Laplace noise of that scale."""
    zeros = [0] * n

    def opendp():
        import opendp.prelude as dp
        dp.enable_features('contrib')
        return dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=int)),
                                 dp.l1_distance(T=int), scale=float(scale))

    def diffprivlib():
        from diffprivlib.mechanisms import Geometric
        return each_of(Geometric(epsilon=1 / scale, sensitivity=1).randomise)

    return {name: (lambda call=call: call(zeros), n) for name, call in
            installed({'opendp (discrete Laplace)': ('opendp', opendp),
                       'diffprivlib (geometric)': ('diffprivlib',
                                                   diffprivlib)}).items()}


def gaussian(sigma, n=500):
    """Those with integer Gaussian noise of that deviation."""
    zeros = [0] * n

    def opendp():
        import opendp.prelude as dp
        dp.enable_features('contrib')
        return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T=int)),
                                  dp.l2_distance(T=int), scale=float(sigma))

    def diffprivlib():
        from diffprivlib.mechanisms import GaussianDiscrete
        mechanism = GaussianDiscrete(epsilon=1.0, delta=1e-5)
        mechanism._scale = float(sigma)  # It calibrates itself, to others.
        return each_of(mechanism.randomise)

    return {name: (lambda call=call: call(zeros), n) for name, call in
            installed({'opendp (discrete Gaussian)': ('opendp', opendp),
                       'diffprivlib (discrete Gaussian)':
                       ('diffprivlib', diffprivlib)}).items()}


def sampled_columns(x, epsilon):
    """Those that randomise one column of each row, and replace all others by
    fake values (RS+FD), given the size of the columns' domains.
    """
    rows, sizes = x.tolist(), [2] * x.shape[1]

    def multi_freq_ldpy():
        from multi_freq_ldpy.mdim_freq_est.RSpFD_solution import (
            RSpFD_GRR_Client,
        )
        return lambda row: RSpFD_GRR_Client(row, sizes, len(sizes), epsilon)

    return {name: (each_of(call, rows), x.size) for name, call in installed({
        'multi-freq-ldpy (RS+FD)': ('multi_freq_ldpy', multi_freq_ldpy),
    }).items()}


def each_of(call, values=None):
    """A function that calls another one for each value."""
    if values is None:
        return lambda values: [call(value) for value in values]
    return lambda: [call(value) for value in values]


def installed(packages):
    """The functions of the packages that are there."""
    found = {}
    for name, (module, make) in packages.items():
        if at_hand(module):
            found[name] = make()
    return found


@lru_cache
def at_hand(module):
    """Whether it can be imported; if not, why (once)."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(f'{module} is left out: {error}')
        return False
    return True
