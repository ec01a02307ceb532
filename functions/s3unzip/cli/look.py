"""Commands that only read: ``ls``, ``cat``, ``test``, ``verify``."""

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct
from msgspec.structs import replace

import s3unzip
from s3unzip import Archive, ArchiveMember
from s3unzip.cli.arguments import Arguments, globs_of, hint_at_prefix_if_missing
from s3unzip.cli.commands import (
    ARCHIVE_OPTIONS,
    KEY_OPTIONS,
    MEMBER_OPTIONS,
    SOURCE_OPTIONS,
    STORE_OPTIONS,
    command,
)
from s3unzip.cli.progress import VERIFYING, RunDisplay
from s3unzip.cli.terminal import print_json, text_stream, warn
from s3unzip.errors import UsageError
from s3unzip.explanations import describe
from s3unzip.globs import compile_name
from s3unzip.local.process_setup import yield_to_others
from s3unzip.model import Location, Request, encode
from s3unzip.printable import (
    choose_form,
    printable,
    printable_name,
    show_count,
    show_seconds,
    show_time,
)
from s3unzip.stores.config import parse_destination, parse_source
from s3unzip.stores.files import explaining

if TYPE_CHECKING:
    from s3unzip.runs.records import RunRecords

# Control characters, except those that text can contain: tabs, line ends, form feeds and ESC.
NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
DIFFERENCES = {
    "missing": "missing",
    "size": "with a different size",
    "crc": "with different content",
    "no-crc": "without zip-crc32",
    "extra": "extra",
}
PROOFS = {
    "record": "verified by the store: the ETag has not changed since a run wrote the member",
    "checksum": "verified by the store: the CRC-32 that the store computed is correct",
    "read": "verified by this command, which read the objects",
    "metadata": "verified by the writer of the objects: the zip-crc32 in their metadata is correct",
    "size": "compared by size only: the archive does not declare the CRC-32",
}


class ListedMember(Struct, frozen=True, omit_defaults=True):
    """One line of ``s3unzip ls --json``."""

    name: str
    size: int  # uncompressed bytes
    compressed_size: int
    method: str | None = None
    crc32: str | None = None  # 8 hex digits
    mtime: int | None = None  # Unix seconds
    offset: int | None = None  # byte offset of the local header in the archive
    problem: str | None = None  # code of the check that refuses the member
    message: str | None = None  # description of the problem


def _open_archive(arguments: Arguments) -> Archive:
    source = parse_source(arguments.src)
    arguments.check_locations(source)
    with hint_at_prefix_if_missing(source):
        return s3unzip.open_archive(
            arguments.src,
            arguments.options(),
            password=arguments.password(),
            stores=arguments.config(),
            warn=warn,
        )


@command(
    f"src names {MEMBER_OPTIONS} {ARCHIVE_OPTIONS} {SOURCE_OPTIONS} json",
    names={"metavar": "[MEMBER]...", "help": "List only these: names, folders/ or globs."},
)
def ls(arguments: Arguments) -> int:
    """List an archive's members; only its directory is read."""
    archive = _open_archive(arguments)
    if arguments.json:
        for member in archive.members():
            print_json(_list_member(member))  # a refused member is listed with its problem
    else:
        refused = _print_members(archive.members())
        sys.stdout.flush()
        from s3unzip.cli.output import print_findings

        print_findings(refused, archive.warnings)
    return int(archive.refused > 0)


def _list_member(member: ArchiveMember) -> ListedMember:
    """Return the JSON line for a member; refused members have only a name, sizes and a problem."""
    problem = member.problem
    if problem is not None:
        return ListedMember(
            member.name,
            member.size,
            member.compressed_size,
            problem=problem.code,
            message=describe(problem.code, problem.message),
        )
    return ListedMember(
        member.name,
        member.size,
        member.compressed_size,
        method=member.method,
        crc32=f"{member.crc32:08x}",
        mtime=member.mtime,
        offset=member.offset,
    )


