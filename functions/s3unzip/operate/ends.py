"""How a deployed run ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.operate.runs import RUNNING

if TYPE_CHECKING:
    from s3unzip.model import Report
    from s3unzip.operate.runs import DeployedRuns


def find_end(runs: DeployedRuns, run: str) -> Report | None:
    """Return the report of a run without an active execution; None if it has none yet.

    Raises:
        AccessDeniedError: a right is missing.
        StorageError, ServiceFaultError: the report cannot be read.
    """
    # The state first: a report that is read after the end is the last one.
    state = runs.state(run)
    report = runs.records(run).find_report()
    return None if state == RUNNING else report
