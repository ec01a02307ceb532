"""Retry: new tasks for the failed members only.

Each retry is a generation: ``retry-0001.jsonl`` lists its tasks. If a member has several outcomes,
the last one counts. So the report step reads the outcomes of the plan's tasks first, then those of
the generations in order.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct, field

from s3unzip import run_files
from s3unzip.extraction.split.slices import whole_task
from s3unzip.model import Outcome, PlannedMember, Status, Task, TaskKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.model import TaskReport
    from s3unzip.runs.records import RunRecords


class Retries(Struct):
    """The results of all retries of a run; the failed members bound the memory."""

    outcomes: dict[int, tuple[str, Outcome]] = field(default_factory=dict)  # by member: task, last
    reports: list[TaskReport] = field(default_factory=list)
    left: list[Task] = field(default_factory=list)


def read_retries(records: RunRecords) -> Retries:
    """Return the recorded results of the run's retries."""
    retries = Retries()
    for retry in records.list_retries():
        for task, found in records.outcomes_of(records.retry_tasks(retry)):
            if found is None or not found.complete:
                retries.left.append(task)
            if found is not None:
                retries.reports.append(found.report)
                retries.outcomes.update({o.index: (task.id, o) for o in found.outcomes})
    return retries


def plan_retry(records: RunRecords) -> tuple[str, list[Task]] | None:
    """List the tasks of a new retry; return its name and tasks, None if no member failed.

    Members that the directory itself refuses are not retried, because the archive does not change.
    """
    name = run_files.retry(1 + len(records.list_retries()))
    earlier = read_retries(records)
    tasks: list[Task] = []
    for task, failed in _failed(records, earlier):
        for rows, span in _runs(records, task, failed):
            tasks.append(_retry_task(f"{name}-{len(tasks):07d}", task, rows, span))
    if not tasks:
        return None
    records.write_retry(name, tasks)
    return name, tasks


def _failed(records: RunRecords, earlier: Retries) -> Iterator[tuple[Task, set[int]]]:
    """Yield tasks of the plan with the indexes of their members whose last outcome is a failure."""
    for task, found in records.outcomes_of(records.tasks()):
        outcomes = (found.outcomes if found else []) if task.parts == 1 else []
        if task.parts > 1 and task.part == 0:
            outcomes = _split_outcomes(records, task)
        last = (earlier.outcomes.get(outcome.index, ("", outcome))[1] for outcome in outcomes)
        failed = {outcome.index for outcome in last if outcome.status is Status.FAILED}
        if failed:
            yield task, failed


def _split_outcomes(records: RunRecords, task: Task) -> list[Outcome]:
    """Return the known outcome of a member of several tasks, which may be incomplete."""
    row = records.read_placed_rows(task.rows)[0][0]
    link = records.find_link(row.member.index)
    if link is None:
        return []
    if link.outcome is not None:
        return [link.outcome]
    whole = records.find_outcomes(whole_task(task, row).id)
    return whole.outcomes if whole is not None else []


def _runs(
    records: RunRecords, task: Task, failed: set[int]
) -> Iterator[tuple[list[PlannedMember], tuple[int, int]]]:
    """Yield runs of neighbouring rows that failed, with their bytes of the member list."""
    lines = records.read_placed_rows(task.rows)
    for is_failed, group in groupby(lines, lambda entry: entry[0].member.index in failed):
        if is_failed:
            some = list(group)
            yield [row for row, _, _ in some], (some[0][1], some[-1][2])


def _retry_task(name: str, task: Task, rows: list[PlannedMember], span: tuple[int, int]) -> Task:
    batch, first = task.kind is TaskKind.BATCH, rows[0].member
    return Task(
        id=name,
        kind=TaskKind.STREAM if task.parts > 1 else task.kind,
        rows=span,
        members=len(rows),
        span=(first.offset, rows[-1].member.stop) if batch else (0, first.compressed_size),
        size=sum(row.member.size for row in rows),
        seconds=round(task.seconds * task.parts * len(rows) / task.members, 3),
    )


def run_of(execution: str) -> str:
    """Return the run of an execution; a retry's execution has the name of its list."""
    head, mark, generation = execution.rpartition(f"-{run_files.RETRIES}")
    return head if mark and generation.isdecimal() else execution
