"""A stream: one large member, read ahead, inflated, uploaded in parts."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.errors import MemberError
from s3unzip.extraction.member import open_data
from s3unzip.extraction.upload import MemberUpload
from s3unzip.objects.part_writer import (
    PartWriter,
    check_size,
    check_whole,
    choose_part_size,
    parts_at_once,
)
from s3unzip.objects.stored import open_content, stored_size, with_crc

if TYPE_CHECKING:
    from s3unzip.extraction.attempt import TaskAttempt
    from s3unzip.extraction.member import MemberData
    from s3unzip.model import Part, PlannedMember
    from s3unzip.stores.ports import Upload


def stream_member(attempt: TaskAttempt, rows: list[PlannedMember]) -> None:
    """Extract the one member of `rows`; it becomes visible only when it is whole and right.

    Raises:
        DeadlineError: the worker's time is nearly over; the upload is dropped.
        SourceChangedError, AccessDeniedError, ...: what stops the run.
        ServiceFaultError: a call's budget is spent.
    """
    for row in rows:
        target = MemberUpload(attempt, row)
        if not target.resume() and target.wanted():
            stream_whole(target)


def stream_whole(target: MemberUpload) -> None:
    """Upload one member from its first byte to its last."""
    attempt, row = target.attempt, target.row
    attempt.begin_again()
    size = stored_size(row.member, attempt.run.options)
    try:
        limits = attempt.destination.part_limits
        part_size = choose_part_size(size, attempt.context.tuning.part_bytes, limits)
        data = open_data(attempt, row)
    except MemberError as error:
        attempt.failed(row, error.finding)
        return
    upload = target.begin()
    try:
        whole, parts = _upload(target, upload, data, part_size)
    except MemberError as error:
        target.abort(upload)
        attempt.failed(row, error.finding)
    except BaseException:
        target.abort_quietly(upload)
        raise
    else:
        whole.complete(upload, parts)


def _upload(
    target: MemberUpload, upload: Upload, data: MemberData, part_size: int
) -> tuple[MemberUpload, tuple[Part, ...]]:
    """Upload the parts; return them, and the target with what is known of the member now.

    Raises:
        MemberError: the member is not what the directory declares.
    """
    attempt, row, options = target.attempt, target.row, target.attempt.run.options
    content = open_content(data.member, attempt.context.policy, data.opened, options)
    writer = PartWriter(
        attempt.destination,
        upload,
        attempt.calls,
        sizes=itertools.repeat(part_size),
        at_once=parts_at_once(part_size, attempt.context.tuning),
    )
    try:
        for output in content.decode(attempt.passing(data.pieces())):
            writer.write(output)
        data.check_after()
        parts = writer.close()
    except BaseException:
        writer.abandon()
        raise
    attempt.warned(content.warnings)
    whole = replace(target, row=with_crc(row, content.crc32))
    if options.as_gzip is None:
        check_whole(parts, whole.row)
    else:
        check_size(parts, row, stored_size(row.member, options))
    return whole, parts
