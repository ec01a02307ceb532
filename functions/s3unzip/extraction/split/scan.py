"""Scan: find one segment of a huge deflated member, and what it leaves behind.

The only step that needs numpy. It is imported in a thread, while the first reads wait for S3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import deflate
from s3unzip.deflate.split import preload, scan_segment
from s3unzip.errors import MemberError, SourceChangedError
from s3unzip.extraction.member import open_data
from s3unzip.model import ScanReport
from s3unzip.runs.step import Step
from s3unzip.runs.stop import stops_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.context import Context
    from s3unzip.extraction.member import MemberData
    from s3unzip.model import Run, ScanTask


def run_scan(run: Run, scan: ScanTask, context: Context) -> ScanReport:
    """Scan one segment and write what it leaves behind to the run store.

    A scan that is done is not done again. An archive that changed is a
    verdict: it is written down, and nothing is found.

    Raises:
        AccessDeniedError, NotFoundError, ...: what stops the run; it is written down.
        RunStoppedError: another task met what stops the run.
        DeadlineError: the worker's time is nearly over; without this scan the member is streamed.
        ServiceFaultError: try again later.
    """
    preload()
    step = Step(run, scan.id, context, context.calls())
    done = step.records.find_scan_report(scan.id)
    if done is not None:
        return done
    try:
        with stops_run(step.records, scan.id):
            found = _scan(step, scan)
    except SourceChangedError:
        return ScanReport(scan.id, scan.member, scan.part, found=False)
    seconds = round(context.clock.now() - step.started, 6)
    return step.records.write_scan_report(
        lambda requests: ScanReport(
            scan=scan.id,
            member=scan.member,
            part=scan.part,
            found=found,
            seconds=seconds,
            started=step.started,
            bytes_read=step.bytes_read,
            requests=requests,
        )
    )


def _scan(step: Step, scan: ScanTask) -> bool:
    """Look for the segment and write it; return whether it was found."""
    row = step.read_rows(scan.row)[0]
    try:
        data = open_data(step, row)
    except MemberError:  # linking opens the member too, and says what is wrong
        scanned = None
    else:
        layout = deflate.Layout(row.member.compressed_size, scan.step)
        # A segment is inflated twice: beyond half of the member one stream is as quick.
        longest = max(1, layout.count // 2)
        scanned = scan_segment(layout, scan.part, _Reader(data).read, longest)
    if scanned is not None:
        step.records.write_scanned(row.member.index, scan.part, scanned)
    return scanned is not None


class _Reader:
    """Reads a member's data; what was searched for the segment's beginning is not read again."""

    def __init__(self, data: MemberData) -> None:
        self._data = data
        self._start = 0
        self._held = b""

    def read(self, span: deflate.Span) -> Iterator[bytes | memoryview]:
        """Yield the bytes of `span`."""
        start = span.start
        if self._start <= start < self._start + len(self._held):
            begin = start - self._start
            piece = self._held[begin : begin + span.stop - start]
            start += len(piece)
            yield piece
        pieces = self._data.pieces(start, span.stop)
        if self._held:
            yield from pieces
        else:  # the first search: 1.5 MiB at most
            self._start, self._held = start, b"".join(pieces)
            yield self._held
