"""A backlog is followed to its end, without asking all the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from s3unzip.errors import ServiceFaultError
from s3unzip.operate.backlog.following import FAULT_SECONDS, LOST_SECONDS, follow
from s3unzip.operate.backlog.values import BacklogReport

if TYPE_CHECKING:
    from collections.abc import Iterator

REPORT = BacklogReport(
    backlog="b",
    environment="dev",
    sources=("s3://arrivals/",),
    created=0.0,
    ended=False,
    exit_code=1,
    archives=3,
    not_queued=0,
    queued=0,
    waiting=0,
    running=0,
    verdicts={},
    replaced=0,
    gone=0,
    lost=0,
    members=0,
    extracted=0,
    unchanged=0,
    failed=0,
    missing=0,
    bytes_in=0,
    bytes_out=0,
    seconds=None,
    task_seconds=0.0,
    cost=0.0,
    forecast_seconds=1.0,
    forecast_cost=1.0,
    problems=(),
)
ENDED = replace(REPORT, ended=True, exit_code=0, verdicts={"COMPLETED": 3})
QUEUED = replace(REPORT, queued=3)
LOST = replace(REPORT, ended=True, lost=1)


@dataclass
class Looks:
    """Gives prepared reports; each look takes some seconds."""

    reports: Iterator[BacklogReport | None]  # None: a service does not answer
    seconds: float = 2.0
    now: float = 100.0
    slept: list[float] = field(default_factory=list)

    def look(self) -> BacklogReport:
        """Return the next report."""
        self.now += self.seconds
        report = next(self.reports)
        if report is None:
            raise ServiceFaultError("SlowDown")
        return report

    def monotonic(self) -> float:
        """Return the seconds that were looked and slept."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let seconds pass."""
        self.slept.append(seconds)
        self.now += seconds


def follow_all(*reports: BacklogReport, every: float = 5.0) -> tuple[Looks, list[BacklogReport]]:
    """Follow prepared reports to the last one; return what was slept and shown."""
    looks, shown = Looks(iter(reports)), list[BacklogReport]()
    assert follow(looks.look, every, shown.append, looks) == reports[-1]
    return looks, shown


def test_each_change_is_shown_once() -> None:
    """The report of the end is returned, not shown."""
    waiting = replace(REPORT, waiting=3)
    looks, shown = follow_all(QUEUED, QUEUED, waiting, replace(REPORT, running=1), ENDED)
    assert shown == [QUEUED, waiting, replace(REPORT, running=1)]
    assert looks.slept == [5.0] * 4


def test_a_look_that_takes_long_is_followed_by_a_long_pause() -> None:
    """Requests are sent half of the time at most."""
    looks, _ = follow_all(QUEUED, ENDED, every=0.5)
    assert looks.slept == [2.0]


def test_the_machines_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a clock the machine sleeps."""
    looks = Looks(iter([QUEUED, ENDED]))
    monkeypatch.setattr("time.sleep", looks.sleep)
    assert follow(looks.look, 3.0, lambda _: None) == ENDED
    assert looks.slept == [3.0]


def test_lost_archives_are_looked_at_again() -> None:
    """SQS's figures are late, so an archive is lost only after a minute and a half."""
    follow_all(LOST, QUEUED, LOST, ENDED)
    looks = Looks(iter([LOST] * 100))
    assert follow(looks.look, 8.0, lambda _: None, looks) == LOST
    assert LOST_SECONDS <= sum(looks.slept) + 2.0 * len(looks.slept) < LOST_SECONDS + 10.0


def test_an_interrupted_submission_is_not_waited_for() -> None:
    """Where nothing is left but what is not queued, nobody waits."""
    follow_all(replace(REPORT, not_queued=2))


def test_a_service_that_answers_again() -> None:
    """A fault is waited for, two minutes at most."""
    looks = Looks(iter([QUEUED, None, None, ENDED]))
    assert follow(looks.look, 5.0, lambda _: None, looks) == ENDED
    silent = Looks(iter([QUEUED] + [None] * 100))
    with pytest.raises(ServiceFaultError, match="SlowDown"):
        follow(silent.look, 5.0, lambda _: None, silent)
    assert sum(silent.slept) + 2.0 * len(silent.slept) < FAULT_SECONDS + 20.0
