"""Extract: one task, from its rows to its outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.errors import (
    Finding,
    RunStoppedError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
)
from s3unzip.extraction.batch import extract_batch
from s3unzip.extraction.copy import copy_member
from s3unzip.extraction.split.segment import extract_segment
from s3unzip.extraction.stream import stream_member
from s3unzip.model import TaskKind
from s3unzip.runs.outcomes import OutcomeLog, read_outcomes
from s3unzip.runs.rows import read_rows
from s3unzip.runs.stop import RUN_FAULTS, read_stop, write_stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.context import Context
    from s3unzip.model import MemberRow, Run, Task, TaskReport

WORKERS: dict[TaskKind, Callable[[Run, list[MemberRow], OutcomeLog], None]] = {
    TaskKind.BATCH: extract_batch,
    TaskKind.STREAM: stream_member,
    TaskKind.COPY: copy_member,
    TaskKind.SEGMENT: extract_segment,
}


def run_task(run: Run, task: Task, context: Context) -> TaskReport:
    """Do one task and write its outcomes; members that an earlier attempt finished are skipped.

    An archive that changed is a verdict: it is written down and returned. What
    stops the whole run is written down and raised.

    Raises:
        ServiceFaultError: the task may work later; what is done is on record.
        RunStoppedError: another task met what stops the run.
        AccessDeniedError, NotFoundError, StoreFullError: this task met it.
        StorageError: the destination refuses whatever it is given.
    """
    calls = context.calls()
    work = context.stores.run_store(run.id, calls)
    stop = read_stop(work)
    if stop is not None:
        raise RunStoppedError(f"{task.id}: not begun, for the run met {stop.reason}")
    earlier = read_outcomes(work, task.id)
    if earlier is not None and earlier.complete:
        return earlier.report
    rows = read_rows(work, task.rows)
    log = OutcomeLog(run.id, task, context, calls, context.clock.now())
    if earlier is not None:
        log.resume(earlier)
        done = {outcome.index for outcome in earlier.outcomes}
        rows = [row for row in rows if row.index not in done]
    return _work_off(run, rows, log)


def _work_off(run: Run, rows: list[MemberRow], log: OutcomeLog) -> TaskReport:
    """Do `rows`, and write down how it went."""
    work = log.work
    try:
        WORKERS[log.task.kind](run, rows, log)
    except SourceChangedError as change:
        write_stop(work, change)
        return log.write()
    except RUN_FAULTS as fault:
        write_stop(work, fault)
        log.write()
        raise
    except ServiceFaultError:
        log.write()
        raise
    except StorageError as refusal:
        if log.task.kind is TaskKind.BATCH:  # which notes the refusals of single members itself
            write_stop(work, refusal)
            log.write()
            raise
        _refuse(rows, refusal, log)
    return log.write()


def _refuse(rows: list[MemberRow], refusal: StorageError, log: OutcomeLog) -> None:
    """Note that the store would not take the members of a task; settling drops the upload."""
    known = {outcome.index for outcome in log.outcomes}
    for row in rows:
        if row.index not in known:
            log.failed(row, Finding("store-refused", str(refusal), row.offset, row.key))
    log.slice_done = log.task.parts > 1