def _print_members(members: Iterable[ArchiveMember]) -> Counter[str]:
    """Print a table like that of ``unzip -v``; return the number of refused members by reason."""
    refused = Counter[str]()
    sys.stdout.write("  Length   Method       Size  Cmpr    Date    Time   CRC-32   Name\n")
    sys.stdout.write("--------  -------- --------- ---- ---------- ----- --------  ----\n")
    count = 0
    size = 0  # `size` and `compressed` are totals of the members that are not refused
    compressed = 0
    for member in members:
        count += 1
        sys.stdout.write(_member_row(member))
        if member.problem is None:
            size += member.size
            compressed += member.compressed_size
        else:
            refused[member.problem.code] += 1
    sys.stdout.write("--------           --------- ----                            ----\n")
    sys.stdout.write(
        f"{size:8}           {compressed:9} {_saved_percent(size, compressed):4}{'':28}{count} "
        f"{choose_form(count, 'file', 'files')}\n"
    )
    return refused


def _member_row(member: ArchiveMember) -> str:
    """Return the row for a member; the row for a refused member ends with the problem's code."""
    name = printable_name(member.name)
    if member.problem is not None:
        return (
            f"{member.size:8}  {'refused':8} {member.compressed_size:9} {'':4} {'':16} {'':8}  "
            f"{name}  [{member.problem.code}]\n"
        )
    mtime = ""
    if member.mtime is not None:
        mtime = show_time(member.mtime)
    return (
        f"{member.size:8}  {member.method:8} {member.compressed_size:9} "
        f"{_saved_percent(member.size, member.compressed_size):4} "
        f"{mtime:16} {member.crc32:08x}  {name}\n"
    )


def _saved_percent(size: int, compressed: int) -> str:
    """Return the percentage of `size` that compression saved, or 0% for data that grew."""
    return f"{100 * max(0, size - compressed) // max(1, size):3}%"


@command(f"src names {ARCHIVE_OPTIONS} {SOURCE_OPTIONS}", names={"required": True})
def cat(arguments: Arguments) -> int:
    """Write members to stdout and check them; only their bytes are read."""
    archive = _open_archive(arguments)
    globs = [compile_name(glob) for glob in globs_of(arguments.names)]

    def first_match(member: ArchiveMember) -> int:
        """Return the index of the first glob that matches a member."""
        # A glob selected the member, so the default 0 is never used.
        return next((index for index, glob in enumerate(globs) if glob(member.name)), 0)

    # Members that match the same glob stay in the order of the directory.
    members = sorted(archive.members(), key=first_match)
    contents = [member.stream() for member in members]  # raises errors before any output
    is_terminal = sys.stdout.isatty()
    for member, content in zip(members, contents, strict=True):
        for data in content:
            if is_terminal and NOT_TEXT.search(data):
                raise UsageError(
                    f"{printable_name(member.name)}: not text; redirect it: s3unzip cat ... > file"
                )
            sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return 0


@command(f"src workers {MEMBER_OPTIONS} {ARCHIVE_OPTIONS} {SOURCE_OPTIONS} quiet json")
def test(arguments: Arguments) -> int:
    """Decode every member and check its CRC-32; nothing is written.

    Makes the same checks as a run, with as many processes, and keeps no record.

    Exit code: 0 all members are sound, 1 some are not, 3 archive rejected.
    """
    from s3unzip.cli.output import print_test
    from s3unzip.stores.open import NOWHERE

    source = parse_source(arguments.src)
    # The report names members by their keys, so the keys must be the names that `ls` shows.
    request = Request(source, NOWHERE, replace(arguments.options(), key_template="{member}"))
    arguments.check_locations(source)
    display = RunDisplay(quiet=arguments.quiet)
    with explaining("TMPDIR, the folder for temporary files"):
        folder = tempfile.TemporaryDirectory(prefix="s3unzip-test-")
    with (
        folder as home,
        arguments.open_machine(
            request,
            replace(arguments.config(), work=Location("file", "", f"{home}/")),
            arguments.password(),
            display,
        ) as machine,
        display,
        hint_at_prefix_if_missing(source),
    ):
        report = machine.run(request, display.planned, warn)
    if arguments.json:
        # The run counted a PUT for each decoded member, but none was sent.
        print_json(replace(report, requests=replace(report.requests, put=0)))
    if not arguments.quiet:
        print_test(report, text_stream(json=arguments.json))
    elif report.verdict.exit_code:
        print_test(report, sys.stderr)
    return report.verdict.exit_code


