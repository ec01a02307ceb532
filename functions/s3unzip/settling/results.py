"""The results of the rounds of a run, and the stages of its split members that settling does.

The rules:

- Nothing is kept in memory between two steps: each reads all outcomes of all rounds.
- A task whose outcomes are missing or cannot be read is treated as not begun.
- If the records of the plan or of a round cannot be read, the run stops. The outcomes that can be
  read are still counted.
- `s3unzip.stages` says in which stage a split member is. Settling does the stages `LINK` and
  `FINISH`; it may do them again, and late.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from s3unzip.errors import UnreadableRecordError
from s3unzip.extraction.split_members import finish_member, link_member
from s3unzip.extraction.uploads import abort_quietly, abort_uploads
from s3unzip.model import (
    Outcome,
    PlannedMember,
    PlanSummary,
    Status,
    Stop,
    Task,
    TaskKind,
    TaskReport,
)
from s3unzip.runs.records import PLAN_TASK, RunRecords, TaskOutcomes
from s3unzip.runs.step import Step, stop_for
from s3unzip.settling.report import Tally
from s3unzip.stages import Stage, current_stage, gives_outcome
from s3unzip.stores.ahead import map_ahead
from s3unzip.stores.ports import Upload

MEMBERS_AT_ONCE = 8  # split members that are linked or finished at once
MEMBER_TASK = "member-{:08d}"  # the task id in the outcome of a split member, by its index

Ended = tuple[Task, TaskOutcomes]


class Results(Struct):
    """The results of the rounds so far."""

    tally: Tally
    unfinished: list[Task] = field(default_factory=list)  # tasks for the next round
    large: list[Task] = field(default_factory=list)  # all tasks except batches
    to_link: list[list[Task]] = field(default_factory=list)  # the scans or copies of each member
    to_finish: list[list[Ended]] = field(default_factory=list)  # the slices of each member
    done: int = 0  # tasks that ended, and members that have an outcome; it grows with progress
    stop: Stop | None = None  # if records cannot be read

    @property
    def waiting(self) -> list[Task]:
        """The tasks that ended, but whose members are not linked or finished yet."""
        scans = [task for tasks in self.to_link for task in tasks]
        return scans + [task for slices in self.to_finish for task, _ in slices]

    @property
    def uploads(self) -> dict[str, tuple[int, int]]:
        """The rows of each split member that has an upload, by the upload's id."""
        tasks = [*self.unfinished, *self.waiting]
        return {task.slice.upload_id: task.rows for task in tasks if task.slice is not None}


def read_results(step: Step, plan: PlanSummary) -> Results:
    """Read the outcomes of all tasks of all rounds.

    If the records of the plan or of a round cannot be read, the results have a stop.
    """
    try:
        return _read_rounds(step.records, plan, Tally(step.context.tuning.failures_listed))
    except UnreadableRecordError as damage:
        results = Results(Tally(step.context.tuning.failures_listed), stop=stop_for(damage))
    for task_id, recorded in step.records.read_outcomes(step.records.list_outcomes()):
        if recorded is not None:
            _add_recorded(results.tally, task_id, recorded)
    return results


def _read_rounds(records: RunRecords, plan: PlanSummary, tally: Tally) -> Results:
    """Add the outcomes of all tasks to `tally`; return the results, which contain it.

    Outcomes without a task in a round are those that settling wrote for split members.
    """
    if plan.failed:
        tally.add_all(records.plan_outcomes(), PLAN_TASK)
    results = Results(tally)
    tasks = {task.id: task for task in records.tasks()}
    results.large = [task for task in tasks.values() if task.kind is not TaskKind.BATCH]
    recorded_ids = [task_id for task_id in sorted(records.list_outcomes()) if task_id != PLAN_TASK]
    absent = ((task_id, None) for task_id in sorted(tasks.keys() - set(recorded_ids)))
    members: defaultdict[int | None, _Stages] = defaultdict(dict)
    for task_id, outcomes in chain(records.read_outcomes(recorded_ids), absent):
        task = tasks.get(task_id)
        if task is None:
            if outcomes is not None and outcomes.report.stage is Stage.DONE:
                _add_recorded(tally, task_id, outcomes)
                members[outcomes.report.member][Stage.DONE] = []
            continue
        if outcomes is not None:
            _add_recorded(tally, task_id, outcomes)
            results.done += outcomes.complete  # True is 1
        if task.stage is not None:
            members[task.member].setdefault(task.stage, []).append((task, outcomes))
        elif outcomes is None or not outcomes.complete:
            results.unfinished.append(task)
    for stages in members.values():
        _sort_member(results, stages)
    results.done += tally.members
    return results


_Stages = dict[Stage, list[tuple[Task, TaskOutcomes | None]]]  # the tasks of one member


