"""What is said of a command line that cannot be understood: plain words, and where help is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer.exceptions import TyperException

# Typer's own words, and what they mean to somebody who does not know Pydantic.
PLAIN = (
    (r"Value error, ", ""),
    (r"Input should be a valid integer, .*", "must be a whole number"),
    (r"Input should be a valid number, .*", "must be a number"),
    (r"Input should be greater than or equal to (\S+)", r"must be at least \1"),
    (r"Input should be less than or equal to (\S+)", r"must be at most \1"),
)
# Words of other tools for what is done here by another name.
OTHER_NAMES = {
    "help": "s3unzip --help",
    "version": "s3unzip --version",
    "extract": "s3unzip run",
    "unzip": "s3unzip run",
    "x": "s3unzip run",
    "list": "s3unzip ls",
    "l": "s3unzip ls",
    "t": "s3unzip test",
    "check": "s3unzip test",
    "status": "s3unzip show",
    "resume": "s3unzip redrive",
    "cancel": "s3unzip abort",
    "stop": "s3unzip abort",
    "simulate": "s3unzip plan",
}


def explain_mistake(error: TyperException) -> str:
    """Return one line: what is wrong, and the command whose help shows what is right."""
    words = error.format_message().rstrip(".")
    typed = re.match(r"No such command '([^']*)'", words)
    if typed is not None and typed[1] in OTHER_NAMES:
        return f"No such command '{typed[1]}'; use: {OTHER_NAMES[typed[1]]}"
    for pattern, plain in PLAIN:
        words = re.sub(pattern, plain, words)
    context = getattr(error, "ctx", None)  # None: the group's own options were parsed
    command = "s3unzip" if context is None else context.command_path
    return f"{words} (see {command} --help)"
