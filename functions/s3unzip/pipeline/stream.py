"""A stream: one large member, read ahead, inflated, uploaded in parts."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from s3unzip.errors import MemberError
from s3unzip.pipeline.memberdata import open_data
from s3unzip.pipeline.uploading import (
    MemberUpload,
    PartWriter,
    check_whole,
    choose_part_size,
    parts_at_once,
)
from s3unzip.zipformat import MemberDecoder

if TYPE_CHECKING:
    from s3unzip.pipeline.model import MemberRow, Part, Run
    from s3unzip.pipeline.outcomes import OutcomeLog
    from s3unzip.pipeline.ports import Destination, Upload


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
        if attempt.settle_earlier():
            log.extracted(row, 0.0)
        elif attempt.wanted():
            stream_whole(attempt)


def stream_whole(attempt: MemberUpload) -> None:
    """Upload one member from its first byte to its last."""
    row, log = attempt.row, attempt.log
    try:
        part_size = choose_part_size(
            row.size, log.context.tuning.part_bytes, attempt.destination.part_limits
        )
        data = open_data(attempt.run, row, log)
    except MemberError as error:
        log.failed(row, error.finding)
        return
    upload = attempt.begin()
    try:
        decoder = MemberDecoder(data.member, log.context.policy)
        writer = _writer(attempt.destination, upload, log, part_size)
        try:
            for piece in data.pieces():
                for output in decoder.feed(piece):
                    writer.write(output)
            decoder.finish()
            data.check_after()
            parts: tuple[Part, ...] = writer.close()
        except BaseException:
            writer.abandon()
            raise
        check_whole(parts, row)
    except MemberError as error:
        attempt.abort(upload)
        log.failed(row, error.finding)
    except BaseException:
        attempt.abort_quietly(upload)
        raise
    else:
        attempt.complete(upload, parts)


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
