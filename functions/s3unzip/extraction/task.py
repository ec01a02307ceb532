"""Extract: one task, from its rows to its outcomes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from s3unzip.errors import (
    DeadlineError,
    S3UnzipError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
    StoreRefusesError,
)
from s3unzip.extraction.attempt import TaskAttempt
from s3unzip.extraction.batch import extract_batch
from s3unzip.extraction.copy import copy_member
from s3unzip.extraction.split.slices import extract_segment
from s3unzip.extraction.stream import stream_member
from s3unzip.model import TaskKind
from s3unzip.runs.stop import RUN_FAULTS, stops_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.context import Context
    from s3unzip.model import PlannedMember, Run, Task, TaskReport

WORKERS: dict[TaskKind, Callable[[TaskAttempt, list[PlannedMember]], None]] = {
    TaskKind.BATCH: extract_batch,
    TaskKind.STREAM: stream_member,
    TaskKind.COPY: copy_member,
    TaskKind.SEGMENT: extract_segment,
}
# What ends an attempt; its outcomes are written first.
ATTEMPT_FAULTS: tuple[type[S3UnzipError], ...] = (*RUN_FAULTS, ServiceFaultError)

MAX_LATE = 3  # a member may need the whole time of a worker, so the next one may be quicker


def run_task(run: Run, task: Task, context: Context, *, in_rounds: bool = False) -> TaskReport:
    """Do one task and write its outcomes; members that an earlier attempt finished are skipped.

    An archive that changed is a verdict: it is written down and returned. What
    stops the whole run is written down and raised.

    Args:
        run: the run.
        task: of its plan.
        context: of the worker.
        in_rounds: whether what is left is done in a later round. Then an attempt that ends at the
            worker's time limit is no failure, but the one after `MAX_LATE` without progress is.

    Raises:
        DeadlineError: the worker's time is nearly over; what is done is on record.
        ServiceFaultError: the task may work later; what is done is on record.
        RunStoppedError: another task met what stops the run.
        AccessDeniedError, NotFoundError, StoreFullError: this task met it.
        StoreRefusesError: the destination refuses whatever it is given.
    """
    attempt = TaskAttempt(run, task, context)
    with ThreadPoolExecutor(3, thread_name_prefix="task") as pool:
        outcomes = pool.submit(attempt.records.find_outcomes, task.id)
        stop = pool.submit(attempt.records.find_stop)
        rows = pool.submit(attempt.read_rows, task.rows)
    earlier = outcomes.result()
    if earlier is not None and earlier.complete:
        return earlier.report
    if earlier is not None:
        attempt.resume(earlier)
    try:
        with stops_run(attempt.records, task.id, stop.result):
            _do(attempt, rows.result())
    except SourceChangedError:
        pass  # it is on record
    except DeadlineError:
        report = attempt.write_late()
        if in_rounds and report.late <= MAX_LATE:
            return report
        raise
    except ATTEMPT_FAULTS:
        attempt.write()
        raise
    return attempt.write()


def _do(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Do what is left of `rows`.

    The store's refusal of one large member is that member's outcome. Of a batch, which notes the
    refusals of single members itself, it stops the run.
    """
    done = {outcome.index for outcome in attempt.outcomes}
    left = [row for row in rows if row.member.index not in done]
    try:
        WORKERS[attempt.task.kind](attempt, left)
    except RUN_FAULTS:
        raise
    except StorageError as refusal:
        if attempt.task.kind is TaskKind.BATCH:
            raise StoreRefusesError(str(refusal)) from refusal
        _refuse(attempt, left, refusal)


def _refuse(attempt: TaskAttempt, rows: list[PlannedMember], refusal: StorageError) -> None:
    """Note that the store would not take the members of a task; settling drops the upload."""
    known = {outcome.index for outcome in attempt.outcomes}
    for row in rows:
        if row.member.index not in known:
            attempt.failed(row, row.finding("store-refused", str(refusal)))
    attempt.slice_done = attempt.task.parts > 1