def _add_recorded(tally: Tally, task_id: str, recorded: TaskOutcomes) -> None:
    """Add the cost of a task to `tally`, and its outcomes if its stage decides about members."""
    tally.add_task(recorded.report)
    if gives_outcome(recorded.report.stage):
        tally.add_all(recorded.outcomes, task_id)


def _sort_member(results: Results, stages: _Stages) -> None:
    """Add the tasks of a split member to `results`, by the stage in which the member is."""
    ended = {
        stage: all(outcomes is not None and outcomes.complete for _, outcomes in tasks)
        for stage, tasks in stages.items()
    }
    match current_stage(ended):
        case Stage.LINK:
            scans = stages.get(Stage.SCAN) or stages[Stage.LINK]
            results.to_link.append([task for task, _ in scans])
        case Stage.FINISH:
            ended_slices = [
                (task, outcomes) for task, outcomes in stages[Stage.SLICE] if outcomes is not None
            ]
            results.to_finish.append(ended_slices)
        case Stage.SCAN | Stage.SLICE | Stage.STREAM as stage:
            for task, outcomes in stages[stage]:
                if outcomes is None or not outcomes.complete:
                    results.unfinished.append(task)


def do_split_members(step: Step, results: Results) -> list[Task]:
    """Link and finish split members; return the tasks that follow.

    The outcome of a member that needs no further task is recorded and added to `results`.
    """
    tasks: list[Task] = []
    for tasks_or_outcome in (
        *map_ahead(partial(link_member, step), results.to_link, MEMBERS_AT_ONCE),
        *map_ahead(partial(finish_member, step), results.to_finish, MEMBERS_AT_ONCE),
    ):
        if isinstance(tasks_or_outcome, Outcome):
            _add_member(step, results, tasks_or_outcome)
        else:
            tasks += tasks_or_outcome
    return tasks


def _add_member(step: Step, results: Results, outcome: Outcome) -> None:
    """Record the outcome of a split member, and add it to `results`."""
    record_member(step, outcome)
    results.done += 1
    results.tally.add_all((outcome,), MEMBER_TASK.format(outcome.index))
    if outcome.status is Status.EXTRACTED:
        results.tally.note_first(step.context.clock.now())


def record_member(step: Step, outcome: Outcome) -> None:
    """Write the outcome of a split member as the record of a task of its own."""
    count: dict[str, Any] = {outcome.status.value: 1}
    step.records.write_outcomes(
        TaskReport(
            MEMBER_TASK.format(outcome.index),
            TaskKind.SLICE,
            members=1,
            started=step.started,
            stage=Stage.DONE,
            member=outcome.index,
            **count,
        ),
        [outcome],
    )


def forget_outcomes(step: Step, is_forgotten: Callable[[Outcome], bool]) -> int:
    """Make some members of each task unfinished, so that the next round extracts them.

    Members that the plan refused are left unchanged.

    Returns:
        How many members became unfinished.
    """
    records = step.records
    rows = {task.id: task.rows for task in records.tasks()}
    count = 0
    for task_id, recorded in records.read_outcomes(records.list_outcomes()):
        if recorded is None or task_id == PLAN_TASK or not gives_outcome(recorded.report.stage):
            continue
        remaining = [outcome for outcome in recorded.outcomes if not is_forgotten(outcome)]
        forgotten = len(recorded.outcomes) - len(remaining)
        count += forgotten
        if forgotten and recorded.report.stage is Stage.DONE:  # the record has this one member
            records.delete_outcomes(task_id)
        elif forgotten:
            _write_remaining(records, recorded.report, remaining, step.read_rows(rows[task_id]))
    return count


def _write_remaining(
    records: RunRecords,
    report: TaskReport,
    outcomes: Sequence[Outcome],
    members: Sequence[PlannedMember],
) -> None:
    """Write the record of a task again, with fewer outcomes.

    Args:
        records: of the run.
        report: of the task.
        outcomes: the outcomes that remain.
        members: all members of the task.
    """
    indexes = {outcome.index for outcome in outcomes}
    statuses = Counter(outcome.status for outcome in outcomes)
    forgotten = report.extracted + report.unchanged + report.failed - len(outcomes)
    records.write_outcomes(
        replace(
            report,
            unfinished=report.unfinished + forgotten,
            bytes_done=sum(row.work for row in members if row.member.index in indexes),
            **{status.value: statuses[status] for status in Status},
        ),
        outcomes,
    )


def drop_slices(step: Step, results: Results) -> None:
    """Abort the uploads of split members of a run whose archive is gone or replaced.

    Other uploads stay: a run of a newer archive may write the same keys.
    """
    for upload_id, span in results.uploads.items():
        for row in step.read_rows(span):
            abort_quietly(step, Upload(row.key, upload_id))


def drop_uploads(step: Step, results: Results) -> None:
    """Abort the uploads that killed workers left; the uploads that slices still need stay."""
    spans = sorted({task.rows for task in results.large})
    keys = [row.key for span in spans for row in step.read_rows(span)]
    abort_uploads(step, keys, results.uploads.keys())
