"""Scan: find one segment of a huge deflated member, and what it leaves behind.

The only step that needs numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import deflate
from s3unzip.deflate.boundary import locate_boundary
from s3unzip.errors import MemberError
from s3unzip.pipeline.linking import scan_name
from s3unzip.pipeline.memberdata import open_data
from s3unzip.pipeline.model import ScanReport, Task, TaskKind, encode
from s3unzip.pipeline.outcomes import OutcomeLog
from s3unzip.pipeline.rows import read_rows

if TYPE_CHECKING:
    from s3unzip.pipeline.context import Context
    from s3unzip.pipeline.memberdata import MemberData
    from s3unzip.pipeline.model import Run, ScanTask


def run_scan(run: Run, scan: ScanTask, context: Context) -> ScanReport:
    """Scan one segment and write what it leaves behind to the work store.

    Raises:
        SourceChangedError, AccessDeniedError, ...: what stops the run.
        ServiceFaultError: try again later.
    """
    started = context.clock.now()
    calls = context.calls()
    work = context.stores.work(run.id)
    row = calls.run("get", lambda: read_rows(work, scan.row))[0]
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
        scanned = scan_segment(data, deflate.Layout(row.compressed_size, scan.step), scan.part)
    if scanned is not None:
        work.write(scan_name(row.index, scan.part), [scanned.to_bytes()])
    report = ScanReport(
        scan=scan.id,
        member=scan.member,
        part=scan.part,
        found=scanned is not None,
        seconds=round(context.clock.now() - started, 6),
        started=started,
        bytes_read=log.bytes_read,
        requests=calls.requests,
    )
    work.write(f"scans/{scan.id}.json", [encode(report)])
    return report


def scan_segment(
    data: MemberData, layout: deflate.Layout, part: int
) -> deflate.ScannedSegment | None:
    """Return what segment `part` leaves behind; None: it joins the one before it."""
    start_bit = _locate(data, layout, part)
    if start_bit is None:
        return None
    stop_bit = None
    for after in range(part + 1, layout.count):
        stop_bit = _locate(data, layout, after)
        if stop_bit is not None:
            break
    scan = deflate.SegmentScan(start_bit, stop_bit)
    span = deflate.segment_span(start_bit, stop_bit, layout.size)
    for piece in data.pieces(span.start, span.stop):
        scan.feed(piece)
    return scan.finish()


def _locate(data: MemberData, layout: deflate.Layout, part: int) -> int | None:
    steps = locate_boundary(layout, part)
    begin = data.span.start
    try:
        want = next(steps)
        while True:
            piece = data.read(data.span._replace(start=begin + want.start, stop=begin + want.stop))
            data.log.bytes_read += len(piece)
            want = steps.send(piece)
    except StopIteration as done:
        bit: int | None = done.value
        return bit
