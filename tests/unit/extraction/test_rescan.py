"""Which scans are to do once more."""

from __future__ import annotations

from s3unzip.errors import AccessDeniedError
from s3unzip.extraction.split.link import list_unscanned
from s3unzip.model import ScanTask, decode, encode
from s3unzip.runs.records import RunRecords
from s3unzip.runs.stop import stop_for
from tests.memory import MemoryWork

SCANS = [ScanTask(f"scan-00000000-{part:04d}", (0, 9), 0, part, 3, 9) for part in range(3)]


def planned() -> MemoryWork:
    """A run with three scans, the second of which is done."""
    work = MemoryWork()
    work.write("scan.jsonl", [encode(scan) + b"\n" for scan in SCANS])
    work.write(f"scans/{SCANS[1].id}.json", [b"{}"])
    work.write(f"scans/{SCANS[0].id}.bin", [b""])  # found, but not on record
    return work


def test_scans_without_a_record_are_listed() -> None:
    """Only the scans that left a record are done."""
    work = planned()
    assert list_unscanned(RunRecords(work)) == 2
    lines = work.read("rescan.jsonl").splitlines()
    assert [decode(line, ScanTask) for line in lines] == [SCANS[0], SCANS[2]]


def test_nothing_is_listed_when_all_are_done() -> None:
    """A run whose scans are all on record continues."""
    work = planned()
    for scan in SCANS:
        work.write(f"scans/{scan.id}.json", [b"{}"])
    assert list_unscanned(RunRecords(work)) == 0


def test_a_run_without_scans_has_nothing_to_list() -> None:
    """Members that are only copied have no scans."""
    assert list_unscanned(RunRecords(MemoryWork())) == 0


def test_a_run_that_must_stop_scans_no_more() -> None:
    """Linking then says why the run ends."""
    work = planned()
    RunRecords(work).write_stop(stop_for(AccessDeniedError("no")))
    assert list_unscanned(RunRecords(work)) == 0
