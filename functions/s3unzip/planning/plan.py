"""Plan: read one archive's directory, refuse what must be refused, cut the work.

One suffix GET returns the tail, the size and the version of the archive. A small archive has its
whole directory in the tail. A larger directory is read in parallel ranges, each pinned to that
version, and parsed as it arrives.

The plan writes the workers' input: ``members.jsonl``, the first round and, last, ``run.json``. Of a
refused archive it writes nothing and returns the report.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.contradictions import check_options
from s3unzip.errors import NotFoundError, RejectedError
from s3unzip.estimate import estimate
from s3unzip.explanations import describe
from s3unzip.figures import show_dollars
from s3unzip.finding import Finding
from s3unzip.model import (
    Budget,
    Location,
    Options,
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
from s3unzip.planning.cut import TaskCutter, choose_workers, order_tasks
from s3unzip.planning.select import KeyTemplate, Unmatched, find_unmatched, parse_template, selector
from s3unzip.runs.records import PLAN_TASK, RunRecords
from s3unzip.stores.ahead import map_ahead, read_ahead
from s3unzip.stores.calls import Calls
from s3unzip.stores.locations import (
    first_piece_name,
    is_first_piece,
    last_part_name,
    locate_part,
    part_name,
)
from s3unzip.stores.ports import CopiesParts, PinnedArchive, Source, Tail
from s3unzip.zip import (
    Boundary,
    ByteRange,
    DirectoryReader,
    Disks,
    Index,
    Member,
    Members,
    Policy,
    RefusedMember,
    Selection,
    count_disks,
    drive,
    find_boundaries,
    find_data_stop,
    inspect_prefix,
    locate_directory,
)
from s3unzip.zip.records import EOCD_SIGNATURE, LOCAL_LENGTH, LOCAL_SIGNATURE

# Rows that are made at a time. From 700 new tuples on, Python's collector would visit them.
ROWS_PIECE = 512
BUDGET = "budget"  # reason of a run that would cost too much
THREADS = 16  # parts that are asked for at once
SHIFTED = frozenset({"overlap", "member-out-of-bounds"})  # what a part of another size looks like


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
        calls: counts and retries the requests.
        check: is given what was read before anything is written; it may raise to end it there.
    """
    started = context.clock.now()
    prefix = parse_template(request).prefix
    check_request(request)
    what = (request.source, tail.pin, request.destination, request.options)
    more = (request.event_time, request.after_success)
    planned = Run(run, *what, prefix, started, *more)
    archive = context.stores.source(request.source).pinned(request.source, tail.pin)
    try:
        reading = read_directory(archive, tail, request, context, calls)
    except RejectedError as refusal:
        code, offset = refusal.finding.code, refusal.finding.offset
        report = _reject(planned, code, describe(code, refusal.finding.message), context)
        return replace(report, offset=offset, requests=calls.requests)
    if check is not None:
        check(reading)
    planned = replace(planned, inflation=reading.index.inflation)
    cutter = make_cutter(planned, reading, context)
    records.write_rows(member_lines(reading, cutter))
    if reading.failures:
        records.write_outcomes(*_refused_members(reading))
    if request.destination.store.has_folders:
        records.write_folders(folder_keys(reading, request.options))
    tasks = order_tasks(cutter.tasks)
    plan = Plan(_sum_up(planned, reading, cutter, tasks, context), tasks, cutter.copies)
    return _refuse_cost(plan, context) or plan


def _reject(run: Run, reason: str, message: str, context: Context) -> Report:
    now = context.clock.now()
    return Report.of(
        run.id,
        run,
        run.pin,
        Verdict.REJECTED,
        reason=reason,
        message=message,
        reasons={reason: 1},
        started=run.created,
        finished=now,
        plan_seconds=now - run.created,
    )


def _refuse_cost(plan: Plan, context: Context) -> Report | None:
    """Return the report of a run that would cost too much; None if it may begin."""
    summary, limit = plan.summary, context.max_cost
    if limit is None or context.platform is None:
        return None
    tasks = [*plan.tasks, *plan.copies]
    made = estimate(summary.run, tasks, context.platform, context.tuning, workers=summary.workers)
    cost = made.cost.total
    if cost <= limit:
        return None
    message = (
        f"the estimate is {show_dollars(cost, limit)} for {summary.selected:,} members, "
        f"above the limit of {show_dollars(limit, cost)}: raise "
        f"runs.max_cost of the environment {context.environment}"
    )
    report = _reject(summary.run, BUDGET, message, context)
    return replace(report, members=summary.members, directories=summary.directories)


