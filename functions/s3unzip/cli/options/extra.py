"""Options of deleting what is no member of the archive."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli.options.messages import OptionGroup
from s3unzip.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.cli.terminal.deletion import Question

MAX_DELETED = 1_000


@dataclass(frozen=True)
class Extra(OptionGroup):
    """Whether what is no member is deleted, and how much of it at most."""

    delete_extra: Annotated[
        bool,
        typer.Option(
            "--delete-extra",
            help="After a complete run delete other objects below the prefix; asks first.",
        ),
    ] = False
    max_delete: Annotated[
        int | None,
        typer.Option(
            "--max-delete",
            metavar="N",
            min=1,
            help=f"Delete nothing if more than N objects are extra; default {MAX_DELETED:,}.",
        ),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting.")] = False

    def check(self, *, dry_run: bool) -> None:
        """Check that somebody agrees, or can be asked.

        Raises:
            UsageError: nobody can be asked, or there is nothing to agree to.
        """
        if not self.delete_extra and (self.yes or self.max_delete is not None):
            option = "--yes" if self.yes else "--max-delete"
            raise UsageError(f"{option}: is for --delete-extra")
        if self.delete_extra and not (self.yes or dry_run or sys.stdin.isatty()):
            raise UsageError(
                "--delete-extra: standard input is no terminal, so nobody can be asked; look with "
                "--dry-run first, then add --yes"
            )

    def question(self, stop_display: Callable[[], object], *, quiet: bool) -> Question | None:
        """Return what decides about what is found, None if nothing is to be deleted.

        Args:
            stop_display: called before anything is written, to free the terminal.
            quiet: whether to say nothing of what is deleted.
        """
        if not self.delete_extra:
            return None
        from s3unzip.cli.terminal.deletion import Question

        return Question(self.max_delete or MAX_DELETED, stop_display, sure=self.yes, quiet=quiet)
