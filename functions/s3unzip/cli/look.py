"""Commands that read an archive and write nothing: ``ls``, ``cat``, ``test``."""

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

import s3unzip
from s3unzip import Archive, ArchiveMember
from s3unzip.api.options import judge_selection, make_policy
from s3unzip.cli.arguments import Arguments, globs_of, suggesting_prefix
from s3unzip.cli.commands import MEMBER_OPTIONS, ODD, SOURCE_OPTIONS, command
from s3unzip.cli.terminal import print_json, warn
from s3unzip.errors import UsageError
from s3unzip.explanations import describe
from s3unzip.figures import choose_form, show_time
from s3unzip.globs import compile_name
from s3unzip.model import Location, Request
from s3unzip.printable import printable_name
from s3unzip.stores.locations import parse_source

# Control characters other than tabs, line ends, form feeds and ESC, which text may contain.
NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


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


def _open_archive(arguments: Arguments) -> Archive:
    source = parse_source(arguments.src)
    arguments.check_places(source)
    with suggesting_prefix(source):
        return s3unzip.open_archive(
            arguments.src,
            arguments.options(),
            password=arguments.password(),
            stores=arguments.config(),
            warn=warn,
        )


@command(
    *("src names", MEMBER_OPTIONS, ODD, SOURCE_OPTIONS, "json"),
    names={"metavar": "[MEMBER]...", "help": "Only these: names, folders/ or globs."},
)
def ls(arguments: Arguments) -> int:
    """List an archive's members; reads only its directory."""
    archive = _open_archive(arguments)
    if arguments.json:
        for member in archive.members():
            print_json(_list_member(member))
    else:
        refused = _print_members(archive.members())
        sys.stdout.flush()
        from s3unzip.cli.output import print_reasons

        print_reasons(refused, archive.warnings)
    return int(archive.refused > 0)


def _list_member(member: ArchiveMember) -> ListedMember:
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
    """Print a table as ``unzip -v`` does; return the number of refused members by reason."""
    refused = Counter[str]()
    write = sys.stdout.write
    write("  Length   Method       Size  Cmpr    Date    Time   CRC-32   Name\n")
    write("--------  -------- --------- ---- ---------- ----- --------  ----\n")
    count = 0
    size = 0  # of the members that are not refused, as `compressed`
    compressed = 0
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
        mtime = ""
        if member.mtime is not None:
            mtime = show_time(member.mtime)
        write(
            f"{member.size:8}  {member.method:8} {member.compressed_size:9} "
            f"{_saved_percent(member.size, member.compressed_size):4} "
            f"{mtime:16} {member.crc32:08x}  {name}\n"
        )
    write("--------           --------- ----                            ----\n")
    percent = _saved_percent(size, compressed)
    files = choose_form(count, "file", "files")
    write(f"{size:8}           {compressed:9} {percent:4}{'':28}{count} {files}\n")
    return refused


def _saved_percent(size: int, compressed: int) -> str:
    """Return the share of `size` that compression saved; data that grew shows 0 %."""
    saved = max(0, size - compressed)
    return f"{100 * saved // max(1, size):3}%"


@command("src names", ODD, SOURCE_OPTIONS, names={"required": True})
def cat(arguments: Arguments) -> int:
    """Write members to stdout, checked; reads only their ranges."""
    archive = _open_archive(arguments)
    globs = [compile_name(glob) for glob in globs_of(arguments.names)]

    def first_match(member: ArchiveMember) -> int:
        """Return the index of the first glob that matches a member."""
        return next((index for index, glob in enumerate(globs) if glob.match(member.name)), 0)

    # Members keep the directory's order where they match the same glob.
    members = sorted(archive.members(), key=first_match)
    contents = [member.stream() for member in members]  # a refused member raises before any output
    is_terminal = sys.stdout.isatty()
    for member, content in zip(members, contents, strict=True):
        for data in content:
            if is_terminal and NOT_TEXT.search(data):
                name = printable_name(member.name)
                raise UsageError(f"{name}: not text; redirect it: s3unzip cat ... > file")
            sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return 0


@command(*("src workers", MEMBER_OPTIONS, ODD, SOURCE_OPTIONS), "quiet json")
def test(arguments: Arguments) -> int:
    """Decode every member and check its CRC-32; nothing is written.

    Makes the same checks as a run, with as many processes, and keeps no record.

    Exit code: 0 all members are sound, 1 some are not, 3 archive rejected.
    """
    from s3unzip.cli.output import print_test
    from s3unzip.cli.progress import RunDisplay
    from s3unzip.local.machine import open_machine
    from s3unzip.stores.memory import NOWHERE

    source = parse_source(arguments.src)
    options = replace(arguments.options(), key_template="{member}")
    arguments.check_places(source)
    policy = make_policy(options, arguments.password(), NOWHERE)
    display = RunDisplay(quiet=arguments.quiet)
    with tempfile.TemporaryDirectory(prefix="s3unzip-test-") as home:
        stores = replace(arguments.config(), work=Location("file", "", f"{home}/"))
        tuning = arguments.tuning()
        with (
            open_machine(
                stores, policy, tuning, processes=arguments.processes, progress=display
            ) as machine,
            display,
            suggesting_prefix(source),
        ):
            report = machine.run(
                Request(source, NOWHERE, options),
                judge_selection(options, warn),
                lambda plan: display.planned(plan.summary),
            )
    if arguments.json:
        # The run counted a PUT for each decoded member, but none was sent.
        print_json(replace(report, requests=replace(report.requests, put=0)))
    if not arguments.quiet:
        print_test(report, sys.stderr if arguments.json else sys.stdout)
    elif report.verdict.exit_code:
        print_test(report, sys.stderr)
    return report.verdict.exit_code
