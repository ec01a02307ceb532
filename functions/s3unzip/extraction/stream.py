"""Stream one large member: read it ahead, decode it, and upload its object in parts.

Rules:

* The member becomes visible only when its size and its CRC-32 are right.
* A member whose declared size may be too small by multiples of 4 GiB (`is_wrapped`) is uploaded
  again, with room for the most that it can have, if it turns out to be larger.
* A failed upload is aborted.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from s3unzip import errors
from s3unzip.extraction.conflicts import resolve_conflict, with_crc
from s3unzip.extraction.forms import open_content, stored_size
from s3unzip.extraction.member_data import MemberData, open_data
from s3unzip.extraction.parts import PartPlan, check_whole, choose_part_size, upload_parts
from s3unzip.extraction.uploads import abort_quietly, abort_upload, begin_upload, finish_upload
from s3unzip.model import Outcome, Part, PlannedMember
from s3unzip.runs.step import Step, TaskAttempt
from s3unzip.stores.ports import Buffer, Upload
from s3unzip.zip import Member
from s3unzip.zip.decode import largest_size


def stream_member(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Extract the one member of `rows`."""
    for row in rows:
        outcome = resolve_large(attempt, row)
        if outcome is None:
            stream_whole(attempt, row)
        else:
            attempt.note(row, outcome)


def resolve_large(attempt: TaskAttempt, row: PlannedMember) -> Outcome | None:
    """Return the outcome of a large member that must not be written; None: write it."""
    try:
        return resolve_conflict(row, attempt, partial(_read_crc, attempt, row))
    except errors.MemberError as error:
        return Outcome.failed(row.member.index, row.key, error.finding)


def _read_crc(attempt: TaskAttempt, row: PlannedMember) -> int:
    """Return the CRC-32 of a member's content; `MemberError`: it is bad."""
    data = open_data(attempt, row)
    content = open_content(row.member, attempt.context.policy, data.opened, attempt.run.options)
    for _ in content.decode(data.read_all()):
        pass
    return content.crc32


def stream_whole(attempt: TaskAttempt, row: PlannedMember, room: int | None = None) -> None:
    """Upload one member from its first byte to its last.

    Args:
        attempt: notes the outcome.
        row: the member.
        room: bytes for which the parts have room; None: the size of the object, which is a guess
            if the member `is_wrapped`. If the object needs more room, it is uploaded again.
    """
    attempt.begin_again()
    limits = attempt.destination.part_limits
    if room is None:
        room = stored_size(row.member, attempt.run.options)
    max_room = min(allowed_size(attempt, row.member), limits.object_bytes)
    try:
        part_size = choose_part_size(room, attempt.context.tuning.part_bytes, limits)
        data = open_data(attempt, row)
    except errors.MemberError as error:
        attempt.failed(row, error.finding)
        return
    upload = begin_upload(attempt, row)
    try:
        uploaded = _upload(attempt, upload, data, part_size)
    except errors.MemberError as error:
        abort_upload(attempt, upload)
        if error.finding.code == "bomb-wrapped-size" and room < max_room:
            stream_whole(attempt, row, max_room)
        else:
            attempt.failed(row, error.finding)
    except BaseException:
        abort_quietly(attempt, upload)
        raise
    else:
        finish_upload(attempt, uploaded.row, upload, uploaded.parts)


def allowed_size(step: Step, member: Member) -> int:
    """Return how many bytes the content of a member may have."""
    if not member.is_wrapped:
        return member.size
    max_size = member.size + int(member.compressed_size * step.run.inflation)
    return min(max_size, largest_size(member, step.context.policy))


class _Uploaded(NamedTuple):
    """The parts of a member, and the row with its true size and CRC-32."""

    row: PlannedMember
    parts: tuple[Part, ...]


def _upload(attempt: TaskAttempt, upload: Upload, data: MemberData, part_size: int) -> _Uploaded:
    """Upload the parts and check them."""
    row = data.row
    options = attempt.run.options
    max_size = allowed_size(attempt, row.member)
    if options.as_gzip is None:
        max_size = min(max_size, part_size * attempt.destination.part_limits.max_parts)
    decoder = open_content(
        row.member, attempt.context.policy, data.opened, options, max_size=max_size
    )

    def content() -> Iterator[Buffer]:
        yield from decoder.decode(attempt.passing(data.read_all()))
        data.check_after()

    parts = upload_parts(attempt, upload, content(), PartPlan([part_size], part_size))
    attempt.warnings.update(decoder.warnings)
    row = with_crc(row, decoder.crc32)
    if options.as_gzip is None:
        return _Uploaded(check_whole(parts, row), parts)
    declared_size = stored_size(row.member, options)
    size = sum(part.size for part in parts)
    if size != declared_size:
        message = f"the parts have {size} bytes, not {declared_size}"
        raise errors.MemberError(row.finding("size-mismatch", message))
    return _Uploaded(row, parts)
