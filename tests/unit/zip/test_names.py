"""Names in messages, and runs of combining marks, at their limits."""

import pytest

from s3unzip.zip.names import MAX_MARKS, cut_name, has_long_marks, show_name
from s3unzip.zip.values import SHOWN_NAME

MARK = "\u0301"  # a combining acute accent
LETTER = "\u3042"  # a letter beyond U+0300, with which marks may combine


def test_names_are_shown_up_to_their_limit() -> None:
    """One of exactly that length is whole; of a longer one the beginning is shown."""
    exact = b"a" * SHOWN_NAME
    assert show_name(exact) == exact.decode() == cut_name(exact.decode())
    assert show_name(exact + b"b") == cut_name(exact.decode() + "b") == exact.decode() + "..."
    assert show_name(b"\xff") == "\\xff"


@pytest.mark.parametrize("before", ["", "a", LETTER, LETTER * 40])
@pytest.mark.parametrize("after", ["", "a", LETTER, LETTER + MARK * 5])
def test_marks_are_counted_in_a_row(before: str, after: str) -> None:
    """As many as any language has are right, one more is too long, wherever they begin."""
    assert not has_long_marks(before + MARK * MAX_MARKS + after)
    assert has_long_marks(before + MARK * (MAX_MARKS + 1) + after)
