"""Match globs against names, in time that is linear in the length of a name.

``*`` and ``?`` match within one folder; ``**`` matches across folders. A pattern without a slash is
matched against the last part of a path, as in .gitignore. A pattern that ends in a slash matches
everything below that folder. Leading slashes in a pattern or in a path are ignored.

The names come from the sender of an archive, who may be hostile. `re` tries every way to divide a
name between wildcards: with two wildcards in one folder's name, the time grows with the square of
the name's length; with three, it grows with the cube. Therefore `re` is used only for patterns that
it matches in linear time (`_suits_re`, `_translate_part`). The other patterns are compiled to an
automaton, which reads each character once. The automaton takes about 4 us for a typical name, and
`re` takes 0.2 us.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from itertools import groupby
from typing import NamedTuple, TypeAlias

from s3unzip.errors import UsageError

WILDCARDS = frozenset("*?[")
MAX_TRANSITIONS = 20_000  # maximum number of transitions that an automaton keeps: about 4 MB
_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|.", re.DOTALL)
_ANY_FOLDER = "**/"
_LEADING_SLASHES = "/*"  # token for any number of slashes; differs from all tokens of a pattern
_SEPARATORS = {_ANY_FOLDER, "**", _LEADING_SLASHES, "/"}
_WILD = {_ANY_FOLDER: "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]", _LEADING_SLASHES: "/*+"}


# A compiled pattern: a function that returns a true value if the pattern matches the whole path.
Glob: TypeAlias = Callable[[str], object]


def has_wildcards(text: str) -> bool:
    """Return whether `text` is a glob rather than a name."""
    return not WILDCARDS.isdisjoint(text)


@lru_cache(maxsize=4096)
def compile_glob(pattern: str, *, any_case: bool = False) -> Glob:
    """Return a compiled glob; with `any_case`, upper and lower case are treated as equal.

    Raises:
        UsageError: a range of characters is empty, as in ``[z-a]``.
    """
    text = pattern.lstrip("/")
    if pattern.endswith("/"):
        text += "**"
    tokens: list[str] = _TOKEN.findall(text)
    if "/" not in pattern:  # the pattern matches the last part of a path
        tokens.insert(0, _ANY_FOLDER)
    elif not text.startswith("**"):  # `**` also matches leading slashes of a path
        tokens.insert(0, _LEADING_SLASHES)
    flags = re.DOTALL
    if any_case:
        flags |= re.IGNORECASE
    try:
        if _suits_re(tokens):  # for the other patterns, `re` could take a very long time
            # Each group is a part of the path, or the separators between two parts.
            parts = (
                _translate_part(part)
                for _, part in groupby(tokens, lambda token: token in _SEPARATORS)
            )
            return re.compile(rf"\A{''.join(parts)}\Z", flags).match
        return _compile_automaton(tokens, flags)
    except re.error as error:
        raise UsageError(f"glob {pattern!r}: {error.msg}") from None


def compile_name(pattern: str) -> Glob:
    """Return a glob that also matches the text of `pattern` itself, as in ``report [2024].txt``."""
    glob = compile_glob(pattern)
    if "[" not in pattern:
        return glob
    name = compile_glob(pattern.replace("[", "[[]"))  # "[[]" matches "[" itself
    return lambda path: name(path) or glob(path)


def _suits_re(tokens: Sequence[str]) -> bool:
    """Return whether `re` matches the pattern correctly and in linear time.

    All of these must be true:

    - Each ``**`` is a whole part, so that a slash separates it from other wildcards.
    - At most one part before the last part is ``**``: with two, `re` would try all pairs of places.
      If the last part is ``**``, it matches the rest of the path at once.
    - No character class can match a slash, as in ``a[/]b``.
    - The pattern does not begin with ``*/``. In the path ``/b``, ``*/b`` needs the leading slash,
      but the expression for leading slashes (`_LEADING_SLASHES`) would keep this slash.
    """
    # Classes that cannot match a slash become "?".
    text = "".join("?" if _is_class_without_slash(token) else token for token in tokens)
    parts = text.removeprefix(_LEADING_SLASHES).split("/")
    is_separated = all(part == "**" or "**" not in part for part in parts)
    needs_slash = text.startswith(f"{_LEADING_SLASHES}*/")
    return is_separated and parts[:-1].count("**") <= 1 and "[" not in text and not needs_slash


def _translate_part(tokens: Iterable[str]) -> str:
    """Return the regular expression of one part of a pattern that suits `re`, or of separators.

    ``a*b*c`` becomes ``a(?>[^/]*?b)[^/]*c``. The text after a ``*`` is matched at the first place
    where the text fits. No later place needs to be tried, because the first place leaves the most
    text for the rest of the pattern. ``(?>`` makes an atomic group, so that `re` does not try later
    places. `re` tries several places only for the last ``*``, because the text after the last ``*``
    must end the name.
    """
    # No other token has the expression of ``*``: the split returns the texts around each ``*``.
    prefix, *after_stars = "".join(map(_translate, tokens)).split(_WILD["*"])
    if not after_stars:
        return prefix
    middle = "".join(f"(?>{_WILD['*']}?{text})" for text in after_stars[:-1])
    return prefix + middle + _WILD["*"] + after_stars[-1]


def _is_class_without_slash(token: str) -> bool:
    return len(token) > 2 and token[0] == "[" and not re.match(_translate(token), "/")


def _translate(token: str) -> str:
    """Return the regular expression of a wildcard, class (``[a-z]``, ``[!a-z]``) or character."""
    if token in _WILD:
        return _WILD[token]
    negation = ""
    if token[1:2] in {"!", "^"}:
        negation = "^"
    # The characters and ranges between the brackets.
    members = re.findall(r".-.|.", token[1 + len(negation) : -1], re.DOTALL)
    if not members:  # the token is one character, or an empty character class
        return re.escape(token)
    # `[::2]` picks the two ends of a range such as "a-z".
    ranges = ("-".join(map(re.escape, member[::2])) for member in members)
    return f"[{negation}{''.join(ranges)}]"


_NOTHING = re.compile("(?!)")
_SLASH = re.compile("/")
_ANY_CHARACTER = re.compile(".", re.DOTALL)


class _Position(NamedTuple):
    """A position in a pattern, before one of its tokens."""

    stays_on: re.Pattern[str] = _NOTHING  # the characters that keep a match at this position
    advances_on: re.Pattern[str] = _NOTHING  # the characters that advance a match by one position
    skips: tuple[int, ...] = ()  # numbers of positions to skip without consuming a character


# The positions of each token that can match an empty text. A match may skip from the first position
# of a token to the position after the token.
_WILD_POSITIONS = {
    _LEADING_SLASHES: [_Position(stays_on=_SLASH, skips=(1,))],
    "*": [_Position(stays_on=re.compile("[^/]"), skips=(1,))],
    "**": [_Position(stays_on=_ANY_CHARACTER, skips=(1,))],
    # If the path has no folder, a match skips the two positions. Otherwise, the second position
    # matches all text up to a slash.
    _ANY_FOLDER: [
        _Position(skips=(1, 2)),
        _Position(stays_on=_ANY_CHARACTER, advances_on=_SLASH),
    ],
}


def _compile_automaton(tokens: Sequence[str], flags: int) -> Glob:
    """Compile a glob pattern into a deterministic automaton, which threads can share.

    A state of the automaton is the set of positions in the pattern that a match may have reached.
    """
    positions: list[_Position] = []
    for token in tokens:
        if token in _WILD_POSITIONS:
            positions += _WILD_POSITIONS[token]
        else:
            positions.append(_Position(advances_on=re.compile(_translate(token), flags)))
    end = len(positions)  # the position after the whole pattern
    positions.append(_Position())  # no character keeps a match at this position or advances it

    def with_skips(numbers: list[int]) -> frozenset[int]:
        """Return the given positions and those reached from them without consuming a character."""
        for number in numbers:  # the loop also visits the positions that it adds
            numbers += [number + skip for skip in positions[number].skips]
        return frozenset(numbers)

    # The cache keeps the transitions of the automaton. The cache is bounded, because names can
    # contain any number of different characters.
    @lru_cache(MAX_TRANSITIONS)
    def follow(state: frozenset[int], character: str) -> frozenset[int]:
        """Return the positions that a match can reach from a state by consuming one character."""
        numbers = [n for n in state if positions[n].stays_on.match(character)]
        numbers += [n + 1 for n in state if positions[n].advances_on.match(character)]
        return with_skips(numbers)

    start = with_skips([0])
    return lambda path: end in reduce(follow, path, start)
