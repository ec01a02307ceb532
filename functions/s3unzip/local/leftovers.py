"""What killed runs of the same archive left at the destination, whatever their options were.

A run's id is made of its options, too. A run that was killed and is begun
again with other options is another run, which knows nothing of the uploads
that the first one left. On one machine all runs are kept below one folder, so
a new run looks there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from s3unzip import run_files
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.local.locking import lock_run
from s3unzip.objects.upload_registry import abort_run
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import Run


def drop_leftovers(home: str, run: Run, context: Context) -> int:
    """Drop the uploads of other runs of `run`'s archive to its destination; return how many.

    A run that another process is doing is left alone: its uploads are not left over.

    Args:
        home: the folder that runs are kept below.
        run: the one that begins.
        context: of this process.

    Raises:
        StorageError, ServiceFaultError: the destination refuses to list or to drop uploads.
    """
    dropped = 0
    for records in sorted(Path(home, "runs").glob(f"*/{run_files.UPLOADS}")):
        name = records.parent.name
        if name != run.id and any(records.iterdir()):
            dropped += _drop_of(home, name, run, context)
    return dropped


def _drop_of(home: str, name: str, run: Run, context: Context) -> int:
    try:
        other = RunRecords.open(context.stores, name).read_run()
    except (NotFoundError, UsageError):  # of a version that wrote other records
        return 0
    if (other.source.public, other.destination) != (run.source.public, run.destination):
        return 0
    try:
        with lock_run(home, name):
            return abort_run(other, context)
    except UsageError:
        return 0
