"""Look into an archive without extracting it.

>>> import io, zipfile
>>> import s3unzip
>>> file = io.BytesIO()
>>> with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
...     new.writestr("notes/today.txt", "Buy milk.")
>>> archive = s3unzip.open_archive(file)
>>> [(member.name, member.size, member.method) for member in archive]
[('notes/today.txt', 9, 'Defl')]
>>> archive.member("notes/today.txt").read()
b'Buy milk.'
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from s3unzip.api.members import Archive
from s3unzip.api.options import judge_selection, make_policy
from s3unzip.context import Context
from s3unzip.model import Options, Request
from s3unzip.planning.keys import PATHS
from s3unzip.planning.reading import read_directory, read_tail
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.stores.locations import parse_source
from s3unzip.stores.memory import ReaderSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.model import Location
    from s3unzip.stores.memory import BinaryReader
    from s3unzip.stores.ports import Source
    from s3unzip.zip import ByteRange, Limits


def open_archive(
    source: str | os.PathLike[str] | BinaryReader,
    options: Options | None = None,
    *,
    password: bytes | str | None = None,
    limits: Limits | None = None,
    stores: StoreConfig | None = None,
    warn: Callable[[str], object] | None = None,
) -> Archive:
    """Read the directory of an archive and check it; read no member yet.

    Args:
        source: ``s3://bucket/key``, a path, an ``http://`` or ``https://`` URL, or a binary reader
            that can seek. A reader stays open and belongs to the caller.
        options: `include`, `exclude`, `names` and `limit` select members. `lenient` and
            `encoding` say how the directory is read. The others are for `extract`.
        password: opens encrypted members. A string is used as UTF-8.
        limits: bounds on what an archive may ask for. None: the defaults.
        stores: how S3 and web servers are reached. None: the defaults of boto3.
        warn: takes a sentence for each glob that no member fits.

    Raises:
        RejectedError: the archive is not a ZIP, is broken, or has two meanings.
        NothingSelectedError: a name is no member's, or `options` select nothing.
        UsageError: `source` names no archive, or an option is wrong.
        StorageError: the archive cannot be read.
        ServiceFaultError: the store failed for now; a later call may succeed.
    """
    options = options or Options()
    context = Context(
        stores=open_stores(stores or StoreConfig()),
        clock=LocalClock(),
        policy=make_policy(options, password, limits=limits),
    )
    if isinstance(source, (str, os.PathLike)):
        location = parse_source(os.fspath(source))
        return open_in(context, context.stores.source(location), location, options, warn)
    reader = ReaderSource(source)
    return open_in(context, reader, reader.location, options, warn)


def open_in(
    context: Context,
    source: Source,
    location: Location,
    options: Options,
    warn: Callable[[str], object] | None = None,
) -> Archive:
    """Return the archive at `location` of `source`.

    Raises:
        RejectedError, NothingSelectedError, StorageError, ServiceFaultError: as `open_archive`.
    """
    calls = context.calls()
    tail = read_tail(source, location, context, calls)
    version = source.pinned(location, tail.pin)
    request = Request(location, location, options)
    reading = read_directory(version, tail, request, PATHS, context, calls)

    def read(want: ByteRange) -> bytes:
        return calls.run("get", lambda: version.read(want))

    judge_selection(options, warn)(reading)
    return Archive(location, reading, read, context)
