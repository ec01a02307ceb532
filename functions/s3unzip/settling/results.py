"""The results of the rounds of a run, and the stages of split members that settling carries out.

The rules:

- No state is kept in memory between two steps: each step reads all outcomes of all rounds.
- A task whose outcomes are missing or cannot be read is treated as not begun.
- If the records of the plan or of a round cannot be read, the run stops. The outcomes that can be
  read are still counted.
- `s3unzip.stages` determines the stage of a split member. Settling carries out the stages `LINK`
  and `FINISH`, possibly repeatedly or late.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    Report,
    Requests,
    Status,
    Stop,
    Task,
    TaskKind,
    TaskReport,
    Verdict,
)
from s3unzip.runs.records import PLAN_TASK, RunRecords, TaskOutcomes
from s3unzip.runs.step import Step, stop_for
from s3unzip.stages import Stage, current_stage, gives_outcome
from s3unzip.stores.calls import map_ahead
from s3unzip.stores.ports import Upload

MEMBERS_AT_ONCE = 8  # maximum number of split members to link or finish concurrently


class Results(Struct):
    """The results of the rounds so far: totals over tasks and outcomes, and the remaining tasks."""

    max_failures: int  # the maximum length of `failures`, to limit their memory
    counts: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    requests: Requests = field(default_factory=Requests)
    bytes_read: int = 0
    bytes_written: int = 0
    task_seconds: float = 0.0
    first_object: float | None = None  # when the first object was complete, in Unix seconds
    fault: str | None = None  # a fault that ended an attempt before its task was done
    unfinished: list[Task] = field(default_factory=list)  # tasks for the next round
    large: list[Task] = field(default_factory=list)  # all tasks except batches
    # For each split member that settling must link: its scans or its copies.
    to_link: list[list[Task]] = field(default_factory=list)
    # For each split member that settling must finish: its slices.
    to_finish: list[list[tuple[Task, TaskOutcomes]]] = field(default_factory=list)
    done: int = 0  # number of ended tasks, plus number of members with an outcome
    stop: Stop | None = None  # set if records cannot be read
    # Whether to plan anew: failed members were to be extracted again, but records cannot be read.
    must_begin_anew: bool = False

    @property
    def members(self) -> int:
        """The number of members that have an outcome."""
        return self.counts.total()

    @property
    def waiting(self) -> list[Task]:
        """The tasks that have ended, but whose members are not linked or finished yet."""
        return [
            *chain.from_iterable(self.to_link),
            *(task for task, _ in chain.from_iterable(self.to_finish)),
        ]

    @property
    def uploads(self) -> dict[str, tuple[int, int]]:
        """The ids of the uploads of split members, with the span of the member in members.jsonl."""
        return {
            task.slice.upload_id: task.rows
            for task in (*self.unfinished, *self.waiting)
            if task.slice is not None
        }

    def add_task(self, recorded: TaskOutcomes) -> None:
        """Add the requests, bytes and warnings of a task, and its outcomes if they are final."""
        report = recorded.report
        self.requests += report.requests
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

    def add_outcomes(self, outcomes: Iterable[Outcome], task_id: str) -> None:
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
                        task=task_id,
                    )
                )

    def sum_up(self, plan: PlanSummary, verdict: Verdict) -> Report:
        """Return the report of the run, with the totals of these results and of the plan."""
        return Report.of(
            plan.run.id,
            plan.run,
            plan.run.pin,
            verdict,
            members=plan.members,
            directories=plan.directories,
            excluded=plan.excluded,
            # Each status is the name of a field of the report.
            **{status.value: self.counts[status] for status in Status},
            reasons=dict(self.reasons.most_common()),
            warnings=dict(self.warnings + Counter(plan.warnings)),
            failures=tuple(self.failures),
            tasks=plan.tasks,
            workers=plan.workers,
            # The members of the waiting tasks have no outcome, so these tasks count as failed.
            tasks_failed=len(self.unfinished) + len(self.waiting),
            bytes_in=self.bytes_read + plan.bytes_read,
            bytes_out=self.bytes_written,
            started=plan.started,
            plan_seconds=plan.plan_seconds,
            task_seconds=round(self.task_seconds, 6),
            first_object=self.first_object,
        )


def read_results(step: Step, plan: PlanSummary) -> Results:
    """Read the outcomes of all tasks in all rounds.

    If the records of the plan or of a round cannot be read, the results contain a stop, and include
    only the outcomes that can be read.
    """
    results = Results(step.context.tuning.failures_listed)
    try:
        _read_rounds(step.records, plan, results)
    except UnreadableRecordError as damage:
        results = Results(step.context.tuning.failures_listed, stop=stop_for(damage))
        for _, recorded in step.records.effective_outcomes(step.records.recorded_task_ids()):
            if recorded is not None:  # None if the record is damaged
                results.add_task(recorded)
    return results


# The tasks of one member in each stage, with their outcomes if these are recorded.
_Stages = dict[Stage, list[tuple[Task, TaskOutcomes | None]]]


def _read_rounds(records: RunRecords, plan: PlanSummary, results: Results) -> None:
    """Add all tasks and their outcomes to `results`."""
    if plan.failed:
        results.add_outcomes(records.plan_outcomes(), PLAN_TASK)
    tasks = {task.id: task for task in records.tasks()}
    results.large = [task for task in tasks.values() if task.kind is not TaskKind.BATCH]
    recorded_ids = {*records.recorded_task_ids()} - {PLAN_TASK}
    unrecorded = dict.fromkeys(sorted(tasks.keys() - recorded_ids))  # tasks without outcomes
    split_members: defaultdict[int | None, _Stages] = defaultdict(dict)  # by index
    for task_id, outcomes in chain(records.effective_outcomes(recorded_ids), unrecorded.items()):
        task = tasks.get(task_id)
        if task is None:  # settling recorded the outcome of a split member under an id of its own
            if outcomes is not None and outcomes.report.stage is Stage.DONE:
                results.add_task(outcomes)
                # An empty list of tasks tells `_sort_member` that nothing is left to do.
                split_members[outcomes.report.member][Stage.DONE] = []
            continue
        if outcomes is not None:
            results.add_task(outcomes)
            results.done += outcomes.is_complete  # True counts as 1
        if task.stage is not None:  # `_sort_member` decides, once all tasks are read
            split_members[task.member].setdefault(task.stage, []).append((task, outcomes))
        elif outcomes is None or not outcomes.is_complete:
            results.unfinished.append(task)
    for stages in split_members.values():
        _sort_member(results, stages)
    results.done += results.members  # members of an unfinished batch also count as progress


def _sort_member(results: Results, stages: _Stages) -> None:
    """Add the tasks of a split member to the list in `results` that its current stage requires."""
    ended = {
        stage: all(outcomes is not None and outcomes.is_complete for _, outcomes in tasks)
        for stage, tasks in stages.items()
    }
    match current_stage(ended):
        case Stage.LINK:
            # A member that is copied has no scans: its tasks are in `LINK` from the start.
            tasks = stages.get(Stage.SCAN) or stages[Stage.LINK]
            # If an upload of the member was aborted, several rounds may have a task for one part.
            results.to_link.append(list({task.part: task for task, _ in tasks}.values()))
        case Stage.FINISH:
            # All outcomes exist in this stage; the condition is only for the type checker.
            results.to_finish.append(
                [(task, outcomes) for task, outcomes in stages[Stage.SLICE] if outcomes is not None]
            )
        case Stage.SCAN | Stage.SLICE | Stage.STREAM as stage:
            for task, outcomes in stages[stage]:
                if outcomes is None or not outcomes.is_complete:
                    results.unfinished.append(task)


def do_split_members(step: Step, results: Results) -> None:
    """Link and finish split members; add their next tasks to `results.unfinished`.

    If a member needs no further task, its outcome is recorded and added to `results`.
    """
    # Each result is added immediately, so that if a later member raises an error, `results` still
    # contains the uploads begun so far.
    for tasks_or_outcome in chain(
        map_ahead(partial(link_member, step), tuple(results.to_link), MEMBERS_AT_ONCE),
        map_ahead(partial(finish_member, step), tuple(results.to_finish), MEMBERS_AT_ONCE),
    ):
        # The member is no longer waiting. The members of `to_link` come first, then those of
        # `to_finish`.
        waiting = results.to_link or results.to_finish
        del waiting[0]
        if isinstance(tasks_or_outcome, Outcome):
            outcome = tasks_or_outcome
            results.add_outcomes([outcome], task_id=_record_member(step, outcome))
            results.done += 1
            if outcome.status is Status.EXTRACTED and results.first_object is None:
                results.first_object = step.context.clock.now()
        else:
            results.unfinished += tasks_or_outcome


def link_copies(step: Step, copies: Sequence[Task]) -> Sequence[Task]:
    """Link a stored member: begin its upload, and return the tasks that copy it in slices.

    If the destination already has the member, the member is recorded as unchanged, and no tasks are
    returned. If the member cannot be linked, the result is a single task that copies the whole
    member.
    """
    linked = link_member(step, copies)
    if not isinstance(linked, Outcome):
        return linked
    if linked.status is not Status.FAILED:
        _record_member(step, linked)
        return ()
    # Do not record a failure here: the task below will find the same fault and record it. `resume
    # --failed` can repeat the member only if a round has a task for it.
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
    """Record the outcome of a split member under a task id of its own; return this id."""
    task_id = f"member-{outcome.index:08d}"
    report = TaskReport(
        task_id,
        TaskKind.SLICE,
        members=1,
        started=step.started,
        stage=Stage.DONE,
        member=outcome.index,
    )
    # The status is the name of the field that counts it.
    step.records.write_outcomes(replace(report, **{outcome.status.value: 1}), [outcome])
    return task_id


def forget_outcomes(step: Step, is_forgotten: Callable[[Outcome], bool]) -> int:
    """Delete the outcomes of some members, so that the next round extracts these members.

    Members that the plan refused keep their outcomes.

    Args:
        step: the step that settles the run.
        is_forgotten: function that returns whether to delete an outcome.

    Returns:
        The number of deleted outcomes.
    """
    records = step.records
    spans = {task.id: task.rows for task in records.tasks()}
    count = 0
    for task_id, recorded in records.read_outcomes(
        task_id for task_id in records.recorded_task_ids() if task_id != PLAN_TASK
    ):
        # Skip damaged records and those of scans and slices, whose outcomes are not final.
        if recorded is None or not gives_outcome(recorded.report.stage):
            continue
        remaining = [outcome for outcome in recorded.outcomes if not is_forgotten(outcome)]
        if len(remaining) == len(recorded.outcomes):
            continue
        count += len(recorded.outcomes) - len(remaining)
        if recorded.report.stage is Stage.DONE:  # written by settling for one split member
            records.delete_outcomes(task_id)
        elif task_id in spans:
            _reduce_record(step, recorded.report, remaining, spans[task_id])
        else:
            raise UnreadableRecordError(
                f"{step.run.id}: {task_id} is in no round: a record of a round is damaged"
            )
    return count


def _reduce_record(
    step: Step, report: TaskReport, remaining: Sequence[Outcome], span: tuple[int, int]
) -> None:
    """Write the record of a task again, with only `remaining`; `span` contains the task's rows."""
    indexes = {outcome.index for outcome in remaining}
    statuses = Counter(outcome.status for outcome in remaining)
    reduced = replace(
        report,
        unfinished=report.members - len(remaining),
        bytes_done=sum(row.work for row in step.read_rows(span) if row.member.index in indexes),
        **{status.value: statuses[status] for status in Status},  # the counts of the statuses
    )
    step.records.write_outcomes(reduced, remaining)


