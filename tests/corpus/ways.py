"""The ways in which an archive of the corpus is read: from `Archive` to `Result`.

One is the ZIP core driven by hand, its input cut as finely as a test wants: into pieces of `step`
bytes, or not at all.
"""

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from s3unzip import ArchiveMember, open_archive
from s3unzip.errors import MemberError, RejectedError
from s3unzip.model import Location, Options, Request, Status, Verdict
from s3unzip.settings import Tuning
from s3unzip.stores.ports import ObjectFacts
from s3unzip.zip import (
    ONE_DISK,
    ByteRange,
    DirectoryReader,
    Disks,
    Index,
    Member,
    OpenedMember,
    Policy,
    Selection,
    close_member,
    drive,
    inspect_prefix,
    locate_directory,
    open_member,
)
from s3unzip.zip.decode import MemberDecoder, decode_member
from tests.corpus.labels import Archive, MemberResult, Result, extracted
from tests.support.memory import OUT, TINY, World
from tests.support.processes import Program
from tests.support.zips import cut_pieces, part_names


def read_index(
    raw: bytes,
    policy: Policy,
    step: int | None = None,
    disks: Disks = ONE_DISK,
    selection: Selection | None = None,
) -> Index:
    """Read and settle an archive's index; keys are paths, unless a selection has others."""
    return read_index_by(
        lambda want: raw[want.start : want.stop], len(raw), policy, step, disks, selection
    )


def read_index_by(
    read: Callable[[ByteRange], bytes],
    size: int,
    policy: Policy,
    step: int | None = None,
    disks: Disks = ONE_DISK,
    selection: Selection | None = None,
) -> Index:
    """Read and settle the index of an archive that is read by its ranges."""
    location = drive(locate_directory(size, policy, disks), read)
    reader = DirectoryReader(location, policy, selection)
    directory = read(ByteRange(location.start, location.stop))
    for piece in cut_pieces(directory, step or max(1, len(directory))):
        reader.feed(piece)
    index = drive(reader.finish(), read)
    index.warnings.update(drive(inspect_prefix(location, index.first), read))
    return index


def open_at(raw: bytes, member: Member, policy: Policy, step: int | None) -> OpenedMember:
    """Open a member, giving its header as many bytes as it asks for."""
    length = step or 1 << 17
    while True:
        head = raw[member.offset : min(member.stop, member.offset + length)]
        opened = open_member(member, head, policy)
        if not isinstance(opened, int):
            return opened
        assert opened > length
        length = opened


def extract_member(
    raw: bytes, member: Member, policy: Policy, step: int | None
) -> tuple[bytes, set[str]]:
    """Return a member's content and warnings."""
    opened = open_at(raw, member, policy, step)
    start = member.offset + opened.data_start
    stop = start + member.compressed_size
    warnings = {*opened.warnings, *close_member(member, opened, raw[stop : member.stop])}
    if step is None:
        decoded = decode_member(member, raw[start:stop], policy, opened)
        return bytes(decoded.content), warnings.union(decoded.warnings)
    decoder = MemberDecoder(member, policy, opened)
    content = b"".join(map(bytes, decoder.decode(cut_pieces(raw[start:stop], step))))
    return content, warnings.union(decoder.warnings)


def extract(
    raw: bytes, policy: Policy | None = None, step: int | None = None, disks: Disks = ONE_DISK
) -> Result:
    """Extract an archive in memory through the core; `disks` are its parts, if it has several."""
    policy = policy or Policy()
    try:
        index = read_index(raw, policy, step, disks)
    except RejectedError as error:
        return Result(error.finding.code)
    results = {member.index: MemberResult(why.code) for member, why in index.failures}
    warnings = set(index.warnings)
    for member in index.members:
        try:
            content, noted = extract_member(raw, member, policy, step)
        except MemberError as error:
            results[member.index] = MemberResult(error.finding.code)
        else:
            warnings |= noted
            results[member.index] = extracted(member.path, content)
    return Result(None, results, frozenset(warnings))


# Sizes at which every member is a large one. Nothing is split.
STREAMED = replace(Tuning(), small_member=1, copy_from=1 << 40, split_from=1 << 40)


def read_in_core(archive: Archive, step: int | None = None, policy: Policy | None = None) -> Result:
    """Read an archive through the core, by its own policy or another one."""
    parts = archive.parts
    return extract(
        b"".join(parts), policy or archive.policy, step, Disks([len(part) for part in parts])
    )


def read_by_members(archive: Archive) -> Result:
    """Read each member without the others, through the public API."""
    policy = archive.policy
    options = Options(lenient=policy.lenient, encoding=policy.encoding)
    try:
        opened = open_archive(
            io.BytesIO(archive.whole), options, password=policy.password, limits=policy.limits
        )
    except RejectedError as error:
        return Result(error.finding.code)
    results = {member.index: _read_member(member) for member in opened.members()}
    return Result(None, results, frozenset(opened.warnings))


