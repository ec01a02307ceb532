"""Globs of members' paths."""

from __future__ import annotations

import re


def compile_glob(pattern: str, *, any_case: bool = False) -> re.Pattern[str]:
    """Return the regular expression of a glob; `any_case` takes upper for lower case.

    ``*`` and ``?`` stay within one folder, ``**`` crosses them. A pattern
    without a slash is matched against the last part of the path, as in
    .gitignore; one that ends in a slash takes everything below that folder.
    """
    if pattern.endswith("/"):
        pattern += "**"
    anchored = "/" in pattern
    text = re.sub(
        r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|.",
        lambda match: _translate(match[0]),
        pattern.lstrip("/"),
        flags=re.DOTALL,
    )
    whole = rf"\A(?:{text})\Z" if anchored else rf"\A(?:.*/)?(?:{text})\Z"
    return re.compile(whole, re.DOTALL | re.IGNORECASE if any_case else re.DOTALL)


def _translate(token: str) -> str:
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if token in wild:
        return wild[token]
    if len(token) > 1 and token.startswith("["):
        inside = token[1:-1].replace("\\", "\\\\")
        return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    return re.escape(token)
