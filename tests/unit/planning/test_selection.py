"""Which members are wanted, and what is said of what fits none."""

import pytest

from s3unzip.model import Options
from s3unzip.planning.select import (
    compile_glob,
    find_unmatched,
    selector,
)


@pytest.mark.parametrize("pattern", ["A*.Txt", "d/A?.txt", "**/a[1-3].TXT"])
def test_case_counts_unless_it_is_not_to(pattern: str) -> None:
    """A glob can be compared with upper case as lower case; a newline is a character then too."""
    assert compile_glob(pattern, any_case=True).match("d/a1.txt")
    assert not compile_glob(pattern).match("d/a1.txt")
    assert compile_glob("A**Z", any_case=True).match("a\n/z")
    assert compile_glob("a**z").match("a\n/z")


@pytest.mark.parametrize("pattern", ["a[", "a[]", "a[b"])
def test_a_bracket_that_is_not_closed_is_itself(pattern: str) -> None:
    """As in a shell."""
    assert compile_glob(pattern).match(pattern)
    assert not compile_glob(pattern).match("ab")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (Options(names=("a", "c")), "ac"),
        (Options(names=("a", "c"), exclude=("c",)), "a"),
        (Options(names=("a", "c"), include=("b", "c")), "c"),
        (Options(include=("a", "b")), "ab"),
        (Options(exclude=("a", "b")), "c"),
        (Options(include=("a", "b"), exclude=("b", "c")), "a"),
    ],
)
def test_each_option_takes_away(options: Options, wanted: str) -> None:
    """Names and includes must fit, and no exclude may."""
    chosen = selector(options)
    assert chosen is not None
    assert "".join(filter(chosen, "abc")) == wanted


PATHS = ("a.txt", "d/b.txt", "c.bin")


@pytest.mark.parametrize(
    ("options", "selected", "expected"),
    [
        (Options(include=("*.zip",)), 0, ["--include *.zip"]),
        (Options(include=("*.txt", "*.zip")), 2, ["--include *.zip"]),
        (Options(include=("*.txt",)), 2, []),
        (Options(names=("a.txt", "b.txt")), 1, ["--member b.txt"]),
        (Options(names=("c.bin",), include=("*.zip",)), 0, ["--include *.zip"]),
    ],
)
def test_what_fits_no_member_is_listed(
    options: Options, selected: int, expected: list[str]
) -> None:
    """Each name and each glob by itself; one glob alone only if nothing was selected."""
    found = find_unmatched(options, lambda: iter(PATHS), selected)
    assert [f"{one.option} {one.pattern}" for one in found] == expected
