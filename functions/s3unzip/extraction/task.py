"""Extract: one task, from its rows to its outcomes.

Rules:

* A task may be done twice, late, or by two workers at once. Each attempt skips the members that an
  earlier one recorded. A complete record of another attempt ends this one.
* Whatever ends an attempt, its outcomes are recorded first.
* A task begins only if the run has no recorded stop. An attempt that meets a fault of the whole run
  records it as the stop.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

from s3unzip import errors
from s3unzip.context import Context
from s3unzip.model import PlannedMember, Run, Task, TaskKind, TaskReport
from s3unzip.runs.step import RUN_FAULTS, TaskAttempt, stop_for

# Modules and functions that do the tasks of a kind; few workers do all kinds.
WORKERS = {
    TaskKind.BATCH: ("batch", "extract_batch"),
    TaskKind.STREAM: ("stream", "stream_member"),
    TaskKind.COPY: ("copies", "copy_member"),
    TaskKind.SCAN: ("scan", "scan_member"),
    TaskKind.SLICE: ("slices", "extract_slice"),
}
# Errors that end an attempt.
ATTEMPT_FAULTS: tuple[type[errors.S3UnzipError], ...] = (*RUN_FAULTS, errors.ServiceFaultError)


def run_task(run: Run, task: Task, context: Context) -> TaskReport:
    """Do one task and write its outcomes; members that an earlier attempt finished are skipped.

    A changed archive is recorded as the stop, and the report is returned. Near the worker's time
    limit the attempt ends normally; the next round does the remaining members.

    Raises:
        StorageError: of `RUN_FAULTS`, it stops the whole run.
        ServiceFaultError: the task may work later.
        RunStoppedError: another task met a fault of the whole run.
    """
    attempt = TaskAttempt(run, task, context)
    try:
        return _attempt(attempt)
    finally:
        attempt.destination.release()


def _attempt(attempt: TaskAttempt) -> TaskReport:
    """Do the remaining members of a task; see `run_task`."""
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
        run_stop = stop.result()
        if run_stop is not None:
            message = f"{task.id}: not begun, for the run met {run_stop.reason}"
            raise errors.RunStoppedError(message)
        _do_remaining(attempt, rows.result())
    except errors.DeadlineError:
        pass  # the next round does the remaining members
    except ATTEMPT_FAULTS as fault:
        if isinstance(fault, RUN_FAULTS):
            attempt.records.write_stop(stop_for(fault))
        if isinstance(fault, errors.SourceChangedError):
            return attempt.write()
        concurrent = attempt.records.find_outcomes(task.id)
        if concurrent is not None and concurrent.complete:
            return concurrent.report
        attempt.fault = str(fault)
        attempt.write()
        raise
    return attempt.write()


def _load_worker(kind: TaskKind) -> Callable[[TaskAttempt, list[PlannedMember]], None]:
    """Return the function that does tasks of a kind."""
    module, name = WORKERS[kind]
    function: Callable[[TaskAttempt, list[PlannedMember]], None]
    function = getattr(import_module(f"s3unzip.extraction.{module}"), name)
    return function


def _do_remaining(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Do the members of `rows` that have no outcome.

    If the store refuses one large member, the refusal is the member's outcome. A batch notes the
    refusals of single members itself, so a refusal that it raises stops the run.
    """
    done = {outcome.index for outcome in attempt.outcomes}
    remaining = [row for row in rows if row.member.index not in done]
    attempt.done_before = sum(row.work for row in rows if row.member.index in done)
    try:
        _load_worker(attempt.task.kind)(attempt, remaining)
    except RUN_FAULTS:
        raise
    except errors.StorageError as refusal:
        lacks = isinstance(refusal, errors.UnsupportedError)
        if attempt.task.kind is TaskKind.BATCH:
            kind = errors.StoreLacksError if lacks else errors.StoreRefusesError
            raise kind(str(refusal)) from refusal
        for row in remaining:  # settling aborts the upload
            attempt.failed(row, row.finding(refusal.reason, str(refusal)))
        attempt.has_no_outcome = not attempt.task.is_whole
