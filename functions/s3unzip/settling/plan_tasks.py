"""What settling keeps of the plan's tasks, which it reads once; memory is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import rates
from s3unzip.stores.readahead import map_ahead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from s3unzip.model import PlanSummary, Task
    from s3unzip.runs.records import RunRecords
    from s3unzip.runs.task_records import TaskOutcomes

MAX_TASKS_KEPT = 5_000  # the plan of more is not estimated again
MAX_PARTS_KEPT = 100_000  # of slices, about 30 MB; what is on record of others is read again


class SliceOutcomes:
    """What is on record of the tasks of split members."""

    def __init__(self, records: RunRecords, max_parts: int = MAX_PARTS_KEPT) -> None:
        self._records = records
        self._kept: dict[str, TaskOutcomes | None] = {}
        self._parts_left = max_parts

    def keep(self, task: Task, found: TaskOutcomes | None) -> None:
        """Keep what was read of a slice, as long as the slices kept have few enough parts."""
        self._parts_left -= 1 if found is None else 1 + len(found.report.uploaded)
        if self._parts_left >= 0:
            self._kept[task.id] = found

    def find(self, tasks: Sequence[str]) -> list[TaskOutcomes | None]:
        """Return what is on record of slices, None: nothing; what is not kept is read again."""
        others = [task for task in tasks if task not in self._kept]
        read = map_ahead(self._records.find_outcomes, others, rates.OUTCOMES_AT_ONCE)
        found = dict(zip(others, read, strict=True)) if others else {}
        return [self._kept[task] if task in self._kept else found[task] for task in tasks]


class PlanTasks:
    """The tasks that are needed again."""

    def __init__(self, summary: PlanSummary, records: RunRecords) -> None:
        self._keeps_all = summary.tasks <= MAX_TASKS_KEPT
        self.tasks: list[Task] = []  # all, of a plan that is estimated again
        self.split: list[Task] = []  # the first task of each split member
        self.slices = SliceOutcomes(records)

    def look(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Yield `tasks`."""
        for task in tasks:
            if self._keeps_all:
                self.tasks.append(task)
            if task.parts > 1 and task.part == 0:
                self.split.append(task)
            yield task
