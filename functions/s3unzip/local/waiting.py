"""The jobs of a pool that have not begun."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s3unzip.local.worker import Job


class Waiting:
    """The jobs that have not begun: an iterator that is read as needed, and jobs to retry."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = iter(jobs)
        self._next: deque[Job] = deque()
        self._later: list[tuple[float, Job]] = []
        self.attempts: dict[str, int] = {}
        self._refill()

    def _refill(self) -> None:
        if not self._next:
            self._next.extend(job for job in (next(self._jobs, None),) if job is not None)

    @property
    def ready(self) -> bool:
        """Whether a job may begin now."""
        now = time.monotonic()
        due = [entry for entry in self._later if entry[0] <= now]
        for entry in due:
            self._later.remove(entry)
            self._next.append(entry[1])
        self._refill()
        return bool(self._next)

    @property
    def wanted(self) -> bool:
        """Whether any job has not begun."""
        self._refill()
        return bool(self._next or self._later)

    @property
    def seconds(self) -> float | None:
        """How long to wait for messages until a delayed job is due; None: without a limit."""
        if not self._later:
            return None
        return max(0.0, min(due for due, _ in self._later) - time.monotonic())

    def take(self) -> Job:
        """Return the next job."""
        job = self._next.popleft()
        self._refill()
        return job

    def put_first(self, jobs: Sequence[Job]) -> None:
        """Do `jobs` next, in this order."""
        self._next.extendleft(reversed(jobs))

    def put_off(self, job: Job, seconds: float) -> None:
        """Retry a job later."""
        self._later.append((time.monotonic() + seconds, job))

    def drop(self) -> None:
        """Drop all jobs that have not begun."""
        self._jobs = iter(())
        self._next.clear()
        self._later.clear()
