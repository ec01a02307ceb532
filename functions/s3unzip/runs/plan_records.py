"""What the plan writes, and scanning and linking after it: rows, tasks, scans, links, summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from s3unzip import run_files
from s3unzip.errors import NotFoundError, SegmentRecordError, UsageError
from s3unzip.model import (
    Link,
    LinkCost,
    PlannedMember,
    PlanSummary,
    Requests,
    Run,
    ScanReport,
    ScanTask,
    Task,
    decode,
    decode_lines,
)
from s3unzip.runs.object_records import ObjectRecords, join_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from s3unzip.deflate import LinkedSegment, ScannedSegment

T = TypeVar("T")


class PlanRecords(ObjectRecords):
    """The records of the plan and of members that are split over several tasks."""

    def read_run(self) -> Run:
        """Return the run."""
        return self._read(run_files.RUN, Run)

    def find_run(self) -> Run | None:
        """Return the run, None if there was no plan or another version wrote the record."""
        try:
            return self.read_run()
        except (NotFoundError, UsageError):
            return None

    def write_run(self, run: Run) -> None:
        """Write the run."""
        self._write(run_files.RUN, run)

    def read_summary(self) -> PlanSummary:
        """Return what the plan found."""
        return self._with_source(self._read(run_files.SUMMARY, PlanSummary))

    def find_summary(self) -> PlanSummary | None:
        """Return what the plan found, None while there is no whole plan."""
        found = self._find(run_files.SUMMARY, PlanSummary)
        return None if found is None else self._with_source(found)

    def write_summary(self, make: Callable[[Requests], PlanSummary]) -> PlanSummary:
        """Write what the plan found, last, so that a plan with a summary is whole; return it.

        The query and the password of a URL stay out: only ``run.json`` has them.

        Args:
            make: gives the summary by the requests of the plan.
        """

        def write(summary: PlanSummary) -> None:
            run = replace(summary.run, source=summary.run.source.public)
            self._write(run_files.SUMMARY, replace(summary, run=run))

        return self._write_counted(make, write)

    def _with_source(self, summary: PlanSummary) -> PlanSummary:
        """Return a summary with the whole URL of its source, from which the run reads."""
        if summary.run.source.scheme not in {"http", "https"}:
            return summary
        return replace(summary, run=self.read_run())

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

    def write_divided_tasks(self, whole: Iterable[Task], slices: Iterable[Task]) -> None:
        """Write the tasks of whole members and those of split members, each as a list."""
        self._store.write(run_files.WHOLE, join_lines(whole))
        self._store.write(run_files.SLICES, join_lines(slices))

    def split_tasks(self) -> Iterator[Task]:
        """Yield the first task of each member that is split over several."""
        return (task for task in self.tasks() if task.parts > 1 and task.part == 0)

    def scans(self) -> Iterator[ScanTask]:
        """Yield the scans of the plan; none where it lists no scan."""
        return self._lines_if_any(run_files.SCAN, ScanTask)

    def write_scans(self, scans: Iterable[ScanTask]) -> None:
        """Write the scans of the plan."""
        self._store.write(run_files.SCAN, join_lines(scans))

    def folders(self) -> Iterator[str]:
        """Yield the keys of the archive's folders; none if the destination has no folders."""
        return self._lines_if_any(run_files.FOLDERS, str)

    def write_folders(self, keys: Iterable[str]) -> None:
        """Write the keys of the archive's folders."""
        self._store.write(run_files.FOLDERS, join_lines(keys))

    # Members that are split over several tasks

    def list_unscanned(self) -> list[ScanTask]:
        """Return the scans of the plan that have no report."""
        scans = list(self.scans())
        done = set(self._store.names(run_files.SCANS)) if scans else set()
        return [scan for scan in scans if run_files.scan_report(scan.id) not in done]

    def write_rescan(self, scans: Iterable[ScanTask]) -> None:
        """List the scans that are to be tried again."""
        self._store.write(run_files.RESCAN, join_lines(scans))

    def find_scan_report(self, scan: str) -> ScanReport | None:
        """Return what a scan cost, None until it has ended."""
        return self._find(run_files.scan_report(scan), ScanReport)

    def write_scan_report(self, make: Callable[[Requests], ScanReport]) -> ScanReport:
        """Write what a scan cost; return it.

        Args:
            make: gives the report by the requests of the scan.
        """
        return self._write_counted(
            make, lambda report: self._write(run_files.scan_report(report.scan), report)
        )

    def find_link_cost(self) -> Requests:
        """Return the requests of all attempts to link; none before the first."""
        found = self._find(run_files.LINK_COST, LinkCost)
        return found.requests if found is not None else Requests()

    def add_link_cost(self) -> None:
        """Add the requests of this attempt to link."""
        earlier = self.find_link_cost()
        self._write_counted(
            lambda requests: LinkCost(earlier + requests),
            lambda cost: self._write(run_files.LINK_COST, cost),
        )

    def scan_reports(self) -> list[ScanReport]:
        """Return what the scans of the run cost."""
        return self._read_all(self._scan_reports(), lambda name: self._read(name, ScanReport))

    def count_scan_reports(self) -> int:
        """Return how many scans have ended."""
        return len(self._scan_reports())

    def find_scanned(self, member: int, part: int) -> ScannedSegment | None:
        """Return the segment that a scan found, None where it joins the one before it."""
        from s3unzip.deflate import ScannedSegment  # noqa: PLC0415 - few runs have one

        data = self._find_bytes(run_files.scanned_segment(member, part))
        return None if data is None else _parse(ScannedSegment.from_bytes, data)

    def write_scanned(self, member: int, part: int, segment: ScannedSegment) -> None:
        """Write the segment that a scan found."""
        self._store.write(run_files.scanned_segment(member, part), [segment.to_bytes()])

    def read_linked(self, member: int, part: int) -> LinkedSegment:
        """Return a linked segment."""
        from s3unzip.deflate import LinkedSegment  # noqa: PLC0415 - likewise

        data = self._store.read(run_files.linked_segment(member, part))
        return _parse(LinkedSegment.from_bytes, data)

    def write_linked(self, member: int, part: int, segment: LinkedSegment) -> None:
        """Write a linked segment, its window included."""
        self._store.write(run_files.linked_segment(member, part), [segment.to_bytes()])

    def find_link(self, member: int) -> Link | None:
        """Return how the slices of a split member fit together, None until it is linked."""
        return self._find(run_files.link(member), Link)

    def write_link(self, link: Link) -> None:
        """Write how the slices of a split member fit together."""
        self._write(run_files.link(link.member), link)

    def links(self) -> Iterator[Link]:
        """Yield the links of all split members."""
        for name in self._store.names(run_files.LINKS):
            if name.endswith(".json"):
                yield self._read(name, Link)

    def _scan_reports(self) -> list[str]:
        return [name for name in self._store.names(run_files.SCANS) if name.endswith(".json")]


def _parse(parse: Callable[[bytes], T], data: bytes) -> T:
    try:
        return parse(data)
    except SegmentRecordError as error:
        raise UsageError(f"a segment on record: {error}") from error
