"""Archives that are copied to a temporary file first: from a pipe, or a server without ranges."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.cli.terminal.warnings import warn
from s3unzip.errors import StorageError, UsageError
from s3unzip.stores.locations import STANDARD_INPUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.model import Location, Pin
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.stores.spool.file import Spool

PIECE = 1024**2


@contextmanager
def spooled(
    source: Location, config: StoreConfig, max_bytes: int, *, download: bool
) -> Iterator[StoreConfig]:
    """Yield stores that read `source` from a temporary file where it cannot be read in ranges.

    Args:
        source: the archive.
        config: how stores are reached.
        max_bytes: of the temporary file.
        download: whether a server without range requests may send the whole archive.

    Raises:
        UsageError: the archive is too large, or standard input is a terminal.
        StorageError: it cannot be read, or the file cannot be written.
        ServiceFaultError: the server failed.
    """
    from s3unzip.stores.spool.file import Spool

    if source == STANDARD_INPUT:
        _refuse_terminal()
        with Spool(str(source), max_bytes) as spool:
            _take_input(spool)
            yield replace(config, spooled=spool.finish(source))
    elif download and source.scheme in {"http", "https"}:
        with Spool(str(source), max_bytes) as spool:
            pin = _download(source, config, spool)
            kept = None if pin is None else spool.finish(source, pin.etag)
            yield replace(config, spooled=kept)
    else:
        yield config


def _refuse_terminal() -> None:
    if sys.stdin.isatty():
        raise UsageError("-: standard input is a terminal; pipe an archive into s3unzip")


def _take_input(spool: Spool) -> None:
    came = 0
    try:
        while piece := sys.stdin.buffer.read(PIECE):
            came += len(piece)
            spool.write(piece)
    except OSError as error:
        raise StorageError(f"standard input: {error.strerror}") from error
    if not came:
        raise UsageError("-: nothing came on standard input; pipe an archive into s3unzip")


def _download(source: Location, config: StoreConfig, spool: Spool) -> Pin | None:
    """Fill `spool` from a server without range requests; return None for any other server."""
    from s3unzip.settings import Tuning
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.clock import LocalClock
    from s3unzip.stores.web.source import WebSource

    web = WebSource(replace(config.web, check_reachable=config.check_reachable))

    def begin(size: int | None) -> None:
        spool.restart()
        if size is not None:
            spool.expect(size)
        shown = "" if size is None else f" ({size:,} bytes)"
        warn(f"{source}: the server answers no range requests; downloading all of it{shown}")

    calls = Calls(LocalClock(), Tuning().retry_seconds, 1)
    return calls.run("get", lambda: web.download(source, begin, spool.write))
