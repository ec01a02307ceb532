"""Archives in S3: reading, deleting and tagging, with each request pinned to one version.

An ETag pins a version. Some servers return no ETag for a file that was put into their folder
directly. In that case, the pin contains the time of the file's last change as an HTTP date. The
size and the ETag or date in each response are compared with the pin, because some servers ignore
If-Match, and some refuse their own ETags in this header. After a server has refused its own ETag,
requests no longer contain If-Match.

Some keys that are valid in S3 are requested with botocore, not obstore. obstore is built on
object_store, which drops slashes at the beginning and end of a key, and refuses control characters
and the segments "", ``.`` and ``..``.

Only the pinned version is deleted or tagged. In a versioned bucket, requests specify the version
id. In other buckets, a deletion specifies the ETag, which S3 compares (`conditional-deletes` in its
user guide). Some servers ignore or refuse that condition, so the ETag from a HEAD is also compared
before the deletion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import obstore

from s3unzip import errors
from s3unzip.model import NO_NAMES, Location, Pin
from s3unzip.object_properties import MAX_TAGS
from s3unzip.stores.archives import Source
from s3unzip.stores.calls import count_request, read_until_fault
from s3unzip.stores.ports import Buffer, Tail
from s3unzip.stores.s3.errors import NOT_S3, Call, get_action, read_answer, s3_errors
from s3unzip.stores.s3.session import Session
from s3unzip.zip import ByteRange

# If `Session.keys_for_botocore` contains more keys, botocore requests all objects, so no more keys
# are added.
MAX_KEYS_FOR_BOTOCORE = 10_000
NO_VERSION = "null"  # version id of objects written while versioning was off or suspended
# The messages of object_store for a store without suffix ranges (416 or 501), and for an empty
# object. For the suffix of an empty object, S3 responds with 416. Emulators respond with 200, or a
# wrong Content-Range.
NO_SUFFIX = re.compile("non-partial response|CONTENT_RANGE|InvalidRange|NotImplemented")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_LENGTH = re.compile(r"[0-9]{1,19}")  # int() refuses thousands of digits
CHECK_ENDPOINT = "check that the endpoint is an S3 server, or copy the object elsewhere"
NO_DATE = datetime.fromtimestamp(0, UTC)  # for a response without a date


def needs_botocore(session: Session, key: str) -> bool:
    """Return whether botocore must request this key, instead of obstore.

    `session.keys_for_botocore` contains the keys for which obstore could not read a response. If
    there are more than `MAX_KEYS_FOR_BOTOCORE`, botocore requests all keys. Then no more keys are
    added, which bounds the memory.
    """
    if (
        session.is_forked()
        or key in session.keys_for_botocore
        or len(session.keys_for_botocore) > MAX_KEYS_FOR_BOTOCORE
    ):
        return True
    # obstore changes or refuses keys with a control character, and keys in which a part of the path
    # is empty, "." or "..". `isprintable` is a quick test, which nearly all keys pass.
    has_control = not key.isprintable() and _CONTROL_CHARACTER.search(key) is not None
    return has_control or not NO_NAMES.isdisjoint(key.split("/"))


def get_object(
    session: Session,
    call: Call,
    span: tuple[int, int] | None,
    *,
    etag: str | None = None,
    version: str | None = None,
    min_chunk_size: int = 1,
) -> tuple[obstore.ObjectMeta, Iterator[Buffer]]:
    """Return the properties of an object, and an iterator over its bytes as they arrive.

    Args:
        span: offsets of the first byte and of the byte after the last one. Defaults to all bytes.
        etag, version: ETag that the object must have, and id of the version to read, if any.
        min_chunk_size: minimum size of a chunk from obstore, in bytes. If a body is cut short, the
            incomplete chunk is lost.
    """
    if needs_botocore(session, call.key):
        return _get_by_botocore(session, call, span, etag=etag, version=version)
    conditions = {"range": span, "if_match": etag, "version": version}
    options: Any = {name: value for name, value in conditions.items() if value is not None}
    answer = obstore.get(session.reader(call.bucket), call.key, options=options)
    return answer.meta, map(memoryview, answer.stream(min_chunk_size=min_chunk_size))


def _get_by_botocore(
    session: Session,
    call: Call,
    span: tuple[int, int] | None,
    *,
    etag: str | None,
    version: str | None,
) -> tuple[obstore.ObjectMeta, Iterator[Buffer]]:
    """Get an object for `get_object`, and require that `call.owner` owns the bucket."""
    from s3unzip.stores.s3.botocore_clients import read_pieces

    request: dict[str, Any] = {
        "IfMatch": etag,
        "VersionId": version,
        "ExpectedBucketOwner": call.owner,
    }
    if span is not None:
        request["Range"] = f"bytes={span[0]}-{span[1] - 1}"
    response = session.client("bodies").get_object(
        Bucket=call.bucket,
        Key=call.key,
        **{name: value for name, value in request.items() if value is not None},
    )
    object_size = 0  # without a span, no caller uses the size
    if span is not None:
        # If the header is missing, the text "the whole object" does not match the pattern, and is
        # shown in the message.
        content_range = response.get("ContentRange", "the whole object")
        # The range in the response begins as requested, and may end earlier, at the end of the
        # object. Group 1 is the size of the object.
        sent_range = re.fullmatch(rf"bytes {span[0]}-[0-9]+/([0-9]{{1,19}})", content_range)
        if sent_range is None:  # obstore also refuses a response with another range
            raise errors.ServiceFaultError(
                f"{call}: {NOT_S3}: got {content_range}, not {request['Range']}; {CHECK_ENDPOINT}"
            )
        object_size = int(sent_range[1])
    return _describe_answer(call, response, object_size), read_pieces(response)


def _describe_answer(call: Call, answer: Mapping[str, Any], size: int) -> obstore.ObjectMeta:
    """Convert the properties of an object from botocore's format to obstore's format."""
    return {
        "path": call.key,
        "size": size,
        "e_tag": answer.get("ETag"),
        "last_modified": answer.get("LastModified", NO_DATE).astimezone(UTC),
        "version": answer.get("VersionId"),
    }


def _read_body(chunks: Iterable[Buffer], length: int, call: Call) -> Iterator[Buffer]:
    """Yield the chunks of a body of `length` bytes.

    An exception before the first byte is not translated: the caller treats it as a refusal.

    Raises:
        ServiceFaultError: the body was cut short after its first byte, or is shorter than `length`.
        StorageError: the body is longer than requested, so none of its bytes can be trusted.
    """
    size = 0
    try:
        for chunk in chunks:
            size += len(chunk)
            if size > length:
                raise errors.StorageError(
                    f"{call}: {NOT_S3}: the body has more than the {length:,} bytes of the "
                    f"requested range; {CHECK_ENDPOINT}"
                )
            yield chunk
    except s3_errors():
        if not size:
            raise
        raise errors.ServiceFaultError(
            f"{call}: the body ended after {size:,} of {length:,} bytes"
        ) from None
    if size < length:
        raise errors.ServiceFaultError(f"{call}: only {size:,} of {length:,} bytes arrived")


class S3Source(Source):
    """Reads archives in any bucket that the session can access."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin.

        This method sends one request. If the server does not support suffix ranges, this method
        then sends a HEAD and, unless the archive is empty, a GET.
        """
        if needs_botocore(self._session, location.key):
            return super().tail(location, length)
        call = Call("GetObject", location.bucket, location.key)
        try:
            answer = obstore.get(
                self._session.reader(location.bucket),
                location.key,
                options={"range": {"suffix": length}},
            )
            span = min(length, answer.meta["size"])
            data = read_until_fault(_read_body(answer.stream(min_chunk_size=1), span, call))
        except s3_errors() as error:
            if read_answer(error).status not in {416, 501} and not NO_SUFFIX.search(str(error)):
                raise self._session.explain_and_adapt(error, call) from None
            # The caller has counted the GET above. `super().tail` counts the HEAD, but not the GET
            # after the HEAD. This GET is counted here, even if the archive is empty and the GET is
            # not sent.
            count_request("get")
            return super().tail(location, length)
        return self._make_tail(call, answer.meta)._replace(data=data)

    def stat(self, location: Location) -> Tail:
        # The request is a HEAD, which requires the permission s3:GetObject.
        call = Call("GetObject", location.bucket, location.key)
        with self._session.explaining(call):
            if needs_botocore(self._session, location.key):  # obstore would change the key
                answer = self._session.client("control").head_object(
                    Bucket=location.bucket, Key=location.key
                )
                meta = _describe_answer(call, answer, content_length(call, answer))
            else:
                meta = obstore.get(
                    self._session.reader(location.bucket), location.key, options={"head": True}
                ).meta
            return self._make_tail(call, meta)

    def _make_tail(self, call: Call, meta: obstore.ObjectMeta) -> Tail:
        """Return a tail without bytes, with the pin of the version that `meta` describes.

        Raises:
            StorageError: `meta` contains nothing that would show a change of the archive.
        """
        etag = meta["e_tag"]
        version = meta["version"]
        modified = meta["last_modified"].timestamp() or None  # `NO_DATE` is 0
        if self._session.access.unsigned:
            # A GET with a version requires s3:GetObjectVersion (API_GetObject). Policies of public
            # buckets allow only s3:GetObject.
            version = None
        if not (etag or modified or version):
            raise errors.StorageError(
                f"{call}: the store returns neither an ETag nor a version nor a date, so a change "
                f"during a run could not be detected; {CHECK_ENDPOINT}"
            )
        # In the pin, the date replaces a missing ETag. The date is compared, but not sent (`Pin`).
        if not etag and modified is not None:
            from email.utils import format_datetime

            etag = format_datetime(meta["last_modified"], usegmt=True)
        return Tail(b"", Pin(meta["size"], etag or None, version), modified)

    def stream(self, location: Location, pin: Pin, want: ByteRange) -> Iterator[Buffer]:
        if not want.length:
            return
        # Ask only once: the request and its errors must name the same version, and another thread
        # may discover in the meantime that the credentials do not allow reading versions.
        version = self._session.readable_version(location.bucket, pin)
        call = Call(get_action(version), location.bucket, location.key, pinned=True)
        try:
            meta, chunks = get_object(
                self._session,
                call,
                (want.start, want.stop),
                etag=pin.etag if pin.has_strong_etag and self._session.accepts_if_match else None,
                version=version,
            )
            current = self._make_tail(call, meta).pin
            if (current.size, current.etag) != (pin.size, pin.etag):
                raise errors.SourceChangedError(
                    f"{call}: the archive has been overwritten since it was planned"
                )
            yield from _read_body(chunks, want.length, call)
        except s3_errors() as error:
            raise self._explain_refusal(error, call, location, pin) from None

    def _explain_refusal(
        self, error: Exception, call: Call, location: Location, pin: Pin
    ) -> errors.S3UnzipError:
        refusal = self._session.explain_and_adapt(error, call)
        if read_answer(error).status == 412:
            count_request("head")
            with suppress(errors.StorageError):
                # SeaweedFS 3.97 refuses its own ETags, even if the archive has not changed.
                if self.stat(location).pin.etag == pin.etag:
                    self._session.accepts_if_match = False
                    # This error allows a retry, which sends no ETag.
                    return errors.ServiceFaultError(str(refusal))
        return refusal

    def delete(self, location: Location, pin: Pin) -> None:
        """Delete the version, or do nothing if it no longer exists."""
        version, request = _version_request(location, pin)
        message = f"{location}: a newer archive has replaced it"
        action = "DeleteObjectVersion"
        if version is None:  # only the ETag identifies the archive
            if not pin.has_strong_etag:
                raise errors.StorageError(
                    f"{location}: the store returns neither versions nor strong ETags, so a newer "
                    "archive could be taken for the one that was extracted"
                )
            # Some servers ignore IfMatch, so the ETag is also compared here.
            count_request("head")
            try:
                current = self.stat(location)
            except errors.NotFoundError:  # the archive no longer exists
                return
            if current.pin.etag != pin.etag:
                raise errors.SourceChangedError(message)
            action = "DeleteObject"
            if self._session.accepts_if_match:
                request["IfMatch"] = pin.etag
        call = Call(action, location.bucket, location.key, conditional=True)
        try:
            self._session.client("control").delete_object(**request)
        except s3_errors() as error:
            refusal = self._explain_refusal(error, call, location, pin)
            if isinstance(refusal, errors.ConflictError):
                refusal = errors.SourceChangedError(message)
            # If the archive no longer exists, another attempt may have deleted it.
            if not isinstance(refusal, errors.NotFoundError):
                raise refusal from None

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:
        """Add `tags` to the existing tags of the version."""
        version, request = _version_request(location, pin)
        if version is None:
            raise errors.StorageError(
                f"{location}: S3 cannot tag one version in a bucket without versioning: turn "
                "versioning on, or delete the archives instead"
            )
        try:
            old = self.tags(location, pin)
        except errors.SourceChangedError:
            raise errors.SourceChangedError(
                f"{location}: the version that was extracted is gone"
            ) from None
        new = {**old, **tags}
        if len(new) > MAX_TAGS:
            raise errors.StorageError(
                f"{location}: the archive would have {len(new)} tags, but S3 allows at most "
                f"{MAX_TAGS}"
            )
        if new == old:
            return
        request["Tagging"] = {"TagSet": [{"Key": key, "Value": new[key]} for key in new]}
        count_request("put")
        with self._session.explaining(
            Call("PutObjectVersionTagging", location.bucket, location.key, pinned=True)
        ):
            self._session.client("control").put_object_tagging(**request)

    def tags(self, location: Location, pin: Pin) -> dict[str, str]:
        version, request = _version_request(location, pin)
        # The permission is s3:GetObjectTagging or s3:GetObjectVersionTagging.
        with self._session.explaining(
            Call(f"{get_action(version)}Tagging", location.bucket, location.key, pinned=True)
        ):
            answer = self._session.client("control").get_object_tagging(**request)
        return {tag.get("Key", ""): tag.get("Value", "") for tag in answer.get("TagSet", ())}


def content_length(call: Call, answer: Mapping[str, Any]) -> int:
    """Return the size of an object from the headers in the response to a HEAD."""
    length = answer["ResponseMetadata"]["HTTPHeaders"].get("content-length", "")
    if not _LENGTH.fullmatch(length):
        raise errors.ServiceFaultError(f"{call}: the answer to HEAD has no Content-Length")
    return int(length)


def _version_request(location: Location, pin: Pin) -> tuple[str | None, dict[str, Any]]:
    """Return the version id, and the parameters of a request about that version.

    The id is None if the object was written without versioning. Such an object has no id, or it has
    `NO_VERSION`, which a newer object can have as well. In both cases, the parameters refer to the
    current object, which may be newer.
    """
    request = {"Bucket": location.bucket, "Key": location.key}
    if pin.version_id in {None, NO_VERSION}:
        return None, request
    return pin.version_id, request | {"VersionId": pin.version_id}
