"""Part sizes: every object that the store takes fits its limits, and so does memory."""

from hypothesis import given
from hypothesis import strategies as st

from s3unzip.extraction.large import choose_part_size, copy_sizes, parts_at_once
from s3unzip.settings import Tuning
from s3unzip.stores.ports import PartLimits

LIMITS = PartLimits()
SIZES = st.one_of(
    st.integers(1, LIMITS.object_bytes),
    st.integers(1, 1 << 30),
    st.integers(0, 20).map(lambda less: LIMITS.object_bytes - less),
)


@given(size=SIZES, wanted=st.integers(1, 1 << 33))
def test_stream_parts_fit_the_store(size: int, wanted: int) -> None:
    """A member of any size up to 50 TB is at most 10,000 parts of legal size."""
    part = choose_part_size(size, wanted, LIMITS)
    assert LIMITS.min_bytes <= part <= LIMITS.max_bytes
    assert -(-size // part) <= LIMITS.max_parts


@given(size=SIZES, wanted=st.integers(1, 1 << 33))
def test_copy_parts_fit_the_store(size: int, wanted: int) -> None:
    """Ranges of a copy cover the member, in at most 10,000 parts of legal size."""
    sizes = copy_sizes(size, wanted, LIMITS)
    assert sum(sizes) == size
    assert len(sizes) <= LIMITS.max_parts
    assert max(sizes) <= LIMITS.max_bytes
    assert len(sizes) == 1 or min(sizes) >= LIMITS.min_bytes


@given(size=SIZES)
def test_parts_in_flight_stay_within_the_budget(size: int) -> None:
    """Parts in flight take no more memory than the settings allow, or are one part."""
    tuning = Tuning()
    part = choose_part_size(size, tuning.part_bytes, LIMITS)
    at_once = parts_at_once(part, tuning)
    assert at_once == 1 or at_once * part <= tuning.part_bytes * tuning.parts_in_flight
