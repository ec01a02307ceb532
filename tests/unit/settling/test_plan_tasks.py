"""What settling keeps of the records of slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.model import Part, Requests, Task, TaskKind, TaskReport
from s3unzip.runs.records import RunRecords
from s3unzip.settling.plan_tasks import SliceOutcomes
from tests.memory import MemoryWork

if TYPE_CHECKING:
    from s3unzip.runs.task_records import TaskOutcomes

PARTS = tuple(Part(number, "etag", 5) for number in (1, 2))


def slice_of(part: int) -> Task:
    """Return a task of a split member."""
    return Task(f"copy-00000000-{part:04d}", TaskKind.COPY, (0, 9), 1, (0, 9), 9, 1.0, part, 4)


def recorded(records: RunRecords, task: Task) -> TaskOutcomes:
    """Write that a slice uploaded two parts; return what is on record then."""
    report = TaskReport(task.id, task.kind, 1, uploaded=PARTS, requests=Requests())
    records.write_outcomes(lambda _: report, [])
    found = records.find_outcomes(task.id)
    assert found is not None
    return found


def test_records_beyond_the_limit_are_read_again() -> None:
    """All are found; only those of the first parts are kept."""
    work = MemoryWork()
    records = RunRecords(work)
    slices = SliceOutcomes(records, max_parts=7)
    tasks = [slice_of(part) for part in range(4)]
    found = [recorded(records, task) for task in tasks[:3]]
    for task, one in zip(tasks, [*found, None], strict=True):
        slices.keep(task, one)
    ids = [task.id for task in tasks]
    assert slices.find(ids) == [*found, None]
    for task in tasks[:3]:
        work.delete([f"outcomes/{task.id}.jsonl"])
    assert slices.find(ids) == [*found[:2], None, None]
