"""Records of multipart uploads, so that uploads of killed workers can be found and aborted.

A worker can be killed between any two requests. So a record is written before the upload begins,
and again with its id.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from s3unzip.model import UploadRecord
from s3unzip.runs.step import Step
from s3unzip.stores.ports import Upload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s3unzip.context import Context
    from s3unzip.model import Run
    from s3unzip.runs.records import RunRecords
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination, ObjectFacts


def begin_upload(step: Step, owner: str, key: str, facts: ObjectFacts) -> Upload:
    """Begin an upload on record: settling finds it even if this worker is killed."""
    upload, note_id = _create(step, owner, key, facts)
    note_id()
    return upload


def try_upload(step: Step, owner: str, key: str, facts: ObjectFacts) -> None:
    """Begin an upload on record and abort it, to see whether the destination takes any."""
    upload, note_id = _create(step, owner, key, facts)
    # The destination is asked in this thread: Ctrl-C ends a call that gets no answer.
    with ThreadPoolExecutor(1, thread_name_prefix="probe") as beside:
        noted = beside.submit(note_id)
        step.calls.run("abort", partial(step.destination.abort_upload, upload))
        noted.result()


def _create(
    step: Step, owner: str, key: str, facts: ObjectFacts
) -> tuple[Upload, Callable[[], object]]:
    """Begin an upload on record; return it, and what notes its id there."""
    attempts = 0

    def create() -> str:
        nonlocal attempts
        attempts += 1
        return step.destination.create_upload(key, facts)

    record = step.records.write_upload(owner, UploadRecord(key))
    upload_id = step.calls.run("create", create)

    def note_id() -> None:
        if attempts == 1:  # otherwise an earlier worker may have begun one whose id is unknown
            step.records.write_upload(owner, UploadRecord(key, upload_id), record)

    return Upload(key, upload_id), note_id


def abort_run(run: Run, context: Context, calls: Calls | None = None) -> int:
    """Drop the incomplete uploads of a run; return how many there were.

    Members that are whole stay. A run that is redriven after it begins these
    uploads again.
    """
    return abort_leftovers(Step(run, "abort", context, calls or context.calls()))


def abort_leftovers(step: Step) -> int:
    """Abort the uploads of this run that killed workers left; return how many.

    Uploads of other runs to the same keys are left alone.
    """
    names = step.records.list_uploads()
    if not names:
        return 0
    found = step.calls.run("list", partial(_list_uploads, step.destination, step.run.key_prefix))
    if not found:
        return 0
    return _abort(found, step.records.read_uploads(names), step.destination, step.calls)


def abort_probes(records: RunRecords, destination: Destination, calls: Calls) -> int:
    """Abort the uploads of a run that has no plan; return how many there were.

    A planner begins one upload, to try the destination, and may be killed before it aborts it.
    """
    names = records.list_uploads()
    if not names:
        return 0
    begun = records.read_uploads(names)
    keys = {record.key for record in begun}  # one, except if the archive was replaced
    found = [
        upload
        for key in sorted(keys)
        for upload in calls.run("list", partial(_list_uploads, destination, key))
    ]
    return _abort(found, begun, destination, calls)


def _list_uploads(destination: Destination, prefix: str) -> list[Upload]:
    return list(destination.uploads(prefix))


def _abort(
    found: Sequence[Upload],
    begun: Sequence[UploadRecord],
    destination: Destination,
    calls: Calls,
) -> int:
    """Abort those of `found` that are on record."""
    keys = {record.key for record in begun if record.upload_id is None}
    ids = {record.upload_id for record in begun}
    ours = [upload for upload in found if upload.key in keys or upload.upload_id in ids]
    for upload in ours:
        calls.run("abort", partial(destination.abort_upload, upload))
    return len(ours)