def _sum_up(
    run: Run, reading: Reading, cutter: TaskCutter, tasks: Sequence[Task], context: Context
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
        bytes_in=cutter.work[1],
        bytes_out=cutter.work[2],
        workers=choose_workers(every, context.tuning),
        longest_task=max((task.seconds for task in every), default=0.0),
        warnings=dict(index.warnings),
        started=run.created,
        plan_seconds=round(context.clock.now() - run.created, 6),
        bytes_read=reading.bytes_read,
    )


def check_request(request: Request) -> None:
    """Refuse options that contradict each other, or that the destination cannot hold."""
    destination = request.destination
    folder = None if destination.store.keeps_properties else str(destination)
    check_options(request.options, folder)


def preview_plan(request: Request, context: Context) -> tuple[Reading, list[Task]]:
    """Read the directory and cut the tasks of what a run would do; write nothing."""
    reading = read_archive(request, context, context.calls())
    cutter = make_cutter(request, reading, context)
    for _ in member_lines(reading, cutter):
        pass
    return reading, [*order_tasks(cutter.tasks), *cutter.copies]


def make_cutter(request: Request | Run, reading: Reading, context: Context) -> TaskCutter:
    """Return a cutter for what `reading` selected."""
    store = context.stores.destination(request.destination)
    copies = isinstance(store, CopiesParts) and store.copies_from(request.source, reading.pin)
    # No request copies from two objects, so the members of a split archive are streamed.
    copies = copies and not reading.pin.parts
    inflates = request.options.as_gzip is None
    chosen = reading.selected
    work = (len(chosen), chosen.compressed_size, chosen.size)
    return TaskCutter(context.tuning, work, copies=copies, inflates=inflates)


def _refused_members(reading: Reading) -> tuple[TaskReport, Iterator[Outcome]]:
    """Return the report and the outcomes of the members that the plan refuses."""
    key_of, count = reading.template.key_of(), len(reading.failures)
    head = TaskReport(task=PLAN_TASK, kind=TaskKind.BATCH, members=count, failed=count)
    return head, (
        # A name that cannot be a key may begin with slashes.
        Outcome.failed(member.index, key_of(member.path.lstrip("/")), finding)
        for member, finding in reading.failures
    )


def member_lines(reading: Reading, cutter: TaskCutter) -> Iterator[bytes]:
    """Yield the rows of the selected members in pieces, cutting tasks on the way.

    A row is a plain tuple with the fields of a `PlannedMember`: of a million members each
    microsecond is a second.
    """
    members = iter(reading.selected)
    key_of = None if reading.template.plain else reading.template.key_of()
    encode_rows = msgspec.json.Encoder().encode_lines
    position = 0
    while chunk := list(itertools.islice(members, ROWS_PIECE)):
        # A key that follows from the path is left out.
        rows = zip(chunk) if key_of is None else ((one, key_of(one.path)) for one in chunk)
        piece = encode_rows(rows)  # JSON escapes the newlines of names
        lengths = map(len, piece.splitlines(keepends=True))
        starts = list(itertools.accumulate(lengths, initial=position))
        cutter.add(chunk, starts)
        position = starts[-1]
        yield piece
    cutter.finish(position)


# Reading the directory


class Reading(Struct, frozen=True):
    """An archive's version and directory, and the members that the options select."""

    pin: Pin
    index: Index
    template: KeyTemplate
    bytes_read: int
    unmatched: tuple[Unmatched, ...] = ()  # what the options ask for in vain

    @property
    def selected(self) -> Members[Member]:
        """The members to extract, by their offsets."""
        return self.index.selected

    @property
    def failures(self) -> Members[RefusedMember]:
        """The members that the options ask for, and that fail by the directory alone."""
        return self.index.failures

    @property
    def excluded(self) -> int:
        """How many members are left out: by the options, or because a later one has their key."""
        return self.index.excluded


def read_archive(request: Request, context: Context, calls: Calls) -> Reading:
    """Read and check the directory of the archive of `request`."""
    source = context.stores.source(request.source)
    tail = read_tail(source, request.source, context, calls)
    archive = source.pinned(request.source, tail.pin)
    return read_directory(archive, tail, request, context, calls)


def read_tail(source: Source, location: Location, context: Context, calls: Calls) -> Tail:
    """Read the end of an archive, and learn which version it is."""
    max_parts = context.policy.limits.parts
    return read_whole_tail(source, location, context.tuning.tail_bytes, max_parts, calls)