def read_results_to_resume(step: Step, plan: PlanSummary) -> Results:
    """Read the results of a run that is resumed, and abort the uploads of killed workers.

    The upload of a split member may be missing, because `s3unzip abort` or a lifecycle rule has
    aborted it. Without the upload, the slices of the member would fail, and one task would have to
    stream the member. To avoid this, these slices are removed, and settling links the member again.
    """
    results = read_results(step, plan)
    missing = _find_missing_uploads(step, results)
    if missing:
        _take_slices_back(step, missing)
        results = read_results(step, plan)
    abort_leftover_uploads(step, results.large, results.uploads)
    return results


def _find_missing_uploads(step: Step, results: Results) -> dict[str, int]:
    """Return the index of the member for each upload that is missing although slices remain.

    If all slices of an upload have ended, the upload may be complete. Such an upload is not looked
    up here, because `finish_member` checks it.
    """
    needed = {
        task.slice.upload_id: task.rows for task in results.unfinished if task.slice is not None
    }
    return {
        upload_id: row.member.index
        for upload_id, span in needed.items()
        for row in step.read_rows(span)  # the span contains one row
        if not _is_listed(step, Upload(row.key, upload_id))
    }


def _take_slices_back(step: Step, missing: Mapping[str, int]) -> None:
    """Remove the slices of missing uploads from all rounds, so that settling links members again.

    `missing` maps the id of each upload to the index of its member. Without its slice, a task is in
    the stage `LINK` (`Task.stage`). The only task of a member is deleted instead, because settling
    then links the member from its scans.
    """
    for number in step.records.list_rounds():
        tasks: list[Task] = []
        for task in step.records.read_round(number):
            if task.slice is None or task.slice.upload_id not in missing:
                tasks.append(task)
            elif task.parts > 1:
                # The task may be damaged, so its index is taken from `missing`.
                tasks.append(replace(task, slice=None, member=missing[task.slice.upload_id]))
        step.records.write_round(number, tasks)


def _is_listed(step: Step, upload: Upload) -> bool:
    """Return whether an upload exists; compare only ids, because some stores list encoded keys."""
    return step.calls.run(
        "list",
        lambda: any(
            listed.upload_id == upload.upload_id for listed in step.destination.uploads(upload.key)
        ),
    )


def abort_split_uploads(step: Step, results: Results) -> None:
    """Abort the uploads of the split members of a run whose archive was deleted or replaced.

    Other uploads to the same keys are not aborted, because a run of a newer archive may need them.
    """
    for upload_id, span in results.uploads.items():
        for row in step.read_rows(span):  # the span contains one row
            abort_quietly(step, Upload(row.key, upload_id))


def abort_leftover_uploads(step: Step, tasks: Iterable[Task], spared: Collection[str] = ()) -> int:
    """Abort the uploads left behind by killed workers; return the number of uploads.

    Args:
        step: the step that aborts the uploads.
        tasks: the tasks of the run; batches are ignored, because they have no uploads.
        spared: the ids of uploads that are not aborted, because slices still need them.
    """
    spans = {task.rows for task in tasks if task.kind is not TaskKind.BATCH}
    return abort_uploads(
        step, [row.key for span in sorted(spans) for row in step.read_rows(span)], spared
    )
