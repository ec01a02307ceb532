"""The slices of a split member: inflate and upload each, then finish the member.

`scan` shows all steps of a split member. Rules:

* Slices run at once, in any order, and may be repeated: a part that is uploaded again replaces the
  first one.
* A slice has an outcome only if it failed. Settling then streams the member, which shows the fault.
* Settling finishes a member when all its slices are done. It may be repeated: if the upload is
  gone, the object under the key decides.
"""

from collections.abc import Iterator, Sequence

from s3unzip import deflate
from s3unzip.errors import (
    ArchiveError,
    ConflictError,
    MemberError,
    NotFoundError,
    SegmentRecordError,
    StorageError,
)
from s3unzip.extraction.comparison import is_member
from s3unzip.extraction.conflicts import explain_refusal
from s3unzip.extraction.member_data import read_range
from s3unzip.extraction.parts import PartPlan, check_whole, cut_evenly, upload_parts
from s3unzip.extraction.uploads import UploadGoneError, abort_upload, complete_once
from s3unzip.model import Outcome, PlannedMember, Status, Task, TaskKind
from s3unzip.runs.records import TaskOutcomes
from s3unzip.runs.step import RUN_FAULTS, Step, TaskAttempt
from s3unzip.stores.ports import Upload
from s3unzip.zip import ByteRange
from s3unzip.zip.values import WRAP


def extract_slice(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Inflate the segments of this task and upload their parts."""
    for row in rows:
        try:
            _upload_slice(attempt, row)
        except ArchiveError as error:
            attempt.failed(row, error.finding)
        except (UploadGoneError, SegmentRecordError) as refusal:
            attempt.failed(row, row.finding("slice-refused", str(refusal)))
    attempt.has_no_outcome = True


def _upload_slice(attempt: TaskAttempt, row: PlannedMember) -> None:
    """Upload the parts of a slice; settling completes the upload when all slices are done."""
    task = attempt.task
    member_slice = attempt.slice
    if row.member.is_wrapped and task.part + 1 == task.parts and task.span[1] >= WRAP:
        attempt.warnings["size-wrapped"] += 1
    sizes = cut_evenly(task.size, member_slice.parts)
    plan = PartPlan(sizes, member_slice.first_number, member_slice.offset)
    upload = Upload(row.key, member_slice.upload_id)
    attempt.uploaded = upload_parts(attempt, upload, _inflate_slice(attempt, row), plan)


def _inflate_slice(attempt: TaskAttempt, row: PlannedMember) -> Iterator[bytes]:
    """Yield the content of a slice; count it as passed."""
    data_start = attempt.slice.data_start
    position = attempt.slice.offset
    for number in attempt.slice.segments:
        record = attempt.records.find_segment(row.member.index, number, "linked")
        segment = deflate.LinkedSegment.from_bytes(record or b"")
        start, stop = segment.span
        data = read_range(attempt, ByteRange(data_start + start, data_start + stop))
        for content in deflate.inflate_segment(segment, data):
            yield content
            attempt.passed(row.share_of_work(position, position + len(content)))
            position += len(content)


def whole_task(task: Task, row: PlannedMember) -> Task:
    """Return the task that streams a member because its slices do not make it."""
    return Task(
        id=f"stream-{row.member.index:08d}",
        kind=TaskKind.STREAM,
        rows=task.rows,
        members=1,
        span=(0, row.member.compressed_size),
        size=row.member.size,
        seconds=task.seconds * task.parts,
        member=row.member.index,
    )


def finish_member(
    run_step: Step, slices: Sequence[tuple[Task, TaskOutcomes]]
) -> list[Task] | Outcome:
    """Complete the upload of a member whose slices are all done.

    Returns:
        The outcome of the member. If a slice failed, or the parts do not make the member, the
        upload is aborted, and the task that streams the member is returned.
    """
    first, _ = slices[0]
    row = run_step.read_rows(first.rows)[0]
    upload = Upload(row.key, first.slice.upload_id if first.slice else "")
    parts = tuple(part for _, done in slices for part in done.report.uploaded)
    has_failed = any(done.outcomes for _, done in slices)
    outcome: Outcome | None = None
    try:
        if not has_failed:
            row = check_whole(parts, row)
            etag = complete_once(run_step, row, upload, parts)
            return row.outcome(Status.EXTRACTED, etag=etag)
    except ConflictError:
        outcome = explain_refusal(row, run_step)
    except NotFoundError:  # an earlier settling completed it, or somebody aborted it
        if is_member(row, run_step.run.options, run_step.destination, run_step.calls):
            return row.outcome(Status.EXTRACTED)
        return [whole_task(first, row)]
    except RUN_FAULTS:
        raise
    except (MemberError, StorageError):  # the store refuses these parts; a stream may work
        pass
    abort_upload(run_step, upload)
    return outcome or [whole_task(first, row)]
