"""The data of a large member: check its local header, read its bytes, check its descriptor."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from s3unzip import errors
from s3unzip.model import PlannedMember
from s3unzip.runs.step import Step, TaskAttempt
from s3unzip.stores.ahead import stream_ahead
from s3unzip.zip import (
    AFTER_LENGTH,
    HEAD_LENGTH,
    MAX_HEADER,
    ByteRange,
    Member,
    OpenedMember,
    Policy,
    close_member,
    open_member,
)


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


def open_local(member: Member, read: Callable[[ByteRange], bytes], policy: Policy) -> OpenedMember:
    """Read and check a local header: one short range, a second only for a long header."""
    max_stop = min(member.stop, member.offset + MAX_HEADER)
    for length in (HEAD_LENGTH, MAX_HEADER):
        header = read(ByteRange(member.offset, min(member.offset + length, max_stop)))
        opened = open_member(member, header, policy)
        if not isinstance(opened, int):  # an int is the length that the header needs
            return opened
    raise errors.ServiceFaultError(f"the local header at {member.offset} was cut short")
