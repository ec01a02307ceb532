"""Plan: read one archive's directory, refuse what must be refused, cut the work.

One suffix GET brings the tail, the size and the version. A small archive has
its whole directory in there; a larger one is read on in parallel ranges, each
pinned to that version, and parsed as it arrives. What follows is written for
the workers: ``members.jsonl``, ``plan.jsonl``, ``scan.jsonl`` and, last,
``summary.json``. Of a rejected archive only ``run.json`` is written here; its report is
returned for `reporting.refusal` to write.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from s3unzip import run_files
from s3unzip.errors import RejectedError
from s3unzip.model import (
    Outcome,
    PlanSummary,
    Report,
    Run,
    TaskKind,
    TaskReport,
    Verdict,
    encode,
    run_id,
)
from s3unzip.objects.metadata import object_metadata
from s3unzip.objects.stored import check_form
from s3unzip.objects.upload_registry import begin_upload
from s3unzip.planning.cutting import TaskCutter, Totals, choose_concurrency, order_tasks
from s3unzip.planning.keys import parse_template
from s3unzip.planning.selection import selector
from s3unzip.stores.readahead import read_ahead
from s3unzip.zipformat import (
    DirectoryReader,
    IndexBuilder,
    Members,
    drive,
    inspect_prefix,
    locate_directory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from s3unzip.context import Context
    from s3unzip.model import Budget, Pin, Request
    from s3unzip.planning.keys import KeyTemplate
    from s3unzip.stores import ports
    from s3unzip.stores.calls import Calls
    from s3unzip.zipformat import DirectoryLocation, Index, Member, Policy
    from s3unzip.zipformat.ranges import ByteRange

Row = tuple[Any, ...]  # the columns of model.MemberRow
ROWS_PIECE = 8_192  # rows of members.jsonl made at a time
LINES_PIECE = 1024 * 1024  # bytes of JSON lines gathered before they are handed on


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of an archive: which version it is, and what its directory says."""

    pin: Pin
    index: Index
    template: KeyTemplate
    selected: Sequence[Member]
    amount: Totals  # of the selected members
    bytes_read: int


def read_archive(request: Request, context: Context, calls: Calls) -> Reading:
    """Read and judge the directory of the archive.

    Raises:
        RejectedError: the archive is refused.
        StorageError: it cannot be read.
        ServiceFaultError: it cannot be read now.
    """
    tail = _read_tail(request, context, calls)
    return _read_directory(request, tail, context, calls)


def make_plan(request: Request, context: Context) -> PlanSummary | Report:
    """Write the plan of one run; return its summary, or the unwritten report of a rejected archive.

    Raises:
        UsageError: the request is wrong.
        StorageError: the archive cannot be read, or the destination cannot be written.
        ServiceFaultError: try again later.
    """
    started = context.clock.now()
    calls = context.calls()
    template = parse_template(request)
    check_form(request)
    tail = _read_tail(request, context, calls)
    run = Run(
        id=run_id(request, tail.pin),
        source=request.source,
        pin=tail.pin,
        destination=request.destination,
        options=request.options,
        key_prefix=template.prefix,
        created=started,
        event_time=request.event_time,
    )
    try:
        reading = _read_directory(request, tail, context, calls)
    except RejectedError as refusal:
        return _reject(run, refusal, started, context, calls)
    _probe(run, reading, context, calls)
    return _write_plan(run, reading, started, context, calls)


def _read_tail(request: Request, context: Context, calls: Calls) -> ports.Tail:
    source = context.stores.source(request.source)
    return calls.run("get", lambda: source.tail(request.source, context.tuning.tail_bytes))


