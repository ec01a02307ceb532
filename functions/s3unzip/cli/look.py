"""Commands on an archive, nothing written: ``ls``, ``cat``, ``test``."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.cli.figures import print_json, printable_name, warn
from s3unzip.cli.options import (
    Power,
    Reading,
    Selection,
    SourceConnection,
    argument,
    globs_of,
    json,
    option,
    quiet,
    source,
)
from s3unzip.cli.run import asking_for_a_prefix
from s3unzip.errors import UsageError
from s3unzip.model import Location, Options, Request
from s3unzip.stores.locations import parse_source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip import Archive, ArchiveMember

NOT_TEXT = (".zip", ".gz", ".png", ".jpg", ".exe")


@dataclass(frozen=True)
class Opening(Reading, SourceConnection):
    """Opens an archive."""

    src: str = source()

    def open(self) -> Archive:
        """Return the archive.

        Raises:
            UsageError: an option does not fit the archive's place.
        """
        import s3unzip

        where = parse_source(self.src)
        self.check_source(where)
        with asking_for_a_prefix(where):
            return s3unzip.open_archive(
                self.src,
                self.options(),
                password=self.read_password(),
                stores=self.config(),
                warn=warn,
            )


@dataclass(frozen=True)
class List(Selection, Opening):
    """List an archive's members; reads only its directory."""

    names: tuple[str, ...] = argument(
        "[MEMBER]...", nargs=-1, help="Only these: names, folders/ or globs."
    )
    json: bool = option("--json", default=False, help="One JSON object a member.")

    def options(self) -> Options:
        """Return the options of a run."""
        made = super().options()
        return replace(made, include=globs_of(self.names) + made.include)

    def act(self) -> int:
        """Print a line for each member; return 1 if some are refused."""
        from s3unzip.cli.output import print_reasons

        archive = self.open()
        if self.json:
            for member in archive.members():
                print_json(_describe(member))
        else:
            _print_table(archive.members())
            sys.stdout.flush()
            if archive.refused:
                print_reasons(
                    Counter(member.problem.code for member in archive.members() if member.problem)
                )
        return 1 if archive.refused else 0


@dataclass(frozen=True)
class Cat(Opening):
    """Write members to stdout, checked; reads only their ranges."""

    names: tuple[str, ...] = argument(
        "MEMBER...", nargs=-1, required=True, help="Names as ls shows them, folders/ or globs."
    )

    def options(self) -> Options:
        """Return the options of a run."""
        return replace(super().options(), include=globs_of(self.names))

    def act(self) -> int:
        """Write the members."""
        archive = self.open()
        if sys.stdout.isatty() and any(name.lower().endswith(NOT_TEXT) for name in self.names):
            raise UsageError(f"{self.names[0]}: not text; redirect it: s3unzip cat ... > file")
        # A refused member raises here, before the first byte is written.
        contents = [member.stream() for member in self._in_order_of_globs(archive)]
        for content in contents:
            for piece in content:
                sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return 0

    def _in_order_of_globs(self, archive: Archive) -> list[ArchiveMember]:
        """Return members in the order of the globs, and of the directory within one glob."""
        from s3unzip.planning.select import compile_glob

        patterns = [compile_glob(pattern) for pattern in globs_of(self.names)]

        def place(member: ArchiveMember) -> int:
            fits = (at for at, pattern in enumerate(patterns) if pattern.match(member.name))
            return next(fits, 0)

        return sorted(archive.members(), key=place)


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


def _describe(member: ArchiveMember) -> ListedMember:
    from s3unzip.explanations import describe

    sizes = member.name, member.size, member.compressed_size
    problem = member.problem
    if problem is not None:
        words = describe(problem.code, problem.message)
        return ListedMember(*sizes, problem=problem.code, message=words)
    method, crc32 = member.method, f"{member.crc32:08x}"
    return ListedMember(*sizes, method, crc32, member.mtime, member.offset)


def _print_table(members: Iterable[ArchiveMember]) -> None:
    write = sys.stdout.write
    write("  Length   Method       Size  Cmpr    Date    Time   CRC-32   Name\n")
    write("--------  -------- --------- ---- ---------- ----- --------  ----\n")
    count = size = compressed = 0
    for member in members:
        count += 1
        name = printable_name(member.name)
        if member.problem is not None:
            write(f"{member.size:8}  {'refused':8} {member.compressed_size:9} {'':4} ")
            write(f"{'':10} {'':5} {'':8}  {name}  [{member.problem.code}]\n")
            continue
        size += member.size
        compressed += member.compressed_size
        when = (
            ""
            if member.mtime is None
            else f"{datetime.fromtimestamp(member.mtime, UTC):%Y-%m-%d %H:%M}"
        )
        write(
            f"{member.size:8}  {member.method:8} {member.compressed_size:9} "
            f"{_saved(member.size, member.compressed_size):4} "
            f"{when:16} {member.crc32:08x}  {name}\n"
        )
    write("--------           --------- ----                            ----\n")
    files = f"{count} file" + ("" if count == 1 else "s")
    write(f"{size:8}           {compressed:9} {_saved(size, compressed):4}{'':28}{files}\n")


def _saved(size: int, compressed: int) -> str:
    return f"{100 * (size - compressed) // size if size else 0:3}%"


@dataclass(frozen=True)
class Test(Selection, Reading, SourceConnection, Power):
    """Decode every member and check its CRC-32; nothing is written.

    It makes the checks of a run, with as many processes, and keeps no record.

    Exit code: 0 all members are sound, 1 some are not, 3 archive rejected.
    """

    src: str = source()
    quiet: bool = quiet()
    json: bool = json()

    def options(self) -> Options:
        """Return the options of a run."""
        return replace(super().options(), key_template="{member}")

    def act(self) -> int:
        """Do a run without a destination; return the exit code."""
        from s3unzip.api.options import judge_selection, make_policy
        from s3unzip.cli.output import print_test
        from s3unzip.cli.progress import RunDisplay
        from s3unzip.local.machine import Machine, Setup
        from s3unzip.stores.memory import NOWHERE

        where, options = parse_source(self.src), self.options()
        self.check_source(where)
        request = Request(where, NOWHERE, options)
        policy = make_policy(options, self.read_password(), NOWHERE)
        with tempfile.TemporaryDirectory(prefix="s3unzip-test-") as home:
            stores = replace(self.config(), work=Location("file", "", f"{home}/"))
            setup = Setup(stores, policy, self.tuning(self.processes), self.processes)
            display = RunDisplay(quiet=self.quiet)
            with (
                Machine(setup, where, NOWHERE, display) as machine,
                display,
                asking_for_a_prefix(where),
            ):
                report = machine.run(
                    request,
                    judge_selection(options, warn),
                    lambda plan: display.planned(plan.summary),
                )
        if self.json:
            print_json(report)
        if not self.quiet:
            print_test(report)
        return report.verdict.exit_code
