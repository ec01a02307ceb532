"""Aborts the uploads that killed runs of the same archive left at the destination.

A run's id depends on its options. If a run was killed and somebody starts it again with other
options, the second run has another id and no record of the first run's uploads. On one machine all
runs are below one folder, so a new run looks there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from s3unzip import run_files
from s3unzip.errors import UsageError
from s3unzip.local.locking import lock_run
from s3unzip.objects.upload_registry import abort_run
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import Run


def drop_leftovers(home: str, run: Run, context: Context) -> int:
    """Abort the uploads of other runs of `run`'s archive to its destination; return how many.

    Runs that another process works on are left alone, because their uploads are still in use.

    Args:
        home: the folder of all runs.
        run: the run that begins.
        context: of this process.

    Raises:
        StorageError, ServiceFaultError: the destination refuses to list or to abort uploads.
    """
    dropped = 0
    for records in sorted(Path(home, "runs").glob(f"*/{run_files.UPLOADS}")):
        name = records.parent.name
        if name != run.id and any(records.iterdir()):
            dropped += _drop_of(home, name, run, context)
    return dropped


def _drop_of(home: str, name: str, run: Run, context: Context) -> int:
    other = RunRecords.open(context.stores, name).find_run()
    if other is None:
        return 0
    if (other.source.public, other.destination) != (run.source.public, run.destination):
        return 0
    try:
        with lock_run(home, name):
            return abort_run(other, context)
    except UsageError:
        return 0
