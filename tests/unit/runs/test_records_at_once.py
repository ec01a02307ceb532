"""The records of a run are read many at a time, not one after the other."""

from __future__ import annotations

import threading

from s3unzip.direct.memory_store import MemoryRunStore
from s3unzip.model import Outcome, Status, Task, TaskKind, TaskReport
from s3unzip.runs.records import RunRecords
from tests.patience import HANG_SECONDS

TASKS = 20


class Meeting(MemoryRunStore):
    """A store whose calls on records of one kind only return when all are under way."""

    def __init__(self, prefix: str, calls: int) -> None:
        super().__init__()
        self._prefix = prefix
        self._all = threading.Barrier(calls)
        self.opened = False

    def _meet(self, name: str) -> None:
        if self.opened and name.startswith(self._prefix):
            self._all.wait(HANG_SECONDS)

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return a record."""
        self._meet(name)
        return super().read(name, span)


def _write_outcome(records: RunRecords, task: Task, member: int) -> None:
    report = TaskReport(task.id, task.kind, 1, extracted=1)
    done = Outcome(member, f"key-{member}", Status.EXTRACTED)
    records.write_outcomes(lambda _: report, [done])


def test_the_report_reads_the_outcomes_of_tasks_at_once() -> None:
    """Each task comes in order with what is on record of it; one has nothing."""
    store = Meeting("outcomes/", TASKS)
    records = RunRecords(store)
    tasks = [
        Task(f"batch-{n:07d}", TaskKind.BATCH, (0, 1), 1, (0, 1), 1, 1.0) for n in range(TASKS + 1)
    ]
    for n, task in enumerate(tasks[1:], 1):
        _write_outcome(records, task, n)
    store.opened = True
    found = list(records.outcomes_of(tasks))
    assert [task for task, _ in found] == tasks
    assert found[0][1] is None
    assert [one.outcomes[0].key for _, one in found[1:] if one] == [
        f"key-{n}" for n in range(1, TASKS + 1)
    ]