def _read_directory(request: Request, tail: ports.Tail, context: Context, calls: Calls) -> Reading:
    archive = context.stores.source(request.source).pinned(request.source, tail.pin)
    template = parse_template(request)
    read = _Counted(archive, calls)
    policy = _narrow(context.policy, request.options.nested_budget)
    location = drive(locate_directory(tail.data, tail.pin.size, policy), read)
    reader = DirectoryReader(location, policy)
    reserved = template.marker if request.options.marker else None
    builder = IndexBuilder(location, policy, template.key_of(), reserved)
    for piece in _directory_pieces(location, read, context):
        builder.add(reader.feed(piece))
    reader.finish()
    index = builder.finish()
    for finding in drive(inspect_prefix(tail.data, location, index.first), read):
        index.warnings.add(finding)
    selected = _select(request, index)
    if len(selected) == len(index.members):
        amount = Totals(len(selected), index.total_compressed, index.total_size)
    else:
        amount = Totals(
            len(selected),
            sum(member.compressed_size for member in selected),
            sum(member.size for member in selected),
        )
    read_bytes = len(tail.data) + read.bytes
    return Reading(tail.pin, index, template, selected, amount, read_bytes)


def _narrow(policy: Policy, budget: Budget | None) -> Policy:
    """Return the policy for an archive that may come to `budget`."""
    if budget is None:
        return policy
    limits = replace(
        policy.limits,
        members=min(policy.limits.members, budget.members),
        total_size=min(policy.limits.total_size, budget.size),
    )
    return replace(policy, limits=limits)


class _Counted:
    """Reads ranges of one archive, and counts their bytes."""

    def __init__(self, archive: ports.Archive, calls: Calls) -> None:
        self._archive = archive
        self._calls = calls
        self.bytes = 0

    def __call__(self, want: ByteRange) -> bytes:
        data = self._calls.run("get", lambda: self._archive.read(want))
        self.bytes += len(data)
        return data


def _directory_pieces(
    location: DirectoryLocation, read: _Counted, context: Context
) -> Iterator[bytes]:
    tuning = context.tuning
    yield from read_ahead(read, location.missing, tuning.directory_piece, tuning.directory_readers)
    yield location.held


def _select(request: Request, index: Index) -> Sequence[Member]:
    wanted = selector(request.options)
    members: Sequence[Member] = index.members
    if wanted is not None:
        members = [member for member in members if wanted(member.path)]
    limit = request.options.limit
    if limit is not None and len(members) > limit:
        first = set(sorted(member.index for member in members)[:limit])
        members = [member for member in members if member.index in first]
    return members


def _reject(
    run: Run, refusal: RejectedError, started: float, context: Context, calls: Calls
) -> Report:
    finding = refusal.finding
    now = context.clock.now()
    report = Report(
        run=run.id,
        verdict=Verdict.REJECTED,
        source=run.source.public,
        pin=run.pin,
        destination=run.destination,
        options=run.options,
        reason=finding.code,
        message=str(finding),
        reasons={finding.code: 1},
        event_time=run.event_time,
        started=started,
        finished=now,
        plan_seconds=now - started,
        requests=calls.requests,
    )
    context.stores.run_store(run.id, calls).write(run_files.RUN, [encode(run)])
    return report


def _probe(run: Run, reading: Reading, context: Context, calls: Calls) -> None:
    """Try the destination once, before a thousand workers do.

    An upload that is begun and aborted asks for the same rights and the same
    KMS key as a PUT, but nothing becomes visible and no event is sent.
    """
    if not reading.selected:
        return
    member = reading.selected[0]
    key = reading.template.key_of()(member.path)
    destination = context.stores.destination(run.destination)
    facts = object_metadata(key, member, run)
    work = context.stores.run_store(run.id, calls)
    upload = begin_upload("probe", key, facts, destination, work, calls)
    calls.run("abort", lambda: destination.abort_upload(upload))


