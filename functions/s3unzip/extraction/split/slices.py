"""The slices of a split member: extract one of a deflated member, and finish the member of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip import deflate
from s3unzip.errors import (
    ArchiveError,
    ConflictError,
    MemberError,
    NotFoundError,
    StorageError,
    UsageError,
)
from s3unzip.extraction.member import read_pieces
from s3unzip.extraction.upload import complete_once
from s3unzip.model import Outcome, Status, Task, TaskKind, TaskReport
from s3unzip.objects.conflict import explain_refusal
from s3unzip.objects.existing import is_member
from s3unzip.objects.part_writer import (
    PartPlace,
    PartWriter,
    UploadGoneError,
    check_whole,
    parts_at_once,
)
from s3unzip.planning.cutting import slice_id
from s3unzip.runs.stop import RUN_FAULTS
from s3unzip.runs.task_records import TaskOutcomes
from s3unzip.stores.ports import Upload
from s3unzip.zip import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from s3unzip.extraction.attempt import TaskAttempt
    from s3unzip.model import Link, PlannedMember, SliceParts
    from s3unzip.runs.step import Step

    FindOutcomes = Callable[[Sequence[str]], Sequence[TaskOutcomes | None]]


def find_slice(attempt: TaskAttempt, row: PlannedMember) -> tuple[Link, SliceParts | None]:
    """Return the link of a split member and this task's slice, None if it joined another.

    Raises:
        UsageError: the link step did not run.
    """
    link = attempt.records.find_link(row.member.index)
    if link is None:
        raise UsageError(f"{row.key} is not linked: scan and link come before {attempt.task.id}")
    mine = (piece for piece in link.slices if piece.part == attempt.task.part)
    return link, next(mine, None)


def extract_segment(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Inflate this task's segments and upload their parts; settling completes the member.

    A segment that joined the one before it has nothing to do. A segment that
    does not inflate as it was scanned is a failed outcome: settling then
    streams the member, which tells what is wrong with it.

    Raises:
        DeadlineError, SourceChangedError, AccessDeniedError, ServiceFaultError: as for a stream.
    """
    for row in rows:
        link, piece = find_slice(attempt, row)
        if link.upload_id is not None and piece is not None:
            try:
                _upload_slice(attempt, row, link, piece)
            except ArchiveError as error:
                attempt.failed(row, error.finding)
            except UploadGoneError as gone:
                attempt.failed(row, row.finding("slice-refused", str(gone)))
        attempt.slice_done = True


def _upload_slice(attempt: TaskAttempt, row: PlannedMember, link: Link, piece: SliceParts) -> None:
    sizes = part_sizes(piece)
    writer = PartWriter(
        attempt.destination,
        Upload(row.key, link.upload_id or ""),
        attempt.calls,
        sizes=sizes,
        at_once=parts_at_once(max(sizes), attempt.context.tuning),
        first=PartPlace(piece.first_number, piece.offset),
    )
    written = piece.offset
    try:
        for part in piece.segments:
            segment = attempt.records.read_linked(row.member.index, part)
            start = link.data_start + segment.span.start
            stop = link.data_start + segment.span.stop
            for output in deflate.inflate_segment(
                segment, read_pieces(attempt, ByteRange(start, stop))
            ):
                writer.write(output)
                attempt.passed(row.share_of_work(written, written + len(output)))
                written += len(output)
        parts = writer.close()
    except BaseException:
        writer.abandon()
        raise
    attempt.uploaded = parts
    attempt.upload_id = link.upload_id


def part_sizes(piece: SliceParts) -> list[int]:
    """Return the sizes of the slice's multipart parts: nearly equal, none too small."""
    size, count = piece.size, piece.count
    return [size * (n + 1) // count - size * n // count for n in range(count)]


def whole_task(task: Task, row: PlannedMember) -> Task:
    """Return the task that streams a member whose slices did not hold."""
    return Task(
        id=f"stream-{row.member.index:08d}-whole",
        kind=TaskKind.STREAM,
        rows=task.rows,
        members=1,
        span=(0, row.member.compressed_size),
        size=row.member.size,
        seconds=task.seconds * task.parts,
    )


def finish_members(step: Step, tasks: list[Task], find: FindOutcomes) -> Iterator[Outcome | Task]:
    """Yield the outcome of each split member, or the task that must stream it.

    A member whose slices are not all done is left alone: nothing is yielded
    for it, and its tasks are still on the list of what is left.

    Args:
        step: that settles the run.
        tasks: the first task of each split member.
        find: returns what is on record of slices, by the ids of their tasks; None: nothing.
    """
    for task in tasks:
        row = step.read_rows(task.rows)[0]
        link = step.records.find_link(row.member.index)
        if link is None:
            continue
        if link.outcome is not None:
            yield link.outcome
            continue
        slices = None if link.stream else _list_slices(task, link, find)
        if slices is not None and not all(found.complete for found in slices):
            continue
        outcome = _complete_slices(step, row, link, slices) if slices else None
        if outcome is not None and outcome.status is Status.EXTRACTED:
            # On record like any other: a later settling asks nothing, and the ETag is kept.
            step.records.write_link(replace(link, outcome=outcome))
        yield outcome or whole_task(task, row)


def _list_slices(task: Task, link: Link, find: FindOutcomes) -> list[TaskOutcomes]:
    """Return what is on record of each slice; of one that never ended, an incomplete record."""
    nothing = TaskOutcomes(TaskReport(task.id, task.kind, 1, unfinished=1), [])
    ids = [slice_id(task.kind, link.member, piece.part) for piece in link.slices]
    return [found or nothing for found in find(ids)]


def _complete_slices(
    step: Step, row: PlannedMember, link: Link, slices: list[TaskOutcomes]
) -> Outcome | None:
    """Complete the upload of `slices`; None: they do not make the member, and it is dropped."""
    upload = Upload(row.key, link.upload_id or "")
    parts = tuple(part for found in slices for part in found.report.uploaded)
    outcome = None
    try:
        if not any(found.outcomes for found in slices):  # a slice has one only where it failed
            check_whole(parts, row)
            etag = complete_once(step, row, upload, parts)
            return row.outcome(Status.EXTRACTED, etag=etag)
    except ConflictError:
        outcome = explain_refusal(row, step)
    except NotFoundError:  # an earlier settling completed it, or somebody aborted it
        same = is_member(row, step.run.options, step.destination, step.calls)
        return row.outcome(Status.EXTRACTED) if same else None
    except RUN_FAULTS:
        raise
    except (MemberError, StorageError):  # the store refuses these parts; a stream may work
        pass
    step.calls.run("abort", lambda: step.destination.abort_upload(upload))
    return outcome
