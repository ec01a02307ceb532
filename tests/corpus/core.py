"""The ZIP core driven by hand, its input cut as finely as a test wants."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from s3unzip.zip import (
    ONE_DISK,
    ByteRange,
    DirectoryReader,
    Disks,
    Index,
    Member,
    MemberError,
    OpenedMember,
    Policy,
    RejectedError,
    Selection,
    close_member,
    drive,
    inspect_prefix,
    locate_directory,
    open_member,
)
from s3unzip.zip.decode import MemberDecoder, decode_member
from tests.corpus.labels import MemberResult, Result, extracted


@dataclass(frozen=True, slots=True)
class Cut:
    """How finely input is cut: bytes at a time, None for all at once."""

    length: int | None = None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        step = self.length or max(1, len(data))
        return (data[start : start + step] for start in range(0, len(data), step))


def read_index(
    raw: bytes,
    policy: Policy,
    cut: Cut,
    disks: Disks = ONE_DISK,
    selection: Selection | None = None,
) -> Index:
    """Read and settle an archive's index; keys are paths, unless a selection has others."""
    return read_index_by(
        lambda want: raw[want.start : want.stop], len(raw), policy, cut, disks, selection
    )


def read_index_by(
    read: Callable[[ByteRange], bytes],
    size: int,
    policy: Policy,
    cut: Cut,
    disks: Disks = ONE_DISK,
    selection: Selection | None = None,
) -> Index:
    """Read and settle the index of an archive that is read by its ranges."""
    location = drive(locate_directory(size, policy, disks), read)
    reader = DirectoryReader(location, policy, selection)
    for piece in cut.pieces(read(ByteRange(location.start, location.stop))):
        reader.feed(piece)
    index = drive(reader.finish(), read)
    index.warnings.update(drive(inspect_prefix(location, index.first), read))
    return index


def open_at(raw: bytes, member: Member, policy: Policy, cut: Cut) -> OpenedMember:
    """Open a member, giving its header as many bytes as it asks for."""
    length = cut.length or 1 << 17
    while True:
        head = raw[member.offset : min(member.stop, member.offset + length)]
        opened = open_member(member, head, policy)
        if not isinstance(opened, int):
            return opened
        assert opened > length
        length = opened


def extract_member(raw: bytes, member: Member, policy: Policy, cut: Cut) -> tuple[bytes, set[str]]:
    """Return a member's content and warnings."""
    opened = open_at(raw, member, policy, cut)
    start = member.offset + opened.data_start
    stop = start + member.compressed_size
    warnings = {*opened.warnings, *close_member(member, opened, raw[stop : member.stop])}
    if cut.length is None:
        decoded = decode_member(member, raw[start:stop], policy, opened)
        return bytes(decoded.content), warnings.union(decoded.warnings)
    decoder = MemberDecoder(member, policy, opened)
    content = b"".join(map(bytes, decoder.decode(cut.pieces(raw[start:stop]))))
    return content, warnings.union(decoder.warnings)


def extract(
    raw: bytes, policy: Policy | None = None, cut: Cut | None = None, disks: Disks = ONE_DISK
) -> Result:
    """Extract an archive in memory through the core; `disks` are its parts, if it has several."""
    policy, cut = policy or Policy(), cut or Cut()
    try:
        index = read_index(raw, policy, cut, disks)
    except RejectedError as error:
        return Result(error.finding.code)
    results = {member.index: MemberResult(why.code) for member, why in index.failures}
    warnings = set(index.warnings)
    for member in index.members:
        try:
            content, noted = extract_member(raw, member, policy, cut)
        except MemberError as error:
            results[member.index] = MemberResult(error.finding.code)
        else:
            warnings |= noted
            results[member.index] = extracted(member.path, content)
    return Result(None, results, frozenset(warnings))
