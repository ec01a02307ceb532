"""The results of the rounds of a run, and the stages of split members that settling carries out.

The rules:

- Nothing is kept in memory between two steps: each step reads all outcomes of all rounds.
- A task whose outcomes are missing or cannot be read is treated as not begun.
- If the records of the plan or of a round cannot be read, the run stops. The outcomes that can be
  read are still counted.
- `s3unzip.stages` determines which stage a split member is in. Settling carries out the stages
  `LINK` and `FINISH`; it may do so repeatedly and late.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from s3unzip.errors import UnreadableRecordError
from s3unzip.extraction.split_members import finish_member, link_member
from s3unzip.extraction.uploads import abort_quietly, abort_uploads
from s3unzip.model import (
    Failure,
    Outcome,
    PlanSummary,
    Requests,
    Status,
    Stop,
    Task,
    TaskKind,
    TaskReport,
)
from s3unzip.runs.records import PLAN_TASK, RunRecords, TaskOutcomes
from s3unzip.runs.step import Step, stop_for
from s3unzip.stages import Stage, current_stage, gives_outcome
from s3unzip.stores.calls import map_ahead
from s3unzip.stores.ports import Upload

MEMBERS_AT_ONCE = 8  # maximum number of split members to link or finish concurrently

Ended = tuple[Task, TaskOutcomes]  # a task that has ended, and its record


class Results(Struct):
    """The results of the rounds so far: totals over tasks and outcomes, and the remaining tasks."""

    max_failures: int  # the maximum length of `failures`, because each failure takes up memory
    counts: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    requests: Requests = field(default_factory=Requests)
    bytes_read: int = 0
    bytes_written: int = 0
    task_seconds: float = 0.0
    first_object: float | None = None  # when the earliest object was finished, in Unix seconds
    fault: str | None = None  # the last fault that ended an attempt too early
    unfinished: list[Task] = field(default_factory=list)  # tasks for the next round
    large: list[Task] = field(default_factory=list)  # all tasks except batches
    to_link: list[list[Task]] = field(default_factory=list)  # the scans or copies for each member
    to_finish: list[list[Ended]] = field(default_factory=list)  # the slices for each member
    done: int = 0  # number of ended tasks and of members with an outcome; grows with progress
    stop: Stop | None = None  # set if records cannot be read

    @property
    def members(self) -> int:
        """The number of members that have an outcome."""
        return self.counts.total()

    @property
    def waiting(self) -> list[Task]:
        """The tasks that have ended, but whose members are not linked or finished yet."""
        scans = [task for tasks in self.to_link for task in tasks]
        return scans + [task for slices in self.to_finish for task, _ in slices]

    @property
    def uploads(self) -> dict[str, tuple[int, int]]:
        """The row span of each split member that has an upload, by upload id."""
        tasks = [*self.unfinished, *self.waiting]
        return {task.slice.upload_id: task.rows for task in tasks if task.slice is not None}

    def add_task(self, recorded: TaskOutcomes) -> None:
        """Add the cost of a task; also add its outcomes if its stage yields member outcomes."""
        report = recorded.report
        self.requests = self.requests + report.requests
        self.bytes_read += report.bytes_read
        self.bytes_written += report.bytes_written
        self.task_seconds += report.seconds
        self.warnings.update(report.warnings)
        self.fault = report.fault or self.fault
        self.first_object = min(
            filter(None, (self.first_object, report.first_object)), default=None
        )
        if gives_outcome(report.stage):
            self.add_outcomes(recorded.outcomes, report.task)

    def add_outcomes(self, outcomes: Iterable[Outcome], task: str) -> None:
        """Add the outcomes of one task's members."""
        for outcome in outcomes:
            self.counts[outcome.status] += 1
            if outcome.status is not Status.FAILED:
                continue
            reason = outcome.reason or "unknown"
            self.reasons[reason] += 1
            if len(self.failures) < self.max_failures:
                self.failures.append(
                    Failure(
                        outcome.key,
                        reason,
                        outcome.message or "",
                        index=outcome.index,
                        offset=outcome.offset,
                        task=task,
                    )
                )


def read_results(step: Step, plan: PlanSummary) -> Results:
    """Read the outcomes of all tasks in all rounds.

    If the records of the plan or of a round cannot be read, the results contain a stop.
    """
    results = Results(step.context.tuning.failures_listed)
    try:
        _read_rounds(step.records, plan, results)
    except UnreadableRecordError as damage:
        results = Results(step.context.tuning.failures_listed, stop=stop_for(damage))
        for _, recorded in step.records.read_outcomes(step.records.list_outcomes()):
            if recorded is not None:
                results.add_task(recorded)
    return results


