"""What the progress is told of a run that goes on: what is done already, and what is dropped."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.runs.watch import counts_of, find_streamed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.context import Context
    from s3unzip.model import PlanSummary, Task
    from s3unzip.runs.records import RunRecords


def tell_done(records: RunRecords, context: Context) -> None:
    """Tell the progress what earlier processes did of the run."""
    if context.progress is None:
        return
    counts: Counter[str] = Counter()
    retries = (records.retry_tasks(retry) for retry in records.list_retries())
    for _, found in records.outcomes_of(chain(records.tasks(), *retries)):
        if found is not None:
            counts.update(counts_of(found.report))
    context.progress.finished(counts)


def tell_dropped(records: RunRecords, context: Context) -> None:
    """Tell the progress which slices are dropped, because their members are streamed whole."""
    if context.progress is None:
        return
    streamed = find_streamed(records)
    slices = (task for task in records.tasks() if task.parts > 1 and task.rows in streamed)
    found = [one.report.bytes_done for _, one in records.outcomes_of(slices) if one is not None]
    context.progress.finished({"bytes_done": -sum(found)})


def summary_of(summary: PlanSummary, tasks: Sequence[Task], records: RunRecords) -> PlanSummary:
    """Return the plan of a retry: only the members of its tasks are in it."""
    selected = bytes_in = bytes_out = 0
    for task in tasks:
        for row, _, _ in records.read_placed_rows(task.rows):
            selected += 1
            bytes_in += row.member.compressed_size
            bytes_out += row.member.size
    return replace(
        summary, selected=selected, tasks=len(tasks), bytes_in=bytes_in, bytes_out=bytes_out
    )
