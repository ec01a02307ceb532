"""Globs of names, in time that is linear in the length of a name.

``*`` and ``?`` stay within one folder, ``**`` crosses folders. A pattern without a slash is matched
against the last part of a path, as in .gitignore. A pattern that ends in a slash matches everything
below that folder. Slashes at the beginning of a pattern or of a path do not matter.

The sender of an archive chooses the names. `re` tries each way to divide a name between wildcards:
two in one folder's name cost the square of its length, three the cube. So `re` gets only patterns
in which no two wildcards can match the same characters (`_is_linear`). The other patterns become an
automaton, which reads each character once. It takes about 1 us for a usual name, `re` 0.15 us.
"""

from __future__ import annotations

import re
from functools import lru_cache, reduce
from operator import getitem
from typing import TYPE_CHECKING, NamedTuple, Protocol

from s3unzip.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WILDCARDS = frozenset("*?[")
MAX_TRANSITIONS = 20_000  # that an automaton keeps: about 2 MB
_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|.", re.DOTALL)
_ANY_FOLDER = "**/"
_SLASHES = "/*"  # any number of slashes at the beginning; no token of a pattern looks like it
_WILD = {_ANY_FOLDER: "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]", _SLASHES: "/*+"}


class Glob(Protocol):
    """A compiled pattern."""

    def match(self, path: str, /) -> object:
        """Return a true value if the pattern matches the whole path."""


def has_wildcards(text: str) -> bool:
    """Return whether `text` is a glob, not a name."""
    return not WILDCARDS.isdisjoint(text)


@lru_cache(maxsize=4096)
def compile_glob(pattern: str, *, any_case: bool = False) -> Glob:
    """Return a glob that is ready to match; with `any_case`, upper and lower case are equal.

    Raises:
        UsageError: a range of characters is empty, as in ``[z-a]``.
    """
    text = pattern.lstrip("/")
    if pattern.endswith("/"):
        text += "**"
    tokens: list[str] = _TOKEN.findall(text)
    if "/" not in pattern:
        tokens.insert(0, _ANY_FOLDER)
    elif not text.startswith("**"):
        tokens.insert(0, _SLASHES)
    flags = re.DOTALL
    if any_case:
        flags |= re.IGNORECASE
    try:
        if _is_linear(tokens):
            return re.compile(rf"\A{''.join(map(_translate, tokens))}\Z", flags)
        return _Automaton(_list_positions(tokens, flags))
    except re.error as error:
        raise UsageError(f"glob {pattern!r}: {error.msg}") from None


class _NameOrGlob(NamedTuple):
    name: Glob
    glob: Glob

    def match(self, path: str) -> object:
        return self.name.match(path) or self.glob.match(path)


def compile_name(pattern: str) -> Glob:
    """Return the glob of a pattern, which also matches itself as a name: ``report [2024].txt``."""
    glob = compile_glob(pattern)
    if "[" not in pattern:
        return glob
    return _NameOrGlob(compile_glob(pattern.replace("[", "[[]")), glob)


def _is_linear(tokens: Sequence[str]) -> bool:
    """Return whether `re` needs linear time: no two wildcards can match the same characters.

    Slashes separate the wildcards. So each part may have one ``*``, and one part before the last
    may be ``**``. As the last part, ``**`` matches the rest of the path at once. A class that can
    match a slash, as in ``a[/]b``, separates nothing.
    """
    text = "".join("?" if _is_class_without_slash(token) else token for token in tokens)
    parts = text.removeprefix(_SLASHES).split("/")
    is_separated = all(part == "**" or part.count("*") <= 1 for part in parts)
    # In the regular expression of ``*/b`` the slashes at the beginning would take that slash, too.
    takes_slash = text.startswith(f"{_SLASHES}*/")
    return is_separated and parts[:-1].count("**") <= 1 and "[" not in text and not takes_slash


def _is_class_without_slash(token: str) -> bool:
    return len(token) > 2 and token[0] == "[" and not re.match(_translate(token), "/")


def _translate(token: str) -> str:
    """Return the regular expression of a token: a wildcard, a character class or a character."""
    if token in _WILD:
        return _WILD[token]
    negation = ""
    if token[1:2] in {"!", "^"}:
        negation = "^"
    members = re.findall(r".-.|.", token[1 + len(negation) : -1], re.DOTALL)
    if not members:  # one character, or an empty character class
        return re.escape(token)
    # `[::2]` picks the two ends of a range such as "a-z".
    ranges = ("-".join(map(re.escape, member[::2])) for member in members)
    return f"[{negation}{''.join(ranges)}]"


class _Position(NamedTuple):
    """A position in a pattern, before one of its tokens."""

    stays: re.Pattern[str]  # characters after which a match is at this position again
    goes: re.Pattern[str]  # characters after which it is at the next position
    skips: tuple[int, ...] = ()  # numbers of positions that it may skip without a character


def _list_positions(tokens: Sequence[str], flags: int) -> list[_Position]:
    """Return the positions of a pattern; the last one is its end, where a match is complete."""
    none, slash, not_slash, any_character = (
        re.compile(text, flags) for text in ("(?!)", "/", "[^/]", ".")
    )
    # Each of these may match nothing, so its first position skips to the one after it.
    wild = {
        _SLASHES: [_Position(slash, none, (1,))],
        "*": [_Position(not_slash, none, (1,))],
        "**": [_Position(any_character, none, (1,))],
        _ANY_FOLDER: [_Position(none, none, (1, 2)), _Position(any_character, slash)],
    }
    positions = []
    for token in tokens:
        positions += wild.get(token) or [_Position(none, re.compile(_translate(token), flags))]
    return [*positions, _Position(none, none)]


class _State(dict[str, "_State"]):
    """All positions of a match at one time, and the next state for each character."""

    def __init__(self, positions: frozenset[int], automaton: _Automaton) -> None:
        super().__init__()
        self.positions = positions
        self._automaton = automaton

    def __missing__(self, character: str) -> _State:
        state = self._automaton.follow(self, character)
        self[character] = state
        return state


class _Automaton:
    """A deterministic automaton; it makes a state when a name needs it. Threads may share it."""

    def __init__(self, positions: Sequence[_Position]) -> None:
        self._positions = positions
        self._forget()

    def match(self, path: str) -> bool:
        if self._transitions > MAX_TRANSITIONS:
            self._forget()
        end = reduce(getitem, path, self._start)
        return len(self._positions) - 1 in end.positions

    def follow(self, state: _State, character: str) -> _State:
        self._transitions += 1
        numbers: set[int] = set()
        for number in state.positions:
            if self._positions[number].stays.match(character):
                numbers.add(number)
            if self._positions[number].goes.match(character):
                numbers.add(number + 1)
        return self._state_at(numbers)

    def _forget(self) -> None:
        """Forget all states: names with ever new characters would fill the memory."""
        self._transitions = 0
        self._states: dict[frozenset[int], _State] = {}
        self._start = self._state_at({0})

    def _state_at(self, numbers: Iterable[int]) -> _State:
        """Return the state of some positions, and of the positions to which they skip."""
        reached = list(numbers)
        for number in reached:  # the loop also visits the positions that it adds
            reached += [number + skip for skip in self._positions[number].skips]
        positions = frozenset(reached)
        return self._states.setdefault(positions, _State(positions, self))
