"""The rule on conflicts: what becomes of a member whose key the destination may have already.

================== ==========================================================
``overwrite``      write the member; ask nothing
``skip-unchanged`` keep an object that is the member; overwrite any other
``never``          keep an object that is the member; fail where another one is
================== ==========================================================

Ask before the write, because S3 bills a conditional PUT that it refuses.
`existing.find_unchanged` asks for many small members at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.model import OnConflict, Outcome, Status
from s3unzip.objects.existing import find_existing, recorded_etag

if TYPE_CHECKING:
    from s3unzip.model import Options, PlannedMember
    from s3unzip.runs.step import Step


def must_be_absent(options: Options) -> bool:
    """Return whether a write must be refused if the key exists (``If-None-Match: *``)."""
    return options.on_conflict is OnConflict.NEVER


def resolve_conflict(row: PlannedMember, step: Step) -> Outcome | None:
    """Return the outcome of a member that is not to be written; None: write it.

    Raises:
        StorageError, ServiceFaultError: the destination does not answer.
    """
    rule = step.run.options.on_conflict
    if rule is OnConflict.OVERWRITE:
        return None
    found, same = find_existing(row, step.run.options, step.destination, step.calls)
    if found is None:
        return None
    if same:
        return row.outcome(Status.UNCHANGED, found.size, recorded_etag(row, found))
    return _exists(row) if rule is OnConflict.NEVER else None


def explain_refusal(row: PlannedMember, step: Step) -> Outcome:
    """Return the outcome of a member whose write was refused because the key exists.

    Raises:
        StorageError, ServiceFaultError: the destination does not answer.
    """
    found, same = find_existing(row, step.run.options, step.destination, step.calls)
    if found is not None and same:
        return row.outcome(Status.UNCHANGED, found.size, recorded_etag(row, found))
    return _exists(row)


def _exists(row: PlannedMember) -> Outcome:
    message = "the key exists with other content; --on-conflict never keeps it"
    return Outcome.failed(row.member.index, row.key, row.finding("exists", message))