def _read_member(member: ArchiveMember) -> MemberResult:
    try:
        return extracted(member.name, member.read())
    except MemberError as error:
        return MemberResult(error.finding.code)


def name_files(archive: Archive, stem: str) -> dict[str, bytes]:
    """Return the files of an archive, last the one that names it: of pieces the first one."""
    if archive.piece:
        pieces = [(f"{stem}.zip.{n:03}", piece) for n, piece in enumerate(archive.parts, 1)]
        return dict(reversed(pieces))
    return dict(zip(part_names(stem, len(archive.parts)), archive.parts, strict=True))


def run_in_memory(archive: Archive, tuning: Tuning) -> Result:
    """Run an archive between buckets in memory, at the root of the destination."""
    world = World(tuning, policy=archive.policy)
    for source, part in name_files(archive, "in/archive").items():
        world.buckets.bucket("ingest").put(source, part, ObjectFacts("", {}), if_absent=False)
    policy = archive.policy
    read_by = {"lenient": policy.lenient, "encoding": policy.encoding}
    options = replace(archive.options, key_template="{member}", **read_by)
    report = world.run_request(Request(Location("s3", "ingest", source), OUT, options))
    if report.verdict is Verdict.REJECTED:
        assert (world.out.objects, world.out.pending) == ({}, {})
        return Result(report.reason)
    assert report.missing == 0
    members: dict[int, MemberResult] = {}
    for _, outcome in world.records(report.run).final_outcomes():
        if outcome.status is Status.FAILED:
            members[outcome.index] = MemberResult(outcome.reason)
        else:
            members[outcome.index] = extracted(outcome.key, world.out.objects[outcome.key].body)
    good = {member.key for member in members.values() if member.code is None}
    assert (set(world.out.objects), world.out.pending) == (good, {})
    nested = list(world.machine.run_nested(report)) if options.nested_depth else ()
    return Result(
        None, members, {run.reason for run in nested if run.reason}.union(report.warnings)
    )


WAYS: dict[str, Callable[[Archive], Result]] = {
    "core": read_in_core,
    "core, cut": partial(read_in_core, step=13),
    "core, byte by byte": partial(read_in_core, step=1),
    "members": read_by_members,
    "batches": partial(run_in_memory, tuning=Tuning()),
    "streams": partial(run_in_memory, tuning=STREAMED),
    "splits": partial(run_in_memory, tuning=TINY),
}
BY_PLANNER = {"part-missing", "part-wrong", "too-many-parts"}


def has_large_member(archive: Archive) -> bool:
    """Return whether a member is large at small limits."""
    return any(len(member.content) >= TINY.small_member for member in archive.members)


def ways_of(archive: Archive) -> list[str]:
    """Return the ways of an archive: the core is told of no parts, nor is a reader of one file."""
    is_read_alone = archive.options == Options() and archive.rejected not in BY_PLANNER
    is_quick = not archive.is_large
    possible = {
        "core": is_read_alone,
        "core, cut": is_read_alone and is_quick,
        "core, byte by byte": is_read_alone and is_quick and len(archive.whole) < 1_000,
        "members": is_read_alone and is_quick and not archive.sizes,
        "batches": is_quick,
        "streams": is_quick,
        "splits": is_quick and has_large_member(archive),
    }
    return [way for way in WAYS if possible[way]]


def differing_ways(archive: Archive) -> dict[str, Result]:
    """Return what the ways give that do not give the label."""
    results = {way: WAYS[way](archive) for way in ways_of(archive)}
    return {way: result for way, result in results.items() if result != archive.expected}


def run_command(archives: Sequence[Archive], folder: Path, tuning: str) -> list[Result]:
    """Run `s3unzip run` for archives that need the same options, into a folder."""
    program = Program(folder)
    program.variables["S3UNZIP_TUNING"] = tuning
    policy = archives[0].policy
    words = ["--json"] + ["--lenient"] * policy.lenient
    words += ["--encoding", policy.encoding] if policy.encoding else []
    program.variables["S3UNZIP_PASSWORD"] = (policy.password or b"").decode()
    for number, archive in enumerate(archives):
        for source, part in name_files(archive, f"{number}").items():
            (folder / source).write_bytes(part)
        words.append(source)
    ends = program.extract(*words, "out").lines[0]["archives"]
    return [
        _read_end(archive, end["report"], program.files(f"out/{number}"))
        for number, (archive, end) in enumerate(zip(archives, ends, strict=True))
    ]


def _read_end(archive: Archive, report: dict[str, Any], files: dict[str, bytes]) -> Result:
    if report["verdict"] == "REJECTED":
        assert files == {}
        return Result(report["reason"])
    members = {
        failure["index"]: MemberResult(failure["reason"]) for failure in report.get("failures", ())
    }
    numbers = {result.key: number for number, result in archive.in_folder.members.items()}
    members |= {numbers.get(key, -1): extracted(key, files[key]) for key in files}
    return Result(None, members, frozenset(report.get("warnings", ())))