def disks_of(pin: Pin) -> Disks:
    """Return where the parts of an archive begin."""
    return Disks([part.size for part in pin.parts or ()])


def read_directory(
    archive: PinnedArchive,
    tail: Tail,
    request: Request,
    context: Context,
    calls: Calls,
    template: KeyTemplate | None = None,
) -> Reading:
    """Read and check the directory of `archive`, which ends in `tail`.

    Keys are made by `template`, or as the options say, and checked against each other.
    """
    template = template or parse_template(request)
    if tail.refusal is not None:
        raise RejectedError(tail.refusal)
    options, tuning, count = request.options, context.tuning, len(tail.data)

    def read(want: ByteRange) -> bytes:
        nonlocal count
        data = calls.run("get", lambda: archive.read(want))
        count += len(data)
        return data

    policy = _narrow(context.policy, options.nested_budget)
    location = drive(locate_directory(tail.data, tail.pin.size, policy, disks_of(tail.pin)), read)
    reserved = template.marker if options.marker else None
    selection = Selection(template.key_of(), reserved, selector(options), options.limit)
    if request.destination.store.has_folders:
        makes_folders = not options.names and options.limit is None
        folder_key = template.folder_key if makes_folders else lambda _: None
        selection = selection._replace(folder_key=folder_key)
    reader = DirectoryReader(location, policy, selection)
    missing = read_ahead(read, location.missing, tuning.directory_piece, tuning.directory_readers)
    with blaming_parts(location.disks):
        for piece in itertools.chain(missing, (location.held,)):
            reader.feed(piece)
        index = drive(reader.finish(), read)
    check_parts(index.members, location.disks, read, request.source)
    index.warnings.update(drive(inspect_prefix(tail.data, location, index.first), read))
    unmatched = find_unmatched(options, lambda: index.paths, len(index.selected))
    return Reading(tail.pin, index, template, count, unmatched)


def _narrow(policy: Policy, budget: Budget | None) -> Policy:
    """Return the policy for an archive that must stay within `budget`."""
    if budget is None:
        return policy
    members = min(policy.limits.members, budget.members)
    total_size = min(policy.limits.total_size, budget.size)
    limits = replace(policy.limits, members=members, total_size=total_size)
    return replace(policy, limits=limits)


def folder_keys(reading: Reading, options: Options) -> Iterator[str]:
    """Yield the keys of the folders that the archive lists and the options select.

    Only a folder as destination has folders without files.
    Globs are compared with the name as the archive has it, with a slash at its end. Names and a
    limit select members, so no folder is made for its own sake.
    """
    if options.names or options.limit is not None:
        return
    wanted = selector(options)
    for path in reading.index.folders:
        name = path.rstrip("/") + "/"
        key = reading.template.folder_key(name)
        if key is not None and (wanted is None or wanted(name)):
            yield key


# Archives of several parts


def read_whole_tail(
    source: Source, location: Location, length: int, max_parts: int, calls: Calls
) -> Tail:
    """Return the last bytes and the pin of an archive, which may have several parts.

    A missing part is named in the `refusal` of the tail, so that the run can be named.
    """
    if is_first_piece(location):
        return _read_pieces(source, location, length, max_parts, calls)
    tail = calls.run("get", lambda: source.tail(location, length))
    count = count_disks(tail.data)
    if count > 1 and not tail.pin.parts and tail.refusal is None:
        return _join_parts(source, location, tail, (count, max_parts), calls)
    if EOCD_SIGNATURE in tail.data:
        return tail
    if last := last_part_name(location):
        message = f"give its last part as the archive: {last}"
    elif first := first_piece_name(location):
        message = f"give its first piece as the archive: {first}"
    else:
        return tail
    return tail._replace(refusal=Finding("multi-disk", message))


