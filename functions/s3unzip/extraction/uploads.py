"""The multipart upload of one large member: begin, complete, abort.

Rules:

* No byte of a member is visible before `complete_once`.
* Whoever begins an upload completes it or aborts it. Settling (`abort_uploads`) and the bucket's
  lifecycle rule abort the uploads that a crash leaves.
* Another process may abort an upload at any time: then its calls raise `UploadGoneError`, and the
  task begins a new one. Runs on one machine note their uploads, and spare those of other runs.
* The answer to a Complete may be lost. A later try then learns that there is no such upload, and
  the object under the key decides whether the member is written.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from os.path import commonprefix
from typing import TypeVar

from s3unzip import errors
from s3unzip.extraction.comparison import is_member
from s3unzip.extraction.conflicts import explain_refusal
from s3unzip.extraction.forms import stored_size
from s3unzip.extraction.metadata import object_metadata
from s3unzip.model import OnConflict, Part, PlannedMember
from s3unzip.runs.step import Step, TaskAttempt
from s3unzip.stores.ports import Upload

T = TypeVar("T")


class UploadGoneError(errors.ServiceFaultError):
    """The upload was aborted elsewhere: the task begins another one."""

    def __init__(self, error: errors.NotFoundError) -> None:
        super().__init__(f"{error}; the upload was dropped by somebody else")


class CopyRefusedError(errors.StorageError):
    """The store does not copy a member: it is streamed instead."""


def number_tries(call: Callable[[int], T]) -> Callable[[], T]:
    """Return a call for `Calls` that passes the number of the try, from 1, to `call`."""
    numbers = itertools.count(1)
    return lambda: call(next(numbers))


def begin_upload(run_step: Step, row: PlannedMember) -> Upload:
    """Begin the upload of a member."""
    facts = object_metadata(row.key, row.member, run_step.run)
    upload_id = run_step.calls.run(
        "create", lambda: run_step.destination.create_upload(row.key, facts)
    )
    if run_step.context.uploads is not None:
        run_step.context.uploads.note(upload_id, run_step.run.id)
    return Upload(row.key, upload_id)


@contextmanager
def filling(run_step: Step, row: PlannedMember) -> Iterator[Upload]:
    """Begin the upload of a member; abort it if the block that fills it raises an error."""
    upload = begin_upload(run_step, row)
    try:
        yield upload
    except (errors.MemberError, CopyRefusedError):
        abort_upload(run_step, upload)
        raise
    except BaseException:
        abort_quietly(run_step, upload)
        raise


def finish_upload(
    attempt: TaskAttempt, row: PlannedMember, upload: Upload, parts: tuple[Part, ...]
) -> None:
    """Make the member visible and note it."""
    clock = attempt.context.clock
    started = clock.now()
    try:
        etag = complete_once(attempt, row, upload, parts)
    except errors.NotFoundError as gone:
        raise UploadGoneError(gone) from gone
    except errors.ConflictError:
        abort_upload(attempt, upload)
        attempt.note(row, explain_refusal(row, attempt))
        return
    size = stored_size(row.member, attempt.run.options)
    attempt.extracted(row, clock.now() - started, size, etag)


def complete_once(
    run_step: Step, row: PlannedMember, upload: Upload, parts: tuple[Part, ...]
) -> str | None:
    """Complete an upload; if the answer to an earlier try was lost, look at the object.

    Returns:
        The object's ETag without quotes; None if the answer that had it was lost.
    """
    options = run_step.run.options
    destination = run_step.destination
    if_absent = options.on_conflict is OnConflict.NEVER

    def complete(number: int) -> str | None:
        try:
            return destination.complete_upload(upload, parts, if_absent=if_absent)
        except (errors.NotFoundError, errors.UnconfirmedError) as error:
            may_be_done = number > 1 or isinstance(error, errors.UnconfirmedError)
            if may_be_done and is_member(row, options, destination, run_step.calls):
                return None
            raise

    etag = run_step.calls.run("complete", number_tries(complete))
    _forget(run_step, upload)
    return etag


def abort_quietly(run_step: Step, upload: Upload) -> None:
    """Abort the upload while another error is raised; if that fails, a lifecycle rule does it."""
    run_step.calls.count("abort")
    with suppress(errors.S3UnzipError):
        run_step.destination.abort_upload(upload)
        _forget(run_step, upload)


def abort_upload(run_step: Step, upload: Upload) -> None:
    """Abort an upload, and drop its parts."""
    run_step.calls.run("abort", lambda: run_step.destination.abort_upload(upload))
    _forget(run_step, upload)


def _forget(run_step: Step, upload: Upload) -> None:
    """Remove the note of an upload that is complete or aborted."""
    if run_step.context.uploads is not None:
        run_step.context.uploads.forget(upload.upload_id)


def abort_uploads(run_step: Step, keys: Iterable[str], spared: Collection[str] = ()) -> int:
    """Abort the uploads of `keys`, except those with the ids `spared`; return their number.

    An upload of another run that is at work stays, if this machine has a note of it.
    """
    keys = set(keys)
    if not keys:
        return 0
    notes = run_step.context.uploads

    def is_abandoned(upload: Upload) -> bool:
        if upload.key not in keys or upload.upload_id in spared:
            return False
        return notes is None or not notes.is_of_another(upload.upload_id, run_step.run.id)

    def list_abandoned() -> list[Upload]:
        # MinIO lists the uploads of a whole key, and none of a prefix.
        prefix = commonprefix(list(keys))  # noqa: RUF071 - keys are no paths
        return list(filter(is_abandoned, run_step.destination.uploads(prefix)))

    uploads = run_step.calls.run("list", list_abandoned)
    for upload in uploads:
        abort_upload(run_step, upload)
    return len(uploads)
