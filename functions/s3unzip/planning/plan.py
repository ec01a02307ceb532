"""Plan: read an archive's directory, refuse bad archives and members, cut the work into tasks.

Planning writes ``members.jsonl``, from which the workers read their members. `settling.loop` then
writes the first round and ``run.json``. If the archive is refused, nothing is written, and the
report of the refusal is returned.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from s3unzip.context import Context
from s3unzip.contradictions import check_options
from s3unzip.errors import Finding, RejectedError
from s3unzip.explanations import describe
from s3unzip.model import (
    PlannedMember,
    PlanSummary,
    Report,
    Request,
    Requests,
    Run,
    Task,
    TaskKind,
    TaskReport,
    Verdict,
)
from s3unzip.planning.cut import Load, TaskCutter, choose_workers, order_tasks
from s3unzip.planning.reading import Reading, folder_keys, read_directory
from s3unzip.planning.select import parse_template
from s3unzip.printable import show_count, show_dollars
from s3unzip.runs.records import FOLDERS, MEMBERS, PLAN_TASK, RunRecords, join_lines
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Tail

# Number of rows that are encoded together. The garbage collector would run after 700 new tuples
# (2,000 in Python 3.13).
ROWS_AT_ONCE = 512
OVER_BUDGET = "budget"  # reason code of a run that would cost too much


class Plan(NamedTuple):
    """A plan whose ``run.json`` and first round are not written yet."""

    summary: PlanSummary
    tasks: list[Task]  # in the order in which they start
    copies: list[Task]  # slices of stored members that several tasks copy


def make_plan(
    request: Request,
    tail: Tail,
    *,
    records: RunRecords,
    context: Context,
    calls: Calls,
    check: Callable[[Reading], None] | None = None,
) -> Plan | Report:
    """Read the directory and write the member list; return the plan, or the report of a refusal.

    Args:
        request: the archive, the destination and the options.
        tail: the end of the archive, and the version of the archive to plan.
        records: the records of the run.
        context: the context of this process.
        calls: the object that sends, counts and retries the requests.
        check: called with the directory before the first write; an error ends the plan.
    """
    run = Run(
        **asdict(request),
        id=records.run,
        pin=tail.pin,
        key_prefix=parse_template(request).prefix,
        created=context.clock.now(),
    )
    check_options(request.options, request.destination)
    archive = context.stores.source(request.source).pinned(request.source, tail.pin, tail.data)
    try:
        reading = read_directory(archive, tail, request, context, calls=calls)
    except RejectedError as refusal:
        finding = refusal.finding
        return _reject(
            run,
            replace(finding, message=describe(finding.code, finding.message)),
            context,
            bytes_in=len(tail.data) + archive.bytes_read,
            requests=calls.requests,
        )
    if check is not None:
        check(reading)
    # Only the directory shows how far members may exceed their declared sizes.
    run = replace(run, inflation=reading.index.inflation)
    cutter = make_cutter(run, reading, context)
    _write_members(request, reading, cutter, records)  # also cuts the tasks
    tasks = order_tasks(cutter.tasks)
    summary = _summarize(
        run, reading, cutter, [*tasks, *cutter.copies], context=context, requests=calls.requests
    )
    return _check_cost(Plan(summary, tasks, cutter.copies), context)


def _write_members(
    request: Request, reading: Reading, cutter: TaskCutter, records: RunRecords
) -> None:
    """Write the member list, the outcomes of refused members and the folders; cut the tasks."""
    records.store.write(MEMBERS, cut_and_encode(reading, cutter))
    if reading.index.failures:
        count = len(reading.index.failures)
        report = TaskReport(task=PLAN_TASK, kind=TaskKind.BATCH, members=count, failed=count)
        key_of = reading.template.key_of()
        # The path of a refused member is not normalised, so it may begin with slashes.
        outcomes = (
            PlannedMember(member, key_of(member.path.lstrip("/"))).failed(finding)
            for member, finding in reading.index.failures
        )
        records.write_outcomes(report, outcomes)
    if request.destination.store.has_folders:
        records.store.write(FOLDERS, join_lines(folder_keys(reading, request.options)))


def _reject(run: Run, finding: Finding, context: Context, **more: Any) -> Report:
    """Return the report of a refused run; `more` contains further fields of the report."""
    now = context.clock.now()
    return Report.of(
        run.id,
        run,
        run.pin,
        Verdict.REJECTED,
        reason=finding.code,
        message=finding.message,
        offset=finding.offset,
        reasons={finding.code: 1},
        started=run.created,
        finished=now,
        plan_seconds=now - run.created,
        **more,
    )


def _check_cost(plan: Plan, context: Context) -> Plan | Report:
    """Return the plan, or the report of a refusal if the run would cost too much."""
    limit = context.max_cost
    if limit is None or context.platform is None:  # without a platform, costs are unknown
        return plan
    from s3unzip.estimate import estimate  # noqa: PLC0415 - few plans need it

    summary = plan.summary
    cost = estimate(
        summary.run,
        [*plan.tasks, *plan.copies],
        context.platform,
        context.tuning,
        workers=summary.workers,
    ).cost.total
    if cost <= limit:
        return plan
    message = (  # with enough digits to tell the two amounts apart
        f"the estimate is {show_dollars(cost, limit)} for "
        f"{show_count(summary.selected, 'member')}, above the limit of "
        f"{show_dollars(limit, cost)}: raise runs.max_cost of the environment {context.environment}"
    )
    return _reject(
        summary.run,
        Finding(OVER_BUDGET, message),
        context,
        members=summary.members,
        directories=summary.directories,
        bytes_in=summary.bytes_read,
        requests=summary.requests,
    )


def _summarize(
    run: Run,
    reading: Reading,
    cutter: TaskCutter,
    tasks: list[Task],
    *,
    context: Context,
    requests: Requests,
) -> PlanSummary:
    """Return the summary of a plan; `tasks` are all its tasks, including `cutter.copies`."""
    index = reading.index
    return PlanSummary(
        run=run,
        members=index.entries,
        directories=index.directories,
        excluded=index.excluded,
        failed=len(index.failures),
        selected=len(index.selected),
        tasks=len(tasks),
        kinds={kind.value: count for kind, count in cutter.members_by_kind.items()},
        bytes_in=cutter.work.bytes_in,
        bytes_out=cutter.work.bytes_out,
        workers=choose_workers(tasks, context.tuning, run.destination.store),
        longest_task=max((task.seconds for task in tasks), default=0.0),
        warnings=dict(index.warnings),
        started=run.created,
        plan_seconds=round(context.clock.now() - run.created, 6),
        requests=requests,
        bytes_read=reading.bytes_read,
    )


def preview_tasks(request: Request, reading: Reading, context: Context) -> list[Task]:
    """Return all tasks of a run, without writing anything; `reading` is the archive's directory."""
    cutter = make_cutter(request, reading, context)
    for _ in cut_and_encode(reading, cutter):
        pass  # this fills the cutter; the encoded rows are not needed
    return [*order_tasks(cutter.tasks), *cutter.copies]


