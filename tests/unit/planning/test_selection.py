"""Which members are wanted, and what is said of what fits none."""

import pytest

from s3unzip.model import Options
from s3unzip.planning.select import find_unmatched, selector


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (Options(names=("a", "c")), "ac"),
        (Options(names=("a", "c"), exclude=("c",)), "a"),
        (Options(names=("a", "c"), include=("b", "c")), "c"),
        (Options(include=("a", "b")), "ab"),
        (Options(exclude=("a", "b")), "c"),
        (Options(include=("a", "b"), exclude=("b", "c")), "a"),
        (Options(include=("[bc]",)), "bc"),
    ],
)
def test_each_option_takes_away(options: Options, wanted: str) -> None:
    """Names and includes must fit, and no exclude may."""
    chosen = selector(options)
    assert chosen is not None
    assert "".join(filter(chosen, "abc")) == wanted


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
def test_names_and_globs_without_a_member_are_listed(
    options: Options, selected: int, expected: list[str]
) -> None:
    """Each name and each glob by itself; one glob alone only if nothing was selected."""
    found = find_unmatched(options, lambda: iter(("a.txt", "d/b.txt", "c.bin")), selected)
    assert [f"{one.option} {one.pattern}" for one in found] == expected


@pytest.mark.parametrize("path", ["file[1].txt", "d/file[1].txt", "d/file1.txt"])
def test_a_name_with_brackets_fits_itself(path: str) -> None:
    """A name that ``ls`` shows may be typed, and is no name that is missing."""
    options = Options(include=("file[1].txt", "none"))
    wanted = selector(options)
    assert wanted is not None
    assert wanted(path)
    assert not wanted("file[2].txt")
    assert [one.pattern for one in find_unmatched(options, lambda: iter([path]), 1)] == ["none"]


def test_near_names_are_bounded_by_the_characters_to_compare() -> None:
    """To compare a long name with all long names of an archive would take an hour."""
    name = "x" * 1_000
    paths = [f"{name}{number:05}" for number in range(20_000)]
    (missing,) = find_unmatched(Options(names=(name,)), lambda: iter(paths), 0)
    assert len(missing.near) == 3
