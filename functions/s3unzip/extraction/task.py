"""Extract: one task, from its rows to its outcomes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from s3unzip import errors
from s3unzip.context import Context
from s3unzip.extraction.batch import extract_batch
from s3unzip.extraction.copies import copy_member
from s3unzip.extraction.scan import scan_segment
from s3unzip.extraction.slices import extract_slice
from s3unzip.extraction.stream import stream_member
from s3unzip.model import PlannedMember, Run, Task, TaskKind, TaskReport
from s3unzip.runs.step import RUN_FAULTS, TaskAttempt, stop_for

WORKERS: dict[TaskKind, Callable[[TaskAttempt, list[PlannedMember]], None]] = {
    TaskKind.BATCH: extract_batch,
    TaskKind.STREAM: stream_member,
    TaskKind.COPY: copy_member,
    TaskKind.SCAN: scan_segment,
    TaskKind.SLICE: extract_slice,
}
# What ends an attempt; its outcomes are written first.
ATTEMPT_FAULTS: tuple[type[errors.S3UnzipError], ...] = (*RUN_FAULTS, errors.ServiceFaultError)


def run_task(run: Run, task: Task, context: Context) -> TaskReport:
    """Do one task and write its outcomes; members that an earlier attempt finished are skipped.

    An archive that changed is a verdict: it is written down and returned. What stops the whole run
    is written down and raised. Near the worker's time limit the attempt ends normally; what is
    left is in the next round. `ServiceFaultError`: the task may work later. `RunStoppedError`:
    another task met what stops the run.
    """
    attempt = TaskAttempt(run, task, context)
    try:
        return _attempt(attempt)
    finally:
        attempt.destination.release()


def _attempt(attempt: TaskAttempt) -> TaskReport:
    """Do what is left of a task; see `run_task`."""
    task = attempt.task
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
        met = stop.result()
        if met is not None:
            raise errors.RunStoppedError(f"{task.id}: not begun, for the run met {met.reason}")
        _do(attempt, rows.result())
    except errors.DeadlineError:
        pass  # what the time did not suffice for is in the next round
    except ATTEMPT_FAULTS as fault:
        if isinstance(fault, RUN_FAULTS):
            attempt.records.write_stop(stop_for(fault))
        if isinstance(fault, errors.SourceChangedError):
            return attempt.write()
        there = attempt.records.find_outcomes(task.id)
        if there is not None and there.complete:  # another attempt ended meanwhile
            return there.report
        attempt.fault = str(fault)
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
    attempt.done_before = sum(row.work for row in rows if row.member.index in done)
    try:
        WORKERS[attempt.task.kind](attempt, left)
    except RUN_FAULTS:
        raise
    except errors.StorageError as refusal:
        lacks = isinstance(refusal, errors.UnsupportedError)
        if attempt.task.kind is TaskKind.BATCH:
            kind = errors.StoreLacksError if lacks else errors.StoreRefusesError
            raise kind(str(refusal)) from refusal
        for row in left:  # settling drops the upload
            attempt.failed(row, row.finding(refusal.reason, str(refusal)))
        attempt.has_no_outcome = not attempt.task.is_whole
