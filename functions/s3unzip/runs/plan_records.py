"""What the plan writes: the run, its members as rows, its tasks and scans, and the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import run_files
from s3unzip.errors import NotFoundError
from s3unzip.model import PlannedMember, PlanSummary, Run, ScanTask, Task, decode, decode_lines
from s3unzip.runs.jsonl import join_lines
from s3unzip.runs.object_records import ObjectRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from s3unzip.model import Requests


class PlanRecords(ObjectRecords):
    """The records of the plan."""

    def read_run(self) -> Run:
        """Return the run."""
        return self._read(run_files.RUN, Run)

    def find_run(self) -> Run | None:
        """Return the run, None where it has no plan yet."""
        return self._find(run_files.RUN, Run)

    def write_run(self, run: Run) -> None:
        """Write the run."""
        self._write(run_files.RUN, run)

    def read_summary(self) -> PlanSummary:
        """Return what the plan found."""
        return self._read(run_files.SUMMARY, PlanSummary)

    def find_summary(self) -> PlanSummary | None:
        """Return what the plan found, None while there is no whole plan."""
        return self._find(run_files.SUMMARY, PlanSummary)

    def write_summary(self, make: Callable[[Requests], PlanSummary]) -> PlanSummary:
        """Write what the plan found, last, so that a plan with a summary is whole; return it.

        Args:
            make: gives the summary by the requests of the plan.
        """
        return self._write_counted(make, lambda summary: self._write(run_files.SUMMARY, summary))

    def read_rows(self, span: tuple[int, int], key_prefix: str) -> list[PlannedMember]:
        """Return the rows in bytes [start, stop) of the member list.

        Args:
            span: as a task has it.
            key_prefix: of the run; with it a key is made that the file leaves out.
        """
        rows = decode_lines(self._store.read(run_files.MEMBERS, span), PlannedMember)
        return [
            row if row.key else PlannedMember(row.member, key_prefix + row.member.path, row.written)
            for row in rows
        ]

    def read_placed_rows(self, span: tuple[int, int]) -> list[tuple[PlannedMember, int, int]]:
        """Return the rows in bytes [start, stop) of the member list, with the bytes of each.

        A key that the file leaves out is empty.
        """
        found = []
        position = span[0]
        for line in self._store.read(run_files.MEMBERS, span).splitlines(keepends=True):
            found.append((decode(line, PlannedMember), position, position + len(line)))
            position += len(line)
        return found

    def write_rows(self, pieces: Iterable[bytes]) -> None:
        """Write the member list; its lines come encoded, for there may be millions."""
        self._store.write(run_files.MEMBERS, pieces)

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks of the plan."""
        return self._lines(run_files.PLAN, Task)

    def write_tasks(self, tasks: Iterable[Task]) -> None:
        """Write the tasks of the plan."""
        self._store.write(run_files.PLAN, join_lines(tasks))

    def split_tasks(self) -> Iterator[Task]:
        """Yield the first task of each member that is split over several."""
        return (task for task in self.tasks() if task.parts > 1 and task.part == 0)

    def scans(self) -> Iterator[ScanTask]:
        """Yield the scans of the plan; none where it lists no scan."""
        try:
            yield from self._lines(run_files.SCAN, ScanTask)
        except NotFoundError:
            return

    def write_scans(self, scans: Iterable[ScanTask]) -> None:
        """Write the scans of the plan."""
        self._store.write(run_files.SCAN, join_lines(scans))
