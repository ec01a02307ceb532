"""One large member's bytes in the archive: where its data begins, and reading it in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip.errors import ServiceFaultError
from s3unzip.stores.readahead import stream_ahead
from s3unzip.zip import (
    AFTER_LENGTH,
    HEAD_LENGTH,
    ByteRange,
    NeedMoreBytes,
    close_member,
    open_member,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from s3unzip.model import PlannedMember
    from s3unzip.runs.step import Step
    from s3unzip.zip import Member, OpenedMember, Policy


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
        """Yield bytes [start, stop) of the member's data, some read ahead of need.

        Raises:
            DeadlineError: the worker's time is nearly over.
        """
        begin = self.span.start
        end = self.member.compressed_size if stop is None else stop
        yield from read_pieces(self.step, ByteRange(begin + start, begin + end))

    def check_after(self) -> None:
        """Check the data descriptor and what follows it.

        Raises:
            MemberError: the descriptor disagrees with the directory.
        """
        start = self.span.stop
        stop = min(self.member.stop, start + AFTER_LENGTH)
        after = self.read(ByteRange(start, stop)) if stop > start else b""
        policy = self.step.context.policy
        self.step.warned(close_member(self.member, self.opened, after, policy))


def read_pieces(step: Step, want: ByteRange) -> Iterator[memoryview]:
    """Yield a range of the archive, some of it read ahead of need.

    Raises:
        DeadlineError: the worker's time is nearly over.
    """
    for piece in stream_ahead(step.archive, want, step.calls, step.context.tuning):
        step.check_time()
        step.add_read(len(piece))
        yield piece


def open_data(step: Step, row: PlannedMember) -> MemberData:
    """Read and check the local header of a large member.

    Raises:
        MemberError: the local header disagrees with the directory.
    """
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
    """Read and check a local header: one short range, a second only for a long header.

    Raises:
        MemberError: the local header disagrees with the directory.
    """
    max_stop = min(member.stop, member.offset + MAX_HEADER)
    for length in (HEAD_LENGTH, MAX_HEADER):
        head = read(ByteRange(member.offset, min(member.offset + length, max_stop)))
        opened = open_member(member, head, policy)
        if not isinstance(opened, NeedMoreBytes):
            return opened
    raise ServiceFaultError(f"the local header at {member.offset} was cut short")
