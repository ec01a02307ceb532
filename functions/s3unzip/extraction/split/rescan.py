"""Rescan: the scans of a run that are still to do, because no worker was free for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import run_files
from s3unzip.errors import NotFoundError
from s3unzip.model import ScanTask, decode, encode
from s3unzip.runs.outcomes import iterate_lines
from s3unzip.runs.stop import read_stop

if TYPE_CHECKING:
    from s3unzip.stores.ports import RunStore


def list_unscanned(work: RunStore) -> int:
    """Write the scans without a record to ``rescan.jsonl``; return how many there are.

    Of a run that must stop no scan is to do.

    Raises:
        ServiceFaultError: try again later.
    """
    try:
        scans = [
            decode(line, ScanTask) for line in iterate_lines(work.stream(run_files.SCAN)) if line
        ]
    except NotFoundError:  # all split members are copied
        return 0
    if read_stop(work) is not None:
        return 0
    done = set(work.names(run_files.SCANS))
    left = [scan for scan in scans if run_files.scan_report(scan.id) not in done]
    if left:
        work.write(run_files.RESCAN, [encode(scan) + b"\n" for scan in left])
    return len(left)
