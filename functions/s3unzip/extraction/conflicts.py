"""The rule on conflicts: whether a member is written if the destination has its key.

================== ==========================================================
``overwrite``      write the member; ask nothing
``skip-unchanged`` keep an object that is the member; overwrite any other
``never``          keep an object that is the member; fail if another object has the key
================== ==========================================================

Ask before the write, because S3 bills a conditional PUT that it refuses. `unchanged` asks for many
small members at once. Another writer may create the key after the question: then the store refuses
the conditional write, and `explain_refusal` asks again.
"""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from s3unzip.extraction.comparison import find_object, has_content, read_stored
from s3unzip.extraction.forms import has_stored_size
from s3unzip.model import OnConflict, Outcome, PlannedMember, Status
from s3unzip.runs.step import Step


def resolve_conflict(
    row: PlannedMember, step: Step, read_crc: Callable[[], int] | None = None
) -> Outcome | None:
    """Return the outcome of a member that must not be written; None: write it.

    Args:
        row: the member.
        step: its destination may have the key.
        read_crc: computes the CRC-32 of the content. It is called if the archive does not declare
            it, and the object has the member's size. `MemberError`: the content is bad.
    """
    options = step.run.options
    if options.on_conflict is OnConflict.OVERWRITE:
        return None
    stored = find_object(row.key, options, step.destination, step.calls)
    if stored is None:
        return None
    if has_stored_size(stored.size, row.member, options):
        if not row.member.declares_crc and read_crc is not None:
            row = with_crc(row, read_crc())
        if row.member.cipher is not None and stored.crc32 is None:
            # A large AE-2 member was written before its CRC-32 was known.
            is_gzip = options.as_gzip is not None
            read = partial(read_stored, step.destination, row.key, is_gzip=is_gzip)
            stored = step.calls.paced("get", read) or stored
    if has_content(stored, row.member, options):
        return row.outcome(Status.UNCHANGED, stored.size)
    return _exists(row) if options.on_conflict is OnConflict.NEVER else None


def explain_refusal(row: PlannedMember, step: Step) -> Outcome:
    """Return the outcome of a member whose write was refused because the key exists."""
    return resolve_conflict(row, step) or _exists(row)


def _exists(row: PlannedMember) -> Outcome:
    message = "the key exists with other content; --on-conflict never keeps it"
    return Outcome.failed(row.member.index, row.key, row.finding("exists", message))


def with_crc(row: PlannedMember, crc: int) -> PlannedMember:
    """Return `row` with the CRC-32 of its content, if the archive does not declare it."""
    if row.member.declares_crc:
        return row
    return replace(row, member=row.member.with_crc(crc))