def make_cutter(request: Request, reading: Reading, context: Context) -> TaskCutter:
    """Return an object that cuts the selected members of `reading` into tasks."""
    store = context.stores.destination(request.destination)
    selected = reading.index.selected
    return TaskCutter(
        context.tuning,
        Load(len(selected), selected.compressed_size, selected.size),
        can_copy=store.copies_from(request.source, reading.pin),
        inflates_members=request.options.as_gzip is None,
    )


def cut_and_encode(reading: Reading, cutter: TaskCutter) -> Iterator[bytes]:
    """Pass the selected members to the cutter, and yield the rows of members.jsonl in groups.

    The rows are tuples with the fields of a `PlannedMember`, because tuples are faster to create:
    for a million members, each microsecond per member adds a second.
    """
    members = iter(reading.index.selected)
    key_of = reading.template.key_of()
    encode_rows = msgspec.json.Encoder().encode_lines
    position = 0  # offset in members.jsonl
    while next_members := list(itertools.islice(members, ROWS_AT_ONCE)):
        # `zip` makes tuples with only the member. This is enough if each key is the prefix followed
        # by the path.
        rows: Iterator[tuple[object, ...]] = zip(next_members)
        if not reading.template.plain:
            rows = ((member, key_of(member.path)) for member in next_members)
        lines = encode_rows(rows)  # one line per row, because JSON escapes the newlines in names
        row_lengths = map(len, lines.splitlines(keepends=True))
        # Where each row begins and, as the last offset, where the last row ends.
        row_bounds = list(itertools.accumulate(row_lengths, initial=position))
        cutter.add(next_members, row_bounds)
        position = row_bounds[-1]
        yield lines
    cutter.end_batch(position)