def _write_plan(
    run: Run, reading: Reading, started: float, context: Context, calls: Calls
) -> PlanSummary:
    work = context.stores.run_store(run.id, calls)
    work.write(run_files.RUN, [encode(run)])
    index = reading.index
    cutter = make_cutter(run, reading, context)
    work.write(run_files.MEMBERS, member_lines(reading, cutter))
    tasks = order_tasks(cutter.tasks)
    work.write(run_files.PLAN, _lines(encode(task) for task in tasks))
    if cutter.scans:
        work.write(run_files.SCAN, _lines(encode(scan) for scan in cutter.scans))
    work.write(run_files.outcomes(run_files.INDEX_TASK), _index_outcomes(reading))
    concurrency = choose_concurrency(tasks, context.tuning)
    longest = max((task.seconds for task in tasks), default=0.0)
    now = context.clock.now()
    summary = PlanSummary(
        run=run,
        members=index.entries,
        directories=index.directories,
        excluded=len(index.members) - len(reading.selected),
        failed=len(index.failures),
        selected=len(reading.selected),
        tasks=len(tasks),
        kinds={kind.value: count for kind, count in cutter.members_by_kind.items()},
        split_members=cutter.split_members,
        scans=len(cutter.scans),
        bytes_in=reading.amount.bytes_in,
        bytes_out=reading.amount.bytes_out,
        concurrency=concurrency,
        seconds=round(max(longest, sum(task.seconds for task in tasks) / concurrency), 3),
        longest_task=longest,
        warnings=dict(index.warnings.counts),
        started=started,
        plan_seconds=round(now - started, 6),
        requests=calls.requests,
        bytes_read=reading.bytes_read,
    )
    work.write(run_files.SUMMARY, [encode(summary)])
    return summary


def make_cutter(request: Request | Run, reading: Reading, context: Context) -> TaskCutter:
    """Return a cutter for what `reading` selected."""
    destination = context.stores.destination(request.destination)
    copies = destination.copies_from(request.source, reading.pin)
    inflates = request.options.as_gzip is None
    return TaskCutter(context.tuning, reading.amount, copies=copies, inflates=inflates)


def member_lines(reading: Reading, cutter: TaskCutter) -> Iterator[bytes]:
    """Yield the rows of the selected members in pieces, cutting tasks on the way.

    A `Member` has the columns of a `MemberRow`, its path in place of the key,
    so that a row is one tuple and never an object of ours: of a million
    members each microsecond is a second.
    """
    key_of = reading.template.key_of()
    rows = _rows(reading, key_of)
    encode_row = msgspec.json.Encoder().encode
    position = 0
    while chunk := list(itertools.islice(rows, ROWS_PIECE)):
        lines = [encode_row(row) for row in chunk]
        lengths = itertools.accumulate(map(len, lines), initial=position)
        starts = [length + line for line, length in enumerate(lengths)]  # a newline a line
        cutter.add(chunk, starts)
        position = starts[-1]
        lines.append(b"")
        yield b"\n".join(lines)
    cutter.finish(position)


def _rows(reading: Reading, key_of: Callable[[str], str]) -> Iterator[Row]:
    """Yield members as rows; name and path stay out where the key tells them."""
    rows: Iterator[Row]
    if isinstance(reading.selected, Members):
        rows = reading.selected.rows(key_of)
    else:
        rows = ((m.index, key_of(m.path), *m[2:]) for m in reading.selected)
    if reading.template.plain:
        return rows
    selected = iter(reading.selected)
    return (
        (index, key, member.name_bytes, *rest, member.path)
        for (index, key, _, *rest), member in zip(rows, selected, strict=True)
    )


def _index_outcomes(reading: Reading) -> Iterator[bytes]:
    """Yield the outcomes of the members that the index itself condemns."""
    key_of = reading.template.key_of()
    failures = reading.index.failures
    head = TaskReport(
        task=run_files.INDEX_TASK, kind=TaskKind.BATCH, members=len(failures), failed=len(failures)
    )
    outcomes = (
        encode(Outcome.failed(failure.index, key_of(failure.path), failure.finding))
        for failure in failures
    )
    yield from _lines([encode(head)])
    yield from _lines(outcomes)


def _lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines into pieces worth a write."""
    gathered: list[bytes] = []
    pending = 0
    for line in lines:
        gathered.append(line)
        pending += len(line) + 1
        if pending >= LINES_PIECE:
            yield b"\n".join(gathered) + b"\n"
            gathered.clear()
            pending = 0
    if gathered:
        yield b"\n".join(gathered) + b"\n"
