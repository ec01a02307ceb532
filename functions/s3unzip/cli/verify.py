"""``verify``: compare the objects of a destination with an archive."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from s3unzip.cli.figures import (
    print_json,
    printable_name,
    show_bytes,
    show_count,
    show_seconds,
    warn,
)
from s3unzip.cli.options import (
    DestinationConnection,
    Layout,
    Reading,
    Selection,
    argument,
    as_gzip,
    environment,
    json,
    option,
    source,
)
from s3unzip.errors import UsageError
from s3unzip.model import GzipForm, Options, encode
from s3unzip.stores.locations import parse_destination, parse_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import TextIO

    from s3unzip.model import Outcome
    from s3unzip.runs.records import RunRecords
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.verification import ComparedObject, Verification

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


@dataclass(frozen=True)
class Verify(Selection, Layout, Reading, DestinationConnection):
    """Compare the objects in DEST with the archive.

    An object in S3 is not read if it is still the one that a run of this machine, or of the
    environment, wrote. For other objects S3 returns its checksum or the CRC-32 from the writer.

    Exit code: 0 all equal, 1 something is missing, different or extra.
    """

    src: str = source()
    dest: str = argument("DEST", help="Where members went: s3://bucket/prefix or a folder.")
    as_gzip: str | None = as_gzip()
    deep: bool = option(
        "--deep", default=False, help="Read every object; trust no record and no stored CRC-32."
    )
    no_records: bool = option(
        "--no-records", default=False, help="Ignore what runs recorded of the objects."
    )
    env: str | None = environment()
    dest_no_sign_request: bool = option(
        "--dest-no-sign-request", default=False, help="Read a public DEST without credentials."
    )
    at_most: int = option(
        "--list",
        type=click.IntRange(min=0),
        default=20,
        help="Differences of each kind to list; all are counted.",
    )
    at_once: int = option(
        "--at-once",
        type=click.IntRange(1, 512),
        default=64,
        help="HEADs in flight; with --deep, GETs.",
    )
    objects: str | None = option(
        "--objects",
        metavar="FILE",
        help="Write a JSON line for each object: its key and what proves its content.",
    )
    json: bool = json()

    def options(self) -> Options:
        """Return the options of the run that is verified."""
        form = None if self.as_gzip is None else GzipForm(self.as_gzip)
        return replace(super().options(), as_gzip=form)

    def config(self) -> StoreConfig:
        """Return how stores are opened."""
        return replace(super().config(), destination_unsigned=self.dest_no_sign_request)

    def act(self) -> int:
        """Compare, and print what was found; return the exit code."""
        import s3unzip

        self.check_places(parse_source(self.src), parse_destination(self.dest))
        seen, config = _Seen(), self.config()
        with seen.shown(), _lines_to(self.objects) as each:
            found = s3unzip.verify(
                self.src,
                self.dest,
                self.options(),
                deep=self.deep,
                records=() if self.no_records else _records(self.src, self.env, config),
                at_once=self.at_once,
                max_listed=self.at_most,
                each=each,
                password=self.read_password(),
                stores=config,
                progress=seen,
                warn=warn,
            )
        if self.json:
            print_json(found)
        else:
            print_verification(found, sys.stdout)
        return found.verdict.exit_code


def _records(archive: str, env: str | None, config: StoreConfig) -> Iterator[RunRecords] | None:
    """Return the records of an environment's runs of the archive; None: those of this machine."""
    if env is None:
        return None
    from s3unzip.cli.runs import open_deployed

    runs = open_deployed(env, config)
    return (runs.records(run) for run in runs.of_archive(parse_source(archive)))


@contextmanager
def _lines_to(path: str | None) -> Iterator[Callable[[ComparedObject], object] | None]:
    """Open the file that takes a line an object.

    Raises:
        UsageError: it cannot be written.
    """
    if path is None:
        yield None
        return
    try:
        file = Path(path).open("wb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"--objects {path}: {error.strerror}") from error
    with file:
        yield lambda compared: file.write(encode(compared) + b"\n")


class _Seen:
    """Progress: one line on a terminal."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._started = time.monotonic()

    def finished(self, counts: Mapping[str, int]) -> None:
        """Take increments."""
        with self._lock:
            self._counts.update(counts)

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Do nothing: the differences are listed in the end."""

    def phase(self, name: str) -> None:
        """Do nothing: there is one."""

    def trouble(self, message: str) -> None:
        """Say it."""
        warn(message)

    def shown(self) -> AbstractContextManager[object]:
        """Return a context that shows the line, on a terminal only."""
        if not sys.stderr.isatty():
            return nullcontext()
        from rich.console import Console
        from rich.live import Live

        return Live(
            get_renderable=self._draw,
            console=Console(stderr=True, highlight=False),
            refresh_per_second=5,
            transient=True,
        )

    def _draw(self) -> str:
        with self._lock:
            counts = Counter(self._counts)
        if not counts:
            return "reading the central directory, listing the destination ..."
        rate = counts["extracted"] / max(0.001, time.monotonic() - self._started)
        read = f", {show_bytes(counts['bytes_read'])} read" if counts["bytes_read"] else ""
        return (
            f"{counts['extracted']:,} equal, {counts['failed']:,} not{read}, {rate:,.0f} objects/s"
        )


def print_verification(found: Verification, out: TextIO) -> None:
    """Print the verdict, the counts and the listed differences."""
    out.write(f"{found.verdict}  {found.source} -> {found.destination}\n")
    counts = "".join(f", {count:,} {COUNTED[kind]}" for kind, count in found.counts.items())
    out.write(f"  {show_count(found.members, 'member')}: {found.equal:,} equal{counts}\n")
    if found.refused:
        out.write(f"  {found.refused:,} more are refused by the archive's directory: s3unzip ls\n")
    out.writelines(f"  {count:,} {SAID[proof]}\n" for proof, count in found.proofs.items())
    rate = found.members / max(found.seconds, 0.001)
    out.write(
        f"  in {show_seconds(found.seconds)}: {rate:,.0f} objects/s, "
        f"{found.requests.list:,} LIST, {found.requests.head:,} HEAD, {found.requests.get:,} GET\n"
    )
    out.writelines(
        f"  {one.kind:8} {printable_name(one.key)}{_detail(one.expected, one.found)}\n"
        for one in found.differences
    )
    hidden = sum(found.counts.values()) - len(found.differences)
    if hidden:
        out.write(f"  and {hidden:,} more: --list {max(found.counts.values())} lists them all\n")


def _detail(expected: str | None, found: str | None) -> str:
    if expected and found:
        return f": {found}, should be {expected}"
    if expected:
        return f": should be {expected}"
    return f": {found}" if found else ""
