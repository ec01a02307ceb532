"""What a command says where its options select nothing, or less than they ask for."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from s3unzip.cli.terminal.figures import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.model import Options
    from s3unzip.planning.reading import Reading


def judge_selection(options: Options) -> Callable[[Reading], None]:
    """Return what a run is to do when it has read the directory: see `check`."""
    return partial(check, options=options)


def check(reading: Reading, options: Options) -> None:
    """Warn of globs that no member fits.

    Raises:
        NothingSelectedError: a name is no member's, or no member is selected.
    """
    from s3unzip.planning.selection import check_selection

    selected = len(reading.selected) + len(reading.failures)
    for warning in check_selection(reading.unmatched, options, selected, reading.excluded):
        sys.stderr.write(f"s3unzip: warning: {printable(warning)}\n")
