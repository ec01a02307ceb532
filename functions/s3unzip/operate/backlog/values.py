"""What is kept of a backlog, and what is said of it. All of it is JSON and back without loss."""

from __future__ import annotations

from msgspec import Struct

from s3unzip.forecast.backlog import BacklogForecast


class BacklogArchive(Struct, frozen=True, array_like=True):
    """An archive of a backlog: a line of ``archives-*.jsonl``."""

    key: str  # in the bucket of the backlog
    run: str  # id of the run of the version that was there
    size: int  # bytes


class Backlog(Struct, frozen=True):
    """``backlog.json``: archives that were submitted together."""

    id: str
    environment: str
    sources: tuple[str, ...]  # the words that named them
    bucket: str
    created: float  # Unix seconds; the time of the archives' events
    archives: int
    size: int  # bytes
    lists: int  # of archives, as objects
    forecast: BacklogForecast
    max_cost: float | None = None  # dollars


class Queued(Struct, frozen=True):
    """``queued.json``: how much of a backlog is in the queue."""

    lists: int = 0
    archives: int = 0


class Submission(Struct, frozen=True):
    """What ``s3unzip submit`` did: archives that it found, and how many it queued."""

    environment: str
    backlog: str | None  # id; None: nothing was queued
    archives: int  # to extract
    size: int  # bytes
    queued: int
    ended: dict[str, int]  # archives whose runs ended before, by verdict; they are left out
    gone: int  # archives that were listed and are not there
    outside: int  # archives that the environment does not take; with --skip-outside
    forecast: BacklogForecast | None  # None: nothing is left to extract


class Sums(Struct, frozen=True):
    """The sums over the reports of archives; seconds, bytes and dollars."""

    archives: int = 0
    members: int = 0
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0
    missing: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    dollars: float = 0.0
    task_seconds: float = 0.0
    last: float = 0.0  # Unix seconds: the end of the last run

    def __add__(self, other: Sums) -> Sums:
        names = self.__struct_fields__
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Sums(**sums | {"last": max(self.last, other.last)})


class Ends(Struct, frozen=True):
    """``ends-*.json``: of one list, the archives that are extracted, and those that are not.

    Only the second ones are looked at again. What is extracted stays so.
    """

    completed: Sums
    others: tuple[BacklogArchive, ...]


class BacklogProblem(Struct, frozen=True):
    """An archive of a backlog that is not extracted."""

    source: str
    run: str
    state: str  # the verdict; REPLACED, GONE or LOST where there is none
    reason: str | None = None
    message: str | None = None
    failed: int = 0  # members that failed or are missing


class BacklogReport(Struct, frozen=True):
    """The one report of all archives of a backlog; seconds, bytes and dollars."""

    backlog: str
    environment: str
    sources: tuple[str, ...]
    created: float  # Unix seconds
    ended: bool  # whether nothing is left to wait for
    exit_code: int  # the highest one of the archives; at least 1 before all have ended
    archives: int
    not_queued: int  # because the command was interrupted
    queued: int  # or about to begin
    waiting: int  # for workers
    running: int
    verdicts: dict[str, int]  # archives by verdict
    replaced: int  # overwritten since they were listed; the newer version has its own run
    gone: int  # deleted since they were listed
    lost: int  # neither queued, nor running, nor ended: see s3unzip reconcile
    members: int
    extracted: int
    unchanged: int
    failed: int
    missing: int
    bytes_in: int
    bytes_out: int
    seconds: float | None  # from the first message to the last report so far; None: no report
    task_seconds: float  # sum over all tasks
    cost: float
    forecast_seconds: float
    forecast_cost: float
    problems: tuple[BacklogProblem, ...]  # the first ones