def _read_rounds(records: RunRecords, plan: PlanSummary, results: Results) -> None:
    """Add all tasks and their outcomes to `results`.

    Outcomes without a task in a round are outcomes that settling wrote for split members.
    """
    if plan.failed:
        results.add_outcomes(records.plan_outcomes(), PLAN_TASK)
    tasks = {task.id: task for task in records.tasks()}
    results.large = [task for task in tasks.values() if task.kind is not TaskKind.BATCH]
    recorded_ids = [task_id for task_id in sorted(records.list_outcomes()) if task_id != PLAN_TASK]
    absent = ((task_id, None) for task_id in sorted(tasks.keys() - set(recorded_ids)))
    members: defaultdict[int | None, _Stages] = defaultdict(dict)
    for task_id, outcomes in chain(records.read_outcomes(recorded_ids), absent):
        task = tasks.get(task_id)
        if task is None:
            if outcomes is not None and outcomes.report.stage is Stage.DONE:
                results.add_task(outcomes)
                members[outcomes.report.member][Stage.DONE] = []
            continue
        if outcomes is not None:
            # A member that settling ended counts only once. Its record is read before the record of
            # a late stream, because "member-" sorts before "stream-".
            counted = outcomes
            if Stage.DONE in members.get(task.member, {}):
                counted = replace(outcomes, outcomes=[])
            results.add_task(counted)
            results.done += outcomes.complete  # True counts as 1
        if task.stage is not None:
            members[task.member].setdefault(task.stage, []).append((task, outcomes))
        elif outcomes is None or not outcomes.complete:
            results.unfinished.append(task)
    for stages in members.values():
        _sort_member(results, stages)
    results.done += results.members


_Stages = dict[Stage, list[tuple[Task, TaskOutcomes | None]]]  # the tasks of one member


def _sort_member(results: Results, stages: _Stages) -> None:
    """Add the tasks of a split member to `results`, according to the member's current stage."""
    ended = {
        stage: all(outcomes is not None and outcomes.complete for _, outcomes in tasks)
        for stage, tasks in stages.items()
    }
    match current_stage(ended):
        case Stage.LINK:
            # Copies are not scanned: they are planned in the stage `LINK`.
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


def do_split_members(step: Step, results: Results) -> None:
    """Link and finish split members; add their next tasks to the remaining tasks.

    If a member needs no further task, its outcome is recorded and added to `results`.
    """
    following: list[Task] = []
    for tasks_or_outcome in (
        *map_ahead(partial(link_member, step), results.to_link, MEMBERS_AT_ONCE),
        *map_ahead(partial(finish_member, step), results.to_finish, MEMBERS_AT_ONCE),
    ):
        if isinstance(tasks_or_outcome, Outcome):
            outcome = tasks_or_outcome
            results.add_outcomes([outcome], _record_member(step, outcome))
            results.done += 1
            if outcome.status is Status.EXTRACTED and results.first_object is None:
                results.first_object = step.context.clock.now()
        else:
            following += tasks_or_outcome
    results.unfinished += following
    results.to_link.clear()
    results.to_finish.clear()


def link_copies(step: Step, copies: Sequence[Task]) -> Sequence[Task]:
    """Return the tasks of a stored member that is copied in slices; empty if it has an outcome."""
    linked = link_member(step, copies)
    if not isinstance(linked, Outcome):
        return linked
    if linked.status is not Status.FAILED:
        _record_member(step, linked)
        return ()
    # Assign the whole member to one task, which finds the same fault and can be repeated.
    size = sum(task.size for task in copies)
    return [
        replace(
            copies[0],
            id=f"copy-{linked.index:08d}",
            part=0,
            parts=1,
            span=(0, size),
            size=size,
            seconds=sum(task.seconds for task in copies),
        )
    ]


def _record_member(step: Step, outcome: Outcome) -> str:
    """Record the outcome of a split member as a separate task; return the id of that task."""
    task_id = f"member-{outcome.index:08d}"
    report = TaskReport(
        task_id,
        TaskKind.SLICE,
        members=1,
        started=step.started,
        stage=Stage.DONE,
        member=outcome.index,
    )
    step.records.write_outcomes(replace(report, **{outcome.status.value: 1}), [outcome])
    return task_id


def forget_outcomes(step: Step, is_forgotten: Callable[[Outcome], bool]) -> int:
    """Mark some members of each task as unfinished, so that the next round extracts them.

    Members that the plan refused are left unchanged.

    Returns:
        The number of members that became unfinished.
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
        if forgotten and recorded.report.stage is Stage.DONE:  # the record has only this member
            records.delete_outcomes(task_id)
        elif forgotten and task_id not in rows:
            raise UnreadableRecordError(
                f"{step.run.id}: {task_id} is in no round: a record of a round is damaged"
            )
        elif forgotten:
            indexes = {outcome.index for outcome in remaining}
            statuses = Counter(outcome.status for outcome in remaining)
            report = replace(
                recorded.report,
                unfinished=recorded.report.unfinished + forgotten,
                bytes_done=sum(
                    row.work for row in step.read_rows(rows[task_id]) if row.member.index in indexes
                ),
                **{status.value: statuses[status] for status in Status},
            )
            records.write_outcomes(report, remaining)
    return count


def drop_slices(step: Step, results: Results) -> None:
    """Abort the uploads of a run's split members because its archive was deleted or replaced.

    Other uploads are left alone: a run of a newer archive may write the same keys.
    """
    for upload_id, span in results.uploads.items():
        for row in step.read_rows(span):
            abort_quietly(step, Upload(row.key, upload_id))


def drop_uploads(step: Step, tasks: Iterable[Task], spared: Collection[str] = ()) -> int:
    """Abort the uploads that killed workers left behind; return the number of uploads.

    Args:
        step: the step that aborts the uploads.
        tasks: the tasks of the run; a batch has no upload.
        spared: the ids of the uploads that slices still need; these uploads are left alone.
    """
    spans = {task.rows for task in tasks if task.kind is not TaskKind.BATCH}
    keys = [row.key for span in sorted(spans) for row in step.read_rows(span)]
    return abort_uploads(step, keys, spared)
