"""The multipart upload of one large member: begin, fill with parts, complete or abort.

Rules:

* No byte of a member is visible before `complete_once`.
* A task completes or aborts each upload that it begins. Settling completes or aborts the uploads of
  split members. Settling (`abort_uploads`) and the lifecycle rule of the bucket abort the uploads
  that a crash leaves behind.
* Another process may abort an upload at any time. Later calls for the upload raise
  `UploadGoneError`, and the task begins a new upload. Runs on the same machine note their uploads,
  so that no run aborts the upload of another run.
* The response to CompleteMultipartUpload may be lost. A later try then fails because the upload no
  longer exists, and the object under the key determines whether the member has been written.
* Parts have the numbers and sizes that were planned; only the last part may be shorter.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, cycle, repeat
from os.path import commonprefix

from isal.isal_zlib import crc32, crc32_combine
from msgspec.structs import replace

from s3unzip import errors
from s3unzip.extraction.existing_objects import explain_refusal, object_is_member
from s3unzip.extraction.member_object import object_facts, stored_size
from s3unzip.model import OnConflict, Part, PlannedMember
from s3unzip.runs.step import Step, TaskAttempt
from s3unzip.settings import MIB, Tuning
from s3unzip.stores.ports import Buffer, Kind, PartLimits, Upload, make_completion


class UploadGoneError(errors.ServiceFaultError):
    """Another process aborted the upload; the task begins a new upload."""


class CopyRefusedError(errors.StorageError):
    """The store cannot copy a member, or copied it wrongly, so the member is streamed."""


def begin_upload(run_step: Step, row: PlannedMember) -> Upload:
    """Begin the upload of a member."""
    facts = object_facts(row.key, row.member, run_step.run)
    upload_id = run_step.calls.run(
        "create", lambda: run_step.destination.create_upload(row.key, facts)
    )
    run_step.context.uploads.note(upload_id, run_step.run.id)
    return Upload(row.key, upload_id)


@contextmanager
def open_upload(run_step: Step, row: PlannedMember) -> Iterator[Upload]:
    """Begin the upload of a member; abort it if the ``with`` block raises an error."""
    upload = begin_upload(run_step, row)
    try:
        yield upload
    except (errors.MemberError, CopyRefusedError):  # the task continues after this error
        abort_upload(run_step, upload)
        raise
    except BaseException:  # the error ends the attempt; a failed abort must not hide the error
        abort_quietly(run_step, upload)
        raise


def finish_upload(
    attempt: TaskAttempt, row: PlannedMember, upload: Upload, parts: tuple[Part, ...]
) -> None:
    """Make the member visible and note its outcome."""
    started = attempt.context.clock.now()
    try:
        etag = complete_once(attempt, row, upload, parts)
    except errors.NotFoundError as gone:
        raise UploadGoneError(f"{gone}; another process aborted the upload") from gone
    except errors.ConflictError:  # another object exists under the key, and `on_conflict` keeps it
        abort_upload(attempt, upload)
        attempt.note(row, explain_refusal(row, attempt))
        return
    except errors.StorageError:  # the store refuses the object, so its parts are useless
        abort_quietly(attempt, upload)
        raise
    attempt.note_extracted(
        row,
        attempt.context.clock.now() - started,
        stored_size(row.member, attempt.run.options),
        etag,
    )


def complete_once(
    run_step: Step,
    row: PlannedMember,
    upload: Upload,
    parts: tuple[Part, ...],
    *,
    is_repeated: bool = False,
) -> str | None:
    """Complete an upload; if the response to an earlier try was lost, check the object instead.

    Args:
        run_step: the step of the run.
        row: the member.
        upload: the upload of the member.
        parts: all parts of the upload.
        is_repeated: whether an earlier step may have completed the upload.

    Returns:
        The ETag of the object, without quotes; None if the response with the ETag was lost.
    """
    options = run_step.run.options
    destination = run_step.destination
    complete = make_completion(
        destination,
        upload,
        parts,
        lambda: object_is_member(row, options, destination, run_step.calls),
        if_absent=options.on_conflict is OnConflict.NEVER,
        was_tried=is_repeated,
    )
    etag = run_step.calls.run("complete", complete)
    run_step.context.uploads.forget(upload.upload_id)
    return etag


def abort_quietly(run_step: Step, upload: Upload) -> None:
    """Abort an upload with a single request, and ignore an error.

    If the request fails, a lifecycle rule of the bucket aborts the upload later.
    """
    run_step.calls.count("abort")
    with suppress(errors.S3UnzipError):
        run_step.destination.abort_upload(upload)
        run_step.context.uploads.forget(upload.upload_id)


def abort_upload(run_step: Step, upload: Upload) -> None:
    """Abort an upload; the store then drops its parts."""
    run_step.calls.run("abort", lambda: run_step.destination.abort_upload(upload))
    run_step.context.uploads.forget(upload.upload_id)


def abort_uploads(run_step: Step, keys: Iterable[str], spared: Collection[str] = ()) -> int:
    """Abort the uploads to `keys`, except those whose ids are in `spared`; return their number.

    Uploads that this machine has noted for other active runs are spared as well.
    """
    keys = set(keys)
    if not keys:
        return 0

    def is_abandoned(upload: Upload) -> bool:
        return (
            upload.key in keys
            and upload.upload_id not in spared
            and not run_step.context.uploads.is_of_another(upload.upload_id, run_step.run.id)
        )

    # MinIO lists the uploads of a single key, whose prefix is the key itself. For several keys,
    # MinIO lists nothing, and aborts the uploads itself after 24 hours.
    prefix = commonprefix(list(keys))  # noqa: RUF071 - a prefix of characters
    uploads = run_step.calls.run(
        "list", lambda: list(filter(is_abandoned, run_step.destination.uploads(prefix)))
    )
    for upload in uploads:
        abort_upload(run_step, upload)
    return len(uploads)


def choose_part_size(size: int, min_part: int, limits: PartLimits) -> int:
    """Return a part size with which an object of `size` bytes fits within the limits of the store.

    Raises:
        MemberError: the object is larger than the store accepts.
    """
    if size > limits.object_bytes:
        raise errors.MemberError(
            errors.Finding(
                "object-too-large",
                f"{size} bytes; the destination accepts at most {limits.object_bytes} bytes",
            )
        )
    needed = math.ceil(size / limits.max_parts)
    part_size = max(min_part, limits.min_bytes)
    if needed > part_size:
        part_size = math.ceil(needed / MIB) * MIB  # rounded up to a whole MiB
    return min(part_size, limits.max_bytes)


def copy_sizes(size: int, preferred: int, limits: PartLimits) -> list[int]:
    """Return the part sizes for a copy of `size` bytes (at least 1), near `preferred` if possible.

    Cloudflare R2 requires parts of equal size; only the last part may be smaller.
    """
    # With smaller parts, a part would be too small, or there would be too many parts.
    smallest_size = max(limits.min_bytes, math.ceil(size / limits.max_parts))
    target_size = max(smallest_size, min(preferred, limits.max_bytes))
    # With more parts of equal size, each part would be smaller than `min_bytes`.
    max_count = max(1, size // limits.min_bytes)
    part_count = min(max_count, math.ceil(size / target_size))
    part_size = math.ceil(size / part_count)
    return [min(part_size, size - start) for start in range(0, size, part_size)]


def cut_evenly(size: int, parts: int) -> list[int]:
    """Return the sizes of `parts` nearly equal parts; the sum of the sizes is `size`."""
    return [size * (part + 1) // parts - size * part // parts for part in range(parts)]


def parts_at_once(part_size: int, tuning: Tuning) -> int:
    """Return the number of parts in flight that fit into the memory that the settings allow."""
    return max(
        1, min(tuning.parts_in_flight, tuning.part_bytes * tuning.parts_in_flight // part_size)
    )


def combine_parts(parts: Iterable[Part]) -> tuple[int, int] | None:
    """Return the size and the CRC-32 of all `parts` together; None if a part has no CRC-32."""
    size = 0
    crc = 0
    for part in sorted(parts, key=lambda part: part.number):
        if part.crc32 is None:
            return None
        crc = crc32_combine(crc, part.crc32, part.size)
        size += part.size
    return size, crc


def check_whole(parts: Iterable[Part], row: PlannedMember) -> PlannedMember:
    """Compare the uploaded parts with the directory; return the row with the size of the parts.

    The size in the directory may be too small by a multiple of 4 GiB (`is_wrapped`).
    """
    combined = combine_parts(parts)
    size, crc = combined or (0, 0)  # the message shows zeros if a CRC-32 is missing
    if combined is None or crc != row.member.crc32 or not row.member.has_size(size):
        raise errors.MemberError(
            row.finding(
                "crc-mismatch",
                f"the parts have {size} bytes with CRC-32 {crc:08x}, "
                f"but the directory declares {row.member.size} and {row.member.crc32:08x}",
            )
        )
    return replace(row, member=replace(row.member, size=size))


def upload_parts(
    run_step: Step,
    upload: Upload,
    content: Iterable[Buffer],
    sizes: Sequence[int],
    *,
    first_number: int = 1,
    offset: int = 0,
) -> tuple[Part, ...]:
    """Cut a stream of bytes into parts, upload them concurrently, and return them in order.

    The settings of `run_step` bound the memory of the parts in flight.

    Args:
        run_step: the step of the run.
        upload: the upload of the member.
        content: the stream of bytes.
        sizes: sizes of the first parts; the last size also applies to any further parts.
        first_number: number of the first part.
        offset: offset of the first part in the object.
    """
    tuning = run_step.context.tuning
    # Only a member that is declared as empty has a part of 0 bytes. If the data of the member still
    # inflate to some bytes, these bytes are cut into parts of the usual size, and the checks find
    # the fault.
    sizes = [size or tuning.part_bytes for size in sizes]
    at_once = parts_at_once(max(sizes), tuning)
    pending: deque[Future[Part]] = deque()
    parts: list[Part] = []
    with ThreadPoolExecutor(at_once, thread_name_prefix="part") as pool:
        # `_cut_parts` reuses the buffer of a part that is no longer in flight.
        for number, (body, crc) in enumerate(_cut_parts(content, sizes, at_once), first_number):
            if len(pending) == at_once:
                parts.append(pending.popleft().result())
            send = partial(
                run_step.destination.upload_part,
                upload,
                number,
                body=body,
                offset=offset,
                crc32=crc,
            )
            pending.append(pool.submit(send_part, run_step, "part", send))
            offset += len(body)
        parts += [sent.result() for sent in pending]
    return tuple(parts)


def _cut_parts(
    content: Iterable[Buffer], sizes: Sequence[int], at_once: int
) -> Iterator[tuple[Buffer, int]]:
    """Yield the bytes and the CRC-32 of each part; an object without bytes has one empty part.

    Buffers are reused, because allocating the pages of a new buffer costs more than filling it.
    While a part is being filled, at most `at_once` earlier parts are in flight, so `at_once + 1`
    buffers are enough.

    Args:
        content: the stream to cut.
        sizes: sizes of the first parts; the last size also applies to any further parts.
        at_once: maximum number of parts that may still be in flight when the caller requests the
            next part.
    """
    # Empty chunks are left out: an empty last chunk would begin a part that was not planned.
    chunks = (memoryview(chunk) for chunk in content if chunk)
    data = next(chunks, None)  # the rest of a chunk; None at the end of the stream
    # `cycle` allocates each buffer on its first use, then yields the oldest buffer again.
    buffers = cycle(bytearray(max(sizes)) for _ in range(at_once + 1))
    for size, buffer in zip(chain(sizes, repeat(sizes[-1])), buffers, strict=True):
        view = memoryview(buffer)  # a slice of the bytearray itself would be a copy
        crc = 0
        filled = 0  # number of bytes in this part
        while data is not None and filled < size:
            fitting = data[: size - filled]
            view[filled : filled + len(fitting)] = fitting
            crc = crc32(fitting, crc)
            filled += len(fitting)
            data = data[len(fitting) :] or next(chunks, None)
        # botocore accepts a bytearray but not a memoryview, so the S3 destination would have to
        # copy a memoryview.
        yield (buffer if filled == len(buffer) else view[:filled]), crc
        if data is None:
            return


def send_part(run_step: Step, kind: Kind, send: Callable[[], Part]) -> Part:
    """Upload or copy one part with `send`, which may be called more than once."""
    try:
        return run_step.calls.paced(kind, send)
    except errors.NotFoundError as gone:
        raise UploadGoneError(f"{gone}; another process aborted the upload") from gone
