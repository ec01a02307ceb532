"""Globs: what they fit, and that no name takes longer than its length."""

import fnmatch
import re

import pytest
from hypothesis import example, given, strategies as st

from s3unzip.errors import UsageError
from s3unzip.globs import MAX_TRANSITIONS, compile_glob
from s3unzip.model import Options
from s3unzip.object_properties import ObjectProperties

TOKENS = ("a", "B", "/", ".", "*", "**", "**/", "?", "[ab]", "[!a]", "[+-9]", "[-a]", "[\\-b]", "[")


@pytest.mark.parametrize(
    ("pattern", "path", "match"),
    [
        ("*.json", "a/b/c.json", True),
        ("*.json", "a/b/c.jsonl", False),
        ("a/*.json", "a/b/c.json", False),
        ("a/**/*.json", "a/c.json", True),
        ("a/**/*.json", "a/x/y/c.json", True),
        ("a/", "a/x/y", True),
        ("/top", "top", True),
        ("/top", "a/top", False),
        ("//etc/a", "/etc/a", True),
        ("etc/a", "/etc/a", True),
        ("?.txt", "ab.txt", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("a.b", "aXb", False),
        ("**", "any/thing", True),
    ],
)
def test_globs_match_as_in_gitignore(pattern: str, path: str, *, match: bool) -> None:
    """A pattern without a slash is about the last part; ** crosses folders."""
    assert bool(compile_glob(pattern)(path)) is match


@given(st.text("ab*?.", max_size=6), st.text("ab.", max_size=6))
def test_simple_globs_agree_with_fnmatch(pattern: str, name: str) -> None:
    """On one folder level the standard library says the same."""
    if "**" not in pattern:
        assert bool(compile_glob(pattern)(name)) == fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize("pattern", ["A*.Txt", "d/A?.txt", "**/a[1-3].TXT"])
def test_case_counts_unless_it_is_not_to(pattern: str) -> None:
    """A glob can be compared with upper case as lower case; a newline is a character then too."""
    assert compile_glob(pattern, any_case=True)("d/a1.txt")
    assert not compile_glob(pattern)("d/a1.txt")
    assert compile_glob("A**Z", any_case=True)("a\n/z")
    assert compile_glob("a**z")("a\n/z")


@pytest.mark.parametrize("pattern", ["a[", "a[]", "a[b"])
def test_a_bracket_that_is_not_closed_is_itself(pattern: str) -> None:
    """As in a shell."""
    assert compile_glob(pattern)(pattern)
    assert not compile_glob(pattern)("ab")


def translate(pattern: str) -> str:
    """Return the regular expression that defines a glob; it is not fast."""
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}

    def token(match: re.Match[str]) -> str:
        text = match[0]
        if len(text) > 1 and text[0] == "[":
            inside = text[1:-1].replace("\\", "\\\\")
            return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
        return wild.get(text) or re.escape(text)

    whole = pattern + "**" if pattern.endswith("/") else pattern
    text = re.sub(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|.", token, whole.lstrip("/"))
    return rf"\A/*(?:{text})\Z" if "/" in whole else rf"\A(?:.*/)?(?:{text})\Z"


@given(
    st.lists(st.sampled_from(TOKENS), max_size=6),
    st.text("aaB/.-\\", max_size=8),
    st.sampled_from([re.DOTALL, re.DOTALL | re.IGNORECASE]),
)
@example(["*", "/", "a"], "//a", re.DOTALL)
@example(["**/", "/", "a"], "//a", re.DOTALL)
@example(["[!a]", "*", "B"], "/aB", re.DOTALL)
@pytest.mark.filterwarnings("ignore:Possible nested set")
def test_a_glob_fits_what_its_definition_fits(
    tokens: list[str], path: str, flags: re.RegexFlag
) -> None:
    """The quick regular expressions and the automata fit the same paths as the definition."""
    pattern = "".join(tokens)
    fits = re.search(translate(pattern), path, flags) is not None
    assert bool(compile_glob(pattern, any_case=bool(flags & re.IGNORECASE))(path)) is fits


@given(
    st.lists(st.sampled_from([*TOKENS, "*", "**", "**/"]), max_size=8),
    st.text("aB/.", min_size=1, max_size=3),
)
@example(["*", "a", "*", "a", "*", "a"], "a")
@example(["**/", "a", "*", "/", "**/", "B", "*", "a"], "a/")
@example(["*", "/", "**/", "B"], "/")
@example(["a", "**", "a", "**", "a", "**", "B"], "a")
def test_no_name_takes_longer_than_its_length(tokens: list[str], unit: str) -> None:
    """A match that takes the square of this name's length ends tomorrow."""
    compile_glob("".join(tokens))(unit * 300_000 + "\0")


def test_the_memory_of_an_automaton_is_bounded() -> None:
    """Ever new characters do not fill the memory, and change no answer."""
    glob = compile_glob("**a*b")
    for number in range(3 * MAX_TRANSITIONS):
        assert not glob(f"a{chr(0x10000 + number)}c")
    assert glob("xaxb")


@pytest.mark.parametrize("pattern", ["[z-a].csv", "*[9-0]*"])
def test_an_empty_range_is_a_mistake(pattern: str) -> None:
    """Whoever makes the options is told, before an archive is read."""
    with pytest.raises(UsageError, match="bad character range"):
        Options(exclude=(pattern,))
    with pytest.raises(UsageError, match="bad character range"):
        ObjectProperties(content_types={pattern: "text/csv"}).check()


@pytest.mark.parametrize("pattern", ["[[]2024].zip", "[a&&b]", "[!]", "[^]"])
def test_a_character_class_raises_no_warning(pattern: str) -> None:
    """Python's warnings about sets of characters are errors here; a class of nothing is itself."""
    compile_glob(pattern)("x")