def _join_parts(
    source: Source, location: Location, tail: Tail, counts: tuple[int, int], calls: Calls
) -> Tail:
    """Return the tail of a split archive, of which `tail` is the last part's."""
    count, max_parts = counts
    if count > max_parts:
        message = f"{count:,} parts, the limit is {max_parts:,}"
        return tail._replace(refusal=Finding("too-many-parts", message))
    if locate_part(location, 1, count) is None:
        message = f"it has {count:,} parts; name it NAME.zip, beside NAME.z01 and the others"
        return tail._replace(refusal=Finding("part-missing", message))
    others = range(1, count)
    found = list(
        map_ahead(lambda n: _find_part(source, location, n, count, calls), others, THREADS)
    )
    missing = [number for number, part in zip(others, found, strict=True) if part is None]
    if missing:
        name = _name(location, missing[0], count)
        message = f"{name}, part {missing[0]:,} of {count:,}"
        if len(missing) > 1:
            message += f", and {len(missing) - 1:,} more"
        return tail._replace(refusal=Finding("part-missing", message))
    pins = [part.pin for part in found if part is not None]
    return tail._replace(pin=_join_pins([*pins, tail.pin], tail.pin))


def _read_pieces(
    source: Source, location: Location, length: int, max_parts: int, calls: Calls
) -> Tail:
    """Return the tail of an archive that was cut into pieces, of which the first is named."""
    pieces = [calls.run("head", lambda: source.stat(location))]
    following = range(2, max_parts + 2)
    for piece in map_ahead(
        lambda n: _find_part(source, location, n, n + 1, calls), following, THREADS
    ):
        if piece is None:
            break
        pieces.append(piece)
    pin = _join_pins([piece.pin for piece in pieces], pieces[0].pin)
    archive = source.pinned(location, pin)
    want = ByteRange(max(0, pin.size - length), pin.size)
    newest = max((piece.modified for piece in pieces if piece.modified is not None), default=None)
    tail = Tail(calls.run("get", lambda: archive.read(want)), pin, newest)
    if len(pieces) > max_parts:
        message = f"more than {max_parts:,} parts, the limit"
        return tail._replace(refusal=Finding("too-many-parts", message))
    begins = calls.run("get", lambda: archive.read(ByteRange(0, min(4, pin.size))))
    if begins == LOCAL_SIGNATURE and EOCD_SIGNATURE not in tail.data:
        absent = _name(location, len(pieces) + 1, len(pieces) + 1)
        message = f"{absent}, after {len(pieces):,} without the archive's end"
        return tail._replace(refusal=Finding("part-missing", message))
    return tail


def _join_pins(pins: Sequence[Pin], named: Pin) -> Pin:
    if len(pins) == 1:
        return named
    return replace(named, size=sum(pin.size for pin in pins), parts=tuple(pins))


def _find_part(
    source: Source, location: Location, number: int, count: int, calls: Calls
) -> Tail | None:
    """Return part `number`, as a tail without bytes; None if it is not there."""
    where = locate_part(location, number, count)
    if where is None:
        return None
    try:
        return calls.run("head", lambda: source.stat(where))
    except NotFoundError:
        return None


def _name(location: Location, number: int, count: int) -> str:
    """Return the name of part `number`."""
    where = locate_part(location, number, count)
    return "" if where is None else part_name(where)


@contextmanager
def blaming_parts(disks: Disks) -> Iterator[None]:
    """Say of members that overlap that a part has another size, if the archive has parts."""
    try:
        yield
    except RejectedError as refusal:
        finding = refusal.finding
        if not disks.is_split or finding.code not in SHIFTED:
            raise
        message = f"by the sizes of the parts, {finding.message}"
        raise RejectedError(replace(finding, code="part-wrong", message=message)) from None


def check_parts(
    members: Sequence[Member],
    disks: Disks,
    read: Callable[[ByteRange], bytes],
    location: Location,
) -> None:
    """Check that each part has a member where the directory says that its first one is.

    The member before that one must end before it. Reads two local headers for each part on which a
    member begins.
    """
    if not disks.is_split:
        return
    boundaries = list(find_boundaries(members, disks))

    def judge(boundary: Boundary) -> str | None:
        at = boundary.first.offset
        if read(ByteRange(at, at + len(LOCAL_SIGNATURE))) != LOCAL_SIGNATURE:
            return f"has no member at byte {at - disks.starts[boundary.disk]:,}"
        last = boundary.previous
        if last is None or last.stop - last.offset < LOCAL_LENGTH:
            return None
        stop = find_data_stop(last, read(ByteRange(last.offset, last.offset + LOCAL_LENGTH)))
        if stop <= last.stop:
            return None
        return f"begins {stop - last.stop:,} bytes before the end of the member before it"

    for boundary, fault in zip(boundaries, map_ahead(judge, boundaries, THREADS), strict=True):
        if fault is not None:
            name = _name(location, boundary.disk + 1, disks.last + 1)
            raise RejectedError(Finding("part-wrong", f"{name} {fault}"))