@command(
    f"src dest {MEMBER_OPTIONS} {KEY_OPTIONS} as_gzip {ARCHIVE_OPTIONS} {STORE_OPTIONS}"
    " dest_no_sign_request deep no_records env listed at_once objects json",
    dest={"required": True, "help": "Where members were written: s3://bucket/prefix or a folder."},
)
def verify(arguments: Arguments) -> int:
    """Compare the objects in DEST with the archive.

    An object in S3 that was written by a run on this machine, or in the environment, is read only
    if it has been replaced since. Other objects in S3 are compared by S3's own checksum or by the
    CRC-32 in their metadata.

    Exit code: 0 all equal, 1 something is missing, different or extra.
    """
    yield_to_others()  # so that the many threads do not slow down other processes
    source = parse_source(arguments.src)
    arguments.check_locations(source, parse_destination(arguments.dest))
    # The environment is looked up first: if it does not exist, the --objects file is not
    # overwritten.
    records: Iterable[RunRecords] | None = None  # None means the records of this machine
    if arguments.no_records:
        records = ()
    elif arguments.env is not None:
        runs = arguments.deployed()
        records = map(runs.records, runs.of_archive(source))
    with _open_objects_file(arguments.objects) as write_object, RunDisplay() as display:
        display.phase(VERIFYING)
        verification = s3unzip.verify(
            arguments.src,
            arguments.dest,
            arguments.options(),
            deep=arguments.deep,
            records=records,
            at_once=arguments.at_once,
            max_listed=arguments.listed,
            each=write_object,
            password=arguments.password(),
            stores=arguments.config(),
            progress=display,
            warn=warn,
        )
    if arguments.json:
        print_json(verification)
    else:
        print_verification(verification, sys.stdout)
    return verification.verdict.exit_code


@contextmanager
def _open_objects_file(name: str | None) -> Iterator[Callable[[object], object] | None]:
    """Yield a function that writes a value as JSON to the file `name`; None if `name` is None."""
    if name is None:
        yield None
        return
    try:
        file = Path(name).open("wb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"--objects {name}: {error.strerror}") from error
    with explaining(f"--objects {name}"), file:
        yield lambda compared: file.write(encode(compared) + b"\n")


def print_verification(verification: "s3unzip.Verification", out: TextIO) -> None:
    """Print the verdict, the counts and the listed differences."""
    counts = verification.counts
    differing = "".join(f", {count:,} {DIFFERENCES[kind]}" for kind, count in counts.items())
    prefix = verification.prefix
    # The prefix can end in the middle of a name, so print only its folder.
    folder = replace(verification.destination, key=prefix[: prefix.rfind("/") + 1])
    out.write(
        f"{verification.verdict}  {printable(f'{verification.source} -> {folder}')}\n"
        f"  {show_count(verification.members, 'member')}: {verification.equal:,} equal{differing}\n"
    )
    if verification.refused:
        out.write(
            f"  {verification.refused:,} refused, not compared; s3unzip run --dry-run shows why\n"
        )
    out.writelines(f"  {count:,} {PROOFS[proof]}\n" for proof, count in verification.proofs.items())
    requests = verification.requests
    out.write(
        f"  in {show_seconds(verification.seconds)}: "
        # The seconds are rounded, possibly to 0.
        f"{verification.members / max(verification.seconds, 0.001):,.0f} objects/s, "
        f"{requests.list:,} LIST, {requests.head:,} HEAD, {requests.get:,} GET\n"
    )
    for difference in verification.differences:
        facts = [("", difference.found), ("should be ", difference.expected)]
        text = ", ".join(f"{label}{fact}" for label, fact in facts if fact is not None)
        out.write(f"  {difference.kind:8} {printable_name(difference.key)}: {text}\n")
    not_listed = sum(counts.values()) - len(verification.differences)
    if not_listed:  # --list limits each kind separately, so the largest count is enough
        out.write(f"  and {not_listed:,} more: --list {max(counts.values())} lists them all\n")
