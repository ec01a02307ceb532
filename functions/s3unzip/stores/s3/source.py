"""Archives in S3: ranges of one pinned version, each range with the pin on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore

from s3unzip.errors import ServiceFaultError
from s3unzip.stores.calls import count_request
from s3unzip.stores.ports import Tail
from s3unzip.stores.s3 import boto_fallback as odd_keys
from s3unzip.stores.s3.answers import S3_ERRORS, Call, read_answer
from s3unzip.stores.s3.pins import check_answer, conditions, header_date, make_pin, whole_size
from s3unzip.zip import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore import GetOptions, GetResult

    from s3unzip.model import Location, Pin
    from s3unzip.stores.ports import Buffer
    from s3unzip.stores.s3.session import Session

PIECE = 1024**2  # bytes of a streamed piece, at least
# S3 answers 416 to a suffix of an empty object, emulators 200 or a Content-Range that makes no
# sense: object_store's words for these. Stores that know no suffix ranges answer likewise, or 501.
NO_SUFFIX = ("non-partial response", "CONTENT_RANGE")
NO_SUFFIX_STATUS = frozenset({416, 501})
NO_SUFFIX_CODES = frozenset({"InvalidRange", "NotImplemented"})


class S3Source:
    """Reads archives of any bucket the session can see."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def tail(self, location: Location, length: int) -> Tail:
        """Return the last `length` bytes and the pin.

        With one request; with three where the store knows no suffix ranges, two of an empty one.
        """
        call = Call("GetObject", location.bucket, location.key)
        if odd_keys.is_odd(location.key):
            count_request("head")
            return self._tail_by_size(location, length)
        try:
            store = self._session.reader(location.bucket)
            answer = obstore.get(store, location.key, options={"range": {"suffix": length}})
            data = answer.bytes().to_bytes()
        except S3_ERRORS as error:
            if _knows_no_suffix(error):
                count_request("head")
                tail = self._tail_by_size(location, length)
                if tail.data:
                    count_request("get")
                return tail
            raise self._session.understand(error, call) from None
        meta = answer.meta
        version = self._version(meta["version"])
        pin = make_pin(call, meta["size"], meta["e_tag"], meta["last_modified"], version)
        if len(data) != min(length, pin.size):
            raise ServiceFaultError(f"{call}: {len(data)} of the last {length} bytes came")
        return Tail(data, pin, meta["last_modified"].timestamp())

    def head(self, location: Location) -> Pin:
        """Return what is there now."""
        call = Call("GetObject", location.bucket, location.key)
        try:
            answer = self._session.control.head_object(Bucket=location.bucket, Key=location.key)
        except S3_ERRORS as error:
            raise self._session.understand(error, call) from None
        date = header_date(answer["ResponseMetadata"]["HTTPHeaders"])
        version = self._version(answer.get("VersionId"))
        return make_pin(call, answer["ContentLength"], answer.get("ETag"), date, version)

    def pinned(self, location: Location, pin: Pin) -> S3Archive:
        """Return a reader of exactly that version."""
        return S3Archive(self._session, location, pin)

    def _version(self, told: str | None) -> str | None:
        """Return the version to ask for; None: the ETag alone pins the archive.

        A GET that names a version needs s3:GetObjectVersion (API_GetObject). Policies of public
        buckets allow s3:GetObject only.
        """
        return None if self._session.access.unsigned else told

    def _tail_by_size(self, location: Location, length: int) -> Tail:
        """Ask for the size first, then for a range of it."""
        pin = self.head(location)
        want = ByteRange(max(0, pin.size - length), pin.size)
        return Tail(self.pinned(location, pin).read(want), pin)


class S3Archive:
    """One version of one archive; threads may share it."""

    def __init__(self, session: Session, location: Location, pin: Pin) -> None:
        self._session = session
        self._bucket = location.bucket
        self._key = location.key
        self._pin = pin
        self._odd = odd_keys.is_odd(location.key)
        action = "GetObject" if pin.version_id is None else "GetObjectVersion"
        self._call = Call(action, location.bucket, location.key, pinned=True)

    def read(self, want: ByteRange) -> bytes:
        """Return exactly the bytes of `want`, with one request."""
        if not want.length:
            return b""
        if self._odd:
            return b"".join(self.stream(want))
        try:
            data = self._get(want).bytes().to_bytes()
        except S3_ERRORS as error:
            raise self._session.understand(error, self._call) from None
        self._check(len(data), want)
        return data

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of `want` in pieces of about a MiB, with one request."""
        if not want.length:
            return
        came = 0
        try:
            for piece in self._pieces(want):
                came += len(piece)
                yield piece
        except S3_ERRORS as error:
            if came:
                raise ServiceFaultError(
                    f"{self._call}: the body broke after {came:,} of {want.length:,} bytes"
                ) from None
            raise self._session.understand(error, self._call) from None
        self._check(came, want)

    def _pieces(self, want: ByteRange) -> Iterator[Buffer]:
        if self._odd:
            span = f"bytes={want.start}-{want.stop - 1}"
            answer = odd_keys.get_range(
                self._session.slow, self._bucket, self._key, span, self._pin
            )
            date = header_date(answer["ResponseMetadata"]["HTTPHeaders"])
            size = whole_size(answer.get("ContentRange", ""))
            check_answer(self._call, self._pin, size, date)
            yield from odd_keys.pieces(answer)
            return
        for piece in self._get(want).stream(min_chunk_size=PIECE):
            yield memoryview(piece)

    def _get(self, want: ByteRange) -> GetResult:
        options: GetOptions = {"range": (want.start, want.stop), **conditions(self._pin)}
        answer = obstore.get(self._session.reader(self._bucket), self._key, options=options)
        meta = answer.meta
        check_answer(self._call, self._pin, meta["size"], meta["last_modified"])
        return answer

    def _check(self, came: int, want: ByteRange) -> None:
        if came != want.length:
            raise ServiceFaultError(
                f"{self._call}: {came:,} bytes came, not {want.length:,} from {want.start:,}"
            )


def _knows_no_suffix(error: Exception) -> bool:
    answer = read_answer(error)
    return (
        answer.status in NO_SUFFIX_STATUS
        or answer.code in NO_SUFFIX_CODES
        or any(words in str(error) for words in NO_SUFFIX)
    )
