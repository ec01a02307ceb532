"""Keys that obstore would refuse or change: told apart fast, and right."""

import re

from hypothesis import given
from hypothesis import strategies as st

from s3unzip.stores.s3.source import is_odd

SEGMENT = re.compile(r"[\x00-\x1f\x7f]")


@given(st.text(st.sampled_from("a./\x00\x1f\x7f\u00a0\u00e9\ud7ff"), max_size=8))
def test_odd_keys(key: str) -> None:
    """Empty, one-dot and two-dot segments and control characters are odd, and nothing else."""
    parts = key.split("/")
    refused = any(part in {"", ".", ".."} or SEGMENT.search(part) for part in parts)
    assert is_odd(key) == refused
    for plain in ("a", ".profile", "a/..b", "caf\u00e9/\u00a0", "a/b..."):
        assert not is_odd(plain)
