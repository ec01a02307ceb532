"""Multipart uploads on record: begun so that they can be found again, and dropped when left over.

A worker can be killed between any two requests. So the record of an upload is
written before the upload is begun, and once more with its id.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec import Struct

from s3unzip import run_files
from s3unzip.errors import NotFoundError
from s3unzip.model import decode, encode
from s3unzip.stores.ports import Upload

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import Run
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination, ObjectFacts, RunStore

READERS = 16  # records read at once


class UploadRecord(Struct, frozen=True, array_like=True):
    """``uploads/<owner>/<attempt>.json``; without an id, any upload of the key may be meant."""

    key: str
    upload_id: str | None = None


def begin_upload(
    owner: str, key: str, facts: ObjectFacts, destination: Destination, work: RunStore, calls: Calls
) -> Upload:
    """Begin an upload that settling finds, whatever becomes of this worker.

    Each attempt has a record of its own: a task may be done twice at once, and
    neither may drop the other's upload.
    """
    name = f"{run_files.uploads(owner)}{uuid4().hex[:12]}.json"
    attempts = 0

    def create() -> str:
        nonlocal attempts
        attempts += 1
        return destination.create_upload(key, facts)

    work.write(name, [encode(UploadRecord(key))])
    upload_id = calls.run("create", create)
    if attempts == 1:  # else an earlier one may have begun an upload whose id never came
        work.write(name, [encode(UploadRecord(key, upload_id))])
    return Upload(key, upload_id)


def abort_run(run: Run, context: Context) -> int:
    """Drop the incomplete uploads of a run; return how many there were.

    Members that are whole stay. A run that is redriven after it begins these
    uploads again.
    """
    calls = context.calls()
    return abort_leftovers(run, context.stores.run_store(run.id, calls), context, calls)


def abort_leftovers(run: Run, work: RunStore, context: Context, calls: Calls) -> int:
    """Drop what killed workers left of this run's uploads; return how many.

    Uploads of other runs to the same keys are theirs, and left alone.
    """
    destination = context.stores.destination(run.destination)
    names = list(work.names(run_files.UPLOADS))
    if not names:
        return 0
    found = calls.run("list", lambda: list(destination.uploads(run.key_prefix)))
    if not found:
        return 0
    keys, ids = _read_records(work, names)
    ours = [upload for upload in found if upload.key in keys or upload.upload_id in ids]
    for upload in ours:
        calls.run("abort", lambda upload=upload: destination.abort_upload(upload))  # type: ignore[misc]  # mypy cannot infer a lambda's default
    return len(ours)


def _read_records(work: RunStore, names: list[str]) -> tuple[set[str], set[str]]:
    """Return the keys of uploads whose ids are not known, and the ids that are."""

    def read(name: str) -> UploadRecord | None:
        try:
            return decode(work.read(name), UploadRecord)
        except NotFoundError:
            return None

    with ThreadPoolExecutor(READERS, thread_name_prefix="records") as pool:
        records = [record for record in pool.map(read, names) if record is not None]
    return (
        {record.key for record in records if record.upload_id is None},
        {record.upload_id for record in records if record.upload_id is not None},
    )
