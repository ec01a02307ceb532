"""Follows a backlog to its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from s3unzip.errors import ServiceFaultError

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.operate.backlog.values import BacklogReport

FAULT_SECONDS = 120.0  # a service that does not answer so long ends the watch
LOST_SECONDS = 90.0  # SQS calls its figures approximate; they are right about a minute later


class Time(Protocol):
    """Seconds that pass."""

    def monotonic(self) -> float:
        """Return seconds since some moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


def follow(
    look: Callable[[], BacklogReport],
    every: float,
    show: Callable[[BacklogReport], object],
    clock: Time = time,
) -> BacklogReport:
    """Look until all archives that are queued have ended; return the last report.

    Between two looks it waits as long as a look takes, so that it sends requests at most half of
    the time. Archives that seem lost are looked at again for a minute and a half.

    Args:
        look: makes the report of now.
        every: seconds to wait between two looks, at least.
        show: is given each report that differs from the one before, the last one excepted.
        clock: measures and waits.

    Raises:
        ServiceFaultError: a service did not answer for two minutes.
    """
    shown: BacklogReport | None = None
    lost_since: float | None = None
    answered = clock.monotonic()
    while True:
        began = clock.monotonic()
        try:
            report = look()
        except ServiceFaultError:
            if clock.monotonic() - answered > FAULT_SECONDS:
                raise
            clock.sleep(every)
            continue
        answered = now = clock.monotonic()
        lost_since = (now if lost_since is None else lost_since) if report.lost else None
        active = report.queued or report.waiting or report.running
        if not active and (lost_since is None or now - lost_since >= LOST_SECONDS):
            return report
        if report != shown:
            show(report)
            shown = report
        clock.sleep(max(every, now - began))
