"""Plan: read one archive's directory, refuse what must be refused, cut the work.

`planning.reading` reads the directory. The plan writes the workers' input: ``members.jsonl``,
``plan.jsonl``, ``scan.jsonl`` and, last, ``summary.json``. If a member is split, ``whole.jsonl``
and ``slices.jsonl`` have the same tasks as ``plan.jsonl``, divided. For a rejected archive it
writes only ``run.json`` and returns the report, which `settling.page_writer` writes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from s3unzip import run_files
from s3unzip.errors import RejectedError
from s3unzip.explanations import describe
from s3unzip.model import (
    Outcome,
    PlanSummary,
    Report,
    Run,
    TaskKind,
    TaskReport,
    Verdict,
    run_id,
)
from s3unzip.objects.metadata import object_metadata
from s3unzip.objects.stored import check_form
from s3unzip.objects.upload_registry import try_upload
from s3unzip.planning.cutting import TaskCutter, choose_concurrency, order_tasks
from s3unzip.planning.keys import parse_template
from s3unzip.planning.lists import divide_tasks, share_workers
from s3unzip.planning.reading import folder_keys, read_archive, read_directory, read_tail
from s3unzip.planning.rows import Gate, member_lines
from s3unzip.runs.records import RunRecords
from s3unzip.runs.step import Step
from s3unzip.stores.ports import CopiesParts
from s3unzip.stores.readahead import call_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from s3unzip.context import Context
    from s3unzip.model import Pin, Request, Task
    from s3unzip.planning.reading import Reading
    from s3unzip.runs.written import WrittenObjects
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Tail


def make_plan(  # noqa: PLR0913 - a run of each kind hooks in elsewhere
    request: Request,
    context: Context,
    judge: Callable[[Reading], None] | None = None,
    written: WrittenObjects | None = None,
    *,
    probe: bool = True,
    afford: Callable[[PlanSummary, Sequence[Task]], Report | None] | None = None,
    calls: Calls | None = None,
    tail: Tail | None = None,
) -> PlanSummary | Report:
    """Write the plan of one run; return its summary, or the unwritten report of a refused archive.

    Args:
        request: what, where to and how.
        context: of this worker.
        judge: is given what was read before anything is written; it may raise to end it there.
        written: what earlier runs wrote; the plan tells the workers, who need not ask by HEAD.
        probe: whether to try the destination, before many workers do.
        afford: is given the plan before its summary is written; returns a report to refuse it.
        calls: of this step so far; None: it begins here.
        tail: the archive's end, if the caller has it: the plan is of that version.

    Raises:
        UsageError: the request is wrong.
        StorageError: the archive cannot be read, or the destination cannot be written.
        ServiceFaultError: try again later.
    """
    started = context.clock.now()
    calls = calls or context.calls()
    template = parse_template(request)
    check_form(request)
    source = context.stores.source(request.source)
    tail = tail or read_tail(source, request.source, context, calls)
    run = _make_run(request, tail.pin, template.prefix, started)
    try:
        archive = source.pinned(request.source, tail.pin)
        reading = read_directory(archive, tail, request, template, context, calls)
    except RejectedError as refusal:
        return _reject(run, refusal, started, context, calls)
    if judge is not None:
        judge(reading)
    step = Step(run, "plan", context, calls)
    tasks, cutter = _write_tasks(step, reading, written, probe=probe)
    summary = _sum_up(step, reading, cutter, tasks, started)
    refused = None if afford is None else afford(summary, tasks)
    if refused is not None:
        return replace(refused, requests=calls.requests)
    return step.records.write_summary(lambda requests: replace(summary, requests=requests))


def _make_run(request: Request, pin: Pin, key_prefix: str, created: float) -> Run:
    return Run(
        id=run_id(request, pin),
        source=request.source,
        pin=pin,
        destination=request.destination,
        options=request.options,
        key_prefix=key_prefix,
        created=created,
        event_time=request.event_time,
        after_success=request.after_success,
    )


def _reject(
    run: Run, refusal: RejectedError, started: float, context: Context, calls: Calls
) -> Report:
    finding = refusal.finding
    now = context.clock.now()
    RunRecords.open(context.stores, run.id, calls).write_run(run)
    return Report(
        run=run.id,
        verdict=Verdict.REJECTED,
        source=run.source.public,
        pin=run.pin,
        destination=run.destination,
        options=run.options,
        reason=finding.code,
        message=describe(finding.code, finding.message),
        offset=finding.offset,
        reasons={finding.code: 1},
        event_time=run.event_time,
        started=started,
        finished=now,
        plan_seconds=now - started,
        requests=calls.requests,
    )


def _probe(step: Step, reading: Reading) -> None:
    """Try the destination once, before a thousand workers do.

    An upload that is begun and aborted asks for the same rights and the same
    KMS key as a PUT, but nothing becomes visible and no event is sent.
    """
    if not reading.selected:
        return
    member = reading.selected[0]
    key = reading.template.key_of()(member.path)
    try_upload(step, "probe", key, object_metadata(key, member, step.run))


def _write_tasks(
    step: Step, reading: Reading, written: WrittenObjects | None, *, probe: bool
) -> tuple[list[Task], TaskCutter]:
    """Write all of the plan but its summary; return the tasks in order, and what cut them."""
    run, records = step.run, step.records
    cutter = make_cutter(run, reading, step.context)
    rows, gate = member_lines(reading, cutter, run.options, written), Gate()
    with ThreadPoolExecutor(1, thread_name_prefix="rows") as beside:
        writing = beside.submit(records.write_rows, gate.hold(rows))
        try:
            if probe:
                _probe(step, reading)
            gate.open()
            records.write_run(run)
            writing.result()
        except BaseException:
            gate.close()
            raise
    tasks = order_tasks(cutter.tasks)
    writes = [
        partial(records.write_tasks, tasks),
        partial(records.write_index_outcomes, *_index_outcomes(reading)),
    ]
    whole, slices = divide_tasks(tasks)
    if slices:
        writes.append(partial(records.write_divided_tasks, whole, slices))
    if cutter.scans:
        writes.append(partial(records.write_scans, cutter.scans))
    if run.destination.scheme == "file":
        writes.append(partial(records.write_folders, folder_keys(reading, run.options)))
    call_at_once(writes)
    return tasks, cutter


def _sum_up(
    step: Step, reading: Reading, cutter: TaskCutter, tasks: list[Task], started: float
) -> PlanSummary:
    """Return the summary of a plan whose other records are written."""
    index, context = reading.index, step.context
    concurrency = choose_concurrency(tasks, context.tuning)
    shares = share_workers(tasks, context.tuning)
    longest = max((task.seconds for task in tasks), default=0.0)
    seconds = round(context.clock.now() - started, 6)
    return PlanSummary(
        run=step.run,
        members=index.entries,
        directories=index.directories,
        excluded=reading.excluded,
        failed=len(reading.failures),
        selected=len(reading.selected),
        tasks=len(tasks),
        kinds={kind.value: count for kind, count in cutter.members_by_kind.items()},
        split_members=cutter.split_members,
        scans=len(cutter.scans),
        bytes_in=reading.amount.bytes_in,
        bytes_out=reading.amount.bytes_out,
        slices=sum(task.parts > 1 for task in tasks),
        concurrency=concurrency,
        whole_at_once=shares.whole,
        split_at_once=shares.split,
        seconds=round(max(longest, sum(task.seconds for task in tasks) / concurrency), 3),
        longest_task=longest,
        warnings=dict(index.warnings.counts),
        started=started,
        plan_seconds=seconds,
        bytes_read=reading.bytes_read,
    )


class Preview(NamedTuple):
    """What a run would do."""

    reading: Reading
    tasks: list[Task]
    split_members: int
    scans: int


def preview_plan(request: Request, context: Context) -> Preview:
    """Read the directory and cut the tasks; write nothing.

    Raises:
        RejectedError: the archive is refused.
        StorageError: it cannot be read.
    """
    reading = read_archive(request, context, context.calls())
    cutter = make_cutter(request, reading, context)
    for _ in member_lines(reading, cutter):
        pass
    return Preview(reading, order_tasks(cutter.tasks), cutter.split_members, len(cutter.scans))


def make_cutter(request: Request | Run, reading: Reading, context: Context) -> TaskCutter:
    """Return a cutter for what `reading` selected."""
    store = context.stores.destination(request.destination)
    copies = isinstance(store, CopiesParts) and store.copies_from(request.source, reading.pin)
    # No request copies from two objects, so the members of a split archive are streamed.
    copies = copies and not reading.pin.parts
    inflates = request.options.as_gzip is None
    return TaskCutter(context.tuning, reading.amount, copies=copies, inflates=inflates)


def _index_outcomes(reading: Reading) -> tuple[TaskReport, Iterator[Outcome]]:
    """Return the report and the outcomes of the members that the index itself refuses."""
    key_of = reading.template.key_of()
    failures = reading.failures
    head = TaskReport(
        task=run_files.INDEX_TASK, kind=TaskKind.BATCH, members=len(failures), failed=len(failures)
    )
    outcomes = (
        Outcome.failed(failure.index, key_of(failure.path), failure.finding) for failure in failures
    )
    return head, outcomes
