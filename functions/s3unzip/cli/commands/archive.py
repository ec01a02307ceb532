"""Commands on an archive, nothing written: ``ls``, ``cat``."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli.options import archive as o
from s3unzip.cli.options.connections import SourceConnection
from s3unzip.cli.options.groups import with_groups
from s3unzip.cli.terminal.figures import printable_name
from s3unzip.errors import UsageError
from s3unzip.local.clock import LocalClock
from s3unzip.model import Location, Request
from s3unzip.stores.locations import parse_source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip.context import Context
    from s3unzip.preview import Listed
    from s3unzip.stores.factory import StoreConfig


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("ls")(with_groups(list_members))
    app.command("cat")(with_groups(print_member))


def list_members(
    source: o.Source,
    selection: o.Selection,
    reading: o.Reading,
    connection: SourceConnection,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object a member.")] = False,
) -> int:
    """List an archive's members; reads only its directory."""
    from s3unzip.preview import resolve_listing

    request = preview_request(source, selection, reading)
    listing = resolve_listing(request, make_context(connection.config(), reading))
    if json_lines:
        for member in listing.members:
            sys.stdout.write(json.dumps(_as_json(member), ensure_ascii=False) + "\n")
        return 1 if listing.failed else 0
    _print_table(listing.members)
    return 1 if listing.failed else 0


def print_member(
    source: o.Source,
    member: Annotated[
        str, typer.Argument(metavar="MEMBER", help="The member's name, as ls shows.")
    ],
    reading: o.Reading,
    connection: SourceConnection,
) -> int:
    """Write one member to stdout, checked; reads only its range."""
    from s3unzip.preview import read_member

    request = preview_request(source, o.Selection(member=[member]), reading)
    context = make_context(connection.config(), reading)
    if sys.stdout.isatty() and member.lower().endswith((".zip", ".gz", ".png", ".jpg", ".exe")):
        raise UsageError(f"{member}: not text; redirect it: s3unzip cat ... > file")
    for piece in read_member(request, member, context):
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


def _as_json(member: Listed) -> dict[str, object]:
    from s3unzip.zipformat.methods import name_method

    row: dict[str, object] = {
        "name": member.path,
        "size": member.size,
        "compressed_size": member.compressed_size,
    }
    if member.problem is not None:
        return row | {"problem": member.problem.code, "message": member.problem.message}
    return row | {
        "method": name_method(member.method),
        "crc32": f"{member.crc32:08x}",
        "mtime": member.mtime,
        "offset": member.offset,
    }


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
