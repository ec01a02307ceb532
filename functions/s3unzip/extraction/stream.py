"""A stream: one large member, read ahead, inflated, uploaded in parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.errors import MemberError, ServiceFaultError
from s3unzip.extraction.attempt import TaskAttempt
from s3unzip.extraction.multipart import (
    MemberUpload,
    PartWriter,
    check_size,
    check_whole,
    choose_part_size,
    parts_at_once,
)
from s3unzip.extraction.objects import open_content, stored_size, with_crc
from s3unzip.model import Part, PlannedMember
from s3unzip.runs.step import Step
from s3unzip.stores.ports import Upload
from s3unzip.stores.readahead import stream_ahead
from s3unzip.zip import (
    AFTER_LENGTH,
    HEAD_LENGTH,
    ByteRange,
    Member,
    NeedMoreBytes,
    OpenedMember,
    Policy,
    close_member,
    open_member,
)

# A local header is 30 bytes, a name and an extra field of at most 65,535 each (APPNOTE 4.3.7).
MAX_HEADER = 30 + 2 * 65_535


class MemberData(Struct, frozen=True):
    """A large member whose local header agrees with the directory."""

    step: Step
    member: Member
    opened: OpenedMember

    @property
    def span(self) -> ByteRange:
        """The bytes of the archive that are the member's data."""
        start = self.member.offset + self.opened.data_start
        return ByteRange(start, start + self.member.compressed_size)

    def read(self, want: ByteRange) -> bytes:
        """Return bytes of the archive, retried."""
        return self.step.calls.run("get", lambda: self.step.archive.read(want))

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[memoryview]:
        """Yield bytes [start, stop) of the member's data, some read ahead of need."""
        begin = self.span.start
        end = self.member.compressed_size if stop is None else stop
        yield from read_pieces(self.step, ByteRange(begin + start, begin + end))

    def check_after(self) -> None:
        """Check the data descriptor and what follows it."""
        start = self.span.stop
        stop = min(self.member.stop, start + AFTER_LENGTH)
        after = self.read(ByteRange(start, stop)) if stop > start else b""
        policy = self.step.context.policy
        self.step.warned(close_member(self.member, self.opened, after, policy))


def read_pieces(step: Step, want: ByteRange) -> Iterator[memoryview]:
    """Yield a range of the archive, some of it read ahead of need."""
    for piece in stream_ahead(step.archive, want, step.calls, step.context.tuning):
        step.check_time()
        step.add_read(len(piece))
        yield piece


def open_data(step: Step, row: PlannedMember) -> MemberData:
    """Read and check the local header of a large member."""
    member = row.member

    def read(want: ByteRange) -> bytes:
        step.bytes_read += want.length
        return step.calls.run("get", lambda: step.archive.read(want))

    opened = open_local(member, read, step.context.policy)
    step.warned(opened.warnings)
    return MemberData(step, member, opened)


def header_bound(member: Member) -> int:
    """Return where the bytes end that a small member is judged by; they begin at its offset.

    They hold the member and at most `AFTER_LENGTH` bytes of what follows it.
    """
    furthest = member.offset + MAX_HEADER + member.compressed_size + AFTER_LENGTH
    return min(member.stop, furthest)


def open_local(member: Member, read: Callable[[ByteRange], bytes], policy: Policy) -> OpenedMember:
    """Read and check a local header: one short range, a second only for a long header."""
    max_stop = min(member.stop, member.offset + MAX_HEADER)
    for length in (HEAD_LENGTH, MAX_HEADER):
        head = read(ByteRange(member.offset, min(member.offset + length, max_stop)))
        opened = open_member(member, head, policy)
        if not isinstance(opened, NeedMoreBytes):
            return opened
    raise ServiceFaultError(f"the local header at {member.offset} was cut short")


def stream_member(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Extract the one member of `rows`; it becomes visible only when it is whole and right."""
    for row in rows:
        target = MemberUpload(attempt, row)
        if target.wanted():
            stream_whole(target)


def stream_whole(target: MemberUpload) -> None:
    """Upload one member from its first byte to its last."""
    attempt, row = target.attempt, target.row
    attempt.begin_again()
    size = stored_size(row.member, attempt.run.options)
    try:
        limits = attempt.destination.part_limits
        part_size = choose_part_size(size, attempt.context.tuning.part_bytes, limits)
        data = open_data(attempt, row)
    except MemberError as error:
        attempt.failed(row, error.finding)
        return
    upload = target.begin()
    try:
        whole, parts = _upload(target, upload, data, part_size)
    except MemberError as error:
        target.abort(upload)
        attempt.failed(row, error.finding)
    except BaseException:
        target.abort_quietly(upload)
        raise
    else:
        whole.complete(upload, parts)


def _upload(
    target: MemberUpload, upload: Upload, data: MemberData, part_size: int
) -> tuple[MemberUpload, tuple[Part, ...]]:
    """Upload the parts; return them, and the target with what is known of the member now."""
    attempt, row, options = target.attempt, target.row, target.attempt.run.options
    content = open_content(data.member, attempt.context.policy, data.opened, options)
    writer = PartWriter(
        attempt.destination,
        upload,
        attempt.calls,
        sizes=itertools.repeat(part_size),
        at_once=parts_at_once(part_size, attempt.context.tuning),
    )
    try:
        for output in content.decode(attempt.passing(data.pieces())):
            writer.write(output)
        data.check_after()
        parts = writer.close()
    except BaseException:
        writer.abandon()
        raise
    attempt.warned(content.warnings)
    whole = replace(target, row=with_crc(row, content.crc32))
    if options.as_gzip is None:
        check_whole(parts, whole.row)
    else:
        check_size(parts, row, stored_size(row.member, options))
    return whole, parts
