"""The tasks of a plan and what is on record of each, read a few at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

from s3unzip import run_files
from s3unzip.model import Task, decode
from s3unzip.runs.outcomes import iterate_lines, read_outcomes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip.runs.outcomes import TaskOutcomes
    from s3unzip.stores.ports import RunStore

READERS = 16  # outcomes read at once


def planned_tasks(work: RunStore, name: str = run_files.PLAN) -> Iterator[Task]:
    """Yield the tasks of the plan, or of another list."""
    for line in iterate_lines(work.stream(name)):
        yield decode(line, Task)


def read_records(
    work: RunStore, tasks: Iterable[Task]
) -> Iterator[tuple[Task, TaskOutcomes | None]]:
    """Yield tasks with what is on record of them, None: nothing.

    What there is to read is listed first: of a run that stopped early most
    tasks have nothing.
    """
    known = set(work.names(run_files.OUTCOMES))
    coming = iter(tasks)

    def read(task: Task) -> TaskOutcomes | None:
        return read_outcomes(work, task.id) if run_files.outcomes(task.id) in known else None

    with ThreadPoolExecutor(READERS, thread_name_prefix="outcomes") as pool:
        while some := list(islice(coming, READERS)):
            found = pool.map(read, some)
            yield from zip(some, found, strict=True)
