"""Commands on an archive that write nothing: ``ls``, ``cat``, ``test``, ``plan``, ``verify``."""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct
from msgspec.structs import replace

import s3unzip
from s3unzip import Archive, ArchiveMember
from s3unzip.api.options import judge_selection, make_policy
from s3unzip.cli.arguments import Arguments, globs_of
from s3unzip.cli.commands import MEMBERS, ODD, PLACES, SOURCE, WHERE, command
from s3unzip.cli.decisions import asking_for_a_prefix
from s3unzip.cli.printing import print_json, warn
from s3unzip.errors import UsageError
from s3unzip.explanations import describe
from s3unzip.figures import show_count, show_seconds, show_time
from s3unzip.globs import compile_name
from s3unzip.model import Location, Request, encode
from s3unzip.printable import printable, printable_name
from s3unzip.runs.records import RunRecords
from s3unzip.stores.locations import parse_destination, parse_source

if TYPE_CHECKING:
    from s3unzip.verification import Verification

NOT_TEXT = (".zip", ".gz", ".png", ".jpg", ".exe")
COUNTED = {
    "missing": "missing",
    "size": "of another size",
    "crc": "of other content",
    "no-crc": "without zip-crc32",
    "extra": "extra",
}
SAID = {
    "record": "by the store: the ETag is the one that it gave a run for the member's bytes",
    "checksum": "by the store: its own CRC-32 of the object",
    "read": "by this verify: it read the objects",
    "metadata": "by their writer: the zip-crc32 that stands beside the objects",
    "size": "by their size only: the archive does not tell the CRC-32",
}


class ListedMember(Struct, frozen=True, omit_defaults=True):
    """One line of ``s3unzip ls --json``."""

    name: str
    size: int  # uncompressed bytes
    compressed_size: int
    method: str | None = None
    crc32: str | None = None  # 8 hex digits
    mtime: int | None = None  # Unix seconds
    offset: int | None = None  # of the local header in the archive
    problem: str | None = None  # code of the check that refuses the member
    message: str | None = None  # what was found, in words


def _open(arguments: Arguments) -> Archive:
    """Return the archive of a command."""
    where = parse_source(arguments.src)
    arguments.check_places(where)
    with asking_for_a_prefix(where):
        return s3unzip.open_archive(
            arguments.src,
            arguments.options(),
            password=arguments.password(),
            stores=arguments.config(),
            warn=warn,
        )


@command(
    *("src names", MEMBERS, ODD, SOURCE, "json"),
    names={"metavar": "[MEMBER]...", "help": "Only these: names, folders/ or globs."},
)
def ls(arguments: Arguments) -> int:
    """List an archive's members; reads only its directory."""
    archive = _open(arguments)
    if arguments.json:
        for member in archive.members():
            print_json(_describe(member))
    else:
        refused = _print_members(archive.members())
        sys.stdout.flush()
        from s3unzip.cli.output import print_reasons

        print_reasons(refused, archive.warnings)
    return 1 if archive.refused else 0


def _describe(member: ArchiveMember) -> ListedMember:
    sizes, problem = (member.name, member.size, member.compressed_size), member.problem
    if problem is not None:
        words = describe(problem.code, problem.message)
        return ListedMember(*sizes, problem=problem.code, message=words)
    method, crc32 = member.method, f"{member.crc32:08x}"
    return ListedMember(*sizes, method, crc32, member.mtime, member.offset)


def _print_members(members: Iterable[ArchiveMember]) -> Counter[str]:
    """Print a table as ``unzip -v`` does; return how many members each code refuses."""
    refused = Counter[str]()
    write = sys.stdout.write
    write("  Length   Method       Size  Cmpr    Date    Time   CRC-32   Name\n")
    write("--------  -------- --------- ---- ---------- ----- --------  ----\n")
    count = size = compressed = 0
    for member in members:
        count += 1
        name = printable_name(member.name)
        if member.problem is not None:
            refused[member.problem.code] += 1
            write(f"{member.size:8}  {'refused':8} {member.compressed_size:9} {'':4} ")
            write(f"{'':10} {'':5} {'':8}  {name}  [{member.problem.code}]\n")
            continue
        size += member.size
        compressed += member.compressed_size
        mtime = member.mtime
        when = show_time(mtime) if mtime is not None else ""
        write(
            f"{member.size:8}  {member.method:8} {member.compressed_size:9} "
            f"{_saved(member.size, member.compressed_size):4} "
            f"{when:16} {member.crc32:08x}  {name}\n"
        )
    write("--------           --------- ----                            ----\n")
    files = f"{count} file" + ("" if count == 1 else "s")
    write(f"{size:8}           {compressed:9} {_saved(size, compressed):4}{'':28}{files}\n")
    return refused


def _saved(size: int, compressed: int) -> str:
    """Return the share of a size that compression saved: nothing where the data grew."""
    saved = max(0, size - compressed)
    return f"{100 * saved // max(1, size):3}%"


