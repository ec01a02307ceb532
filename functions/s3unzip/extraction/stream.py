"""Read a large member, and stream it: read it ahead, decode it, upload its object in parts.

Copies and the parts of split members are read by `MemberData`, too.

Rules:

* The member becomes visible only when its size and its CRC-32 are right.
* A member whose declared size may be too small by multiples of 4 GiB (`is_wrapped`) is uploaded
  again, with room for its maximum size, if it turns out to be larger.
* A failed upload is aborted.
"""

from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from s3unzip import errors
from s3unzip.extraction.existing_objects import resolve_conflict, with_crc
from s3unzip.extraction.member_object import open_content, stored_size
from s3unzip.extraction.uploads import (
    PartPlan,
    check_whole,
    choose_part_size,
    filling,
    finish_upload,
    upload_parts,
)
from s3unzip.model import Outcome, Part, PlannedMember
from s3unzip.planning.reading import open_local
from s3unzip.runs.step import Step, TaskAttempt
from s3unzip.stores.ahead import stream_ahead
from s3unzip.stores.ports import Buffer, Upload
from s3unzip.zip import AFTER_LENGTH, ByteRange, Member, OpenedMember, close_member
from s3unzip.zip.decode import largest_size


class MemberData(Struct, frozen=True):
    """A large member whose local header agrees with the directory."""

    run_step: Step
    row: PlannedMember
    opened: OpenedMember

    @property
    def data_range(self) -> ByteRange:
        """Where the member's data lies in the archive."""
        member = self.row.member
        start = member.offset + self.opened.data_start
        return ByteRange(start, start + member.compressed_size)

    def read(self, span: ByteRange) -> Iterator[memoryview]:
        """Yield a range of the member's data; `span` counts from the first byte of the data."""
        start = self.data_range.start
        return read_range(self.run_step, ByteRange(start + span.start, start + span.stop))

    def check_after(self) -> None:
        """Check the data descriptor and the bytes after it; add warnings to the step's."""
        member = self.row.member
        start = self.data_range.stop
        trailing = b""
        if start < member.stop:  # there is a descriptor, or a gap before the next member
            trailing = self.run_step.calls.read(
                self.run_step.archive, ByteRange(start, min(member.stop, start + AFTER_LENGTH))
            )
        self.run_step.warnings.update(close_member(member, self.opened, trailing))


def read_range(run_step: Step, byte_range: ByteRange) -> Iterator[memoryview]:
    """Yield a range of the archive; the next bytes are read ahead."""
    for chunk in stream_ahead(
        run_step.archive, byte_range, run_step.calls, run_step.context.tuning
    ):
        run_step.check_time()
        run_step.bytes_read += len(chunk)
        yield chunk


def open_data(run_step: Step, row: PlannedMember) -> MemberData:
    """Read and check the local header of a large member; add warnings to the step's."""

    def read(byte_range: ByteRange) -> bytes:
        run_step.bytes_read += byte_range.length
        return run_step.calls.read(run_step.archive, byte_range)

    opened = open_local(row.member, read, run_step.context.policy)
    run_step.warnings.update(opened.warnings)
    return MemberData(run_step, row, opened)


def open_part(attempt: TaskAttempt, row: PlannedMember) -> MemberData:
    """Open a member for one of its tasks; only its first task reports the member's warnings."""
    data = open_data(attempt, row)
    if attempt.task.part:  # not the first task, which has the same warnings
        attempt.warnings.clear()
    else:
        data.check_after()
    return data


def stream_member(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Extract the one member of `rows`."""
    for row in resolve_rows(attempt, rows):
        stream_whole(attempt, row)


def resolve_rows(attempt: TaskAttempt, rows: list[PlannedMember]) -> Iterator[PlannedMember]:
    """Note the outcome of each large member that must not be written; yield the others."""
    for row in rows:
        try:
            outcome = resolve_conflict(row, attempt, partial(_read_crc, attempt, row))
        except errors.MemberError as error:
            outcome = Outcome.failed(row.member.index, row.key, error.finding)
        if outcome is None:
            yield row
        else:
            attempt.note(row, outcome)


def _read_crc(attempt: TaskAttempt, row: PlannedMember) -> int:
    """Read and decode a member; return the CRC-32 of its content."""
    data = open_data(attempt, row)
    decoder = open_content(row.member, attempt.context.policy, data.opened, attempt.run.options)
    for _ in decoder.decode(read_range(attempt, data.data_range)):
        pass  # the content itself is not needed
    return decoder.crc32


def stream_whole(attempt: TaskAttempt, row: PlannedMember, room: int | None = None) -> None:
    """Upload one member from its first byte to its last.

    Args:
        attempt: notes the outcome.
        row: the member.
        room: how many bytes the parts must be able to hold; None: the size of the object. If the
            member `is_wrapped`, its object may be larger: then it is uploaded again.
    """
    attempt.reset_passed()
    limits = attempt.destination.part_limits
    if room is None:
        room = stored_size(row.member, attempt.run.options)
    max_room = min(allowed_size(attempt, row.member), limits.object_bytes)
    try:
        part_size = choose_part_size(room, attempt.context.tuning.part_bytes, limits)
        data = open_data(attempt, row)
        with filling(attempt, row) as upload:
            verified, parts = _upload(attempt, upload, data, part_size)
    except errors.MemberError as error:
        # The lower 32 bits of the size were not all of it: upload again with more room.
        if error.finding.code == "bomb-wrapped-size" and room < max_room:
            stream_whole(attempt, row, max_room)
        else:
            attempt.note_failed(row, error.finding)
        return
    finish_upload(attempt, verified, upload, parts)


def allowed_size(run_step: Step, member: Member) -> int:
    """Return how many bytes the content of a member may have.

    Only the lower 32 bits of the size of an `is_wrapped` member are known.
    """
    if not member.is_wrapped:
        return member.size
    # All such members together may write more than the plan counted, up to the run's limit: each
    # may have this much more for each compressed byte.
    max_size = member.size + int(member.compressed_size * run_step.run.inflation)
    return min(max_size, largest_size(member, run_step.context.policy))


def _upload(
    attempt: TaskAttempt, upload: Upload, data: MemberData, part_size: int
) -> tuple[PlannedMember, tuple[Part, ...]]:
    """Upload and check the parts; return the row with its true size and CRC-32, and the parts."""
    row = data.row
    options = attempt.run.options
    max_size = allowed_size(attempt, row.member)
    if options.as_gzip is None:  # together, the parts must hold exactly this content
        max_size = min(max_size, part_size * attempt.destination.part_limits.max_parts)
    decoder = open_content(
        row.member, attempt.context.policy, data.opened, options, max_size=max_size
    )

    def content() -> Iterator[Buffer]:
        yield from decoder.decode(attempt.counting_passed(read_range(attempt, data.data_range)))
        data.check_after()

    parts = upload_parts(attempt, upload, content(), PartPlan([part_size]))
    attempt.warnings.update(decoder.warnings)
    row = with_crc(row, decoder.crc32)
    if options.as_gzip is None:
        return check_whole(parts, row), parts
    declared_size = stored_size(row.member, options)
    size = sum(part.size for part in parts)
    if size != declared_size:
        raise errors.MemberError(
            row.finding("size-mismatch", f"the parts have {size} bytes, not {declared_size}")
        )
    return row, parts
