"""Archives in S3: they are read, deleted and tagged, each request on one pinned version.

An ETag pins a version. Some servers return none for a file that was put into their folder directly.
Then the pin holds the date of the file's last change, in the form of HTTP, and the size and date of
each answer are compared with the pin. botocore handles the keys that obstore refuses or changes:
object_store drops a leading and a trailing slash, and refuses empty segments, ``.`` and ``..``
segments and control characters; S3 accepts them all.

No other version is deleted or tagged. In a versioned bucket, requests name the version id.
Elsewhere they name the ETag, which S3 compares (`conditional-deletes` in its user guide). Some
servers ignore that condition, so a HEAD before the deletion compares the ETag as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import obstore

from s3unzip import errors
from s3unzip.model import Location, Pin
from s3unzip.stores.archives import Source
from s3unzip.stores.calls import count_request, read_until_fault
from s3unzip.stores.ports import Buffer, Tail
from s3unzip.stores.s3.errors import Call, get_action, read_answer, s3_errors
from s3unzip.stores.s3.session import Session
from s3unzip.zip import ByteRange

if TYPE_CHECKING:  # stubs
    from mypy_boto3_s3.type_defs import HeadObjectOutputTypeDef
    from obstore import GetOptions, ObjectMeta

MAX_TAGS = 10  # tags of one object (object-tagging in the user guide)
NO_VERSION = "null"  # the id of the only version where versioning is off or suspended
# object_store's messages for a store without suffix ranges (416 or 501), and for an empty object.
# For the suffix of an empty object, S3 answers 416. Emulators answer 200, or a wrong Content-Range.
NO_SUFFIX = re.compile("non-partial response|CONTENT_RANGE|InvalidRange|NotImplemented")
_ODD = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]")
_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")
_LENGTH = re.compile(r"[0-9]{1,19}")  # int() refuses thousands of digits
NO_DATE = datetime.fromtimestamp(0, UTC)  # in place of the date of an answer that has none
_WHOLE_SIZE = re.compile(r"/([0-9]{1,19})\Z")  # of a Content-Range


def is_odd(key: str) -> bool:
    """Return whether obstore would refuse or change `key`."""
    # Few keys need the regular expression, which takes five times as long.
    if key.isprintable() and "//" not in key and "/." not in key and key[:1] not in ("", "/", "."):
        return key.endswith("/")
    return _ODD.search(key) is not None


def get_object(
    session: Session,
    call: Call,
    span: tuple[int, int] | None,
    *,
    etag: str | None = None,
    version: str | None = None,
    min_chunk_size: int = 1,
) -> tuple[ObjectMeta, Iterator[Buffer]]:
    """Return the properties of an object, and its bytes as they arrive.

    botocore reads odd keys, and its request names `call.owner`. obstore reads all other keys.

    Args:
        span: the first byte and the one after the last byte. None stands for all bytes.
        etag: the ETag that the object must have.
        min_chunk_size: the minimum number of bytes in a chunk. If a body breaks, obstore loses
            the chunk that it is gathering.
    """
    if not is_odd(call.key):
        options: GetOptions = {}
        if span is not None:
            options["range"] = span
        if etag is not None:
            options["if_match"] = etag
        if version is not None:
            options["version"] = version
        answer = obstore.get(session.reader(call.bucket), call.key, options=options)
        return answer.meta, map(memoryview, answer.stream(min_chunk_size=min_chunk_size))
    from s3unzip.stores.s3.botocore_clients import read_pieces

    request: dict[str, Any] = {
        "IfMatch": etag,
        "VersionId": version,
        "ExpectedBucketOwner": call.owner,
    }
    if span is not None:
        start, stop = span
        request["Range"] = f"bytes={start}-{stop - 1}"
    body = session.client("bodies").get_object(
        Bucket=call.bucket,
        Key=call.key,
        **{name: value for name, value in request.items() if value is not None},
    )
    whole_size = _WHOLE_SIZE.search(body.get("ContentRange", ""))
    size = 0  # if the server does not say how large the whole object is
    if whole_size is not None:
        size = int(whole_size[1])
    return _describe_answer(call, body, size), read_pieces(body)


def _describe_answer(call: Call, answer: Mapping[str, Any], size: int) -> ObjectMeta:
    """Return the properties of an object, from an answer to botocore, in the form of obstore."""
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    return {
        "path": call.key,
        "size": size,
        "e_tag": answer.get("ETag"),
        "last_modified": _parse_date(headers.get("last-modified", "")) or NO_DATE,
        "version": answer.get("VersionId"),
    }


def _until_break(chunks: Iterable[Buffer], call: Call) -> Iterator[Buffer]:
    """Yield the chunks of a body; raise `ServiceFaultError` if it breaks after its first byte."""
    size = 0
    try:
        for chunk in chunks:
            size += len(chunk)
            yield chunk
    except s3_errors():
        if not size:
            raise
        raise errors.ServiceFaultError(f"{call}: the body broke after {size:,} bytes") from None


class S3Source(Source):
    """Reads archives of any bucket the session can see."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin.

        It takes one request. A store without suffix ranges gets three, or two for an empty archive.
        """
        if is_odd(location.key):
            return super().tail(location, length)
        call = Call("GetObject", location.bucket, location.key)
        try:
            answer = obstore.get(
                self._session.reader(location.bucket),
                location.key,
                options={"range": {"suffix": length}},
            )
            data = read_until_fault(_until_break(answer.stream(min_chunk_size=1), call))
        except s3_errors() as error:
            if read_answer(error).status not in {416, 501} and not NO_SUFFIX.search(str(error)):
                raise self._session.explain(error, call) from None
            tail = super().tail(location, length)
            if tail.pin.size:
                count_request("get")  # the range; the refused request is counted already
            return tail
        tail = self._make_tail(call, answer.meta)
        missing = min(length, tail.pin.size) - len(data)  # more than 0 if the body broke
        if missing < 0:
            raise errors.ServiceFaultError(f"{call}: more than the last {length:,} bytes came")
        return tail._replace(data=data, missing=missing)

    def stat(self, location: Location) -> Tail:
        """Return the size, the pin and the date of the current version, as a tail without bytes."""
        call = Call("GetObject", location.bucket, location.key)
        with self._session.explaining(call):
            if is_odd(location.key):
                answer = self._session.client("control").head_object(
                    Bucket=location.bucket, Key=location.key
                )
                meta = _describe_answer(call, answer, content_length(call, answer))
            else:
                reader = self._session.reader(location.bucket)
                meta = obstore.get(reader, location.key, options={"head": True}).meta
            return self._make_tail(call, meta)

    def _make_tail(self, call: Call, meta: ObjectMeta) -> Tail:
        """Return a tail without bytes, with the pin of the version that `meta` describes.

        Raises:
            StorageError: `meta` has nothing that would change with the archive.
        """
        etag = meta["e_tag"]
        version = meta["version"]
        modified = meta["last_modified"].timestamp() or None  # 0 stands for `NO_DATE`
        if self._session.access.unsigned:
            # A GET that names a version needs s3:GetObjectVersion (API_GetObject). Policies of
            # public buckets allow s3:GetObject only.
            version = None
        if not (etag or modified or version):
            raise errors.StorageError(
                f"{call}: the store gives neither an ETag nor a version nor a date, so a change "
                "during a run could not be detected; copy the archive elsewhere"
            )
        if not etag and modified is not None:
            from email.utils import format_datetime

            etag = format_datetime(meta["last_modified"], usegmt=True)
        return Tail(b"", Pin(meta["size"], etag or None, version), modified)

    def stream(self, location: Location, pin: Pin, want: ByteRange) -> Iterator[Buffer]:
        """Send one request, and yield the bytes of `want` as they come."""
        if not want.length:
            return
        # The request and its errors must name the same version: meanwhile another thread may learn
        # that the credentials may not read versions.
        version = self._session.readable_version(location.bucket, pin)
        call = Call(get_action(version), location.bucket, location.key, pinned=True)
        date = date_of(pin)
        etag = None
        if date is None:  # otherwise `pin.etag` is that date
            etag = pin.etag
        size = 0
        try:
            meta, chunks = get_object(
                self._session, call, (want.start, want.stop), etag=etag, version=version
            )
            # If the date pins the version, the request had no condition.
            if date is not None and (meta["size"], meta["last_modified"]) != (pin.size, date):
                raise errors.SourceChangedError(
                    f"{call}: the archive was overwritten since it was planned"
                )
            for chunk in _until_break(chunks, call):
                size += len(chunk)
                yield chunk
        except s3_errors() as error:
            raise self._session.explain(error, call) from None
        if size != want.length:
            raise errors.ServiceFaultError(
                f"{call}: {size:,} bytes came, not {want.length:,} from {want.start:,}"
            )

    def delete(self, location: Location, pin: Pin) -> None:
        """Delete the version, or do nothing if it is gone."""
        version, request = _version_request(location, pin)
        if version is None and (pin.etag is None or date_of(pin) is not None):
            raise errors.StorageError(
                f"{location}: the store gives neither versions nor ETags, so a newer archive could "
                "be taken for the one that was extracted"
            )
        newer_archive = f"{location}: a newer archive is there"
        current = self._head_version(location, request)
        if current is None:
            return
        action = "DeleteObjectVersion"
        if version is None:  # only the ETag identifies the archive, and some servers ignore IfMatch
            if current.get("ETag") != pin.etag:
                raise errors.SourceChangedError(newer_archive)
            action = "DeleteObject"
            request["IfMatch"] = pin.etag
        call = Call(action, location.bucket, location.key, conditional=True)
        count_request("delete")
        try:
            with self._session.explaining(call):
                self._session.client("control").delete_object(**request)
        except errors.NotFoundError:  # another attempt was quicker
            return
        except errors.ConflictError as refusal:
            raise errors.SourceChangedError(newer_archive) from refusal

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:
        """Add `tags` to those of the version."""
        version, request = _version_request(location, pin)
        if version is None:
            raise errors.StorageError(
                f"{location}: S3 cannot tag one version in a bucket without versioning: turn "
                "versioning on, or delete the archive"
            )
        if self._head_version(location, request) is None:
            raise errors.SourceChangedError(f"{location}: the version that was extracted is gone")
        count_request("get")
        old = self.tags(location, pin)
        new = {**old, **tags}
        if len(new) > MAX_TAGS:
            raise errors.StorageError(
                f"{location}: would have {len(new)} tags, and S3 allows {MAX_TAGS}"
            )
        if new == old:
            return
        request["Tagging"] = {"TagSet": [{"Key": key, "Value": new[key]} for key in new]}
        count_request("put")
        call = Call("PutObjectVersionTagging", location.bucket, location.key, pinned=True)
        with self._session.explaining(call):
            self._session.client("control").put_object_tagging(**request)

    def tags(self, location: Location, pin: Pin) -> dict[str, str]:
        """Return the tags of the version."""
        version, request = _version_request(location, pin)
        action = "GetObjectTagging" if version is None else "GetObjectVersionTagging"
        call = Call(action, location.bucket, location.key, pinned=True)
        with self._session.explaining(call):
            answer = self._session.client("control").get_object_tagging(**request)
        return {tag.get("Key", ""): tag.get("Value", "") for tag in answer.get("TagSet", ())}

    def _head_version(
        self, location: Location, request: dict[str, Any]
    ) -> HeadObjectOutputTypeDef | None:
        """Return the answer to a HEAD of the version, or None if there is no such version."""
        call = Call(get_action(request.get("VersionId")), location.bucket, location.key)
        with suppress(errors.NotFoundError), self._session.explaining(call):
            return self._session.client("control").head_object(**request)
        return None


def date_of(pin: Pin) -> datetime | None:
    """Return the date that a pin has in place of an ETag, or None if it has no date."""
    return _parse_date(pin.etag or "")


def _parse_date(text: str) -> datetime | None:
    """Return the time that an HTTP date names, or None if `text` is not such a date."""
    if _DATE.fullmatch(text):
        from email.utils import parsedate_to_datetime

        with suppress(ValueError):  # an ETag may only look like a date
            return parsedate_to_datetime(text)
    return None


def content_length(call: Call, answer: Mapping[str, Any]) -> int:
    """Return the size of an object, from the headers of an answer to HEAD."""
    length = answer["ResponseMetadata"]["HTTPHeaders"].get("content-length", "")
    if not _LENGTH.fullmatch(length):
        raise errors.ServiceFaultError(f"{call}: the answer to HEAD has no Content-Length")
    return int(length)


def _version_request(location: Location, pin: Pin) -> tuple[str | None, dict[str, Any]]:
    """Return the version id, and the parameters of a request about that version.

    The id is None in a bucket without versioning, where a later PUT replaces the object.
    """
    request = {"Bucket": location.bucket, "Key": location.key}
    if pin.version_id in {None, NO_VERSION}:
        return None, request
    return pin.version_id, request | {"VersionId": pin.version_id}
