"""Doing a direct run: its tasks, its report, and what is handed to the state machine if it must."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import run_files
from s3unzip.errors import RunStoppedError, ServiceFaultError, StorageError
from s3unzip.extraction.task import run_task

if TYPE_CHECKING:
    from s3unzip.direct.plan import DirectPlan
    from s3unzip.model import TaskReport
    from s3unzip.stores.ports import RunStore

# Written before the outcomes: where the summary is, the plan is whole, and nobody plans anew.
PLANNED = (
    run_files.RUN,
    run_files.MEMBERS,
    run_files.PLAN,
    run_files.outcomes(run_files.INDEX_TASK),
    run_files.SUMMARY,
)


def do_tasks(plan: DirectPlan) -> list[TaskReport] | None:
    """Do the tasks of `plan`, one after the other; None: some are left.

    They are left where the function's time is nearly over, and after a fault
    that the state machine's retries, or a redrive, may get over. What is done
    is in the records.
    """
    run = plan.summary.run
    try:
        return [run_task(run, task, plan.context) for task in plan.tasks]
    except (ServiceFaultError, StorageError, RunStoppedError):
        return None


def hand_over(plan: DirectPlan, store: RunStore) -> None:
    """Write plan and outcomes to `store`, so that the state machine does what is left.

    Raises:
        StorageError, ServiceFaultError: a record could not be written.
    """
    files = plan.records.objects
    rest = [name for name in files if name not in PLANNED]
    for name in (*PLANNED, *rest):
        store.write(name, [files[name]])
