"""Which members a run extracts: globs, names, a limit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.model import Options


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob.

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
    return re.compile(rf"\A(?:{text})\Z" if anchored else rf"\A(?:.*/)?(?:{text})\Z", re.DOTALL)


def _translate(token: str) -> str:
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if token in wild:
        return wild[token]
    if len(token) > 1 and token.startswith("["):
        inside = token[1:-1].replace("\\", "\\\\")
        return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    return re.escape(token)


def selector(options: Options) -> Callable[[str], bool] | None:
    """Return the function that says whether a path is wanted; None: all are."""
    if not (options.include or options.exclude or options.names):
        return None
    include = [compile_glob(pattern) for pattern in options.include]
    exclude = [compile_glob(pattern) for pattern in options.exclude]
    names = frozenset(options.names)

    def wanted(path: str) -> bool:
        if names and path not in names:
            return False
        if include and not any(pattern.match(path) for pattern in include):
            return False
        return not any(pattern.match(path) for pattern in exclude)

    return wanted
