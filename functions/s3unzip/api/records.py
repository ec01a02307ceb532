"""What earlier runs of this machine wrote, from their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.model import OnConflict
from s3unzip.runs.records import RunRecords
from s3unzip.runs.written import read_written
from s3unzip.stores.home import runs_of_archive

if TYPE_CHECKING:
    from s3unzip.model import Location, Request
    from s3unzip.runs.written import WrittenObjects
    from s3unzip.stores.ports import Stores


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
