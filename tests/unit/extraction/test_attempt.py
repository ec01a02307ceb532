"""An attempt of a task: what it tells the progress display, and what it takes over."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from s3unzip.errors import Finding
from s3unzip.model import Requests, Slice, TaskKind
from s3unzip.runs.records import TaskOutcomes
from s3unzip.runs.step import PROGRESS_SECONDS
from tests.memory import ManualClock
from tests.runs import WHOLE, World
from tests.unit.extraction.test_upload import begin, target_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s3unzip.model import Outcome
    from s3unzip.runs.step import TaskAttempt


class Shown:
    """A progress display that keeps what it is told."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.updates = 0
        self.failures: list[str] = []

    def finished(self, counts: Mapping[str, int]) -> None:
        """Add up."""
        self.updates += 1
        self.counts.update(counts)

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the keys."""
        self.failures += [outcome.key for outcome in outcomes]

    def trouble(self, message: str) -> None:
        """Do nothing: no store fails here."""

    def phase(self, name: str) -> None:
        """Nothing to keep."""


class SetClock(ManualClock):
    """A clock that a test sets."""

    time = 1_000.0

    def now(self) -> float:
        """Return what was set."""
        return self.time


@pytest.fixture
def shown() -> Shown:
    """A progress display."""
    return Shown()


@pytest.fixture
def clock() -> SetClock:
    """The clock of the attempt."""
    return SetClock()


@pytest.fixture
def attempt(shown: Shown, clock: SetClock) -> TaskAttempt:
    """An attempt of the task of one large member."""
    attempt = begin(World(WHOLE, clock=clock))
    attempt.context = replace(attempt.context, progress=shown)
    return attempt


def test_the_first_update_has_all_there_is(attempt: TaskAttempt, shown: Shown) -> None:
    """The first outcome, the bytes that were read and those that were copied are told once."""
    row = target_of(attempt).row
    attempt.extracted(row, 0.1)
    attempt.bytes_copied += 7
    attempt.add_read(11)
    assert (shown.counts["extracted"], shown.counts["bytes_written"]) == (1, row.member.size)
    assert (shown.counts["bytes_read"], shown.counts["bytes_copied"]) == (11, 7)
    assert shown.failures == []


def test_updates_come_a_few_times_a_second(
    attempt: TaskAttempt, shown: Shown, clock: SetClock
) -> None:
    """Until the time is over nothing is told, unless it must be told now."""
    attempt.show_progress()
    attempt.add_read(5)
    assert shown.updates == 1
    clock.time += PROGRESS_SECONDS
    attempt.add_read(6)
    assert (shown.updates, shown.counts["bytes_read"]) == (2, 11)
    attempt.show_progress(now=True)
    assert shown.updates == 3


def test_failures_are_told_by_name(attempt: TaskAttempt, shown: Shown) -> None:
    """Members that are right are not among them."""
    row = target_of(attempt).row
    attempt.extracted(row, 0.1)
    attempt.failed(replace(row, key="bad"), Finding("crc-mismatch", "the data has another CRC-32"))
    attempt.show_progress()
    assert shown.failures == ["bad"]


def test_an_attempt_takes_over_what_an_earlier_one_did(attempt: TaskAttempt, shown: Shown) -> None:
    """Outcomes, warnings and costs are reported once more; the display knows them already."""
    row = target_of(attempt).row
    attempt.extracted(row, 0.25)
    attempt.warnings["prefix-adjusted"] += 2
    earlier = replace(
        attempt.report(), requests=Requests(put=3), bytes_read=40, first_object=999.0, started=990.0
    )
    fresh = begin(World(WHOLE))
    fresh.context = replace(fresh.context, progress=shown)
    fresh.resume(TaskOutcomes(earlier, attempt.outcomes))
    fresh.show_progress(now=True)
    assert shown.counts["extracted"] == 0
    report = fresh.report()
    assert report.requests == Requests(put=3)
    assert (report.extracted, report.bytes_read, report.unfinished) == (1, 40, 0)
    assert (report.started, report.first_object, report.put_seconds) == (990.0, 999.0, 0.25)
    assert report.warnings == {"prefix-adjusted": 2}


def test_what_passes_of_a_large_member_is_done_once(
    attempt: TaskAttempt, shown: Shown, clock: SetClock
) -> None:
    """Its bytes count as they pass; its outcome replaces them by all that it counts for."""
    row = target_of(attempt).row
    pieces = (memoryview(bytes(size)) for size in (300, 200))
    for _ in attempt.passing(pieces):
        clock.time += PROGRESS_SECONDS
        attempt.show_progress()
    assert shown.counts["bytes_done"] == 500
    attempt.extracted(row, 0.1)
    attempt.show_progress(now=True)
    assert shown.counts["bytes_done"] == row.work
    assert attempt.report().bytes_done == row.work


def test_what_passed_of_a_member_that_begins_again_is_taken_back(
    attempt: TaskAttempt, shown: Shown
) -> None:
    """An increment may be negative: the work is done again."""
    attempt.passed(500)
    attempt.begin_again()
    attempt.show_progress(now=True)
    assert shown.counts["bytes_done"] == 0
    attempt.passed(70)
    assert attempt.write().bytes_done == 0  # its upload was dropped


def test_a_slice_is_done_as_far_as_it_passed(attempt: TaskAttempt, shown: Shown) -> None:
    """Its member's outcome comes by settling, for all of its slices."""
    piece = Slice("upload", 0, 1, 1, 0)
    attempt.task = replace(attempt.task, kind=TaskKind.SLICE, parts=3, slice=piece)
    row = target_of(attempt).row
    attempt.passed(70)
    attempt.has_no_outcome = True
    attempt.failed(row, Finding("slice-refused", "the upload is gone"))
    report = attempt.write()
    assert (report.bytes_done, shown.counts["bytes_done"]) == (70, 70)
    assert shown.failures == []
