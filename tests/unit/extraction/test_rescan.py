"""Which scans are to do once more."""

from __future__ import annotations

import pytest

from s3unzip import rates
from s3unzip.errors import AccessDeniedError
from s3unzip.extraction.split.link import await_scans
from s3unzip.model import ScanTask, decode, encode
from s3unzip.runs.records import RunRecords
from s3unzip.runs.stop import stop_for
from tests.memory import ManualClock, MemoryWork

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
    assert await_scans(RunRecords(work), ManualClock()) == 2
    lines = work.read("rescan.jsonl").splitlines()
    assert [decode(line, ScanTask) for line in lines] == [SCANS[0], SCANS[2]]


def test_nothing_is_listed_when_all_are_done() -> None:
    """A run whose scans are all on record continues."""
    work = planned()
    for scan in SCANS:
        work.write(f"scans/{scan.id}.json", [b"{}"])
    assert await_scans(RunRecords(work), ManualClock()) == 0


def test_a_run_without_scans_has_nothing_to_list() -> None:
    """Members that are only copied have no scans."""
    assert await_scans(RunRecords(MemoryWork()), ManualClock()) == 0


def test_a_run_that_must_stop_scans_no_more() -> None:
    """Linking then says why the run ends."""
    work = planned()
    RunRecords(work).write_stop(stop_for(AccessDeniedError("no")))
    assert await_scans(RunRecords(work), ManualClock()) == 0


class Scanning(ManualClock):
    """A clock by which a scan ends each time that somebody sleeps."""

    def __init__(self, work: MemoryWork, remaining: float = 600.0) -> None:
        super().__init__(remaining)
        self.work = work
        self.to_do = [SCANS[0], SCANS[2]]

    def sleep(self, seconds: float) -> None:
        """Let a scan end."""
        super().sleep(seconds)
        if self.to_do:
            self.work.write(f"scans/{self.to_do.pop().id}.json", [b"{}"])


def test_link_waits_until_all_is_scanned() -> None:
    """It sleeps once for each scan here, and lists none."""
    work = planned()
    clock = Scanning(work)
    assert await_scans(RunRecords(work), clock, 60.0) == 0
    assert clock.slept == 2 * rates.LINK_POLL_SECONDS


@pytest.mark.parametrize(("patience", "remaining"), [(0.0, 600.0), (60.0, 2.0), (4.0, 600.0)])
def test_link_does_not_wait_for_ever(patience: float, remaining: float) -> None:
    """After its patience, or half of its own time, it lists the scans that are left."""
    work, clock = planned(), ManualClock(remaining)
    assert await_scans(RunRecords(work), clock, patience) == 2
    assert clock.slept <= min(patience, remaining / 2) + rates.LINK_POLL_SECONDS
    assert len(work.read("rescan.jsonl").splitlines()) == 2


def test_link_does_not_wait_for_the_scans_of_a_run_that_must_stop() -> None:
    """Linking then says why the run ends."""
    work, clock = planned(), ManualClock(600.0)
    RunRecords(work).write_stop(stop_for(AccessDeniedError("no")))
    assert await_scans(RunRecords(work), clock, 60.0) == 0
    assert not clock.slept
