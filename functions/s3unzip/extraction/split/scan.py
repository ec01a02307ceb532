"""Scan: find one segment of a huge deflated member, and what it leaves behind.

The only step that needs numpy. It is imported in a thread, while the first reads wait for S3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import deflate, run_files
from s3unzip.deflate.split import preload, scan_segment
from s3unzip.errors import MemberError, NotFoundError, RunStoppedError, SourceChangedError
from s3unzip.extraction.member import open_data
from s3unzip.model import ScanReport, Task, TaskKind, decode, encode
from s3unzip.runs.outcomes import OutcomeLog
from s3unzip.runs.rows import read_rows
from s3unzip.runs.stop import RUN_FAULTS, read_stop, write_stop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.context import Context
    from s3unzip.extraction.member import MemberData
    from s3unzip.model import Run, ScanTask
    from s3unzip.stores.calls import Calls


def run_scan(run: Run, scan: ScanTask, context: Context) -> ScanReport:
    """Scan one segment and write what it leaves behind to the work store.

    A scan that is done is not done again. An archive that changed is a
    verdict: it is written down, and nothing is found.

    Raises:
        AccessDeniedError, NotFoundError, ...: what stops the run; it is written down.
        RunStoppedError: another task met what stops the run.
        DeadlineError: the worker's time is nearly over; without this scan the member is streamed.
        ServiceFaultError: try again later.
    """
    preload()
    calls = context.calls()
    work = context.stores.run_store(run.id, calls)
    name = run_files.scan_report(scan.id)
    try:
        return decode(work.read(name), ScanReport)
    except NotFoundError:
        pass
    stop = read_stop(work)
    if stop is not None:
        raise RunStoppedError(f"{scan.id}: not begun, for the run met {stop.reason}")
    try:
        report = _scan(run, scan, context, calls)
    except SourceChangedError as change:
        write_stop(work, change)
        return ScanReport(scan.id, scan.member, scan.part, found=False)
    except RUN_FAULTS as fault:
        write_stop(work, fault)
        raise
    work.write(name, [encode(report)])
    return report


def _scan(run: Run, scan: ScanTask, context: Context, calls: Calls) -> ScanReport:
    started = context.clock.now()
    work = context.stores.run_store(run.id, calls)
    row = read_rows(work, scan.row)[0]
    task = Task(
        id=scan.id,
        kind=TaskKind.SEGMENT,
        rows=scan.row,
        members=1,
        span=(0, row.compressed_size),
        size=row.size,
        seconds=0.0,
        part=scan.part,
        parts=scan.parts,
    )
    log = OutcomeLog(run.id, task, context, calls, started)
    try:
        data = open_data(run, row, log)
    except MemberError:  # linking opens the member too, and says what is wrong
        scanned = None
    else:
        layout = deflate.Layout(row.compressed_size, scan.step)
        # A segment is inflated twice: beyond half of the member one stream is as quick.
        longest = max(1, layout.count // 2)
        scanned = scan_segment(layout, scan.part, _Reader(data).read, longest)
    if scanned is not None:
        work.write(run_files.scanned_segment(row.index, scan.part), [scanned.to_bytes()])
    return ScanReport(
        scan=scan.id,
        member=scan.member,
        part=scan.part,
        found=scanned is not None,
        seconds=round(context.clock.now() - started, 6),
        started=started,
        bytes_read=log.bytes_read,
        requests=calls.requests,
    )


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
