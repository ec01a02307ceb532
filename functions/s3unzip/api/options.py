"""What options come to: the policy, a check of the selection, and what earlier runs wrote."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.errors import UsageError
from s3unzip.model import OnConflict
from s3unzip.planning.selection import check_selection
from s3unzip.runs.records import RunRecords
from s3unzip.runs.written import read_written
from s3unzip.stores.locations import runs_of_archive
from s3unzip.zip import Limits, Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.model import Location, Options, Request
    from s3unzip.planning.reading import Reading
    from s3unzip.runs.written import WrittenObjects
    from s3unzip.stores.ports import Stores


def judge_selection(
    options: Options, warn: Callable[[str], object] | None
) -> Callable[[Reading], None]:
    """Return a function that checks what was selected, and passes sentences to `warn`.

    The function raises `NothingSelectedError` if a name is no member's or nothing is selected.
    """

    def judge(reading: Reading) -> None:
        selected = len(reading.selected) + len(reading.failures)
        for sentence in check_selection(reading.unmatched, options, selected, reading.excluded):
            if warn is not None:
                warn(sentence)

    return judge


def make_policy(
    options: Options,
    password: bytes | str | None = None,
    destination: Location | None = None,
    limits: Limits | None = None,
) -> Policy:
    """Return the policy that `options` ask for.

    Args:
        options: `lenient` and `encoding` are used.
        password: opens encrypted members. A string is used as UTF-8.
        destination: a folder's own path does not count in the limit of keys.
        limits: None: the defaults.

    Raises:
        UsageError: Python does not know the encoding.
    """
    if options.encoding is not None:
        try:
            "".encode(options.encoding)
        except LookupError as error:
            raise UsageError(f"encoding {options.encoding!r} is unknown to Python") from error
    limits = limits or Limits()
    if destination is not None and destination.scheme == "file":
        folder_bytes = len(os.fsencode(destination.key))
        limits = replace(limits, key_bytes=limits.key_bytes + folder_bytes)
    secret = password.encode() if isinstance(password, str) else password
    return Policy(
        lenient=options.lenient, encoding=options.encoding, password=secret, limits=limits
    )


def read_local_records(home: Location, request: Request, stores: Stores) -> WrittenObjects:
    """Return what the runs below `home` wrote to the destination of `request`.

    Only runs of archives of the same name are read.
    """
    runs = runs_of_archive(home, request.source)
    return read_written((RunRecords.open(stores, run) for run in runs), request.destination)


def read_compared_records(
    home: Location, request: Request, stores: Stores
) -> WrittenObjects | None:
    """Return what `read_local_records` does; None if existing objects are overwritten anyway."""
    if request.options.on_conflict is OnConflict.OVERWRITE:
        return None
    return read_local_records(home, request, stores)
