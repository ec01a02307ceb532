"""Names on a terminal: no control sequence, and no two names alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from s3unzip.cli.figures import printable, printable_name


def test_controls_are_shown() -> None:
    """Control characters, and those that turn text around, become escapes."""
    assert printable("a\x1b[2Jb\u202egpj.exe") == r"a\x1b[2Jb\u202egpj.exe"
    assert printable("\U000e0001") == r"\U000e0001"
    assert printable("caf\u00e9 \u65e5") == "caf\u00e9 \u65e5"


def test_an_escape_is_not_its_text() -> None:
    """The characters of an escape do not look like what the escape stands for."""
    assert printable_name("\u202e") == r"\u202e"
    assert printable_name(r"\u202e") == r"\\u202e"
    assert printable_name(r"\x202e") == r"\\x202e"


@given(st.lists(st.text(st.sampled_from("\\xu20e\n\u202e\xad"), max_size=9), max_size=40))
def test_names_that_look_alike_are_alike(names: list[str]) -> None:
    """What is shown tells names apart, and is printable."""
    shown = {printable_name(name) for name in names}
    assert len(shown) == len(set(names))
    assert all(text.isprintable() for text in shown)
