"""Archives in S3: ranges of one pinned version, each range with the pin on it; their disposal.

A version is pinned by its ETag. Some servers return none for a file that was put into their folder
directly; then the pin holds the date of its last change, in the form of HTTP, and size and date of
each answer are compared. Keys that obstore's path type refuses or changes go through botocore:
object_store drops a leading and a trailing slash, and refuses empty segments, ``.`` and ``..``
segments and control characters; S3 accepts them all.

What is deleted or tagged is never another version. In a versioned bucket, the version id identifies
the version. Elsewhere its ETag does, which S3 compares (`conditional-deletes` in its user guide). A
HEAD before that keeps servers that know no conditions from deleting a newer archive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import obstore

from s3unzip import errors
from s3unzip.model import Location, Pin
from s3unzip.stores.archives import ArchiveSource
from s3unzip.stores.calls import count_request, read_until_fault
from s3unzip.stores.ports import Buffer, Tail
from s3unzip.stores.s3.errors import Call, get_action, read_answer, s3_errors
from s3unzip.stores.s3.session import Session
from s3unzip.zip import ByteRange

if TYPE_CHECKING:  # stubs
    from mypy_boto3_s3.type_defs import HeadObjectOutputTypeDef
    from obstore import GetOptions, GetResult, ObjectMeta

MAX_TAGS = 10  # of an object: object-tagging in the user guide
NO_VERSION = "null"  # the id of an object's only version where versioning is off or suspended
# S3 answers 416 to a suffix of an empty object, emulators 200 or a Content-Range that makes no
# sense: object_store's words for these. Stores that know no suffix ranges answer likewise, or 501.
NO_SUFFIX = re.compile("non-partial response|CONTENT_RANGE|InvalidRange|NotImplemented")
_ODD = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]")
_EDGES = ("", "/", ".")
_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")
_LENGTH = re.compile(r"[0-9]{1,19}")  # int() refuses thousands of digits
_WHOLE = re.compile(r"/([0-9]{1,19})\Z")


def is_odd(key: str) -> bool:
    """Return whether obstore would refuse or change `key`."""
    # Few keys need the regular expression, which takes five times as long.
    if key.isprintable() and "//" not in key and "/." not in key and key[:1] not in _EDGES:
        return key.endswith("/")
    return _ODD.search(key) is not None


def _chunks_of(answer: GetResult) -> Iterator[Buffer]:
    """Return a body as it comes: obstore loses what came of a larger chunk before a fault."""
    return map(memoryview, answer.stream(min_chunk_size=1))


def _until_break(chunks: Iterator[Buffer], call: Call) -> Iterator[Buffer]:
    """Yield the chunks of a body; after the first one an error is a fault that can be resumed."""
    size = 0
    try:
        for chunk in chunks:
            size += len(chunk)
            yield chunk
    except s3_errors():
        if not size:
            raise
        raise errors.ServiceFaultError(f"{call}: the body broke after {size:,} bytes") from None


class S3Source(ArchiveSource):
    """Reads archives of any bucket the session can see."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin.

        It takes one request. A store without suffix ranges gets three, or two for an empty archive.
        """
        call = Call("GetObject", location.bucket, location.key)
        if is_odd(location.key):
            return super().tail(location, length)
        try:
            store = self._session.reader(location.bucket)
            answer = obstore.get(store, location.key, options={"range": {"suffix": length}})
            data = read_until_fault(_until_break(_chunks_of(answer), call))
        except s3_errors() as error:
            if read_answer(error).status not in {416, 501} and not NO_SUFFIX.search(str(error)):
                raise self._session.understand(error, call) from None
            tail = super().tail(location, length)
            if tail.pin.size:
                count_request("get")
            return tail
        tail = self._described(call, answer.meta)
        missing = min(length, tail.pin.size) - len(data)
        if missing < 0:
            raise errors.ServiceFaultError(f"{call}: more than the last {length:,} bytes came")
        return tail._replace(data=data, missing=missing)

    def stat(self, location: Location) -> Tail:
        """Return what is there now, as a tail without bytes."""
        call = Call("GetObject", location.bucket, location.key)
        if not is_odd(location.key):
            with self._session.explaining(call):
                store = self._session.reader(location.bucket)
                meta = obstore.get(store, location.key, options={"head": True}).meta
            return self._described(call, meta)
        with self._session.explaining(call):
            answer = self._session.control.head_object(Bucket=location.bucket, Key=location.key)
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        version = self._version(answer.get("VersionId"))
        size = content_length(call, headers)
        modified = header_date(headers)
        pin = make_pin(call, size, answer.get("ETag"), date=modified, version=version)
        tail = Tail(b"", pin)
        if modified is None:
            return tail
        return tail._replace(modified=modified.timestamp())

    def _described(self, call: Call, meta: ObjectMeta) -> Tail:
        """Return the pin and the date that obstore has of an object, as a tail without bytes."""
        date = meta["last_modified"]  # that of the epoch where the answer has none
        modified = date.timestamp() or None
        version = self._version(meta["version"])
        known_date = date if modified else None
        pin = make_pin(call, meta["size"], meta["e_tag"], date=known_date, version=version)
        return Tail(b"", pin, modified)

    def open(self, location: Location, pin: Pin) -> S3Archive:
        """Return a reader of exactly that version."""
        return S3Archive(self._session, location, pin)

    def delete(self, location: Location, pin: Pin) -> None:
        """Delete the version; nothing happens if it is gone."""
        version, request = _identify(location, pin)
        if version is None and (pin.etag is None or date_of(pin) is not None):
            raise errors.StorageError(
                f"{location}: the store gives neither versions nor ETags, so a newer archive could "
                "be taken for the one that was extracted"
            )
        newer = f"{location}: a newer archive is there"
        current = self._find(location, request)
        if current is None:
            return
        action = "DeleteObjectVersion"
        if version is None:
            if current.get("ETag") != pin.etag:
                raise errors.SourceChangedError(newer)
            action = "DeleteObject"
            request["IfMatch"] = pin.etag
        call = Call(action, location.bucket, location.key, conditional=True)
        count_request("delete")
        try:
            with self._session.explaining(call):
                self._session.control.delete_object(**request)
        except errors.NotFoundError:  # another attempt was quicker
            return
        except errors.ConflictError as refusal:
            raise errors.SourceChangedError(newer) from refusal

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:
        """Add `tags` to those of the version."""
        version, request = _identify(location, pin)
        if version is None:
            raise errors.StorageError(
                f"{location}: S3 cannot tag one version in a bucket without versioning: turn "
                "versioning on, or delete the archive"
            )
        if self._find(location, request) is None:
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
            self._session.control.put_object_tagging(**request)

    def tags(self, location: Location, pin: Pin) -> dict[str, str]:
        """Return the tags of the version."""
        version, request = _identify(location, pin)
        action = "GetObjectTagging" if version is None else "GetObjectVersionTagging"
        call = Call(action, location.bucket, location.key, pinned=True)
        with self._session.explaining(call):
            answer = self._session.control.get_object_tagging(**request)
        return {tag.get("Key", ""): tag.get("Value", "") for tag in answer.get("TagSet", ())}

    def _find(self, location: Location, request: dict[str, Any]) -> HeadObjectOutputTypeDef | None:
        """Return the answer to a HEAD of the version; None if nothing is there."""
        action = get_action(request.get("VersionId"))
        with (
            suppress(errors.NotFoundError),
            self._session.explaining(Call(action, location.bucket, location.key)),
        ):
            return self._session.control.head_object(**request)
        return None

    def _version(self, version: str | None) -> str | None:
        """Return the version to ask for; None: the ETag alone pins the archive.

        A GET that names a version needs s3:GetObjectVersion (API_GetObject). Policies of public
        buckets allow s3:GetObject only.
        """
        if self._session.access.unsigned:
            return None
        return version


class S3Archive:
    """One version of one archive; threads may share it."""

    def __init__(self, session: Session, location: Location, pin: Pin) -> None:
        self._session = session
        self._pin = pin
        self._bucket = location.bucket
        self._key = location.key
        self._odd = is_odd(location.key)

    def _version(self) -> str | None:
        """Return the version that a request names; None: the ETag alone pins the archive.

        Call it once for each request, and explain the request's errors with the same value: another
        thread may learn meanwhile that the credentials may not read versions.
        """
        return self._session.readable_version(self._bucket, self._pin)

    def _call(self, version: str | None) -> Call:
        return Call(get_action(version), self._bucket, self._key, pinned=True)

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` as they come, with one request."""
        if not want.length:
            return
        version = self._version()
        call = self._call(version)
        came = 0
        try:
            for chunk in _until_break(self._chunks(want, version), call):
                came += len(chunk)
                yield chunk
        except s3_errors() as error:
            raise self._session.understand(error, call) from None
        _check_length(call, came, want)

    def _chunks(self, want: ByteRange, version: str | None) -> Iterator[Buffer]:
        """Yield the bytes of `want` as they come; botocore reads those of odd keys."""
        if not self._odd:
            yield from _chunks_of(self._get(want, version))
            return
        request: dict[str, Any] = {"Bucket": self._bucket, "Key": self._key}
        request["Range"] = f"bytes={want.start}-{want.stop - 1}"
        if self._pin.etag is not None and date_of(self._pin) is None:
            request["IfMatch"] = self._pin.etag
        if version is not None:
            request["VersionId"] = version
        answer = self._session.bodies.get_object(**request)
        date = header_date(answer["ResponseMetadata"]["HTTPHeaders"])
        whole = _WHOLE.search(answer.get("ContentRange", ""))
        size = None
        if whole is not None:
            size = int(whole[1])
        check_answer(self._call(version), self._pin, size, date)
        from s3unzip.stores.s3.clients import read_pieces

        yield from read_pieces(answer)

    def _get(self, want: ByteRange, version: str | None) -> GetResult:
        """Return obstore's answer, which is of the pinned version."""
        options: GetOptions = {"range": (want.start, want.stop)}
        if self._pin.etag is not None and date_of(self._pin) is None:
            options["if_match"] = self._pin.etag
        if version is not None:
            options["version"] = version
        answer = obstore.get(self._session.reader(self._bucket), self._key, options=options)
        meta = answer.meta
        check_answer(self._call(version), self._pin, meta["size"], meta["last_modified"])
        return answer


