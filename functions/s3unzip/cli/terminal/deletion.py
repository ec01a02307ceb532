"""The question whether to delete what is no member of an archive."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from s3unzip.cli.terminal.figures import printable_name, show_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s3unzip.stores.ports import ListedObject

SHOWN = 10  # keys before the question


class Question:
    """Decides about what is no member; `kept` says afterwards whether any of it stays."""

    def __init__(
        self,
        max_deleted: int,
        stop_display: Callable[[], object],
        *,
        sure: bool,
        quiet: bool,
    ) -> None:
        self.kept = False
        self._max_deleted = max_deleted
        self._stop_display = stop_display
        self._sure = sure
        self._quiet = quiet

    def __call__(self, found: Sequence[ListedObject]) -> bool:
        """Return whether to delete `found`; say on stderr what becomes of it."""
        self._stop_display()
        noun = "object" if len(found) == 1 else "objects"
        size = show_bytes(sum(one.size for one in found))
        verb = "is no member" if len(found) == 1 else "are no members"
        what = f"{len(found):,} {noun} ({size}) {verb} of the archive"
        if len(found) > self._max_deleted:
            limit = f"--max-delete is {self._max_deleted:,}"
            return self._keep(f"{what}; nothing is deleted, because {limit}")
        if not self._sure and not self._ask(found, what):
            return self._keep("nothing is deleted")
        if not self._quiet:
            sys.stderr.write(f"deleting {len(found):,} {noun} ({size})\n")
        return True

    def _keep(self, text: str) -> bool:
        sys.stderr.write(f"{text}\n")
        self.kept = True
        return False

    def _ask(self, found: Sequence[ListedObject], what: str) -> bool:
        sys.stderr.write(f"{what}:\n")
        sys.stderr.writelines(f"  {printable_name(one.key)}\n" for one in found[:SHOWN])
        if len(found) > SHOWN:
            sys.stderr.write(f"  and {len(found) - SHOWN:,} more; --dry-run lists them all\n")
        sys.stderr.write("Delete them? [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in {"y", "yes"}
