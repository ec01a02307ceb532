"""A stream: one large member, read ahead, inflated, uploaded in parts."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.errors import MemberError
from s3unzip.extraction.member import open_data
from s3unzip.objects.part_writer import (
    MemberUpload,
    PartWriter,
    check_size,
    check_whole,
    choose_part_size,
    parts_at_once,
)
from s3unzip.objects.stored import open_content, stored_size, with_crc

if TYPE_CHECKING:
    from s3unzip.extraction.member import MemberData
    from s3unzip.model import MemberRow, Part, Run
    from s3unzip.runs.outcomes import OutcomeLog
    from s3unzip.stores.ports import Destination, Upload


def stream_member(run: Run, rows: list[MemberRow], log: OutcomeLog) -> None:
    """Extract the one member of `rows`; it becomes visible only when it is whole and right.

    Raises:
        DeadlineError: the worker's time is nearly over; the upload is dropped.
        SourceChangedError, AccessDeniedError, ...: what stops the run.
        ServiceFaultError: a call's budget is spent.
    """
    for row in rows:
        destination = log.context.stores.destination(run.destination)
        attempt = MemberUpload(run, row, log, destination)
        if attempt.resume_upload():
            log.extracted(row, 0.0)
        elif attempt.wanted():
            stream_whole(attempt)


def stream_whole(attempt: MemberUpload) -> None:
    """Upload one member from its first byte to its last."""
    row, log, options = attempt.row, attempt.log, attempt.run.options
    try:
        part_size = choose_part_size(
            stored_size(row, options),
            log.context.tuning.part_bytes,
            attempt.destination.part_limits,
        )
        data = open_data(attempt.run, row, log)
    except MemberError as error:
        log.failed(row, error.finding)
        return
    upload = attempt.begin()
    try:
        whole, parts = _upload(attempt, upload, data, part_size)
    except MemberError as error:
        attempt.abort(upload)
        log.failed(row, error.finding)
    except BaseException:
        attempt.abort_quietly(upload)
        raise
    else:
        whole.complete(upload, parts)


def _upload(
    attempt: MemberUpload, upload: Upload, data: MemberData, part_size: int
) -> tuple[MemberUpload, tuple[Part, ...]]:
    """Upload the parts; return them, and the attempt with what is known of the member now.

    Raises:
        MemberError: the member is not what the directory declares.
    """
    row, log, options = attempt.row, attempt.log, attempt.run.options
    content = open_content(data.member, log.context.policy, data.opened, options)
    writer = _writer(attempt.destination, upload, log, part_size)
    try:
        for output in content.decode(data.pieces()):
            writer.write(output)
        data.check_after()
        parts = writer.close()
    except BaseException:
        writer.abandon()
        raise
    log.warned(content.warnings)
    whole = replace(attempt, row=with_crc(row, content.crc32))
    if options.as_gzip is None:
        check_whole(parts, whole.row)
    else:
        check_size(parts, row, stored_size(row, options))
    return whole, parts


def _writer(
    destination: Destination, upload: Upload, log: OutcomeLog, part_size: int
) -> PartWriter:
    return PartWriter(
        destination,
        upload,
        log.calls,
        sizes=itertools.repeat(part_size),
        at_once=parts_at_once(part_size, log.context.tuning),
    )
