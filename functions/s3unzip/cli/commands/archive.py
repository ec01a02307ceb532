"""Commands on an archive, nothing written: ``ls``, ``cat``."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from s3unzip.cli.options import archive as o
from s3unzip.cli.options.connections import SourceConnection
from s3unzip.cli.options.groups import with_groups
from s3unzip.cli.selecting import judge_selection
from s3unzip.cli.terminal.figures import printable_name
from s3unzip.errors import UsageError
from s3unzip.local.clock import LocalClock
from s3unzip.model import Location, Request, encode
from s3unzip.stores.locations import parse_source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip.context import Context
    from s3unzip.preview import Listed
    from s3unzip.stores.factory import StoreConfig

NOT_TEXT = (".zip", ".gz", ".png", ".jpg", ".exe")


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("ls")(with_groups(list_members))
    app.command("cat")(with_groups(print_members))


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
    from s3unzip.preview import resolve_listing

    request = preview_request(source, selection.with_members(members or []), reading)
    context = make_context(connection.config(), reading)
    listing = resolve_listing(request, context, judge_selection(request.options))
    if json:
        for member in listing.members:
            sys.stdout.write(encode(_describe(member)).decode() + "\n")
    else:
        _print_table(listing.members)
        sys.stdout.flush()
        print_reasons(Counter(failure.finding.code for failure in listing.failures))
    return 1 if listing.failures else 0


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
    from s3unzip.preview import read_members

    request = preview_request(source, o.Selection().with_members(members), reading)
    context = make_context(connection.config(), reading)
    if sys.stdout.isatty() and any(name.lower().endswith(NOT_TEXT) for name in members):
        raise UsageError(f"{members[0]}: not text; redirect it: s3unzip cat ... > file")
    for piece in read_members(request, context, judge_selection(request.options)):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    return 0


def preview_request(source: str, selection: o.Selection, reading: o.Reading) -> Request:
    """Return a request that reads `source` and writes nowhere."""
    options = o.make_options(selection, o.Layout(key_template="{member}"), reading)
    return Request(parse_source(source), Location("file", "", "/"), options)


def make_context(
    config: StoreConfig, reading: o.Reading, destination: Location | None = None
) -> Context:
    """Return a context of this process."""
    from s3unzip.context import Context
    from s3unzip.stores.factory import open_stores

    policy = reading.policy(destination)
    return Context(stores=open_stores(config), clock=LocalClock(), policy=policy)


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


def _describe(member: Listed) -> ListedMember:
    from s3unzip.explanations import describe
    from s3unzip.zipformat.methods import name_method

    sizes = member.path, member.size, member.compressed_size
    problem = member.problem
    if problem is not None:
        words = describe(problem.code, problem.message)
        return ListedMember(*sizes, problem=problem.code, message=words)
    method, crc32 = name_method(member.method), f"{member.crc32:08x}"
    return ListedMember(*sizes, method, crc32, member.mtime, member.offset)


def _print_table(members: Iterable[Listed]) -> None:
    from s3unzip.zipformat.methods import name_method

    write = sys.stdout.write
    write("  Length   Method       Size  Cmpr    Date    Time   CRC-32   Name\n")
    write("--------  -------- --------- ---- ---------- ----- --------  ----\n")
    count = size = compressed = 0
    for member in members:
        count += 1
        name = printable_name(member.path)
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
        method = name_method(member.method)
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
