"""Plan: read one archive's directory, refuse what must be refused, cut the work.

The plan writes the workers' input: ``members.jsonl``, the first round and, last, ``run.json``. Of a
refused archive it writes nothing and returns the report.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from s3unzip.context import Context
from s3unzip.errors import RejectedError, UsageError
from s3unzip.explanations import describe
from s3unzip.model import (
    GzipForm,
    Outcome,
    Pin,
    PlanSummary,
    Report,
    Request,
    Run,
    Task,
    TaskKind,
    TaskReport,
    Verdict,
)
from s3unzip.object_properties import ARCHIVED_CLASSES, ObjectProperties
from s3unzip.planning.cut import TaskCutter, choose_workers, order_tasks
from s3unzip.planning.keys import KeyTemplate, parse_template
from s3unzip.planning.read import Reading, folder_keys, read_archive, read_directory
from s3unzip.runs.records import PLAN_TASK, RunRecords
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import CopiesParts, Tail
from s3unzip.zip import Member

# Rows that are made at a time. From 700 new tuples on, Python's collector would visit them.
ROWS_PIECE = 512


class Plan(NamedTuple):
    """A plan that is not whole yet: without ``run.json`` and its first round."""

    summary: PlanSummary
    tasks: list[Task]  # in the order in which they start
    copies: list[Task]  # slices of stored members that are copied over several tasks


def make_plan(  # noqa: PLR0913, PLR0917 - what is known of the archive and what to write to
    request: Request,
    run: str,
    tail: Tail,
    records: RunRecords,
    context: Context,
    calls: Calls,
    check: Callable[[Reading], None] | None = None,
) -> Plan | Report:
    """Read the directory and write the member list; return the plan, or the report of a refusal.

    Args:
        request: the archive, the destination and the options.
        run: the id of the run.
        tail: the end of the archive; the plan is of that version.
        records: of the run.
        context: of this worker.
        calls: counts and retries the requests.
        check: is given what was read before anything is written; it may raise to end it there.
    """
    started = context.clock.now()
    template = parse_template(request)
    check_options(request)
    planned = _make_run(request, run, tail.pin, template, started)
    archive = context.stores.source(request.source).pinned(request.source, tail.pin)
    try:
        reading = read_directory(archive, tail, request, template, context, calls)
    except RejectedError as refusal:
        return _reject(planned, refusal, started, context, calls)
    if check is not None:
        check(reading)
    cutter = make_cutter(planned, reading, context)
    records.write_rows(member_lines(reading, cutter))
    if reading.failures:
        records.write_outcomes(*_refused_members(reading))
    if request.destination.scheme == "file":
        records.write_folders(folder_keys(reading, request.options))
    tasks = order_tasks(cutter.tasks)
    return Plan(_sum_up(planned, reading, cutter, tasks, started, context), tasks, cutter.copies)


def _make_run(request: Request, run: str, pin: Pin, template: KeyTemplate, created: float) -> Run:
    return Run(
        id=run,
        source=request.source,
        pin=pin,
        destination=request.destination,
        options=request.options,
        key_prefix=template.prefix,
        created=created,
        event_time=request.event_time,
        after_success=request.after_success,
    )


def _reject(
    run: Run, refusal: RejectedError, started: float, context: Context, calls: Calls
) -> Report:
    finding = refusal.finding
    now = context.clock.now()
    return Report.of(
        run,
        Verdict.REJECTED,
        reason=finding.code,
        message=describe(finding.code, finding.message),
        offset=finding.offset,
        reasons={finding.code: 1},
        started=started,
        finished=now,
        plan_seconds=now - started,
        requests=calls.requests,
    )


def _sum_up(
    run: Run,
    reading: Reading,
    cutter: TaskCutter,
    tasks: Sequence[Task],
    started: float,
    context: Context,
) -> PlanSummary:
    index = reading.index
    every = [*tasks, *cutter.copies]
    return PlanSummary(
        run=run,
        members=index.entries,
        directories=index.directories,
        excluded=reading.excluded,
        failed=len(reading.failures),
        selected=len(reading.selected),
        tasks=len(every),
        kinds={kind.value: count for kind, count in cutter.members_by_kind.items()},
        bytes_in=reading.amount.bytes_in,
        bytes_out=reading.amount.bytes_out,
        workers=choose_workers(every, context.tuning),
        longest_task=max((task.seconds for task in every), default=0.0),
        warnings=dict(index.warnings.counts),
        started=started,
        plan_seconds=round(context.clock.now() - started, 6),
        bytes_read=reading.bytes_read,
    )


def check_options(request: Request) -> None:
    """Refuse options that contradict each other, or that the destination cannot hold."""
    options = request.options
    if options.trust_crc and options.as_gzip is None:
        raise UsageError("--trust-crc is for --as-gzip: what is inflated is always checked")
    if options.nested_depth and options.as_gzip is not None:
        raise UsageError("--nested: an archive that is kept as gzip cannot be read; drop --as-gzip")
    if options.as_gzip is GzipForm.ENCODING and request.destination.scheme == "file":
        raise UsageError(
            "--as-gzip encoding: a folder keeps no Content-Encoding; use --as-gzip suffix"
        )
    if options.objects is not None:
        _check_properties(options.objects, request)


def _check_properties(chosen: ObjectProperties, request: Request) -> None:
    """Refuse properties of objects that the destination cannot keep."""
    if request.destination.scheme == "file":
        raise UsageError(
            f"{request.destination}: a folder keeps no storage class, tags, metadata, cache "
            "control or content types; leave these options out, or write to s3://"
        )
    chosen.check()
    if request.options.nested_depth and chosen.storage_class in ARCHIVED_CLASSES:
        raise UsageError(
            f"--nested: archives inside are read from the destination, and {chosen.storage_class} "
            "must be restored before it can be read; use another storage class, GLACIER_IR perhaps"
        )


class Preview(NamedTuple):
    """What a run would do."""

    reading: Reading
    tasks: list[Task]


def preview_plan(request: Request, context: Context) -> Preview:
    """Read the directory and cut the tasks; write nothing."""
    reading = read_archive(request, context, context.calls())
    cutter = make_cutter(request, reading, context)
    for _ in member_lines(reading, cutter):
        pass
    return Preview(reading, [*order_tasks(cutter.tasks), *cutter.copies])


def make_cutter(request: Request | Run, reading: Reading, context: Context) -> TaskCutter:
    """Return a cutter for what `reading` selected."""
    store = context.stores.destination(request.destination)
    copies = isinstance(store, CopiesParts) and store.copies_from(request.source, reading.pin)
    # No request copies from two objects, so the members of a split archive are streamed.
    copies = copies and not reading.pin.parts
    inflates = request.options.as_gzip is None
    return TaskCutter(context.tuning, reading.amount, copies=copies, inflates=inflates)


def _refused_members(reading: Reading) -> tuple[TaskReport, Iterator[Outcome]]:
    """Return the report and the outcomes of the members that the plan refuses."""
    key_of = reading.template.key_of()
    failures = reading.failures
    head = TaskReport(
        task=PLAN_TASK, kind=TaskKind.BATCH, members=len(failures), failed=len(failures)
    )
    outcomes = (
        Outcome.failed(failure.index, key_of(failure.path), failure.finding) for failure in failures
    )
    return head, outcomes


def member_lines(reading: Reading, cutter: TaskCutter) -> Iterator[bytes]:
    """Yield the rows of the selected members in pieces, cutting tasks on the way.

    A row is a plain tuple with the fields of a `PlannedMember`: of a million members each
    microsecond is a second.
    """
    members = iter(reading.selected)
    make_rows = _row_maker(reading)
    encode_rows = msgspec.json.Encoder().encode_lines
    position = 0
    while chunk := list(itertools.islice(members, ROWS_PIECE)):
        piece = encode_rows(make_rows(chunk))  # JSON escapes the newlines of names
        lengths = map(len, piece.splitlines(keepends=True))
        starts = list(itertools.accumulate(lengths, initial=position))
        cutter.add(chunk, starts)
        position = starts[-1]
        yield piece
    cutter.finish(position)


def _row_maker(reading: Reading) -> Callable[[list[Member]], Iterable[tuple[object, ...]]]:
    """Return a function from members to rows; a key that follows from the path is left out."""
    if reading.template.plain:
        return zip
    key_of = reading.template.key_of()
    return lambda members: ((member, key_of(member.path)) for member in members)
