"""Create the folders that an archive lists, in a destination that is a folder."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from s3unzip.errors import S3UnzipError
from s3unzip.stores.folder import FolderDestination

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import Run
    from s3unzip.runs.records import RunRecords

_log = logging.getLogger("s3unzip.folders")

MAX_TOLD = 3  # folders that the warning names


def make_folders(run: Run, records: RunRecords, context: Context) -> None:
    """Create the archive's folders, those without files among them.

    The members come first: where a file has the name of a folder, the file stays and a warning
    is logged.
    """
    if run.destination.scheme != "file":
        return
    destination = context.stores.destination(run.destination)
    if not isinstance(destination, FolderDestination):
        return
    refused: list[str] = []
    for key in records.folders():
        try:
            destination.make_folder(key)
        except S3UnzipError as error:
            refused.append(str(error))
    if refused:
        _log.warning("folders not created: %d; %s", len(refused), "; ".join(refused[:MAX_TOLD]))
