"""What scanning and linking write of members that are split over several tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from s3unzip import run_files
from s3unzip.errors import NotFoundError, SegmentRecordError, UsageError
from s3unzip.model import Link, LinkCost, Requests, ScanReport, ScanTask
from s3unzip.runs.jsonl import join_lines
from s3unzip.runs.plan_records import PlanRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from s3unzip.deflate import LinkedSegment, ScannedSegment

T = TypeVar("T")


class SplitRecords(PlanRecords):
    """The records of the plan and of split members."""

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

        try:
            data = self._store.read(run_files.scanned_segment(member, part))
        except NotFoundError:
            return None
        return _parse(ScannedSegment.from_bytes, data)

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
