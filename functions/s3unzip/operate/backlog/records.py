"""The records of backlogs, in the work bucket below ``runs/-backlogs/<id>/``.

docs/run-files.md says what each object holds. Like the records of runs they expire after
`work.expire_days`.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from s3unzip import run_files
from s3unzip.aws.timeline import list_folders
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.model import decode_lines
from s3unzip.operate.backlog.values import Backlog, BacklogArchive, Ends, Queued
from s3unzip.runs.object_records import ObjectRecords, join_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_s3 import S3Client

    from s3unzip.model import Location

LIST_LENGTH = 1_000  # archives of one list


class BacklogRecords(ObjectRecords):
    """The records of one environment's backlogs; the store is that of `run_files.BACKLOGS`."""

    def write_list(self, backlog: str, number: int, archives: Sequence[BacklogArchive]) -> None:
        """Write one list of archives."""
        self._store.write(run_files.backlog_archives(backlog, number), join_lines(archives))

    def read_list(self, backlog: str, number: int) -> list[BacklogArchive]:
        """Return one list of archives."""
        data = self._store.read(run_files.backlog_archives(backlog, number))
        return decode_lines(data, BacklogArchive)

    def write_backlog(self, backlog: Backlog) -> None:
        """Write what is common to all archives; the lists are there."""
        self._write(run_files.backlog_object(backlog.id, run_files.BACKLOG), backlog)

    def read_backlog(self, backlog: str) -> Backlog:
        """Return a backlog.

        Raises:
            NotFoundError: its lists are not whole, so nothing of it was queued.
        """
        found = self._find(run_files.backlog_object(backlog, run_files.BACKLOG), Backlog)
        if found is None:
            raise NotFoundError(
                f"{backlog}: was interrupted before its first archive was queued: submit again"
            )
        return found

    def write_queued(self, backlog: str, queued: Queued) -> None:
        """Write how much is queued."""
        self._write(run_files.backlog_object(backlog, run_files.QUEUED), queued)

    def read_queued(self, backlog: str) -> Queued:
        """Return how much is queued."""
        name = run_files.backlog_object(backlog, run_files.QUEUED)
        return self._find(name, Queued) or Queued()

    def write_ends(self, backlog: str, number: int, ends: Ends) -> None:
        """Write what is known of the ends of one list's archives."""
        self._write(run_files.backlog_ends(backlog, number), ends)

    def find_ends(self, backlog: str, number: int) -> Ends | None:
        """Return what is known of the ends of one list's archives; None: nothing."""
        return self._find(run_files.backlog_ends(backlog, number), Ends)


def make_id(now: float) -> str:
    """Return a new id; ids are in the order of time."""
    return f"{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def find_backlog(client: S3Client, work: Location, name: str) -> str:
    """Return the id of the latest backlog, or of the one whose id begins with `name`.

    Raises:
        NotFoundError: there is none.
        UsageError: several ids begin with `name`.
        AccessDeniedError: a right is missing.
    """
    folder = f"{run_files.BACKLOGS}/"
    paths = list_folders(client, work, folder + ("" if name == "latest" else name))
    found = [path.removeprefix(folder) for path in paths]
    if not found:
        if name == "latest":
            raise NotFoundError("no backlog was submitted yet: see s3unzip submit --help")
        raise NotFoundError(f"{name}: no such backlog; its id is what s3unzip submit printed")
    if name == "latest" or name in found:
        return max(found) if name == "latest" else name
    if len(found) > 1:
        raise UsageError(f"{name}: {len(found)} backlogs begin with it: {', '.join(found[:5])}")
    return found[0]
