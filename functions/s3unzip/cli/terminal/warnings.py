"""Warnings to standard error."""

from __future__ import annotations

import sys

from s3unzip.cli.terminal.figures import printable


def warn(sentence: str) -> None:
    """Print a warning, one line."""
    sys.stderr.write(f"s3unzip: warning: {printable(sentence)}\n")
