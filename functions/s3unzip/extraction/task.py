"""Do one task: read its rows, extract their members, and record the outcomes.

Rules:

* A task may be done twice, late, or by two workers concurrently. Each attempt skips the members
  that an earlier attempt recorded. An attempt ends if another attempt has written a complete
  record.
* Before an attempt ends, for whatever reason, its outcomes are recorded.
* Once the stop of a run is recorded, no task begins. If a fault affects the whole run, the
  attempt records a stop.
"""

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

from s3unzip import errors
from s3unzip.context import Context
from s3unzip.model import PlannedMember, Run, Task, TaskKind, TaskReport
from s3unzip.runs.step import RUN_FAULTS, TaskAttempt, stop_for

# The module and function of each kind of task. A worker imports the module when it receives its
# first task of this kind.
TASK_FUNCTIONS = {
    TaskKind.BATCH: ("batch", "extract_batch"),
    TaskKind.STREAM: ("large_members", "stream_member"),
    TaskKind.COPY: ("large_members", "copy_member"),
    TaskKind.SCAN: ("split_members", "scan_member"),
    TaskKind.SLICE: ("split_members", "extract_slice"),
}
# Errors that end an attempt.
ATTEMPT_FAULTS: tuple[type[errors.S3UnzipError], ...] = (*RUN_FAULTS, errors.ServiceFaultError)


def run_task(run: Run, task: Task, context: Context) -> TaskReport:
    """Do one task and write its outcomes; skip the members that an earlier attempt finished.

    If the archive has changed, the change is recorded as the reason why the run stops, and the
    report of the task is returned. Near the time limit of the worker, the attempt ends without an
    error, and the next round extracts the remaining members.

    Raises:
        StorageError: an error in `RUN_FAULTS`, which stops the whole run.
        ServiceFaultError: the task may succeed later.
        RunStoppedError: another task has stopped the whole run.
    """
    attempt = TaskAttempt(run, task, context)
    try:
        return _do_attempt(attempt)
    finally:
        attempt.destination.release()


def _do_attempt(attempt: TaskAttempt) -> TaskReport:
    """Do the part of a task that no attempt has completed yet; record and return the report."""
    task = attempt.task
    # Three records are read concurrently.
    with ThreadPoolExecutor(3, thread_name_prefix="task") as pool:
        outcomes = pool.submit(attempt.records.find_outcomes, task.id)
        stop = pool.submit(attempt.records.find_stop)
        rows = pool.submit(attempt.read_rows, task.rows)
    earlier = outcomes.result()
    if earlier is not None and earlier.is_complete:  # nothing is left to do
        return earlier.report
    if earlier is not None:
        attempt.resume(earlier)
    try:
        run_stop = stop.result()
        if run_stop is not None:
            raise errors.RunStoppedError(
                f"{task.id}: not started, because the run has stopped: {run_stop.reason}"
            )
        _do_remaining(attempt, rows.result())
    except errors.DeadlineError:
        pass  # the next round extracts the remaining members
    except ATTEMPT_FAULTS as fault:
        return _end_with_fault(attempt, fault)
    return attempt.write()


def _end_with_fault(attempt: TaskAttempt, fault: errors.S3UnzipError) -> TaskReport:
    """Record the fault that ended an attempt, and raise it.

    If the archive has changed, the report of this attempt is returned instead: the stop record ends
    the run with a verdict. If another attempt has completed the whole task in the meantime, its
    report is returned.
    """
    if isinstance(fault, RUN_FAULTS):
        attempt.records.write_stop(stop_for(fault))
    if isinstance(fault, errors.SourceChangedError):
        return attempt.write()
    concurrent = attempt.records.find_outcomes(attempt.task.id)
    if concurrent is not None and concurrent.is_complete:
        return concurrent.report
    attempt.fault = str(fault)
    attempt.write()
    raise fault


def _do_remaining(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Extract the members of `rows` that have no outcome.

    If the store refuses one large member, the refusal becomes the outcome of the member. A batch
    notes refusals of single members itself, so a refusal that a batch raises stops the run.
    """
    done = {outcome.index for outcome in attempt.outcomes}
    remaining = [row for row in rows if row.member.index not in done]
    is_batch = attempt.task.kind is TaskKind.BATCH
    module, name = TASK_FUNCTIONS[attempt.task.kind]
    extract = getattr(import_module(f"s3unzip.extraction.{module}"), name)
    try:
        if is_batch:
            extract(attempt, remaining)
        else:
            for row in remaining:  # the only member, or none if that member has an outcome
                extract(attempt, row)
    except RUN_FAULTS:  # these errors stop the run, whichever task raises them
        raise
    except errors.StorageError as refusal:
        if is_batch:  # raise an error in `RUN_FAULTS`, to stop the run
            if isinstance(refusal, errors.UnsupportedError):
                raise errors.StoreLacksError(str(refusal)) from refusal
            raise errors.StoreRefusesError(str(refusal)) from refusal
        for row in remaining:
            attempt.note_failed(row, row.finding(refusal.reason, str(refusal)))
    # The task is finished. If the task processed only part of a member, settling adds the member's
    # outcome.
    attempt.settling_adds_outcome = not attempt.task.is_whole