def _check_length(call: Call, came: int, want: ByteRange) -> None:
    if came != want.length:
        raise errors.ServiceFaultError(
            f"{call}: {came:,} bytes came, not {want.length:,} from {want.start:,}"
        )


def make_pin(
    call: Call, size: int, etag: str | None, *, date: datetime | None, version: str | None
) -> Pin:
    """Return the pin of what a store described."""
    if not (etag or date or version):
        raise errors.StorageError(
            f"{call}: the store gives neither an ETag nor a version nor a date, so a change in the "
            f"midst of a run could not be seen; copy the archive elsewhere"
        )
    if not etag and date is not None:
        from email.utils import format_datetime

        etag = format_datetime(date, usegmt=True)
    return Pin(size, etag or None, version)


def date_of(pin: Pin) -> datetime | None:
    """Return the date of a pin that has no ETag."""
    if pin.etag is None or not _DATE.fullmatch(pin.etag):
        return None
    return _parse_date(pin.etag)


def check_answer(call: Call, pin: Pin, size: int | None, date: datetime | None) -> None:
    """Check size and date of an answer where there is no ETag to ask for."""
    if date_of(pin) is not None and (size, date) != (pin.size, date_of(pin)):
        raise errors.SourceChangedError(f"{call}: the archive was overwritten since it was planned")


def content_length(call: Call, headers: Mapping[str, str]) -> int:
    """Return the length that the headers of an answer to HEAD give; hostile ones may not."""
    length = headers.get("content-length", "")
    if not _LENGTH.fullmatch(length):
        raise errors.ServiceFaultError(f"{call}: the answer to HEAD has no Content-Length")
    return int(length)


def header_date(headers: Mapping[str, str]) -> datetime | None:
    """Return the date of the last change that an answer's headers give."""
    text = headers.get("last-modified", "")
    if not _DATE.fullmatch(text):
        return None
    return _parse_date(text)


def _parse_date(text: str) -> datetime:
    """Return the time of a date of HTTP."""
    from email.utils import parsedate_to_datetime

    return parsedate_to_datetime(text)


def _identify(location: Location, pin: Pin) -> tuple[str | None, dict[str, Any]]:
    """Return the version id, and the parameters of a request about that version.

    The id is None in a bucket without versioning: a later PUT replaces the object.
    """
    request = {"Bucket": location.bucket, "Key": location.key}
    if pin.version_id in {None, NO_VERSION}:
        return None, request
    return pin.version_id, request | {"VersionId": pin.version_id}
