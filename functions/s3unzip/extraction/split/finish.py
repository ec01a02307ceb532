"""Finish: make a member that several tasks uploaded visible, or say why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from s3unzip import run_files
from s3unzip.errors import ConflictError, MemberError, NotFoundError, StorageError
from s3unzip.extraction.split.link import split_tasks
from s3unzip.model import Link, Outcome, Status, Task, TaskKind, TaskReport, decode, encode
from s3unzip.objects.existing import exists_finding, is_unchanged
from s3unzip.objects.part_writer import check_whole, complete_once
from s3unzip.runs.outcomes import TaskOutcomes, read_outcomes
from s3unzip.runs.rows import read_rows
from s3unzip.runs.stop import RUN_FAULTS
from s3unzip.stores.ports import Upload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.context import Context
    from s3unzip.model import MemberRow, Run
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination, RunStore


def whole_task(task: Task, row: MemberRow) -> Task:
    """Return the task that streams a member whose slices did not hold."""
    return Task(
        id=f"stream-{row.index:08d}-whole",
        kind=TaskKind.STREAM,
        rows=task.rows,
        members=1,
        span=(0, row.compressed_size),
        size=row.size,
        seconds=task.seconds * task.parts,
    )


def slice_task_id(task: Task, part: int) -> str:
    """Return the id of another slice of the same member."""
    return f"{task.id.rsplit('-', 1)[0]}-{part:04d}"


def finish_members(run: Run, context: Context, calls: Calls) -> Iterator[Outcome | Task]:
    """Yield the outcome of each split member, or the task that must stream it.

    A member whose slices are not all done is left alone: nothing is yielded
    for it, and its tasks are still on the list of what is left.
    """
    work = context.stores.run_store(run.id, calls)
    destination = context.stores.destination(run.destination)
    for task in split_tasks(work):
        row = read_rows(work, task.rows)[0]
        try:
            link = decode(work.read(run_files.link(row.index)), Link)
        except NotFoundError:
            continue
        if link.outcome is not None:
            yield link.outcome
            continue
        slices = None if link.stream else _read_slices(work, task, link)
        if slices is not None and not all(found.complete for found in slices):
            continue
        finish = _Finish(run, row, link, destination, calls)
        outcome = finish.try_slices(slices) if slices else None
        if outcome is not None and outcome.status is Status.EXTRACTED:
            # On record like any other: a later settling asks nothing, and the ETag is kept.
            work.write(run_files.link(row.index), [encode(replace(link, outcome=outcome))])
        yield outcome or whole_task(task, row)


def _read_slices(work: RunStore, task: Task, link: Link) -> list[TaskOutcomes]:
    """Return what is on record of each slice; of one that never ended, an incomplete record."""
    nothing = TaskOutcomes(TaskReport(task.id, task.kind, 1, unfinished=1), [])
    return [
        read_outcomes(work, slice_task_id(task, piece.part)) or nothing for piece in link.slices
    ]


class _Finish(Struct, frozen=True):
    """The end of one member's shared upload."""

    run: Run
    row: MemberRow
    link: Link
    destination: Destination
    calls: Calls

    def try_slices(self, slices: list[TaskOutcomes]) -> Outcome | None:
        """Complete the upload of `slices`; None: they do not make the member."""
        row = self.row
        parts = tuple(part for found in slices for part in found.report.uploaded)
        try:
            if any(found.outcomes for found in slices):  # a slice has one only where it failed
                return self._abort(None)
            check_whole(parts, row)
            etag = complete_once(self.run, row, self.destination, self._upload, parts, self.calls)
        except MemberError:
            return self._abort(None)
        except ConflictError:
            return self._abort(exists_outcome(row))
        except NotFoundError:  # an earlier settling completed it, or somebody aborted it
            return (
                right_outcome(row)
                if is_unchanged(row, self.run.options, self.destination, self.calls)
                else None
            )
        except RUN_FAULTS:
            raise
        except StorageError:  # the store will not have these parts; a stream of it may do
            return self._abort(None)
        return right_outcome(row, etag)

    @property
    def _upload(self) -> Upload:
        return Upload(self.row.key, self.link.upload_id or "")

    def _abort(self, outcome: Outcome | None) -> Outcome | None:
        self.calls.run("abort", lambda: self.destination.abort_upload(self._upload))
        return outcome


def right_outcome(row: MemberRow, etag: str | None = None) -> Outcome:
    """Return the outcome of a member that is whole and right."""
    return Outcome(row.index, row.key, Status.EXTRACTED, row.size, row.crc32, etag=etag)


def exists_outcome(row: MemberRow) -> Outcome:
    """Return the outcome of a member that must not overwrite what is there."""
    return Outcome.failed(row.index, row.key, exists_finding(row))
