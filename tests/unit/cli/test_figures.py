"""Names on a terminal: no control sequence, and no two names alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3unzip.cli.figures import printable, printable_name, show_bytes, show_count, show_seconds


def test_controls_are_shown() -> None:
    """Control characters, and those that turn text around, become escapes."""
    assert printable("a\x1b[2Jb\u202egpj.exe") == r"a\x1b[2Jb\u202egpj.exe"
    assert printable("\U000e0001") == r"\U000e0001"
    assert printable("caf\u00e9 \u65e5") == "caf\u00e9 \u65e5"


def test_an_escape_is_not_its_text() -> None:
    """The text of an escape sequence differs from the escape of that character."""
    assert printable_name("\u202e") == r"\u202e"
    assert printable_name(r"\u202e") == r"\\u202e"
    assert printable_name(r"\x202e") == r"\\x202e"


@given(st.lists(st.text(st.sampled_from("\\xu20e\n\u202e\xad"), max_size=9), max_size=40))
def test_names_that_look_alike_are_alike(names: list[str]) -> None:
    """The shown text distinguishes names and is printable."""
    shown = {printable_name(name) for name in names}
    assert len(shown) == len(set(names))
    assert all(text.isprintable() for text in shown)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (12.34, "12.3 s"), (245.0, "4 min 05 s"), (3_725.0, "1 h 02 min")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    """Seconds, then minutes, then hours."""
    assert show_seconds(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (3 * 1024**3, "3 GiB"), (2**43, "8 TiB")],
)
def test_sizes_read_well(size: int, text: str) -> None:
    """Sizes have binary units, with one decimal if it matters."""
    assert show_bytes(size) == text


def test_counts() -> None:
    """One of a thing is not several."""
    assert (show_count(1, "member"), show_count(2_000, "member")) == ("1 member", "2,000 members")
    assert show_count(0, "directory", "directories") == "0 directories"
