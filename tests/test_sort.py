import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_dp import _sort
from torch_geometric_dp._sort import distinct, sort

integers = st.lists(st.one_of(st.integers(-2**63, 2**63 - 1),
                              st.integers(0, 5)))


@given(integers)
def test_digit_by_digit(values):
    array = np.array(values, np.int64)
    if array.size > 0:
        _sort._sort_digits(array, np.empty_like(array))
    assert array.tolist() == sorted(values)


@given(integers)
def test_distinct(values):
    out = distinct(np.array(values, np.int64))
    assert out.tolist() == sorted(set(values))


# As many digits as it takes, an odd and an even number of them.
@pytest.mark.parametrize('bits', [1, 11, 12, 23, 40, 63])
@pytest.mark.parametrize('size', [2**11, 2**11 + 1, 30_000])
def test_many(bits, size):
    rng = np.random.default_rng(0)
    values = rng.integers(-2**(bits - 1), 2**(bits - 1), size)
    expected = np.sort(values)
    sort(values)
    assert np.array_equal(values, expected)
    view = rng.integers(0, 2**bits, 2 * size)[:size]  # Of a larger array.
    expected = np.unique(view)
    assert np.array_equal(distinct(view), expected)
