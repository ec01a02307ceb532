"""Commands on an archive, nothing written: ``ls``, ``cat``."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from s3unzip.cli.options import archive_options as o
from s3unzip.cli.options.connections import SourceConnection
from s3unzip.cli.terminal.figures import printable_name
from s3unzip.cli.terminal.json_lines import print_json
from s3unzip.cli.terminal.warnings import warn
from s3unzip.errors import UsageError
from s3unzip.stores.locations import parse_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip import Archive, ArchiveMember

NOT_TEXT = (".zip", ".gz", ".png", ".jpg", ".exe")


def list_members(
    source: o.Source,
    selection: o.Selection,
    reading: o.Reading,
    connection: SourceConnection,
    members: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MEMBER]...", help="Only these: names, folders/ or globs."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a member.")] = False,
) -> int:
    """List an archive's members; reads only its directory."""
    from s3unzip.cli.terminal.output import print_reasons

    with _opened(source, selection.with_members(members or []), reading, connection) as archive:
        if json:
            for member in archive:
                print_json(_describe(member))
        else:
            _print_table(archive)
            sys.stdout.flush()
            if archive.refused:
                print_reasons(Counter(member.problem.code for member in archive if member.problem))
        return 1 if archive.refused else 0


def print_members(
    source: o.Source,
    members: Annotated[
        list[str],
        typer.Argument(metavar="MEMBER...", help="Names as ls shows them, folders/ or globs."),
    ],
    reading: o.Reading,
    connection: SourceConnection,
) -> int:
    """Write members to stdout, checked; reads only their ranges."""
    selection = o.Selection().with_members(members)
    with _opened(source, selection, reading, connection) as archive:
        if sys.stdout.isatty() and any(name.lower().endswith(NOT_TEXT) for name in members):
            raise UsageError(f"{members[0]}: not text; redirect it: s3unzip cat ... > file")
        # A refused member raises here, before the first byte is written.
        contents = [member.stream() for member in _in_order_of_globs(archive, selection)]
        for content in contents:
            for piece in content:
                sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return 0


@contextmanager
def _opened(
    source: str, selection: o.Selection, reading: o.Reading, connection: SourceConnection
) -> Iterator[Archive]:
    import s3unzip

    options, password = o.make_options(selection, o.Layout(), reading), reading.read()
    with connection.opened(parse_source(source)) as stores:
        yield s3unzip.open_archive(source, options, password=password, stores=stores, warn=warn)


def _in_order_of_globs(archive: Archive, selection: o.Selection) -> list[ArchiveMember]:
    """Return members in the order of the globs, and of the directory within one glob."""
    from s3unzip.planning.select import compile_glob

    patterns = [compile_glob(pattern) for pattern in selection.include or ()]

    def place(member: ArchiveMember) -> int:
        fits = (at for at, pattern in enumerate(patterns) if pattern.match(member.name))
        return next(fits, 0)

    return sorted(archive, key=place)


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
        method = member.method
        write(
            f"{member.size:8}  {method:8} {member.compressed_size:9} "
            f"{_saved(member.size, member.compressed_size):4} "
            f"{when:16} {member.crc32:08x}  {name}\n"
        )
    write("--------           --------- ----                            ----\n")
    files = f"{count} file" + ("" if count == 1 else "s")
    write(f"{size:8}           {compressed:9} {_saved(size, compressed):4}{'':28}{files}\n")


def _saved(size: int, compressed: int) -> str:
    return f"{100 * (size - compressed) // size if size else 0:3}%"
