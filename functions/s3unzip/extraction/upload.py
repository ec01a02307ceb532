"""The multipart upload of one large member: nothing is visible until all of it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip.errors import ConflictError, NotFoundError, S3UnzipError
from s3unzip.objects.conflict import explain_refusal, must_be_absent, resolve_conflict
from s3unzip.objects.existing import is_member
from s3unzip.objects.metadata import object_metadata
from s3unzip.objects.part_writer import upload_gone
from s3unzip.objects.stored import stored_size
from s3unzip.objects.upload_registry import begin_upload

if TYPE_CHECKING:
    from s3unzip.extraction.attempt import TaskAttempt
    from s3unzip.model import Part, PlannedMember
    from s3unzip.runs.step import Step
    from s3unzip.stores.ports import Upload


class MemberUpload(Struct, frozen=True):
    """The multipart upload of one member by one task, from its record to its end."""

    attempt: TaskAttempt
    row: PlannedMember

    def resume(self) -> bool:
        """Say whether an earlier attempt made the member whole, and note it.

        There was one if an upload is on record. Its Complete may have gone
        through with the answer lost, or the outcome: the object tells. The
        upload is left alone, for its worker may be alive; settling drops it.
        """
        attempt, options = self.attempt, self.attempt.run.options
        if not attempt.records.has_uploads(attempt.task.id):
            return False
        if not is_member(self.row, options, attempt.destination, attempt.calls):
            return False
        attempt.extracted(self.row, 0.0)
        return True

    def wanted(self) -> bool:
        """Say whether the member is to be written at all; note its outcome if not."""
        outcome = resolve_conflict(self.row, self.attempt)
        if outcome is not None:
            self.attempt.note(self.row, outcome)
        return outcome is None

    def begin(self) -> Upload:
        """Begin the upload; it is on record."""
        attempt = self.attempt
        facts = object_metadata(self.row.key, self.row.member, attempt.run)
        return begin_upload(attempt, attempt.task.id, self.row.key, facts)

    def complete(self, upload: Upload, parts: tuple[Part, ...]) -> None:
        """Make the member visible and note it."""
        attempt, options = self.attempt, self.attempt.run.options
        clock = attempt.context.clock
        started = clock.now()
        try:
            etag = complete_once(attempt, self.row, upload, parts)
        except NotFoundError as gone:
            raise upload_gone(gone) from gone
        except ConflictError:
            self.abort(upload)
            attempt.note(self.row, explain_refusal(self.row, attempt))
            return
        size = stored_size(self.row.member, options)
        attempt.extracted(self.row, clock.now() - started, size, etag)

    def abort(self, upload: Upload) -> None:
        """Drop the upload."""
        attempt = self.attempt
        attempt.calls.run("abort", lambda: attempt.destination.abort_upload(upload))

    def abort_quietly(self, upload: Upload) -> None:
        """Drop the upload while another error is on its way; settling finds what is left."""
        self.attempt.calls.count("abort")
        try:
            self.attempt.destination.abort_upload(upload)
        except S3UnzipError:
            return


def complete_once(
    step: Step, row: PlannedMember, upload: Upload, parts: tuple[Part, ...]
) -> str | None:
    """Complete an upload; where the answer to an earlier try was lost, the object tells.

    Returns:
        The object's ETag without quotes; None where the answer that had it was lost.

    Raises:
        ConflictError: the run never overwrites, and the key exists.
        NotFoundError: the upload is gone, and the object is not the member.
    """
    options, destination = step.run.options, step.destination
    if_absent = must_be_absent(options)
    attempts = 0

    def attempt() -> str | None:
        nonlocal attempts
        attempts += 1
        try:
            return destination.complete_upload(upload, parts, if_absent=if_absent)
        except NotFoundError:
            if attempts > 1 and is_member(row, options, destination, step.calls):
                return None
            raise

    return step.calls.run("complete", attempt)