@command("src names", ODD, SOURCE, names={"required": True})
def cat(arguments: Arguments) -> int:
    """Write members to stdout, checked; reads only their ranges."""
    archive = _open(arguments)
    if sys.stdout.isatty() and any(name.lower().endswith(NOT_TEXT) for name in arguments.names):
        raise UsageError(f"{arguments.names[0]}: not text; redirect it: s3unzip cat ... > file")
    patterns = [compile_name(pattern) for pattern in globs_of(arguments.names)]

    def place(member: ArchiveMember) -> int:
        fits = (at for at, pattern in enumerate(patterns) if pattern.match(member.name))
        return next(fits, 0)

    # In the order of the globs, and of the directory within one. A refused member raises here,
    # before the first byte is written.
    contents = [member.stream() for member in sorted(archive.members(), key=place)]
    for content in contents:
        for piece in content:
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return 0


@command("src workers", MEMBERS, ODD, SOURCE, "quiet json")
def test(arguments: Arguments) -> int:
    """Decode every member and check its CRC-32; nothing is written.

    It makes the checks of a run, with as many processes, and keeps no record.

    Exit code: 0 all members are sound, 1 some are not, 3 archive rejected.
    """
    from s3unzip.cli.output import RunDisplay, print_test
    from s3unzip.local.machine import open_machine
    from s3unzip.stores.memory import NOWHERE

    where, options = (
        parse_source(arguments.src),
        replace(arguments.options(), key_template="{member}"),
    )
    arguments.check_places(where)
    policy = make_policy(options, arguments.password(), NOWHERE)
    display = RunDisplay(quiet=arguments.quiet)
    with tempfile.TemporaryDirectory(prefix="s3unzip-test-") as home:
        stores = replace(arguments.config(), work=Location("file", "", f"{home}/"))
        tuning = arguments.tuning()
        with (
            open_machine(stores, policy, tuning, arguments.processes, display) as machine,
            display,
            asking_for_a_prefix(where),
        ):
            report = machine.run(
                Request(where, NOWHERE, options),
                judge_selection(options, warn),
                lambda plan: display.planned(plan.summary),
            )
    if arguments.json:
        print_json(report)
    if not arguments.quiet:
        print_test(report)
    return report.verdict.exit_code


@command(
    *("src dest", MEMBERS, WHERE, "as_gzip", ODD, PLACES, "dest_no_sign_request"),
    "deep no_records env listed at_once objects json",
    dest={"required": True, "help": "Where members went: s3://bucket/prefix or a folder."},
)
def verify(arguments: Arguments) -> int:
    """Compare the objects in DEST with the archive.

    An object in S3 is not read if it is still the one that a run of this machine, or of the
    environment, wrote. For other objects S3 returns its checksum or the CRC-32 from the writer.

    Exit code: 0 all equal, 1 something is missing, different or extra.
    """
    from s3unzip.cli.output import VERIFYING, RunDisplay

    where = parse_source(arguments.src)
    arguments.check_places(where, parse_destination(arguments.dest))
    config, wanted = arguments.config(), arguments.objects
    records: Iterable[RunRecords] | None = () if arguments.no_records else None  # of this machine
    if arguments.env is not None and not arguments.no_records:
        runs = arguments.deployed()
        records = map(runs.records, runs.of_archive(where))
    try:
        file = Path(os.devnull if wanted is None else wanted).open("wb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"--objects {wanted}: {error.strerror}") from error
    with file, RunDisplay() as display:
        display.phase(VERIFYING)
        found = s3unzip.verify(
            arguments.src,
            arguments.dest,
            arguments.options(),
            deep=arguments.deep,
            records=records,
            at_once=arguments.at_once,
            max_listed=arguments.listed,
            each=None if wanted is None else lambda one: file.write(encode(one) + b"\n"),
            password=arguments.password(),
            stores=config,
            progress=display,
            warn=warn,
        )
    if arguments.json:
        print_json(found)
    else:
        print_verification(found, sys.stdout)
    return found.verdict.exit_code


def print_verification(found: "Verification", out: TextIO) -> None:
    """Print the verdict, the counts and the listed differences."""
    counts = "".join(f", {count:,} {COUNTED[kind]}" for kind, count in found.counts.items())
    rate = found.members / max(found.seconds, 0.001)
    out.write(
        f"{found.verdict}  {printable(f'{found.source} -> {found.destination}')}\n"
        f"  {show_count(found.members, 'member')}: {found.equal:,} equal{counts}\n"
    )
    if found.refused:
        out.write(f"  {found.refused:,} more are refused by the archive's directory: s3unzip ls\n")
    out.writelines(f"  {count:,} {SAID[proof]}\n" for proof, count in found.proofs.items())
    out.write(
        f"  in {show_seconds(found.seconds)}: {rate:,.0f} objects/s, "
        f"{found.requests.list:,} LIST, {found.requests.head:,} HEAD, {found.requests.get:,} GET\n"
    )
    for one in found.differences:
        ought = f"should be {one.expected}" if one.expected else ""
        detail = ", ".join(filter(None, (one.found, ought)))
        line = f"{one.kind:8} {printable_name(one.key)}{': ' if detail else ''}{detail}"
        out.write(f"  {line}\n")
    hidden = sum(found.counts.values()) - len(found.differences)
    if hidden:
        out.write(f"  and {hidden:,} more: --list {max(found.counts.values())} lists them all\n")
