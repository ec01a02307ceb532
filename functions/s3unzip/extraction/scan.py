"""The scan of one segment of a huge deflated member: the first step of a split member.

A split member is scanned, linked, extracted in slices and finished:

* A *scan* (here) finds one segment and its last bytes of output, while the bytes before it are
  unknown. Scans run at once, in any order, and may be repeated: they write the same record.
* `link`: when all scans are done, settling gives each segment its window and its offset in the
  object, and begins one multipart upload. A stored member that is copied over several tasks needs
  no scan; it is linked, too.
* `slices`: a slice inflates some segments and uploads their parts. Slices run at once.
* `slices.finish_member`: when all slices are done, settling compares the size and the CRC-32 of
  all parts with the directory, and completes the upload. If they differ, the member is streamed.

docs/deflate-splitting.md explains the method.
"""

from collections.abc import Iterator

from s3unzip import deflate
from s3unzip.deflate.splitting import preload
from s3unzip.errors import MemberError
from s3unzip.extraction.member_data import MemberData, open_part
from s3unzip.model import PlannedMember, Task
from s3unzip.runs.step import TaskAttempt


def scan_member(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Scan one segment and write it; if it has no boundary, it joins the segment before it.

    The only step that needs numpy. It is imported in a thread, while the first reads wait for S3.
    """
    preload()
    task = attempt.task
    for row in rows:
        try:
            data = open_part(attempt, row)
        except MemberError:  # linking opens the member too, and reports the finding
            continue
        layout = segmentation_of(task, row)
        # A segment is inflated twice, so one of more than half of the member saves no time.
        longest = max(1, layout.count // 2)
        scanned = deflate.scan_segment(layout, task.part, _ScanReader(data).read, longest)
        if scanned is not None:
            record = scanned.to_bytes()
            attempt.records.write_segment(row.member.index, task.part, "scanned", record)
    attempt.has_no_outcome = True


def segmentation_of(task: Task, row: PlannedMember) -> deflate.Segmentation:
    """Return the segmentation of a member from the task of any of its scans."""
    start, stop = task.span
    distance = stop
    if task.part:
        distance = start // task.part
    return deflate.Segmentation(row.member.compressed_size, distance)


class _ScanReader:
    """Reads a member's data for one scan.

    It keeps the bytes of the first search for a boundary, 1.5 MiB at most, because the scan reads
    them again.
    """

    def __init__(self, data: MemberData) -> None:
        self._data = data
        self._first_bytes = b""
        self._start = 0  # of the first bytes

    def read(self, span: deflate.Span) -> Iterator[bytes | memoryview]:
        """Yield a span of the member's data."""
        start = span.start
        if self._start <= start < self._start + len(self._first_bytes):
            first_bytes = self._first_bytes[start - self._start : span.stop - self._start]
            start += len(first_bytes)
            yield first_bytes
        pieces = self._data.read(deflate.Span(start, span.stop))
        if self._first_bytes:
            yield from pieces
        else:
            self._start = start
            self._first_bytes = b"".join(pieces)
            yield self._first_bytes
