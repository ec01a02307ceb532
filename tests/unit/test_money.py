"""Money as people read it: no amount above zero looks like nothing, and no two amounts alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3unzip.money import show_dollars

AMOUNTS = st.floats(1e-9, 1e6)


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (0, "$0"),
        (1e-7, "$0.0000001"),
        (0.0000264, "$0.000026"),
        (0.00004, "$0.00004"),
        (0.00012345, "$0.00012"),
        (0.0054, "$0.0054"),
        (0.12345, "$0.1235"),
        (5, "$5.0000"),
        (50.4466, "$50.45"),
        (5_045, "$5,045.00"),
    ],
)
def test_dollars_read_well(dollars: float, text: str) -> None:
    """Cents for dollars, four decimals for fractions of a cent, two digits of a tiny amount."""
    assert show_dollars(dollars) == text


@given(AMOUNTS)
def test_no_cost_looks_like_nothing(dollars: float) -> None:
    """What is shown is the amount, to 6 % at least."""
    shown = float(show_dollars(dollars).lstrip("$").replace(",", ""))
    assert abs(shown - dollars) <= 0.06 * dollars


@given(AMOUNTS, st.floats(1e-6, 1))
def test_a_cost_above_a_limit_looks_above_it(limit: float, more: float) -> None:
    """In one sentence, two amounts that differ do not look the same."""
    cost = limit * (1 + more)
    if cost - limit > 1e-11:
        assert show_dollars(cost, limit) != show_dollars(limit, cost)
